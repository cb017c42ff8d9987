"""Spins, and measures how long it was kept from it.

    spin.py

SIGUSR1 makes it print {"longest", "total", "waited", "time"} in nanoseconds and begin anew. A gap is a time of more than
10 µs between two readings of the clock, less the time in which the program waited for a CPU that others had. So what
is left is the time in which the program was stopped, and noise of the machine. longest and total are those of the gaps,
waited is the sum of what was subtracted, and time is the time since the last line. It prints "ready" when it spins.
"""

import json
import os
import signal
import time

GAP = 10_000

asked = False


def ask(signum, frame):
    global asked
    asked = True


class Waited:
    """The time in which this thread was ready to run and had no CPU (proc_pid_schedstat(5))."""

    def __init__(self):
        self.file = os.open("/proc/self/schedstat", os.O_RDONLY)
        self.last = self.read()

    def read(self):
        return int(os.pread(self.file, 100, 0).split()[1])

    def more(self):
        """Returns the time since the last call."""
        before, self.last = self.last, self.read()
        return self.last - before


def spin(waited):
    """Returns what main prints, once a signal asks for it."""
    global asked
    clock = time.perf_counter_ns
    longest = total = subtracted = 0
    waited.more()
    begun = last = clock()
    while not asked:
        now = clock()
        if now - last > GAP:
            wait = waited.more()
            gap = max(0, now - last - wait)
            longest = max(longest, gap)
            total += gap
            subtracted += wait
            now = clock()
        last = now
    asked = False  # before the answer, because the next signal can come right after it
    return {"longest": longest, "total": total, "waited": subtracted, "time": clock() - begun}


def main():
    signal.signal(signal.SIGUSR1, ask)
    waited = Waited()
    print("ready", flush=True)
    while True:
        print(json.dumps(spin(waited)), flush=True)


main()
