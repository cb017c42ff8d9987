"""Meets the other ranks at the agent's store by each URL in argv, in which PORT stands for MASTER_PORT. For each URL it
prints "rank URL", or "rank URL: " and what torch wrote to stderr meanwhile."""

import os
import sys
import tempfile
from datetime import timedelta

from torch.distributed.rendezvous import rendezvous

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def meet(url):
    """Returns what torch wrote to stderr, which is the C++ library's too."""
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            address = url.replace("PORT", os.environ["MASTER_PORT"])
            store, _, _ = next(rendezvous(address, rank, world_size, timeout=timedelta(seconds=60)))
            store.set(f"{url} {rank}", "here")
            for other in range(world_size):
                assert store.get(f"{url} {other}") == b"here"
        finally:
            os.dup2(stderr, 2)
        written.seek(0)
        lines = written.read().decode().splitlines()
    # torch looks up the name of the store's address, and warns if the machine's name server does not answer.
    return [line for line in lines if "The hostname of the client socket cannot be retrieved" not in line]


for url in sys.argv[1:]:
    lines = meet(url)
    print(rank, url + (": " if lines else "") + " | ".join(lines), flush=True)
