"""A worker that trains in steps and records when, so that a test can say how the time of a job was used.

    goodput.py DIR STEPS beat|print

It goes on from the step in DIR/checkpoint, and ends after STEPS. Rank 0 writes the checkpoint of each tenth step ten
steps later, as in the background. The worker shows its steps in its heartbeat file, or prints them.
DIR/fail.ROUND.RANK has the second after which that worker fails.

    DIR/worker.ROUND.RANK    a line for each event: the time on the clock that all hosts share, its name, the step
"""

import os
import random
import sys
import time

with open("/proc/self/stat") as f:
    began = int(f.read().rsplit(")")[1].split()[19]) / os.sysconf("SC_CLK_TCK")  # of this process
folder, steps, shows = sys.argv[1], int(sys.argv[2]), sys.argv[3]
beat = os.environ["ELASTICRUN_HEARTBEAT_FILE"]
number = os.path.basename(beat).split(".")[0]
rank = int(os.environ["RANK"])
log = os.open(os.path.join(folder, f"worker.{number}.{rank}"), os.O_WRONLY | os.O_CREAT, 0o600)


def note(event, step=0, at=None):
    os.write(log, f"{at or time.monotonic()} {event} {step}\n".encode())


def read(name, default):
    try:
        with open(os.path.join(folder, name)) as f:
            return float(f.read())
    except FileNotFoundError:
        return default


note("start", at=began)
fails = began + read(f"fail.{number}.{rank}", 1e9)
step = int(read("checkpoint", 0))
imported = time.monotonic() + random.Random(number).uniform(0.1, 0.5) + (step == 0)
while time.monotonic() < imported:
    note("imports")
    time.sleep(0.01)
pace = 0.02 * (1 + int(number) % 3)  # all ranks of a round are equally fast
due = time.monotonic()
while step < steps:
    due += pace
    while (left := min(due, fails) - time.monotonic()) > 0:
        note("trains")
        time.sleep(min(left, 0.01))
    if time.monotonic() >= fails:
        note("fails")
        os._exit(1)
    step += 1
    note("step", step)
    if shows == "beat":
        with open(beat, "w") as f:
            f.write(str(step))
    else:
        print("step", step, flush=True)
    if rank == 0 and step % 10 == 0 and step > 10:
        with open(os.path.join(folder, "new"), "w") as f:
            f.write(str(step - 10))
        os.rename(os.path.join(folder, "new"), os.path.join(folder, "checkpoint"))
note("done")
