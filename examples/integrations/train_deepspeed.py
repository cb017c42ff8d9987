"""One step with DeepSpeed: elasticrun --nproc-per-node 2 train_deepspeed.py"""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed

deepspeed.init_distributed(dist_backend="nccl" if torch.cuda.is_available() else "gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0}, "zero_allow_untested_optimizer": True}
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
loss = engine(torch.randn(4, 4).to(engine.device)).pow(2).mean()
engine.backward(loss)
engine.step()
print("deepspeed: rank", engine.global_rank, "of", engine.world_size, "trained")
deepspeed.comm.destroy_process_group()
