"""launch in a Jupyter kernel: python notebook.py, with jupyter-client and ipykernel."""

import os
import select
import sys
import unittest

from jupyter_client.manager import start_new_kernel

WAITS = "import elasticrun, jobs\nelasticrun.launch(jobs.waits_with_pid, nproc_per_node=2, log_level='error')"


class Notebook(unittest.TestCase):
    def setUp(self):
        self.kernel, self.client = start_new_kernel(kernel_name="python3")
        self.addCleanup(self.kernel.shutdown_kernel, now=True)
        self.addCleanup(self.client.stop_channels)

    def messages(self):
        """Yields kind and content of the messages of the running cell."""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            content = message["content"]
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return
            if message["msg_type"] in ("stream", "error", "execute_result"):
                yield message["msg_type"], content

    def run_cell(self, code):
        """Returns the text on stdout, the result and the error of a cell."""
        self.client.execute(code)
        out, result, error = "", "", ""
        for kind, content in self.messages():
            if kind == "stream" and content["name"] == "stdout":
                out += content["text"]
            elif kind == "execute_result":
                result = content["data"]["text/plain"]
            elif kind == "error":
                error = content["ename"] + ": " + content["evalue"]
        return out, result, error

    def test_cells(self):
        self.run_cell("import os, elasticrun, jobs; open('t.py', 'w').write('print(\"worker\")')")
        out, result, _ = self.run_cell("elasticrun.launch('t.py', nproc_per_node=2)")
        self.assertEqual(out, "worker\nworker\n")
        self.assertRegex(result, r"^Result\(reason='success', restarts=0, duration=")
        self.assertEqual(self.run_cell("elasticrun.launch(jobs.rank, (5,), nproc_per_node=2)")[1], "{0: 5, 1: 6}")
        error = self.run_cell("def f(): pass\nelasticrun.launch(f)")[2]
        self.assertIn("TypeError: launch(): f is defined in a notebook or an interactive session", error)

    def start_waiting(self):
        """Starts workers that wait, and returns their pids."""
        self.client.execute(WAITS)
        out = ""
        for kind, content in self.messages():
            self.assertEqual(kind, "stream", content)
            out += content["text"]
            if out.count("\n") == 2:
                return [int(line) for line in out.split()]

    def test_interrupt(self):
        self.start_waiting()
        self.kernel.interrupt_kernel()
        errors = [content["ename"] for kind, content in self.messages() if kind == "error"]
        self.assertEqual(errors, ["KeyboardInterrupt"])
        self.assertEqual(self.run_cell("print(1)")[0], "1\n")

    def test_restart(self):
        workers = [os.pidfd_open(pid) for pid in self.start_waiting()]
        self.kernel.restart_kernel(now=True)
        for worker in workers:
            self.assertTrue(select.select([worker], [], [], 60)[0], "a worker of the old kernel is alive")
            os.close(worker)


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    unittest.main()
