"""Ranks that train with DistributedDataParallel (gloo), until the odd one hangs. Needs torch.

    HANG=NAME HANG_RANK=RANK HANG_BEGUN=FIFO ddp.py

In step 5 the rank HANG_RANK calls the function NAME, of this file or of hangs.py. It writes its rank and pid to the
FIFO right before it hangs. The other ranks wait for it in a collective, for up to 30 minutes.
"""

import os
import signal
import sys
import time

import hangs
import torch
import torch.distributed as dist
import torch.utils.data

HANG_STEP = 5


class Job:
    def __init__(self):
        self.rank, self.odd = dist.get_rank(), int(os.environ["HANG_RANK"])
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def begin(self):
        """Reports that the hang begins."""
        with open(os.environ["HANG_BEGUN"], "w") as fifo:
            fifo.write(f"{self.rank} {os.getpid()}\n")

    def all_reduce(self, value):
        dist.all_reduce(torch.tensor([value]))

    def broadcast(self, value):
        dist.broadcast(torch.tensor([value]), 0)

    def barrier(self):
        dist.barrier()

    def wait_for_key(self, key):
        dist.distributed_c10d._get_default_store().get(key)

    def step(self):
        """One step of the training."""
        x = torch.randn(8, 4)
        self.optimizer.zero_grad()
        loss = (self.model(x) - x.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        self.optimizer.step()
        time.sleep(0.01)


class Data(torch.utils.data.Dataset):
    """Samples, one of which is never ready."""

    def __init__(self, stop):
        self.stop = stop

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 3 and self.stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        if i == 3:
            time.sleep(1_000_000)
        return i


def loader_stuck(job):
    loader = iter(torch.utils.data.DataLoader(Data(stop=False), num_workers=1))
    job.begin()
    for _ in loader:
        pass


def loader_stopped(job):
    loader = iter(torch.utils.data.DataLoader(Data(stop=True), num_workers=1))
    job.begin()
    for _ in loader:
        pass


def p2p_recv(job):
    """Waits for a message that nobody sends."""
    job.begin()
    dist.recv(torch.zeros(1), (job.rank + 1) % dist.get_world_size())


def group_alone(job):
    """Makes a group, which all ranks must make."""
    job.begin()
    dist.new_group()


def store_key(job):
    """Waits for a key that nobody sets."""
    job.begin()
    job.wait_for_key("never set")


def find(name):
    return globals().get(name) or getattr(hangs, name)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    name, job = os.environ["HANG"], Job()
    act = find(name) if job.rank == job.odd else hangs.OTHERS.get(name, Job.step)
    for number in range(1, 1_000_000):
        if number == HANG_STEP:
            act(job)
        else:
            job.step()


if __name__ == "__main__":
    sys.exit(main())
