"""A DistributedDataParallel job (gloo, CPU) whose every step is on record, for tests of jobs over several hosts.

    ddp_train.py --dir DIR [options]

DIR is a folder that all hosts share. What a step computes depends on its number alone, not on how many workers share it, so
that an interrupted run can be compared with an undisturbed one. Rank 0 leaves a checkpoint after every step; a new round goes
on from there. When a worker dies its peers fail, as those of real jobs do.

    DIR/checkpoint.pt                      the last step's
    DIR/log/ROUND.HOST.LOCAL_RANK.jsonl    one line at the start of a worker, one a step, one at the end of the training;
                                           a step's line is written before its checkpoint
    DIR/round/N                            a lock that each worker of round N holds as long as it lives

A worker that finds a worker of another round alive writes a line {"event": "overlap"} and exits with 99.
"""

import argparse
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time

ENVIRONMENT = ("ELASTICRUN_ROUND", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR")
GLOBAL_BATCH = 24
OVERLAP = 99
FLOCK = "hhqqi"  # struct flock: type, whence, start, length, pid


def parse():
    parser = argparse.ArgumentParser(description="Trains, and keeps a record of it.")
    option = parser.add_argument
    option("--dir", required=True, help="folder that all hosts share")
    option("--steps", type=int, default=60, help="steps to train (60)")
    option("--until", metavar="FILE", help="in place of --steps: train until there is such a file in DIR")
    option("--stop-on-signal", action="store_true",
           help="after a SIGUSR1 to rank 0 all finish the step and end; the only checkpoint is made then")
    option("--step-time", type=float, default=0.05, metavar="S", help="seconds that a step takes at least (0.05)")
    option("--fail-at", type=int, metavar="STEP", help="in this step one worker fails")
    option("--fail-on", metavar="HOST", help="the host of that worker, whose local rank is 0 (that of rank 0)")
    option("--fail-times", type=int, default=1, metavar="N", help="only while fewer restarts than that are on record (1)")
    option("--fail-with", type=int, default=1, metavar="CODE", help="exit code of that worker; -N: it is killed by signal N (1)")
    return parser.parse_args()


class Record:
    """The worker's place in the job, and its file."""

    def __init__(self, folder):
        self.round, self.restart, self.world, self.rank, self.local, self.group = (int(os.environ[n]) for n in ENVIRONMENT[:6])
        # The nodes of a Slurm cluster may share a machine, and so its name.
        self.host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        os.makedirs(os.path.join(folder, "log"), exist_ok=True)
        path = os.path.join(folder, "log", f"{self.round}.{self.host}.{self.local}.jsonl")
        # Appending: two workers in one place of one round must not hide each other.
        self.file = open(path, "a", buffering=1)

    def line(self, event, **more):
        # CLOCK_MONOTONIC is the same for all hosts of one machine.
        line = {"event": event, "time": time.monotonic(), "round": self.round, "restart": self.restart, "world": self.world,
                "rank": self.rank, "local": self.local, "group": self.group, "host": self.host, "pid": os.getpid()}
        self.file.write(json.dumps(line | more) + "\n")


def claim(folder, record):
    """Takes this round's lock and makes sure that nobody has another's. Returns the lock, which ends with the process."""
    folder = os.path.join(folder, "round")
    os.makedirs(folder, exist_ok=True)
    own = open(os.path.join(folder, str(record.round)), "a+")
    fcntl.lockf(own, fcntl.LOCK_SH)
    for name in os.listdir(folder):
        if name == str(record.round):
            continue
        with open(os.path.join(folder, name), "a+") as other:
            # F_GETLK tells who is in the way of a lock and takes none, so that those who look do not see each other.
            query = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, holder = struct.unpack(FLOCK, fcntl.fcntl(other, fcntl.F_GETLK, query))
        if kind != fcntl.F_UNLCK:
            record.line("overlap", other=int(name), holder=holder)
            sys.exit(OVERLAP)
    return own


def fail_if_told(args, record, step):
    host = record.host if args.fail_on else None
    if step != args.fail_at or record.restart >= args.fail_times or host != args.fail_on:
        return
    if record.local != 0 or not args.fail_on and record.rank != 0:
        return
    if args.fail_with < 0:
        os.kill(os.getpid(), -args.fail_with)
        signal.pause()
    print(f"{record.host} was told to fail in step {step}", file=sys.stderr, flush=True)
    os._exit(args.fail_with)  # nothing says goodbye to the peers


def train(args, record, stopping):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    record.line("imported")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    checkpoint = os.path.join(args.dir, "checkpoint.pt")
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint, weights_only=True)
        step = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    record.line("resumed", step=step)
    parallel = DistributedDataParallel(model)

    def batch(step):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(GLOBAL_BATCH, 8, dtype=torch.float64, generator=generator)
        y = torch.sin(x.sum(1, keepdim=True))
        return x[record.rank::record.world], y[record.rank::record.world]

    def save():
        temporary = f"{checkpoint}.{record.host}.{os.getpid()}"
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, temporary)
        os.replace(temporary, checkpoint)

    def go_on():
        if not args.until and not args.stop_on_signal:
            return step < args.steps
        # All must see the same, so rank 0 looks.
        last = os.path.exists(os.path.join(args.dir, args.until)) if args.until else step >= args.steps
        told = torch.tensor([0 if last or stopping else 1])
        dist.broadcast(told, 0)
        return told.item() == 1

    while go_on():
        begin = time.monotonic()
        step += 1
        fail_if_told(args, record, step)
        x, y = batch(step)
        optimizer.zero_grad()
        # DDP takes the mean of the workers' gradients; times their number it is the sum, however unequal the shares are.
        loss = ((parallel(x) - y) ** 2).sum() / GLOBAL_BATCH * record.world
        loss.backward()
        optimizer.step()
        total = loss.detach().clone() / record.world
        dist.all_reduce(total)
        record.line("step", step=step, loss=total.item())
        if record.rank == 0 and not args.stop_on_signal:
            save()
        time.sleep(max(0.0, args.step_time - (time.monotonic() - begin)))
    if record.rank == 0 and stopping:
        save()
    record.line("end", step=step)
    dist.destroy_process_group()


def main():
    args = parse()
    stopping = []
    if args.stop_on_signal:
        signal.signal(signal.SIGUSR1, lambda number, frame: stopping.append(number))
    record = Record(args.dir)
    lock = claim(args.dir, record)
    record.line("start")
    train(args, record, stopping)
    lock.close()


if __name__ == "__main__":
    main()
