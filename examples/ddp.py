"""Trains a digit classifier with torch's DistributedDataParallel over gloo, on CPUs.

    elasticrun --nproc-per-node 4 --max-restarts 1 examples/ddp.py --checkpoint-dir /tmp/ddp

It has the data, arguments and checks of digits/train.py. All workers must see the same checkpoint folder. It needs
torch 1.13 or later, and no numpy.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

from digits import data, job

LEARNING_RATE = 0.5
MOMENTUM = 0.9
HIDDEN = 32


def shard(images, labels, rank, world_size):
    """Returns one worker's share: every world_size-th image with its label."""
    return torch.tensor(images[rank::world_size], dtype=torch.float64), torch.tensor(labels[rank::world_size])


# The tensors of all reductions, kept beyond the life of the process group to avoid a deadlock. A gloo thread that
# drops the last reference to a tensor needs the interpreter's lock. destroy_process_group of torch 1.13 holds that
# lock while it waits for the thread.
reduced = []


def sum_over_workers(*values):
    total = torch.tensor(values, dtype=torch.float64)
    reduced.append(total)
    dist.all_reduce(total)
    return total.tolist()


def save(path, steps, model, optimizer):
    momentum = [optimizer.state[parameter]["momentum_buffer"] for parameter in model.parameters()]
    # Only tensors and an int: torch 1.13 cannot load other types with weights_only.
    state = {"steps": steps, "model": model.state_dict(), "momentum": momentum}
    job.replace(path, lambda temporary: torch.save(state, temporary))


def restore(path, model, optimizer):
    """Loads the checkpoint if it exists, and returns the number of completed steps."""
    steps = 0
    if os.path.exists(path):
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        for parameter, buffer in zip(model.parameters(), state["momentum"]):
            optimizer.state[parameter]["momentum_buffer"] = buffer
        steps = state["steps"]
    if sum_over_workers(steps)[0] != steps * dist.get_world_size():
        job.fail(f"the workers find different checkpoints at {path}: want a folder that all workers share")
    return steps


@record  # writes the traceback of an exception to TORCHELASTIC_ERROR_FILE, for the launcher's report
def main():
    args = job.parse("Trains a digit classifier with DistributedDataParallel.", data.PATH)
    path = os.path.join(args.checkpoint_dir, "checkpoint.pt")
    try:
        os.makedirs(args.checkpoint_dir, exist_ok=True)
        images, labels, test_images, test_labels = data.load(args.data)
    except (OSError, ValueError) as error:
        job.fail(error)
    first = args.rank == 0

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(data.PIXELS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, data.CLASSES)).double()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)
    cross_entropy = nn.CrossEntropyLoss(reduction="sum")
    steps = restore(path, model, optimizer)
    if steps > args.steps:
        job.fail(f"the checkpoint in {args.checkpoint_dir} is at step {steps}, beyond --steps {args.steps}")
    parallel = DistributedDataParallel(model)
    x, y = shard(images, labels, args.rank, args.world_size)
    test_x, test_y = shard(test_images, test_labels, args.rank, args.world_size)

    @torch.no_grad()
    def measure():
        """Returns (mean loss on all training images, fraction of correctly classified test images)."""
        right = (model(test_x).argmax(1) == test_y).sum().item()
        loss, right = sum_over_workers(cross_entropy(model(x), y).item(), right)
        return loss / len(images), right / len(test_images)

    if first:
        begin = f"continuing after step {steps}" if steps else "starting without a checkpoint"
        job.say(f"attempt {args.attempt}: {args.world_size} workers, {len(images)} training images, {begin}")
    while steps < args.steps:
        job.fail_if_requested(args, steps + 1)
        optimizer.zero_grad()
        # DDP averages the gradients of the workers. The factor world_size turns the mean into a sum, which also holds
        # for shares of different sizes.
        loss = cross_entropy(parallel(x), y) * args.world_size / len(images)
        loss.backward()
        optimizer.step()
        steps += 1
        if first and (steps % args.checkpoint_every == 0 or steps == args.steps):
            save(path, steps, model, optimizer)
        if steps % args.report_every == 0:
            loss, accuracy = measure()
            if first:
                job.say(f"step {steps:3}  loss {loss:.6f}  test accuracy {accuracy:.2%}")
    loss, accuracy = measure()
    if first:
        # DDP rebuilds its buckets after the first step of each attempt, which changes the order of gloo's sums. So
        # the last bits of an interrupted run may differ, and the loss is rounded.
        job.report_end(args, round(loss, 9), accuracy)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
