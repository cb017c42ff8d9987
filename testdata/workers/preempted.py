"""A worker that records what it gets while its job is preempted.

    preempted.py DIR

Handlers of SIGUSR1 and SIGTERM are there after a random time, as after imports. Rank 0 of the first rounds fails at a
random time. After SIGTERM the worker lives on for a while, as if it saved.

    DIR/worker.PID    a line for each event: the time on the clock that all hosts share, and its name
"""

import os
import random
import signal
import sys
import time

# Handlers write too, so the file has no buffer, which they could not enter again.
log = os.open(os.path.join(sys.argv[1], f"worker.{os.getpid()}"), os.O_WRONLY | os.O_CREAT, 0o600)


def note(event):
    os.write(log, f"{time.monotonic()} {event}\n".encode())


def got(number, frame):
    note("got")
    os._exit(0)


def term(number, frame):
    note("term")
    time.sleep(0.5)
    os._exit(0)


note("start")
time.sleep(random.choice((0, random.uniform(0, 0.4))))
signal.signal(signal.SIGTERM, term)
signal.signal(signal.SIGUSR1, got)
note("ready")
fails = os.environ["RANK"] == "0" and int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < 4
end = time.monotonic() + (random.uniform(0.1, 1.5) if fails else 1000)
while time.monotonic() < end:
    time.sleep(0.01)
note("fails")
os._exit(1)
