"""Starts threads that wait in many ways, prints what Python itself says of them, and waits too."""

import asyncio
import json
import sys
import threading
import time

lock = threading.Lock()


class Trainer:
    def step(self):
        call = lambda n: self.all_reduce(n)
        return [call(n) for n in range(1)]

    def all_reduce(self, n):
        with lock:
            lock.acquire()  # waits

    @classmethod
    def evaluate(cls):
        def inner():
            return (
                1
                + time.sleep(1000)  # waits
            )

        return inner()

    class Nested:
        @staticmethod
        def spin():
            while True: pass  # waits


def batches():
    yield from files()


def files():
    for _ in range(1):
        yield time.sleep(1000)  # waits


async def serve():
    await handle()


async def handle():
    time.sleep(1000)  # waits


def recurse(n):
    if n == 0:
        time.sleep(1000)  # waits
    else:
        recurse(n - 1)


class Path(str):
    """Has its text elsewhere than a str."""


def prüfe_größe():
    exec(compile("\n\ndef 数据():\n  subclass()\n数据()", "<генератор>", "exec"), {"subclass": subclass})


def subclass():
    exec(compile("wait()", Path("<path>"), "exec"), {"wait": wait})


def wait():
    time.sleep(1000)  # waits


def name_thread(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as f:
        f.write(name)


def named(name, target):
    def run():
        name_thread(name)
        target()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def waits(frame):
    """Says whether a frame is at a line that ends with the mark."""
    with open(__file__, encoding="utf-8") as f:
        lines = f.read().split("\n")
    return frame.f_code.co_filename == __file__ and lines[frame.f_lineno - 1].endswith("# waits")


def stack(frame):
    frames = []
    while frame:
        code = frame.f_code
        frames.append({
            "File": code.co_filename,
            "Line": frame.f_lineno or 0,
            "Function": getattr(code, "co_qualname", code.co_name),
        })
        frame = frame.f_back
    return frames


def main():
    targets = {
        "deadlock": lambda: Trainer().step(),
        "sleep": Trainer.evaluate,
        "spin": Trainer.Nested.spin,
        "generator": lambda: list(batches()),
        "async": lambda: asyncio.run(serve()),
        "recursion": lambda: recurse(500),
        "unicode": prüfe_größe,
    }
    threads = {name: named(name, target) for name, target in targets.items()}
    expected = []
    for name, thread in threads.items():
        while not waits(sys._current_frames()[thread.ident]):
            time.sleep(0.001)
        frames = stack(sys._current_frames()[thread.ident])
        expected.append({"ID": thread.native_id, "Name": name, "Frames": frames})
    name_thread("main (1) x")
    text = json.dumps(expected)
    print(text, flush=True), sys.stdin.read()  # one line, so that the reader of the text finds this thread there


main()
