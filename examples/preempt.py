"""Training that saves before its nodes are taken away, and goes on from there in the next run.

    elasticrun --nnodes=2 --preempt-signals=USR1 preempt.py --checkpoint /shared/checkpoint.pt

A signal to the launcher of any one node makes $ELASTICRUN_PREEMPT_FILE appear on all nodes. The ranks see it at
different steps, so they agree before each step whether to save now. docs/preemption.md explains the rest.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint", default="checkpoint.pt", help="a file that all nodes can read")
parser.add_argument("--steps", type=int, default=1000)
args = parser.parse_args()

dist.init_process_group("gloo")  # with NCCL make a second group for the tensor below: dist.new_group(backend="gloo")
preempt_file = os.environ.get("ELASTICRUN_PREEMPT_FILE", "")  # torchrun sets none
weights, first = torch.zeros(8), 0
if os.path.exists(args.checkpoint):
    weights, first = torch.load(args.checkpoint)


def preempted():
    """Returns the same on all ranks."""
    seen = torch.tensor([int(os.path.exists(preempt_file))])
    dist.all_reduce(seen, op=dist.ReduceOp.MAX)
    return bool(seen.item())


for step in range(first, args.steps):
    if preempted():
        if dist.get_rank() == 0:
            torch.save((weights, step), args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)
            print(f"saved before step {step}", flush=True)
        dist.barrier()
        dist.destroy_process_group()
        sys.exit(0)
    gradient = torch.full((8,), float(step))
    dist.all_reduce(gradient)
    weights -= 0.01 * gradient
    if step % 100 == 0 and dist.get_rank() == 0:
        print(f"step {step}", flush=True)

# All work is done: if the signal comes now, the job has succeeded and need not run again.
if control_file := os.environ.get("ELASTICRUN_CONTROL_FILE"):
    with open(control_file, "w") as file:
        file.write("finished\n")
dist.destroy_process_group()
