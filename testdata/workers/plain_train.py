"""ddp_train.py without torch, so that a worker starts at once: the workers exchange numbers over plain sockets.

    plain_train.py --dir DIR [options]

Options, files and record are those of ddp_train.py. Rank 0 publishes its port in the worker store, and the other
workers connect to it. When a worker dies, its peers fail with gloo's words, by which elasticrun recognizes victims.
"""

import contextlib
import json
import math
import os
import random
import socket
import struct
import sys

import ddp_train

sys.path.append(os.path.join(os.path.dirname(ddp_train.__file__), "../../examples/digits"))
from store import Store  # noqa: E402

INPUTS = 4


@contextlib.contextmanager
def errors_of_gloo():
    try:
        yield
    except OSError as error:
        raise RuntimeError(f"[./gloo/transport/tcp/pair.cc:547] Connection closed by peer: {error}") from None


class Model:
    """Linear regression, trained by gradient descent with momentum. The methods are those of ddp_train.Model."""

    def __init__(self, record):
        record.line("imported")
        self.rank, self.world = record.rank, record.world
        self.weights, self.velocity = [0.0] * INPUTS, [0.0] * INPUTS
        self.peers = []  # files of the connections: rank 0 has one to each other worker
        if self.world > 1:
            self.connect(os.environ["MASTER_ADDR"])

    @errors_of_gloo()
    def connect(self, host):
        store = Store(host, int(os.environ["MASTER_PORT"]))
        if self.rank == 0:
            server = socket.create_server(("", 0), backlog=self.world)
            store.set("port", str(server.getsockname()[1]).encode())
            connections = [server.accept()[0] for _ in range(self.world - 1)]
        else:
            connections = [socket.create_connection((host, int(store.get("port"))))]
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.peers.append(connection.makefile("rwb"))

    def load(self, path):
        with open(path) as file:
            step, self.weights, self.velocity = json.load(file)
        return step

    def save(self, path, step):
        with open(path, "w") as file:
            json.dump([step, self.weights, self.velocity], file)

    def agree(self, proceed):
        return self.all_reduce([float(self.rank == 0 and proceed)]) == [1.0]

    def step(self, number):
        numbers = random.Random(number)
        batch = [[numbers.uniform(-1, 1) for _ in range(INPUTS)] for _ in range(ddp_train.GLOBAL_BATCH)]
        gradient, loss = [0.0] * INPUTS, 0.0
        for x in batch[self.rank::self.world]:
            error = sum(w * v for w, v in zip(self.weights, x)) - math.sin(sum(x))
            loss += error * error / len(batch)
            gradient = [g + 2 * error * v / len(batch) for g, v in zip(gradient, x)]
        *gradient, loss = self.all_reduce([*gradient, loss])
        self.velocity = [0.9 * v - 0.1 * g for v, g in zip(self.velocity, gradient)]
        self.weights = [w + v for w, v in zip(self.weights, self.velocity)]
        return loss

    def close(self):
        for peer in self.peers:
            peer.close()

    @errors_of_gloo()
    def all_reduce(self, values):
        """Returns the element-wise sum over all workers, which rank 0 computes."""
        layout = f"{len(values)}d"
        if self.rank > 0:
            self.send(struct.pack(layout, *values))
        for peer in self.peers:
            data = peer.read(struct.calcsize(layout))
            if len(data) < struct.calcsize(layout):
                raise ConnectionError("end of file")
            received = struct.unpack(layout, data)
            values = [a + b for a, b in zip(values, received)] if self.rank == 0 else list(received)
        if self.rank == 0:
            self.send(struct.pack(layout, *values))
        return values

    def send(self, data):
        for peer in self.peers:
            peer.write(data)
            peer.flush()


if __name__ == "__main__":
    ddp_train.main(Model)
