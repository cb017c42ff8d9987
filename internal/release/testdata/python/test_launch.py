"""Tests of launch: a folder with the package and its binary is on PYTHONPATH."""

import ast
import contextlib
import functools
import glob
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

import elasticrun
import jobs

SETTINGS = {"nproc_per_node": 2, "log_level": "error"}


@contextlib.contextmanager
def captured():
    """Replaces stdout and stderr by streams without a file descriptor, as notebooks do."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def quiet(*args, **kwargs):
    with captured():
        return elasticrun.launch(*args, **dict(SETTINGS, **kwargs))


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ["TMPDIR"])

    def script(self, text, name="train.py"):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))
        return path

    def fails(self, *args, **kwargs):
        with self.assertRaises(elasticrun.LaunchError) as raised:
            quiet(*args, **kwargs)
        return raised.exception


class Scripts(Folder):
    def test_output_appears_where_that_of_the_process_does(self):
        path = self.script("import sys; print('out', *sys.argv[1:]); print('err \u00e4', file=sys.stderr)")
        with captured() as (out, err):
            result = elasticrun.launch(path, ["--lr", 0.5], **SETTINGS)
        self.assertEqual(out.getvalue(), "out --lr 0.5\n" * 2)
        self.assertIn("err \u00e4\nerr \u00e4\n", err.getvalue())
        self.assertEqual((result.reason, result.restarts), ("success", 0))
        self.assertRegex(repr(result), r"^Result\(reason='success', restarts=0, duration=\d+\.\d\)$")
        program = "import elasticrun; print('first'); elasticrun.launch(%r, log_level='error'); print('last')" % path
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout.decode(), "first\nout\nlast\n")

    def test_stream_that_fails_stops_the_job(self):
        class Full(io.StringIO):
            def write(self, text):
                raise OSError("no room")

        path = self.script("import signal; print('x', flush=True); signal.pause()")
        with self.assertRaisesRegex(OSError, "no room"), contextlib.redirect_stdout(Full()):
            with contextlib.redirect_stderr(io.StringIO()):
                elasticrun.launch(path, **SETTINGS)

    def test_environment(self):
        path = self.script("import os, sys; print(os.environ['COLOR'], os.getcwd(), sys.flags.isolated)")
        python = self.script("#!/bin/sh\nexec %s -I \"$@\"\n" % sys.executable, "isolated")
        os.chmod(python, 0o700)
        with captured() as (out, _):
            elasticrun.launch("train.py", cwd=self.folder, env={"COLOR": "red"}, python=python)
        self.assertEqual(out.getvalue(), "red %s 1\n" % self.folder)

    def test_failures(self):
        for name, text, flags, want in (
            ("exception", "raise ValueError('no data')", {}, (1, "worker_failed", "ValueError: no data")),
            ("exit code", "raise SystemExit(3)", {}, (3, "worker_failed", "exited with code 3")),
            ("killed", "import os; os.kill(os.getpid(), 9)", {}, (137, "worker_killed", "killed by signal 9 (SIGKILL)")),
            ("a failure is none to a scheduler", "raise SystemExit(3)", {"exit_code_map": {3: 0}},
             (0, "worker_failed", "exited with code 3")),
            ("bad value", "", {"nnodes": "4:2"}, (2, "usage", "--nnodes=4:2")),
        ):
            with self.subTest(name):
                error = self.fails(self.script(text), **flags)
                self.assertEqual((error.exit_code, error.reason), want[:2])
                self.assertIn(want[2], error.summary)
                self.assertIn(error.summary, str(error))
                self.assertEqual(error.report["reason"], want[1])
                if name == "exception":
                    self.assertIn("Traceback", error.text)
                    self.assertIn("(worker_failed): rank ", str(error))
                again = pickle.loads(pickle.dumps(error))
                self.assertEqual((str(again), again.__dict__), (str(error), error.__dict__))
        error = self.fails(os.path.join(self.folder, "missing.py"))
        self.assertEqual((error.exit_code, error.reason), (2, "usage"))
        self.assertIn("missing.py", error.summary)

    def test_report_of_ones_own(self):
        path = os.path.join(self.folder, "report.json")
        quiet(self.script(""), report=path)
        with open(path) as f:
            self.assertEqual(json.load(f)["reason"], "success")

    def test_nothing_of_the_caller_reaches_workers(self):
        path = self.script("import os; print([n for n in os.environ if 'CALLER' in n])")
        with captured() as (out, _):
            elasticrun.launch(path, preflight_cmd="env | grep ELASTICRUN_CALLER && exit 1; true", log_level="error")
        self.assertEqual(out.getvalue(), "[]\n")

    def test_dry_run(self):
        with captured() as (out, _):
            result = elasticrun.launch(self.script("print('ran')"), dry_run=True)
        self.assertEqual(result.reason, "dry_run")
        self.assertNotIn("\nran", out.getvalue())

    def test_flags_that_are_left_out(self):
        quiet(self.script(""), standalone=None, module=False, min_uptime="0s", monitor_interval=0.5)


class Functions(Folder):
    def test_values(self):
        self.assertEqual(quiet(jobs.rank, (5,)), {0: 5, 1: 6})
        self.assertEqual(quiet(jobs.rank, [5], kwargs={"step": 10}, virtual_local_rank=True), {0: 5, 1: 15})
        self.assertEqual(quiet(jobs.Holder.static, ({"a": [1]},)), {0: {"a": [1]}, 1: {"a": [1]}})
        got = quiet(jobs.environment, ("COLOR",), env={"COLOR": "red"}, cwd=self.folder, nproc_per_node=1)
        self.assertEqual(got, {0: ("red", self.folder, sys.executable, sys.argv[0])})

    def test_values_of_the_last_round(self):
        self.assertEqual(quiet(jobs.second_try, max_restarts=1, min_uptime=0), {0: 1, 1: 1})

    def test_exits(self):
        self.assertEqual(quiet(jobs.exits, (0,)), {0: None, 1: None})
        self.assertEqual(self.fails(jobs.exits, (4,)).exit_code, 4)
        error = self.fails(jobs.exits, ("at once",))
        self.assertEqual((error.exit_code, error.reason), (0, "no_value"))
        self.assertIn("rank 0 exited with 0 before its function returned", str(error))

    def test_exceptions(self):
        error = self.fails(jobs.raises, ("here",))
        self.assertEqual((error.exit_code, error.reason, error.summary), (1, "worker_failed", "jobs.Here: 7"))
        self.assertIn("in raises\n    raise Here(7)\n", error.text)
        self.assertNotIn("_worker", error.text)
        self.assertIsInstance(error.__cause__, jobs.Here)
        self.assertEqual(error.__cause__.code, 7)
        self.assertIsInstance(error.__cause__.__cause__, elasticrun.RemoteError)
        self.assertIn("in raises\n    raise Here(7)\n", str(error.__cause__.__cause__))
        error = self.fails(jobs.raises, ("odd",))
        self.assertIsInstance(error.__cause__, elasticrun.RemoteError)
        self.assertIn("Odd: odd a b", error.__cause__.traceback)
        error = self.fails(jobs.unpicklable)
        self.assertIn("the return value of unpicklable cannot be pickled", error.summary)

    def test_values_that_cannot_be_read_here(self):
        with open(os.path.join(self.folder, "elsewhere.py"), "w") as f:
            f.write("import sys\nclass Away: pass\ndef make():\n    return Away()\n")
        sys.path.insert(0, self.folder)
        import elsewhere

        sys.path.pop(0)
        del elsewhere.Away
        sys.path.append(self.folder)
        error = self.fails(elsewhere.make)
        sys.path.pop()
        self.assertEqual((error.exit_code, error.reason), (0, "no_value"))
        self.assertIn("the return value of rank 0 cannot be read here: AttributeError", str(error))

    def test_files_are_private_and_temporary(self):
        before = set(os.listdir(os.environ["TMPDIR"]))
        modes = quiet(modes_of_files)[0]
        self.assertEqual(modes, (0o700, 0o600))
        left = set(os.listdir(os.environ["TMPDIR"])) - before
        self.assertFalse([name for name in left if name.startswith("elasticrun-")])


def modes_of_files():
    # The worker's script is __main__ no longer, since this function's module is.
    folder = glob.glob(os.path.join(os.environ["TMPDIR"], "elasticrun-*"))[0]
    return os.stat(folder).st_mode & 0o777, os.stat(os.path.join(folder, "call")).st_mode & 0o777


class Refused(Folder):
    def test_arguments(self):
        script = self.script("print('started')")
        partial = functools.partial(jobs.rank, 1)
        for target, args, kwargs, want in (
            (script, (), {"nprocs_per_node": 2}, r"unexpected keyword argument 'nprocs_per_node'; the nearest flag is nproc_per_node$"),
            (script, (), {"nprocs": 2}, r"'nprocs'; the nearest flag is nproc_per_node$"),
            (script, (), {"zzzzzzzz": 2}, r"'zzzzzzzz'; elasticrun --help lists the flags$"),
            (script, (), {"help": True}, r"unexpected keyword argument 'help'"),
            (script, (), {"standalone": 1}, r"standalone must be True, False or None, not 1$"),
            (script, (), {"max_restarts": True}, r"max_restarts must be text or a number, not True$"),
            (script, (), {"local_ranks_filter": [0]}, r"local_ranks_filter must be text or a number, not \[0\]$"),
            (script, "--lr 1", {}, r"args must be a list of arguments, not one text: use args=\['--lr', '1'\]$"),
            (script, 3, {}, r"args must be a list of arguments, not 3$"),
            (script, [None], {}, r"each argument of a script must be text or a number, not None$"),
            (script, (), {"kwargs": {"a": 1}}, r"kwargs are for functions"),
            (5, (), {}, r"target must be the path of a script or a function, not 5$"),
            (jobs.rank, (1,), {"module": True}, r"module is for scripts"),
            (jobs.rank, "abc", {}, r"args must be a tuple of the function's arguments, not 'abc'$"),
            (jobs.rank, 3, {}, r"args must be a tuple of the function's arguments, not 3$"),
            (jobs.rank, (), {}, r"rank: missing a required argument: 'base'$"),
            (jobs.rank, (1, 2, 3), {}, r"rank: too many positional arguments$"),
            (jobs.rank, (1,), {"kwargs": {"stride": 2}}, r"rank: got an unexpected keyword argument 'stride'$"),
            (jobs.rank, (1, lambda: 0), {}, r"argument 1 cannot be pickled"),
            (jobs.rank, (1,), {"kwargs": {"step": lambda: 0}}, r"argument step cannot be pickled"),
            (jobs.anonymous, (), {}, r"workers cannot import <lambda> of jobs: define it at the top of a module$"),
            (jobs.decorated, (), {}, r"workers cannot import inner.<locals>.local of jobs"),
            (jobs.Holder().method, (), {}, r"is no function of a module: give a function, and the rest in args$"),
            (partial, (), {}, r"is no function of a module"),
        ):
            with self.subTest(want), captured() as (out, err):
                with self.assertRaisesRegex(TypeError, want):
                    elasticrun.launch(target, args, **kwargs)
                self.assertEqual(out.getvalue() + err.getvalue(), "")

    def test_missing_interpreter(self):
        for python in "/nosuch/python3", "nosuch-python3":
            with captured() as (out, err):
                with self.assertRaisesRegex(ValueError, r"launch\(\): python='%s': there is no such program$" % python):
                    elasticrun.launch(jobs.rank, (1,), python=python)
                self.assertEqual(out.getvalue() + err.getvalue(), "")

    def run_main(self, program, stdin=None):
        """Runs a script as __main__, or standard input, as a notebook's cells do."""
        command = [sys.executable, "-"] if stdin else [sys.executable, self.script(program, "main.py")]
        done = subprocess.run(command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        return done.returncode, done.stdout, done.stderr

    def test_functions_of_a_script(self):
        program = """
            import os
            import elasticrun

            class Point:
                def __init__(self, x):
                    self.x = x

            def add(point):
                return Point(point.x + int(os.environ["RANK"]))

            if __name__ == "__main__":
                got = elasticrun.launch(add, (Point(3),), nproc_per_node=2, log_level="error")
                print({rank: (type(p) is Point, p.x) for rank, p in got.items()})
        """
        self.assertEqual(self.run_main(program)[:2], (0, "{0: (True, 3), 1: (True, 4)}\n"))
        unguarded = "import elasticrun\ndef f(): pass\nelasticrun.launch(f, log_level='error')\n"
        code, _, err = self.run_main(unguarded)
        self.assertEqual(code, 1)
        self.assertIn("put the call under if __name__ == '__main__':", err)

    def test_functions_of_an_interactive_session(self):
        code, out, err = self.run_main(None, "import elasticrun\ndef f(): pass\nelasticrun.launch(f)\n")
        self.assertEqual((code, out), (1, ""))
        self.assertIn(
            "TypeError: launch(): f is defined in a notebook or an interactive session, where workers cannot import it: "
            "write it to a file, for example with %%writefile train.py, and import it from there\n",
            err,
        )
        session = "import elasticrun, jobs\nclass C: pass\nelasticrun.launch(jobs.rank, (C(),))\n"
        code, out, err = self.run_main(None, session)
        self.assertEqual((code, out), (1, ""))
        self.assertIn("TypeError: launch(): argument 0 cannot be pickled: C is defined in a notebook", err)


class Endings(Folder):
    """The caller is a process of its own, in a process group of its own like a terminal's."""

    def setUp(self):
        super().setUp()
        program = """
            import elasticrun, jobs
            try:
                elasticrun.launch(jobs.waits, nproc_per_node=2, log_level="error")
            finally:
                print("returned", flush=True)
        """
        self.caller = subprocess.Popen(
            [sys.executable, self.script(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, universal_newlines=True,
        )  # fmt: skip
        self.addCleanup(self.kill)
        for _ in range(2):
            self.assertEqual(self.caller.stdout.readline(), "ready\n")

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.caller.pid, signal.SIGKILL)
        self.caller.communicate()

    def end(self):
        """Waits until every process that has the output open has ended."""
        out, err = self.caller.communicate(timeout=60)
        return out.splitlines(), err.splitlines()

    def test_terminal_interrupts_all(self):
        os.killpg(self.caller.pid, signal.SIGINT)
        out, err = self.end()
        self.assertEqual(out, ["ended by SIGINT", "returned"])
        self.assertIn("elasticrun: exit_code=130 reason=signal", err)
        self.assertEqual(err[-1], "KeyboardInterrupt")
        self.assertEqual(self.caller.returncode, -signal.SIGINT)

    def test_interrupted_alone(self):
        self.caller.send_signal(signal.SIGINT)
        out, err = self.end()
        self.assertEqual(out, ["ended by SIGTERM", "returned"])
        self.assertEqual(err[-1], "KeyboardInterrupt")

    @unittest.skipUnless(sys.platform == "linux", "only Linux can signal the end of a parent")
    def test_killed(self):
        self.caller.kill()
        out, _ = self.end()
        self.assertEqual(out, ["ended by SIGTERM"])


class Package(unittest.TestCase):
    def test_import_is_quick(self):
        code = "import sys; old = set(sys.modules); import elasticrun; print(*sorted(set(sys.modules) - old))"
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        names = [n for n in done.stdout.decode().split() if n not in ("__future__",) and not n.startswith("elasticrun")]
        self.assertEqual(names, [], "modules that import elasticrun loads")

    def test_syntax_of_python_3_8(self):
        folder = os.path.dirname(elasticrun.__file__)
        for path in glob.glob(os.path.join(folder, "*.py")):
            with open(path) as f:
                ast.parse(f.read(), path, feature_version=(3, 8))
        self.assertTrue(os.path.exists(os.path.join(folder, "py.typed")))

    def test_missing_binary(self):
        from elasticrun import _binary

        with self.assertRaisesRegex(FileNotFoundError, "reinstall the package"):
            old, _binary.__file__ = _binary.__file__, "/none/elasticrun/_binary.py"
            try:
                _binary.binary()
            finally:
                _binary.__file__ = old


if __name__ == "__main__":
    unittest.main()
