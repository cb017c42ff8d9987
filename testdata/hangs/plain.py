"""Ranks that exchange numbers over plain sockets, until the odd one hangs. Needs no torch.

    HANG=NAME HANG_RANK=RANK HANG_BEGUN=FIFO plain.py

In step 5 the rank HANG_RANK calls the function NAME of hangs.py. It writes its name and rank to the FIFO right before
it hangs. The other ranks wait for it in a collective.
"""

import os
import socket
import struct
import sys
import time

import hangs

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/digits"))
from store import Store  # noqa: E402

MESSAGE = "<cqd"  # the kind of the collective, its number, and a value
HANG_STEP = 5


class Mesh:
    """Connections between all ranks. A collective takes only the messages of its own kind and number."""

    def __init__(self):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.odd = int(os.environ.get("HANG_RANK", "-1"))
        self.store = Store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self.peers, self.early, self.number = {}, {}, 0
        server = socket.create_server(("127.0.0.1", 0))
        self.store.set(f"port{self.rank}", str(server.getsockname()[1]).encode())
        for peer in range(self.rank):
            self.peers[peer] = socket.create_connection(("127.0.0.1", int(self.store.get(f"port{peer}"))))
            self.peers[peer].sendall(bytes([self.rank]))
        for _ in range(self.rank + 1, self.world):
            connection, _ = server.accept()
            self.peers[connection.recv(1)[0]] = connection
        for connection in self.peers.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self):
        """Reports that the hang begins."""
        with open(os.environ["HANG_BEGUN"], "w") as fifo:
            fifo.write(f"{self.rank} {os.getpid()}\n")

    def send(self, kind, value):
        for connection in self.peers.values():
            connection.sendall(struct.pack(MESSAGE, kind, self.number, value))

    def receive(self, kind, peers):
        """Returns the sum of what the peers sent in this collective."""
        return sum(self.from_peer(peer, kind) for peer in peers)

    def from_peer(self, peer, kind):
        while (peer, kind, self.number) not in self.early:
            data = self.peers[peer].recv(struct.calcsize(MESSAGE), socket.MSG_WAITALL)
            if len(data) < struct.calcsize(MESSAGE):
                raise ConnectionError(f"Connection closed by peer {peer}")
            theirs, number, value = struct.unpack(MESSAGE, data)
            self.early[peer, theirs, number] = value
        return self.early.pop((peer, kind, self.number))

    def all_reduce(self, value):
        self.number += 1
        self.send(b"r", value)
        return value + self.receive(b"r", sorted(self.peers))

    def barrier(self):
        self.number += 1
        self.send(b"b", 0)
        self.receive(b"b", sorted(self.peers))

    def broadcast(self, value):
        """Returns rank 0's value."""
        self.number += 1
        if self.rank > 0:
            return self.receive(b"c", [0])
        self.send(b"c", value)
        return value

    def wait_for_key(self, key):
        self.store.get(key)


def step(mesh):
    """One step of the training."""
    gradient = sum(x * x % 7 for x in range(2000))
    time.sleep(0.01)
    return mesh.all_reduce(float(gradient))


def main():
    name = os.environ["HANG"]
    mesh = Mesh()
    act = getattr(hangs, name) if mesh.rank == mesh.odd else hangs.OTHERS.get(name, step)
    for number in range(1, 1_000_000):
        if number == HANG_STEP:
            act(mesh)
        else:
            step(mesh)


if __name__ == "__main__":
    main()
