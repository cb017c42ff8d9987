"""Ranks that seem to hang for a while and then go on. Needs no torch.

    INNOCENT=NAME INNOCENT_SECONDS=S INNOCENT_SEED=N INNOCENT_BEFORE=B HANG_BEGUN=FIFO innocent.py

Each function is one kind. The ranks make steps for B seconds, while rank 0 prints a line for each second. Then they
call the function, make some more steps and exit with 0. The seed chooses the rank that is the slow one, and details.
Only what a function does for S seconds differs from plain.py.
"""

import functools
import hashlib
import itertools
import mmap
import multiprocessing
import operator
import os
import pdb
import random
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib

import plain

BEFORE = float(os.environ.get("INNOCENT_BEFORE", "1"))
SECONDS = float(os.environ.get("INNOCENT_SECONDS", "8"))
RANDOM = random.Random(int(os.environ.get("INNOCENT_SEED", "0")))  # the same numbers on all ranks


def until_over():
    """Yields until the time is over."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield


def one_rank(function):
    """Makes a function that one rank calls, while the others wait for it in a barrier."""
    def call(mesh):
        chosen = RANDOM.randrange(mesh.world)
        if mesh.rank == chosen:
            function(mesh)
        mesh.barrier()
    return call


@one_rank
def compiles(mesh):
    """A child compiles, and the rank waits for it."""
    compiler = shutil.which("gcc") if RANDOM.random() < 0.5 else None
    if compiler is None:
        spin = f"import time; end = time.monotonic() + {SECONDS}\nwhile time.monotonic() < end: pass"
        nested = f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {spin!r}])"
        subprocess.run([sys.executable, "-c", nested], check=True)
        return
    lines = ["#include <math.h>"]
    lines += [f"double f{i}(double x) {{ return sin(x) * {i} + pow(x, {i % 7}); }}" for i in range(100)]
    for _ in until_over():
        subprocess.run([compiler, "-O2", "-x", "c", "-c", "-o", "/dev/null", "-"],
                       input="\n".join(lines).encode(), check=True)


def print_slowly():
    """Prints four times."""
    for _ in range(4):
        time.sleep(SECONDS / 4)
        print("epoch", flush=True)


@one_rank
def thread_prints(mesh):
    """A thread works and prints, and the main thread waits for it."""
    thread = threading.Thread(target=print_slowly)
    thread.start()
    thread.join()


@one_rank
def process_prints(mesh):
    """A process works and prints, and the rank waits for it."""
    process = multiprocessing.get_context("fork").Process(target=print_slowly)
    process.start()
    process.join()


def burst(_):
    """Computes for a while, and then waits."""
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        sum(range(1000))
    time.sleep(4.5)


@one_rank
def pool_in_bursts(mesh):
    """A pool works with pauses, and the rank waits for it."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(burst, range(int(SECONDS / 6)))


@one_rank
def checkpoint(mesh):
    """Writes a long checkpoint slowly."""
    with tempfile.TemporaryFile() as file:
        for _ in until_over():
            file.write(os.urandom(1 << 16))
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.05)


def evaluation(mesh):
    """Rank 0 evaluates."""
    if mesh.rank == 0:
        for _ in until_over():
            sorted(range(10000), key=lambda x: -x)
    mesh.barrier()


@one_rank
def download(mesh):
    """Bytes trickle in from a server."""
    interval = RANDOM.choice([0.01, 0.1, 0.5])
    serve = (f"import socket, time\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\n"
             f"c, _ = s.accept()\nend = time.monotonic() + {SECONDS}\n"
             f"while time.monotonic() < end: c.send(b'x'); time.sleep({interval})\n")
    with subprocess.Popen([sys.executable, "-c", serve], stdout=subprocess.PIPE) as server:
        with socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as client:
            while client.recv(1):
                pass


@one_rank
def receives(mesh):
    """Data arrives in one buffer, so that neither files nor memory show it."""
    send = ("import socket, sys, time\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            f"end = time.monotonic() + {SECONDS}\n"
            "while time.monotonic() < end: s.sendall(bytes(1 << 15)); time.sleep(0.05)\n")
    listener, buffer = socket.create_server(("127.0.0.1", 0)), bytearray(1 << 20)
    with subprocess.Popen([sys.executable, "-c", send, str(listener.getsockname()[1])]):
        connection = listener.accept()[0]
        while connection.recv_into(buffer):
            pass


def first_step(mesh):
    """Every rank prepares before the first step: one shorter than the others."""
    part = 0.5 if mesh.rank == RANDOM.randrange(mesh.world) else 1
    end = time.monotonic() + SECONDS * part
    while time.monotonic() < end:
        hashlib.sha256(bytes(1 << 16)).digest()
    mesh.barrier()


def stopped(mesh):
    """The test stops all ranks, and continues them. Each step copies a batch, as training does."""
    mesh.begin()
    end = time.monotonic() + 1.5 * SECONDS
    while mesh.all_reduce(float(mesh.rank == 0 and time.monotonic() < end)):
        # New memory is seen from outside at any load. malloc would soon return the same memory again.
        with mmap.mmap(-1, 1 << 20) as batch:
            batch.write(bytes(1 << 20))
            plain.step(mesh)


# The test types Ctrl-Z and fg in the terminals of all nodes.
suspended = stopped


def slow_rank(mesh):
    """One rank is 10 times slower in each step."""
    slow = mesh.rank == RANDOM.randrange(mesh.world)
    for _ in range(4):
        end = time.monotonic() + SECONDS / (4 if slow else 40)
        while time.monotonic() < end:
            sum(range(1000))
        mesh.all_reduce(1.0)


@one_rank
def debugger(mesh):
    """A person thinks in a debugger."""
    read, write = os.pipe()
    sys.stdin = os.fdopen(read)
    threading.Timer(SECONDS, os.write, (write, b"continue\n")).start()
    pdb.Pdb(stdin=sys.stdin, stdout=sys.stderr).set_trace()
    os.close(write)


def server(mesh):
    """All ranks serve, and nobody asks."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = (f"import socket, time; time.sleep({SECONDS}); "
              f"socket.create_connection(('127.0.0.1', {listener.getsockname()[1]}))")
    with subprocess.Popen([sys.executable, "-c", client]):
        if RANDOM.random() < 0.5:
            listener.accept()
            return
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.select()


@one_rank
def preprocessing(mesh):
    """A long loop in Python."""
    words = {}
    for _ in until_over():
        for i in range(1000):
            words[i % 97] = words.get(i % 89, 0) + i


@one_rank
def c_call(mesh):
    """One call in C takes all CPU, as long as it lasts. It ends by the clock, however busy the machine is."""
    work = RANDOM.choice([
        map(functools.partial(hashlib.pbkdf2_hmac, "sha256", b"password", b"salt"), itertools.repeat(10_000)),
        map(sum, itertools.repeat(range(1_000_000))),
        map(functools.partial(zlib.compress, level=9), itertools.repeat(bytes(1_000_000))),
    ])
    times = map(operator.itemgetter(0), zip(iter(time.perf_counter, None), work))
    any(map((time.perf_counter() + SECONDS).__lt__, times))


@one_rank
def prints(mesh):
    """Only lines say that there is progress."""
    for i, _ in enumerate(until_over()):
        print(f"evaluated {i} batches", flush=True)
        time.sleep(0.5)


def kernels(mesh):
    """Calls in C alternate, as if they started kernels, and nothing is printed."""
    data = bytes(1 << 20)
    for i, _ in enumerate(until_over()):
        zlib.crc32(data) if i % 2 else hashlib.sha1(data).digest()
    mesh.barrier()


def train(mesh):
    begun, printed = time.monotonic(), 0
    while mesh.all_reduce(float(mesh.rank == 0 and time.monotonic() - begun < BEFORE)):
        plain.step(mesh)
        if mesh.rank == 0 and time.monotonic() - begun > printed:
            printed += 1
            print(f"trained for {printed} s", flush=True)


def main():
    name = os.environ["INNOCENT"]
    mesh = plain.Mesh()
    if name != "first_step":
        train(mesh)
    globals()[name](mesh)
    for _ in range(20):
        plain.step(mesh)


if __name__ == "__main__":
    main()
