"""Workers that misbehave, one mode for each way. Standard library only.

    zoo.py MODE [ARGUMENT]

The last rank misbehaves. If it ends by doing so, the other ranks wait to be stopped; else ($) they exit with 3 as soon as it has
written to the FIFO that ZOO_READY names. A mode that does not say how it ends exits with 3. All processes have the FIFO open that
ZOO_HELD names, so that none of them, however short its life, stays unseen.

    error file      error_empty, error_huge, error_text, error_folder, error_fifo, error_hidden (nobody may read it)
                    error_half            is killed in the middle of writing it
    output          line MIB              one line, without an end
                    bytes                 what is no text, on both streams
                    mute                  closes stdout and stderr
                    flood MIB             lines on both streams at once
                    endless               a flood until somebody stops it ($)
                    gated MIB             says "waiting", and floods once somebody reads the FIFO
                    hand @NAME            gives its stdout to whoever listens at that abstract socket
    family          groups                children in process groups and sessions of their own
                    thousand              leaves 1,000 children
                    deaf                  ignores every signal that can be ignored ($)
                    daemon                a daemon, twice forked, in a session of its own, that ignores SIGTERM
                    unseen                the same, hidden from /proc where that hides what may not be traced
                    holder                a child keeps stdout and stderr open, and ignores SIGTERM
                    chain                 a process that forks its successor and exits, again and again
                    storm                 processes that fork others, which exit, as fast as they can
                    bomb N                while being killed, up to N processes fork
                    headless              a daemon whose first thread has ended, so that it looks like a zombie
                    parricide             kills its agent
                    vandal                removes its log folder
                    stopped               stops itself ($)
                    replaced              becomes another program, which exits with 5
    cause           raises, exits, segfault, aborts, killed, imports
                    says                  exits with a text
                    usage                 is started with a wrong argument
                    prefixed              a traceback with a time before each line
                    boxed                 a traceback in a box, as rich draws it
                    asserts               is aborted by assert()
"""

import argparse
import ctypes
import os
import shutil
import signal
import socket
import sys
import threading
import time

READY = os.environ.get("ZOO_READY")
ERROR_FILE = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOREVER = 1000  # seconds; longer than any test, and no leak for ever
ONGOING = {"endless", "deaf", "stopped"}


def ready():
    """Returns when somebody has the FIFO open to read."""
    with open(READY, "w") as fifo:
        fifo.write("x")


def detach(run, *args):
    """Runs that in a daemon: a grandchild in a session of its own, whose parent has left."""
    if os.fork():
        return os.wait()
    os.setsid()
    if not os.fork():
        run(*args)
    os._exit(0)


def linger(ignore=(signal.SIGTERM,)):
    for s in ignore:
        signal.signal(s, signal.SIG_IGN)
    time.sleep(FOREVER)


def write_error(text):
    with open(ERROR_FILE, "w") as file:
        file.write(text)
        file.flush()


def error_empty():
    write_error("")


def error_huge():
    write_error('{"message": "' + "x" * (4 << 20) + '"}')


def error_text():
    write_error("Traceback: not JSON at all")


def error_half():
    write_error('{"message": {"message": "ValueError: the loss')
    os.kill(os.getpid(), signal.SIGKILL)


def error_folder():
    os.mkdir(ERROR_FILE)


def error_fifo():
    os.mkfifo(ERROR_FILE)


def error_hidden():
    write_error('{"message": "hidden"}')
    os.chmod(ERROR_FILE, 0)


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data):]


def line(mib):
    for _ in range(int(mib)):
        write_all(1, b"x" * (1 << 20))


def bytes_():
    # Every byte, an overlong form, a surrogate, a character cut in two, an escape that would clear the screen.
    for fd in 1, 2:
        write_all(fd, bytes(range(256)) + b"\xc0\xaf\xed\xa0\x80\xe2\x82\n\x1b[2J\x1b]0;title\x07\n" + b"\xff" * 1000 + b"\xe2\x82")


def mute():
    os.close(1)
    os.close(2)


def lines(fd, n):
    for _ in range(n):
        write_all(fd, b"a line of some sixty-four bytes, as long as those of a logger..\n" * 1024)


def flood(mib):
    others = [threading.Thread(target=lines, args=(fd, 16 * int(mib))) for fd in (1, 2)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()


def endless():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    lines(1, 1 << 40)


def gated(mib):
    write_all(1, b"waiting\n")
    ready()
    flood(mib)


def hand(name):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + name.removeprefix("@"))
        socket.send_fds(s, [b"x"], [1])
        s.recv(1)  # it has it


def groups():
    for place in os.setpgrp, os.setsid:
        if not os.fork():
            place()
            linger()


def thousand():
    for i in range(1000):
        if not os.fork():
            if i % 2:
                os.setsid()
            linger(())


def deaf():
    for s in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    ready()
    linger()


def daemon():
    detach(linger)


def unseen():
    r, w = os.pipe()

    def hide():
        ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
        os.close(w)
        linger()

    detach(hide)
    os.close(w)
    os.read(r, 1)  # end of file: it is hidden


def holder():
    if not os.fork():
        os.setsid()
        linger()


def chain():
    def link():
        for _ in range(200000):
            if os.fork():
                os._exit(0)
            os.setsid()
        os._exit(0)

    detach(link)


def storm():
    for _ in range(8):
        if not os.fork():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            end = time.monotonic() + 20  # a storm that nobody ends passes
            while time.monotonic() < end:
                if not os.fork():
                    os.setsid()
                    os._exit(0)
            os._exit(0)


def headless():
    def head():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=time.sleep, args=(FOREVER,)).start()
        os.write(w, b"x")
        ctypes.CDLL(None).pthread_exit(None)

    r, w = os.pipe()
    detach(head)
    os.read(r, 1)


def parricide():
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()


def vandal():
    run = os.path.dirname(os.path.dirname(os.path.dirname(ERROR_FILE)))
    shutil.rmtree(run, ignore_errors=True)  # a second one finds it gone


def bomb(n):
    r, w = os.pipe()
    os.write(w, b"x" * int(n))  # a byte is a permission to fork
    os.set_blocking(r, False)

    def fork(*_):
        for _ in range(3):
            try:
                os.read(r, 1)
            except BlockingIOError:
                return
            if not os.fork():
                os.setsid()

    signal.signal(signal.SIGTERM, fork)
    for _ in range(8):
        if not os.fork():
            while True:
                signal.pause()


def stopped():
    pid = os.fork()
    if not pid:  # tells when its parent stands still
        while open(f"/proc/{os.getppid()}/stat").read().rsplit(")", 1)[1].split()[0] != "T":
            time.sleep(0.01)
        ready()
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(FOREVER)


def replaced():
    os.execv("/bin/sh", ["sh", "-c", "exit 5"])


def raises():
    raise ValueError("the loss is not a number")


def exits():
    sys.exit(3)


def segfault():
    ctypes.string_at(0)


def aborts():
    os.abort()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def imports():
    import a_module_that_nobody_has  # noqa: F401


def says():
    sys.exit("there is no data")


def usage():
    argparse.ArgumentParser(prog="train.py").parse_args(["--lr", "1"])


def prefixed():
    for i, text in enumerate(["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: boom"]):
        print(f"12:00:01,{i:03} ERROR {text}", file=sys.stderr)


def boxed():
    for text in "╭─ Traceback (most recent call last) ─╮", "│ train.py:3 in <module>              │", "╰─────────────────────────────────────╯", "ValueError: boom":
        sys.stderr.buffer.write(text.encode() + b"\n")


def asserts():
    getattr(ctypes.CDLL(None), "__assert_fail")(b"loss == loss", b"loss.c", 7, b"step")


def misbehave(mode, *args):
    globals()[{"bytes": "bytes_"}.get(mode, mode)](*args)
    sys.exit(3)


def main():
    mode = sys.argv[1]
    os.set_inheritable(os.open(os.environ["ZOO_HELD"], os.O_RDWR), True)
    if RANK == WORLD - 1:
        misbehave(mode, *sys.argv[2:])
    elif mode in ONGOING:
        open(READY).read(1)
        sys.exit(3)
    signal.pause()


if __name__ == "__main__":
    main()
