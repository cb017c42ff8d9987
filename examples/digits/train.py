"""Trains a digit classifier with several workers, using only Python's standard library.

    elasticrun --nproc-per-node 4 --max-restarts 1 examples/digits/train.py --checkpoint-dir /tmp/digits

The model is softmax regression, trained by gradient descent with momentum. Each worker computes the gradient of its
share of the images, and the workers sum the gradients through the worker store. Nothing is random, and sums are made
in rank order. So a run that resumes from its checkpoint ends with exactly the weights of an uninterrupted run.
"""

import json
import math
import os
from operator import mul

import data
import job
from group import Group
from store import Store

LEARNING_RATE = 0.5
MOMENTUM = 0.9
INPUTS = data.PIXELS + 1  # the pixels and a constant 1, whose weight is the bias
WEIGHTS = data.CLASSES * INPUTS


class Shard:
    """One worker's share of the labeled images: every world_size-th image."""

    def __init__(self, images, labels, rank, world_size):
        self.images = [image + [1.0] for image in images[rank::world_size]]
        self.labels = labels[rank::world_size]
        self.columns = list(zip(*self.images))

    def probabilities(self, weights):
        """Returns, for each image, the probability of each class."""
        rows = [weights[start : start + INPUTS] for start in range(0, WEIGHTS, INPUTS)]
        return [softmax([sum(map(mul, row, image)) for row in rows]) for image in self.images]

    def gradient(self, weights):
        """Returns the gradient of the cross entropy, summed over the images."""
        errors = self.probabilities(weights)
        for error, label in zip(errors, self.labels):
            error[label] -= 1.0
        return [sum(map(mul, error, column)) for error in zip(*errors) for column in self.columns]

    def loss(self, weights):
        """Returns the cross entropy, summed over the images."""
        return -sum(math.log(p[label]) for p, label in zip(self.probabilities(weights), self.labels))

    def correct(self, weights):
        """Returns the number of correctly classified images."""
        return sum(p.index(max(p)) == label for p, label in zip(self.probabilities(weights), self.labels))


def softmax(scores):
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


class Trainer:
    """The training state, identical on every worker: weights, velocity and number of completed steps."""

    def __init__(self, group, images, labels, test_images, test_labels):
        self.group = group
        self.images, self.test_images = len(images), len(test_images)
        self.training = Shard(images, labels, group.rank, group.world_size)
        self.test = Shard(test_images, test_labels, group.rank, group.world_size)
        self.weights = [0.0] * WEIGHTS
        self.velocity = [0.0] * WEIGHTS
        self.steps = 0

    def step(self):
        gradient = self.group.all_reduce(self.training.gradient(self.weights))
        rate = LEARNING_RATE / self.images
        self.velocity = [MOMENTUM * v - rate * g for v, g in zip(self.velocity, gradient)]
        self.weights = [w + v for w, v in zip(self.weights, self.velocity)]
        self.steps += 1

    def measure(self):
        """Returns (mean loss on all training images, fraction of correctly classified test images)."""
        loss, correct = self.group.all_reduce([self.training.loss(self.weights), self.test.correct(self.weights)])
        return loss / self.images, correct / self.test_images

    def save(self, path):
        # JSON keeps every bit of a double: Python writes the shortest decimal that reads back as the same double.
        state = {"steps": self.steps, "weights": self.weights, "velocity": self.velocity}

        def write(temporary):
            with open(temporary, "w") as file:
                json.dump(state, file)

        job.replace(path, write)

    def load(self, path):
        """Broadcasts rank 0's checkpoint at path to every worker. Without that file training starts at step 0."""
        state = None
        if self.group.rank == 0:
            state = [self.steps, *self.weights, *self.velocity]
            if os.path.exists(path):
                state = read_checkpoint(path)
        steps, *values = self.group.broadcast(state)
        self.steps, self.weights, self.velocity = int(steps), values[:WEIGHTS], values[WEIGHTS:]


def read_checkpoint(path):
    """Returns steps, weights and velocity in one list."""
    try:
        with open(path) as file:
            state = json.load(file)
        values = [float(value) for value in [state["steps"], *state["weights"], *state["velocity"]]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        job.fail(f"cannot use checkpoint {path}: {error!r}; remove it to start again")
    if len(values) != 1 + 2 * WEIGHTS:
        want = 1 + 2 * WEIGHTS
        job.fail(f"cannot use checkpoint {path}: {len(values)} numbers, want {want}; remove it to start again")
    return values


def main():
    args = job.parse("Trains a digit classifier with several workers.", data.PATH)
    path = os.path.join(args.checkpoint_dir, "checkpoint.json")
    try:
        os.makedirs(args.checkpoint_dir, exist_ok=True)
        dataset = data.load(args.data)
    except (OSError, ValueError) as error:
        job.fail(error)
    try:
        store = Store(args.master_addr, args.master_port)
    except OSError as error:
        job.fail(f"cannot reach the worker store at {args.master_addr}:{args.master_port}: {error}")
    group = Group(store, args.rank, args.world_size)
    trainer = Trainer(group, *dataset)
    trainer.load(path)
    if trainer.steps > args.steps:
        job.fail(f"the checkpoint in {args.checkpoint_dir} is at step {trainer.steps}, beyond --steps {args.steps}")

    first = args.rank == 0
    if first:
        begin = f"continuing after step {trainer.steps}" if trainer.steps else "starting without a checkpoint"
        job.say(f"attempt {args.attempt}: {args.world_size} workers, {trainer.images} training images, {begin}")
    while trainer.steps < args.steps:
        job.fail_if_requested(args, trainer.steps + 1)
        trainer.step()
        if first and (trainer.steps % args.checkpoint_every == 0 or trainer.steps == args.steps):
            trainer.save(path)
        if trainer.steps % args.report_every == 0:
            loss, accuracy = trainer.measure()
            if first:
                job.say(f"step {trainer.steps:3}  loss {loss:.6f}  test accuracy {accuracy:.2%}")
    loss, accuracy = trainer.measure()
    if first:
        job.report_end(args, loss, accuracy)
    group.finish()
    store.close()


if __name__ == "__main__":
    main()
