"""A gloo job in which one rank raises an exception during training, as in real training scripts.

The flags select how the process group is torn down:

    --destroy                call destroy_process_group() in a "finally", before Python prints the exception
    --slow-finally SECONDS   the failing rank sleeps after that, before Python prints the exception
    --slow-exit SECONDS      the failing rank sleeps in an atexit handler, after Python has printed the exception, so
                             that it exits after the peers that its failure stopped
"""

import argparse
import atexit
import os
import time

import torch
import torch.distributed as dist


def train(rank, failing_rank):
    grad = torch.ones(1000)
    for step in range(1, 21):
        if rank == failing_rank and step == 10:
            raise ValueError(f"rank {rank} has had enough")
        dist.all_reduce(grad)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--failing-rank", type=int, default=1)
    parser.add_argument("--destroy", action="store_true")
    parser.add_argument("--slow-finally", type=float, default=0)
    parser.add_argument("--slow-exit", type=float, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if args.slow_exit and rank == args.failing_rank:
        atexit.register(time.sleep, args.slow_exit)
    dist.init_process_group("gloo")
    dist.barrier()
    try:
        train(rank, args.failing_rank)
    finally:
        if args.destroy:
            dist.destroy_process_group()
        if rank == args.failing_rank:
            time.sleep(args.slow_finally)


main()
