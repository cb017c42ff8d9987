"""A DistributedDataParallel job (gloo, CPU) that records every step, for tests of jobs on several hosts.

    ddp_train.py --dir DIR [options]

All hosts share the folder DIR. A step's result depends only on its number, not on the number of workers, so that the
losses of an interrupted run can be compared with those of an undisturbed run. Rank 0 writes a checkpoint after every
step, and a new round resumes from it. When a worker dies, its peers fail as in a real job.

    DIR/checkpoint.pt                      the checkpoint of the last step
    DIR/log/ROUND.HOST.LOCAL_RANK.jsonl    one line when a worker starts, one per step, one at the end of the training;
                                           a step's line is written before its checkpoint
    DIR/round/N                            a lock that each worker of round N holds until it exits

A worker that finds a live worker of another round writes a line {"event": "overlap"} and exits with 99.
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

ENVIRONMENT = ("ELASTICRUN_ROUND", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK")
GLOBAL_BATCH = 24
OVERLAP = 99
FLOCK = "hhqqi"  # struct flock: type, whence, start, length, pid


def parse():
    parser = argparse.ArgumentParser(description="Trains and records every step.")
    option = parser.add_argument
    option("--dir", required=True, help="folder shared by all hosts")
    option("--steps", type=int, default=60, help="steps to train (60)")
    option("--until", metavar="FILE", help="instead of --steps: train until DIR contains FILE")
    option("--stop-on-signal", action="store_true",
           help="on SIGUSR1 to rank 0 all workers finish the step and end; rank 0 saves only then")
    option("--stop-on-preemption", action="store_true",
           help="likewise when rank 0 finds $ELASTICRUN_PREEMPT_FILE")
    option("--step-time", type=float, default=0.05, metavar="S",
           help="minimum duration of a step in seconds (0.05)")
    option("--fail-at", type=int, metavar="STEP", help="one worker fails in this step")
    option("--fail-on", metavar="HOST",
           help="host of the failing worker, which has local rank 0 (default: rank 0 fails)")
    option("--fail-times", type=int, default=1, metavar="N",
           help="fail only while the restart count is below N (1)")
    option("--fail-with", type=int, default=1, metavar="CODE",
           help="exit code of the failing worker; -N: signal N kills it (1)")
    return parser.parse_args()


class Record:
    """The worker's ranks and its log file."""

    def __init__(self, folder):
        values = (int(os.environ[name]) for name in ENVIRONMENT)
        self.round, self.restart, self.world, self.rank, self.local, self.group = values
        # The nodes of a test Slurm cluster share a machine and its host name.
        self.host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        os.makedirs(os.path.join(folder, "log"), exist_ok=True)
        path = os.path.join(folder, "log", f"{self.round}.{self.host}.{self.local}.jsonl")
        # Append mode: two workers with the same rank in one round must not overwrite each other's lines.
        self.file = open(path, "a", buffering=1)

    def line(self, event, **more):
        # All test hosts run on one machine and share its CLOCK_MONOTONIC.
        line = {"event": event, "time": time.monotonic(), "round": self.round, "restart": self.restart,
                "world": self.world, "rank": self.rank, "local": self.local, "group": self.group, "host": self.host,
                "pid": os.getpid()}
        self.file.write(json.dumps(line | more) + "\n")


def claim(folder, record):
    """Takes this round's lock and checks that no process holds another round's lock. Returns the lock file.

    The kernel releases the lock when the process exits.
    """
    folder = os.path.join(folder, "round")
    os.makedirs(folder, exist_ok=True)
    own = open(os.path.join(folder, str(record.round)), "a+")
    fcntl.lockf(own, fcntl.LOCK_SH)
    for name in os.listdir(folder):
        if name == str(record.round):
            continue
        with open(os.path.join(folder, name), "a+") as other:
            # F_GETLK reports the holder of a conflicting lock and takes no lock, so two workers that check at the
            # same time do not block each other.
            query = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, holder = struct.unpack(FLOCK, fcntl.fcntl(other, fcntl.F_GETLK, query))
        if kind != fcntl.F_UNLCK:
            record.line("overlap", other=int(name), holder=holder)
            sys.exit(OVERLAP)
    return own


def fail_if_requested(args, record, step):
    host = record.host if args.fail_on else None
    if step != args.fail_at or record.restart >= args.fail_times or host != args.fail_on:
        return
    if record.local != 0 or not args.fail_on and record.rank != 0:
        return
    if args.fail_with < 0:
        os.kill(os.getpid(), -args.fail_with)
        signal.pause()
    print(f"{record.host} fails in step {step}, as --fail-at requests", file=sys.stderr, flush=True)
    os._exit(args.fail_with)  # skips the shutdown of the process group, as in a crash


class Model:
    """A small network, trained by torch's DistributedDataParallel."""

    def __init__(self, record):
        global torch, dist
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        record.line("imported")
        self.rank, self.world = record.rank, record.world
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, 0.9)
        self.parallel = DistributedDataParallel(self.model)

    def load(self, path):
        """Loads a checkpoint and returns its step. Every worker loads the same file."""
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return state["step"]

    def save(self, path, step):
        torch.save({"step": step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)

    def agree(self, proceed):
        """Returns what rank 0 passes."""
        proceed = torch.tensor([int(proceed)])
        dist.broadcast(proceed, 0)
        return proceed.item() == 1

    def step(self, number):
        """Trains with the batch of that number, of which each worker has a share. Returns the loss."""
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(GLOBAL_BATCH, 8, dtype=torch.float64, generator=generator)
        y = torch.sin(x.sum(1, keepdim=True))
        x, y = x[self.rank::self.world], y[self.rank::self.world]
        self.optimizer.zero_grad()
        # DDP averages the gradients of the workers. The factor world turns the mean into a sum, which also holds for
        # shares of different sizes.
        loss = ((self.parallel(x) - y) ** 2).sum() / GLOBAL_BATCH * self.world
        loss.backward()
        self.optimizer.step()
        total = loss.detach().clone() / self.world
        dist.all_reduce(total)
        return total.item()

    def close(self):
        dist.destroy_process_group()


def train(args, record, stopping, model):
    checkpoint = os.path.join(args.dir, "checkpoint.pt")
    step = model.load(checkpoint) if os.path.exists(checkpoint) else 0
    record.line("resumed", step=step)

    def save():
        temporary = f"{checkpoint}.{record.host}.{os.getpid()}"
        model.save(temporary, step)
        os.replace(temporary, checkpoint)

    coordinated = args.stop_on_signal or args.stop_on_preemption
    preempted = os.environ["ELASTICRUN_PREEMPT_FILE"] if args.stop_on_preemption else None

    def should_continue():
        if preempted and os.path.exists(preempted):
            stopping.append(preempted)
        if not args.until and not coordinated:
            return step < args.steps
        # Rank 0 decides for all workers, so that all stop after the same step.
        last = os.path.exists(os.path.join(args.dir, args.until)) if args.until else step >= args.steps
        return model.agree(not last and not stopping)

    while should_continue():
        begin = time.monotonic()
        step += 1
        fail_if_requested(args, record, step)
        record.line("step", step=step, loss=model.step(step))
        if record.rank == 0 and not coordinated:
            save()
        time.sleep(max(0.0, args.step_time - (time.monotonic() - begin)))
    if record.rank == 0 and stopping:
        save()
    record.line("end", step=step)
    model.close()


def main(model=Model):
    args = parse()
    stopping = []
    if args.stop_on_signal:
        signal.signal(signal.SIGUSR1, lambda number, frame: stopping.append(number))
    record = Record(args.dir)
    lock = claim(args.dir, record)
    record.line("start")
    train(args, record, stopping, model(record))
    lock.close()
    if args.stop_on_signal:
        # The signal of another node has stopped this worker too, and its own may come later. While Python exits, it
        # restores the default action of a signal that has a handler.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


if __name__ == "__main__":
    main()
