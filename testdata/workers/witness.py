"""A worker without torch that proves when it was alive, for tests of what must never be alive at the same time.

    witness.py --dir DIR [options]

It trains nothing and talks to nobody. DIR is a folder that all hosts share:

    DIR/lives/*.jsonl   one file for each process: its place in the job, then a time (CLOCK_MONOTONIC, seconds) every 10 ms
    DIR/stop            once this file exists, every worker ends with code 0
    DIR/fail.RANK       the worker of that rank removes this file and ends with code 42
"""

import argparse
import json
import os
import signal
import socket
import sys
import time

PLACE = {"round": "ELASTICRUN_ROUND", "restart": "TORCHELASTIC_RESTART_COUNT", "world": "WORLD_SIZE", "rank": "RANK", "local": "LOCAL_RANK",
         "group": "GROUP_RANK", "port": "MASTER_PORT"}


def parse():
    parser = argparse.ArgumentParser(description="Proves when it was alive.")
    option = parser.add_argument
    option("--dir", required=True, help="folder that all hosts share")
    option("--ignore-term", action="store_true", help="ignore SIGTERM")
    option("--child", action="store_true", help="have a child that ignores SIGTERM and never ends by itself")
    option("--detached", action="store_true", help="have a grandchild like that, in a session of its own, whose parent has ended")
    return parser.parse_args()


def beat(folder, kind, until):
    """Writes proofs of life until told to stop. The process is alive whenever its clock is read."""
    place = {key: int(os.environ[name]) for key, name in PLACE.items()}
    place |= {"kind": kind, "addr": os.environ["MASTER_ADDR"], "host": socket.gethostname(), "pid": os.getpid(), "job": os.environ["TORCHELASTIC_RUN_ID"]}
    os.makedirs(os.path.join(folder, "lives"), exist_ok=True)
    # Appending, and with the time: a process id may come again.
    path = os.path.join(folder, "lives", f"{place['round']}.{place['host']}.{place['pid']}.{time.monotonic_ns()}.jsonl")
    with open(path, "a", buffering=1) as out:
        out.write(json.dumps(place) + "\n")
        while not until():
            out.write(f"{time.monotonic():.6f}\n")
            time.sleep(0.01)


def fork(folder, detached):
    """Starts a child that stays. A detached one leaves the session, and its parent ends."""
    if os.fork() != 0:
        return
    if detached:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    beat(folder, "detached" if detached else "child", lambda: False)


def main():
    args = parse()
    if args.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.child:
        fork(args.dir, False)
    if args.detached:
        fork(args.dir, True)
    fail = os.path.join(args.dir, "fail." + os.environ["RANK"])

    def told():
        if os.path.exists(fail):
            os.remove(fail)
            print("was told to fail", file=sys.stderr, flush=True)
            os._exit(42)
        return os.path.exists(os.path.join(args.dir, "stop"))

    beat(args.dir, "worker", told)


if __name__ == "__main__":
    main()
