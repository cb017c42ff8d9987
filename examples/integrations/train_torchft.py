"""Two steps with torchft. Each replica group is one elasticrun:

torchft_lighthouse --bind '[::]:29510' --min_replicas 2
export TORCHFT_LIGHTHOUSE=http://localhost:29510
REPLICA_GROUP_ID=0 elasticrun train_torchft.py & REPLICA_GROUP_ID=1 elasticrun train_torchft.py
"""

import os
from datetime import timedelta

import torch
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

group = os.environ.get("REPLICA_GROUP_ID", "0")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def load(state):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=30)),
    min_replica_size=2,
    load_state_dict=load,
    state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
    replica_id="replica_" + group + "_",
    timeout=timedelta(seconds=30),
)
replicated, step = DistributedDataParallel(manager, model), Optimizer(manager, optimizer)
while manager.current_step() < 2:
    step.zero_grad()
    replicated(torch.randn(4, 4)).pow(2).mean().backward()
    step.step()
print("torchft: group", group, "of", manager.num_participants(), "trained to step", manager.current_step())
manager.shutdown()
