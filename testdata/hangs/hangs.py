"""The ways in which the odd rank hangs. Each function is one, and its name is in the stack of the odd rank.

A function gets the job, whose begin() reports that the hang begins now. None returns. Whatever versions of Python
elasticrun reads can run them. The files that some need are in the environment: HANG_FILE is one whose readers, or
writers if it is a frozen disk's, wait in the kernel forever.
"""

import asyncio
import atexit
import ctypes
import fcntl
import multiprocessing
import os
import queue
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


def lock_twice(job):
    lock = threading.Lock()
    lock.acquire()
    job.begin()
    lock.acquire()


def deadlock(job):
    """Two threads wait for each other's lock."""
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other():
        with second:
            both.wait()
            with first:
                pass

    threading.Thread(target=other, daemon=True).start()
    with first:
        both.wait()
        job.begin()
        with second:
            pass


def child_stuck(job):
    """A child process is to produce data, and waits itself."""
    produced = multiprocessing.Queue()
    multiprocessing.Process(target=time.sleep, args=(1000,), daemon=True).start()
    job.begin()
    produced.get()


def child_stopped(job):
    """A child process is to produce data, and is stopped by a signal."""
    produced = multiprocessing.Queue()
    child = multiprocessing.Process(target=time.sleep, args=(1000,), daemon=True)
    child.start()
    os.kill(child.pid, signal.SIGSTOP)
    job.begin()
    produced.get()


def regex(job):
    """One call in C takes all CPU, and the global interpreter lock, for years."""
    job.begin()
    re.match(r"(a+)+$", "a" * 60 + "b")


def c_call_with_gil(job):
    """A call in C sleeps and has the global interpreter lock."""
    job.begin()
    ctypes.PyDLL(None).pause()


def busy_line(job):
    job.begin()
    while True: pass  # noqa: E701


def busy_lines(job):
    """A loop that waits for what does not come, in several lines and calls."""
    job.begin()
    tries = 0
    while not arrived(tries):
        tries += 1
        if tries % 1000 == 0:
            tries = len(str(tries)) * 1000


def arrived(tries):
    return tries < 0


def polls(job):
    """A loop that looks for a file, with pauses."""
    job.begin()
    while not os.path.exists("/nonexistent/ready"):
        time.sleep(0.01)


def stopped(job):
    job.begin()
    os.kill(os.getpid(), signal.SIGSTOP)


def hung_read(job):
    """Reads from a file system that does not answer. Signals do not end that, though its state is S."""
    fd = os.open(os.environ["HANG_FILE"], os.O_RDONLY)
    job.begin()
    os.read(fd, 100)


def frozen_write(job):
    """Writes to a disk that is frozen: state D."""
    job.begin()
    with open(os.environ["HANG_FILE"], "w") as file:
        file.write("checkpoint")


def vfork(job):
    """A child that shares the memory does not get to execve: state D."""
    fifo = os.path.join(tempfile.mkdtemp(), "fifo")
    os.mkfifo(fifo)
    job.begin()
    os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])


def silent_peer(job):
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    job.begin()
    client.recv(1)


def accept(job):
    server = socket.create_server(("127.0.0.1", 0))
    job.begin()
    server.accept()


def full_pipe(job):
    _, write = os.pipe()
    job.begin()
    while True:
        os.write(write, bytes(1 << 16))


def fifo_open(job):
    fifo = os.path.join(tempfile.mkdtemp(), "fifo")
    os.mkfifo(fifo)
    job.begin()
    open(fifo)


def import_lock(job):
    """A module that is being imported waits for a thread that imports the same module."""
    folder = tempfile.mkdtemp()
    sys.path.insert(0, folder)
    sys.modules["the_job"] = job
    with open(os.path.join(folder, "import_me.py"), "w") as file:
        file.write("import threading, the_job\ndef load():\n    import import_me\n"
                   "thread = threading.Thread(target=load, daemon=True)\nthread.start()\n"
                   "the_job.begin()\nthread.join()\n")
    import import_me  # noqa: F401


def sleep(job):
    job.begin()
    time.sleep(1_000_000)


def queue_get(job):
    job.begin()
    queue.Queue().get()


def event_wait(job):
    job.begin()
    threading.Event().wait()


def thread_join(job):
    thread = threading.Thread(target=time.sleep, args=(1_000_000,), daemon=True)
    thread.start()
    job.begin()
    thread.join()


def subprocess_run(job):
    job.begin()
    subprocess.run(["sleep", "inf"])


def flock(job):
    """Another process has the lock of a file."""
    with tempfile.NamedTemporaryFile() as file:
        read, write = os.pipe()
        if os.fork() == 0:
            other = open(file.name)
            fcntl.flock(other, fcntl.LOCK_EX)
            os.write(write, b"x")
            time.sleep(1000)
        os.read(read, 1)
        with open(file.name) as again:
            job.begin()
            fcntl.flock(again, fcntl.LOCK_EX)


def waitpid(job):
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    job.begin()
    os.waitpid(child, 0)


def signal_pause(job):
    job.begin()
    signal.pause()


def select_nothing(job):
    job.begin()
    select.select([], [], [])


def input_pipe(job):
    read, _ = os.pipe()
    sys.stdin = os.fdopen(read)
    job.begin()
    input()


def exit_early(job):
    """Exits with 0, while the others wait for it."""
    job.begin()
    sys.stdout.flush()
    os._exit(0)


def asyncio_idle(job):
    async def wait():
        job.begin()
        await asyncio.Event().wait()

    asyncio.run(wait())


def fork_lock(job):
    """A child has the memory of a thread that had a lock, such as that of a logger, but not the thread."""
    lock, has = threading.Lock(), threading.Event()

    def log():
        with lock:
            has.set()
            time.sleep(1000)

    threading.Thread(target=log, daemon=True).start()
    has.wait()
    child = os.fork()
    if child == 0:
        lock.acquire()
    job.begin()
    os.waitpid(child, 0)


def finally_hang(job):
    try:
        raise ValueError("the loss is not a number")
    finally:
        job.begin()
        threading.Event().wait()


def atexit_hang(job):
    def flush_metrics():
        job.begin()
        threading.Event().wait()

    atexit.register(flush_metrics)
    sys.exit(0)


def last_thread(job):
    """The program has ended, but for a thread that is no daemon."""
    def report():
        job.begin()
        threading.Event().wait()

    threading.Thread(target=report).start()
    sys.exit(0)


def pool_dead_child(job):
    """A pool waits for the result of a child that has died."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        result = pool.apply_async(os._exit, (1,))
        job.begin()
        result.get()


def dead_owner(job):
    """A process has died with a lock that processes share."""
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    child = context.Process(target=lock.acquire)
    child.start()
    child.join()
    job.begin()
    lock.acquire()


def collective_skipped(job):
    """Skips a collective, and goes on to the next one, which is another."""
    job.begin()
    job.barrier()


def collective_mismatch(job):
    """Has another collective than the others."""
    job.begin()
    job.all_reduce(1.0)


def halves(job):
    """Half of the ranks have one collective, half another. Nobody can say which half is right."""
    if job.rank == job.odd:
        job.begin()
    if job.rank % 2:
        job.all_reduce(1.0)
    job.barrier()


def everyone(job):
    """All ranks do the same."""
    if job.rank == job.odd:
        job.begin()
    threading.Event().wait()


def others_broadcast(job):
    job.broadcast(1.0)


def others_wait_for_key(job):
    job.wait_for_key("never set")


# What the other ranks do in the step in which the odd one hangs. Where nothing is said, they make a step.
OTHERS = {
    "collective_mismatch": others_broadcast,
    "exit_early": others_wait_for_key,
    "atexit_hang": others_wait_for_key,
    "last_thread": others_wait_for_key,
    "halves": halves,
    "everyone": everyone,
}
