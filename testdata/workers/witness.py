"""A worker without torch that records when it was alive. Tests check that workers of two rounds never run at once.

    witness.py --dir DIR [options]

It does not train and opens no connection. All hosts share the folder DIR:

    DIR/lives/*.jsonl   one file per process: first its ranks, then a time (CLOCK_MONOTONIC, seconds) every 10 ms
    DIR/stop            when this file exists, every worker exits with code 0
    DIR/fail.RANK       when this file exists, the worker of that rank removes it and exits with code 42
"""

import argparse
import json
import os
import signal
import socket
import sys
import time

ENVIRONMENT = {"round": "ELASTICRUN_ROUND", "restart": "TORCHELASTIC_RESTART_COUNT", "world": "WORLD_SIZE",
               "rank": "RANK", "local": "LOCAL_RANK", "group": "GROUP_RANK", "port": "MASTER_PORT"}


def parse():
    parser = argparse.ArgumentParser(description="Records when it was alive.")
    option = parser.add_argument
    option("--dir", required=True, help="folder shared by all hosts")
    option("--ignore-term", action="store_true", help="ignore SIGTERM")
    option("--child", action="store_true", help="start a child that ignores SIGTERM and never exits")
    option("--detached", action="store_true",
           help="start such a grandchild in a session of its own, whose parent has exited")
    return parser.parse_args()


def record_times(folder, kind, stop_requested):
    """Writes the time every 10 ms until stop_requested returns true. Each time proves that the process was alive."""
    process = {key: int(os.environ[name]) for key, name in ENVIRONMENT.items()}
    process |= {"kind": kind, "addr": os.environ["MASTER_ADDR"], "host": socket.gethostname(), "pid": os.getpid(),
                "job": os.environ["TORCHELASTIC_RUN_ID"]}
    os.makedirs(os.path.join(folder, "lives"), exist_ok=True)
    # The kernel may reuse a pid, so the name also contains the time.
    name = f"{process['round']}.{process['host']}.{process['pid']}.{time.monotonic_ns()}.jsonl"
    path = os.path.join(folder, "lives", name)
    with open(path, "a", buffering=1) as out:
        out.write(json.dumps(process) + "\n")
        while not stop_requested():
            out.write(f"{time.monotonic():.6f}\n")
            time.sleep(0.01)


def fork(folder, detached):
    """Starts a child that never exits. A detached child has a session of its own, and its parent exits."""
    if os.fork() != 0:
        return
    if detached:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    record_times(folder, "detached" if detached else "child", lambda: False)


def main():
    args = parse()
    if args.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.child:
        fork(args.dir, False)
    if args.detached:
        fork(args.dir, True)
    fail = os.path.join(args.dir, "fail." + os.environ["RANK"])

    def stop_requested():
        if os.path.exists(fail):
            os.remove(fail)
            print("fails, as a fail file requests", file=sys.stderr, flush=True)
            os._exit(42)
        return os.path.exists(os.path.join(args.dir, "stop"))

    record_times(args.dir, "worker", stop_requested)


if __name__ == "__main__":
    main()
