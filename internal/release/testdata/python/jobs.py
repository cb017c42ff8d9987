"""Functions and scripts of the tests of launch."""

import os
import signal
import sys
import time


class Odd(Exception):
    """Cannot be unpickled: __init__ wants two arguments."""

    def __init__(self, a, b):
        super().__init__("odd %s %s" % (a, b))


class Here(Exception):
    """Can be unpickled."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


def rank(base, step=1):
    return base + step * int(os.environ["RANK"])


def environment(name):
    return os.environ.get(name), os.getcwd(), sys.executable, sys.argv[0]


def raises(kind):
    if os.environ["RANK"] == "1":
        if kind == "odd":
            raise Odd("a", "b")
        raise Here(7)
    signal.pause()


def unpicklable():
    return lambda: 0


def exits(code):
    if code == "at once":
        os._exit(0)
    sys.exit(code)


def second_try():
    """Fails in the first round, whose other worker may have returned."""
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if attempt == 0 and os.environ["RANK"] == "1":
        raise ValueError("first")
    return attempt


def inner():
    def local():
        pass

    return local


decorated = [inner()][0]
anonymous = lambda: 0  # noqa: E731


class Holder:
    def method(self):
        pass

    @staticmethod
    def static(x):
        return x


def waits():
    """Waits for a signal."""
    if os.environ["RANK"] == "0":
        signal.signal(signal.SIGINT, ended)
        signal.signal(signal.SIGTERM, ended)
    print("ready", flush=True)
    while True:
        time.sleep(0.05)  # signal.pause() would miss a signal that comes just before it


def ended(number, frame):
    print("ended by", signal.Signals(number).name, flush=True)
    sys.exit(1)


def reduce(base):
    """Returns the sum over all workers."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    value = torch.tensor([float(base + dist.get_rank())])
    dist.all_reduce(value)
    dist.destroy_process_group()
    return value.item()


def waits_with_pid():
    print(os.getpid(), flush=True)
    signal.pause()
