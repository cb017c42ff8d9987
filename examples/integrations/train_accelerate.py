"""One step with Accelerate: elasticrun --nproc-per-node 2 train_accelerate.py"""

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=not torch.cuda.is_available())
torch.manual_seed(accelerator.process_index)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for batch in data:
    loss = model(batch).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
same = accelerator.gather(weights.unsqueeze(0))
assert torch.equal(same[0], same[-1]), same
print("accelerate: rank", accelerator.process_index, "of", accelerator.num_processes, "trained")
accelerator.end_training()
