"""A worker that trains with its peers over gloo until it is killed. It has a child, like a worker with a data loader.

    coupled.py [--finally | --alone]

It prints "ready RANK PID CHILD" after a few steps. With --finally it calls destroy_process_group() in a "finally". If
its peers are gone, that call can keep the worker alive longer than its peers. With --alone it does not train, and so
needs no torch.
"""

import os
import signal
import subprocess
import sys

child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)


def ready():
    print("ready", os.environ["RANK"], os.getpid(), child.pid, flush=True)


if "--alone" in sys.argv:
    ready()
    signal.pause()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
try:
    step = 0
    while True:
        model(torch.ones(8, 64)).sum().backward()
        step += 1
        if step == 5:
            ready()
finally:
    if "--finally" in sys.argv:
        dist.destroy_process_group()
