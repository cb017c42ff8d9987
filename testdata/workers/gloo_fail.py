"""A gloo job in which one rank fails in the middle of its work, in one of the ways in which real training scripts do.

The flags say how its group is torn down: --destroy calls destroy_process_group() in a "finally", before Python has said anything of the
exception; --slow-finally SECONDS keeps the guilty rank busy right after that, before Python has said anything; --slow-exit SECONDS keeps it busy in an
atexit handler, when Python has, so that it outlives its victims.
"""

import argparse
import atexit
import os
import time

import torch
import torch.distributed as dist


def train(rank, guilty):
    grad = torch.ones(1000)
    for step in range(1, 21):
        if rank == guilty and step == 10:
            raise ValueError(f"rank {rank} has had enough")
        dist.all_reduce(grad)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--guilty", type=int, default=1)
    parser.add_argument("--destroy", action="store_true")
    parser.add_argument("--slow-finally", type=float, default=0)
    parser.add_argument("--slow-exit", type=float, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if args.slow_exit and rank == args.guilty:
        atexit.register(time.sleep, args.slow_exit)
    dist.init_process_group("gloo")
    dist.barrier()
    try:
        train(rank, args.guilty)
    finally:
        if args.destroy:
            dist.destroy_process_group()
        if rank == args.guilty:
            time.sleep(args.slow_finally)


main()
