"""Ranks that run gloo collectives until the last rank misbehaves as MODE says. Needs torch.

    peers.py MODE

The other ranks continue with their collectives. They lose the connection to the last rank or wait for it until they
time out.

    leaves          sys.exit(0)
    vanishes        os._exit(0)
    denies          raises an exception, then calls os._exit(0) in an exit handler
    source          its own data source resets a connection, while rank 0 logs an error that it has handled
    slow_end        as source, and it lives on for a while after its peers have lost it
    url             its own data source refuses a connection
    chained         raises an exception from its own ConnectionResetError
    loader          raises an exception in a process of its DataLoader
    loader_killed   SIGKILL ends a process of its DataLoader
    spawned         raises an exception in a process of torch.multiprocessing
    recorded        as chained, under torch's @record
    newline         raises an exception whose message begins with an empty line
    hangs           sleeps
    paused          stops itself with SIGSTOP
    asserts, throws, checks   a failed assert(), an uncaught C++ exception or glog's CHECK aborts the rank
"""

import atexit
import ctypes
import datetime
import logging
import os
import signal
import socket
import sys
import time
import urllib.request

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.utils.data
from torch.distributed.elastic.multiprocessing.errors import record

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# In these modes rank 0 logs an error that it has handled, more than 2 s before the last rank misbehaves.
HANDLES = sys.argv[1] in ("source", "slow_end")
# Timeout of a collective of step in seconds. A DataLoader checks its processes every 5 s, so only modes without a loader
# may have a shorter timeout.
TIMEOUT = 4 if sys.argv[1] in ("hangs", "paused") else 60


def leaves():
    sys.exit(0)


def vanishes():
    os._exit(0)


def denies():
    atexit.register(os._exit, 0)
    raise ValueError("the loss is not a number")


def reset():
    """Reads from a server that resets the connection."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        client.recv(1)


def source():
    reset()


def slow_end():
    """The interpreter ends connections before the process ends. This does it, too, and then takes very long."""

    @atexit.register
    def linger():
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                with socket.socket(fileno=os.dup(fd)) as connection:
                    connection.getpeername()
                    connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # not a connection
        time.sleep(1000)

    reset()


def url():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        urllib.request.urlopen("http://127.0.0.1:%d/data" % closed.getsockname()[1])


def chained():
    try:
        reset()
    except OSError as e:
        raise RuntimeError("cannot read the batch") from e


recorded = chained


class Data(torch.utils.data.Dataset):
    def __init__(self, do):
        self.do = do

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 3:
            self.do()
        return i


def bad_sample():
    raise ValueError("sample 3 is broken")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def loader():
    for _ in torch.utils.data.DataLoader(Data(bad_sample), num_workers=1):
        pass


def loader_killed():
    for _ in torch.utils.data.DataLoader(Data(die), num_workers=1):
        pass


def child(_):
    bad_sample()


def spawned():
    torch.multiprocessing.spawn(child, nprocs=1)


def newline():
    raise RuntimeError("\n\n  the checkpoint is truncated\n")


def hangs():
    time.sleep(1000)


def paused():
    os.kill(os.getpid(), signal.SIGSTOP)


def asserts():
    getattr(ctypes.CDLL(None), "__assert_fail")(b"loss == loss", b"loss.c", 7, b"step")


def throws():
    getattr(ctypes.CDLL("libstdc++.so.6"), "_ZSt20__throw_length_errorPKc")(b"the batch is too long")


def checks():
    sys.stderr.write("F0312 10:00:00.000000 123 loss.cc:42] Check failed: loss == loss (nan vs. nan) \n")
    os.abort()


def step(mode, i, group):
    if RANK == WORLD - 1 and i == (250 if HANDLES else 5):
        globals()[mode]()
    if HANDLES and RANK == 0 and i == 4:
        try:
            raise KeyError("lr")
        except KeyError:
            logging.exception("no learning rate, so the default is used")
    dist.all_reduce(torch.ones(8), group=group)
    time.sleep(0.01)


def main():
    torch.set_num_threads(1)
    # The ranks wait longer for each other until all have imported torch, which takes long on a busy machine.
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    dist.barrier()
    group = dist.new_group(timeout=datetime.timedelta(seconds=TIMEOUT))
    i = 0
    while True:
        i += 1
        step(sys.argv[1], i, group)


if __name__ == "__main__":
    if sys.argv[1] == "recorded":
        main = record(main)
    main()
