"""Workers that misbehave as MODE says. Standard library only.

    zoo.py MODE [ARGUMENT]

The last rank misbehaves. In most modes it then exits, with code 3 unless the list says otherwise, and the other ranks
wait to be stopped. In a mode marked ($) it stays, and the other ranks exit with 3 once it has written to the FIFO
named by ZOO_READY. All processes hold the FIFO named by ZOO_HELD open, so that the test notices even the
shortest-lived process.

    error file      error_empty, error_huge, error_text, error_folder, error_fifo, error_hidden (mode 0)
                    error_half            is killed while it writes the file
    output          line MIB              writes one line without a newline
                    bytes                 writes bytes that are not text to both streams
                    closed_output         closes stdout and stderr
                    flood MIB             writes lines to both streams at once
                    endless               writes lines until it is killed ($)
                    gated MIB             prints "waiting", and floods once the test reads the FIFO
                    pass_stdout @NAME     sends its stdout to the listener at that abstract socket
    processes       groups                starts children in process groups and sessions of their own
                    thousand              leaves 1,000 children
                    ignores_signals       ignores every signal that can be ignored ($)
                    daemon                starts a daemon (forked twice, in its own session) that ignores SIGTERM
                    hidden_daemon         as daemon, but not dumpable: some /proc mounts hide it
                    holder                has a child that keeps stdout and stderr open and ignores SIGTERM
                    chain                 starts a process that forks its successor and exits, again and again
                    storm                 starts processes that fork short-lived children as fast as they can
                    bomb N                up to N processes fork while the launcher kills them
                    zombie_leader         starts a daemon whose main thread has ended, so that it looks like a zombie
                    kills_agent           kills its agent
                    removes_logs          removes its log folder
                    stopped               stops itself ($)
                    replaced              becomes another program, which exits with 5
    cause           raises, exits, segfault, aborts, killed, imports
                    exits_with_text       calls sys.exit with a text
                    usage                 is started with a wrong argument
                    prefixed              prints a traceback with a time before each line
                    boxed                 prints a traceback in a box, as rich does
                    asserts               a failed assert() aborts it
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
FOREVER = 1000  # seconds: longer than any test, but a leaked process still ends
ONGOING = {"endless", "ignores_signals", "stopped"}


def ready():
    """Returns when a reader has opened the FIFO."""
    with open(READY, "w") as fifo:
        fifo.write("x")


def detach(run, *args):
    """Runs run(*args) in a daemon: a grandchild in a session of its own, whose parent has exited."""
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
    # Every byte value, an overlong form, a surrogate, a truncated character, an escape sequence that clears the screen.
    for fd in 1, 2:
        bad = b"\xc0\xaf\xed\xa0\x80\xe2\x82\n\x1b[2J\x1b]0;title\x07\n" + b"\xff" * 1000 + b"\xe2\x82"
        write_all(fd, bytes(range(256)) + bad)


def closed_output():
    os.close(1)
    os.close(2)


def lines(fd, n):
    for _ in range(n):
        write_all(fd, b"a line of some sixty-four bytes, as long as those of a logger..\n" * 1024)


def flood(mib):
    threads = [threading.Thread(target=lines, args=(fd, 16 * int(mib))) for fd in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def endless():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready()
    lines(1, 1 << 40)


def gated(mib):
    write_all(1, b"waiting\n")
    ready()
    flood(mib)


def pass_stdout(name):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + name.removeprefix("@"))
        socket.send_fds(s, [b"x"], [1])
        s.recv(1)  # the receiver confirms


def groups():
    for separate in os.setpgrp, os.setsid:
        if not os.fork():
            separate()
            linger()


def thousand():
    for i in range(1000):
        if not os.fork():
            if i % 2:
                os.setsid()
            linger(())


def ignores_signals():
    for s in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    ready()
    linger()


def daemon():
    detach(linger)


def hidden_daemon():
    r, w = os.pipe()

    def hide():
        ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
        os.close(w)
        linger()

    detach(hide)
    os.close(w)
    os.read(r, 1)  # end of file: the daemon is hidden


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
            end = time.monotonic() + 20  # seconds: a leaked storm ends by itself
            while time.monotonic() < end:
                if not os.fork():
                    os.setsid()
                    os._exit(0)
            os._exit(0)


def zombie_leader():
    def lead():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=time.sleep, args=(FOREVER,)).start()
        os.write(w, b"x")
        ctypes.CDLL(None).pthread_exit(None)

    r, w = os.pipe()
    detach(lead)
    os.read(r, 1)


def kills_agent():
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()


def removes_logs():
    run = os.path.dirname(os.path.dirname(os.path.dirname(ERROR_FILE)))
    shutil.rmtree(run, ignore_errors=True)  # another worker may have removed it


def bomb(n):
    r, w = os.pipe()
    os.write(w, b"x" * int(n))  # each byte permits one fork
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
    if not pid:  # reports when its parent is stopped
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


def exits_with_text():
    sys.exit("there is no data")


def usage():
    argparse.ArgumentParser(prog="train.py").parse_args(["--lr", "1"])


def prefixed():
    traceback = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: boom"]
    for i, text in enumerate(traceback):
        print(f"12:00:01,{i:03} ERROR {text}", file=sys.stderr)


def boxed():
    for text in (
        "╭─ Traceback (most recent call last) ─╮",
        "│ train.py:3 in <module>              │",
        "╰─────────────────────────────────────╯",
        "ValueError: boom",
    ):
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
