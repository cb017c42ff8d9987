# A worker that sets timers with torch's own client, and hangs in rank 1 before the first restart.
import os, signal
import torch.distributed.elastic.timer as timer

timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
for _ in range(3):
    with timer.expires(after=60):
        pass
restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
if restarts == "0" and os.environ["RANK"] == "1":
    with timer.expires(after=2, scope="step"):
        signal.pause()
with timer.expires(after=60):
    print("finished", restarts)
