#!/usr/bin/env python3
"""Measures elasticrun and the programs it is compared with, in the same run.

    scripts/bench.py ELASTICRUN [--runs 5] [--megabytes 200] [--only NAME,...]

    launch    wall time of a job whose two workers run true, minus that of two bare true
    memory    peak resident memory of the launcher's own processes, without workers
    restart   time from a worker's death to the first instruction of the last restarted worker
    output    4 workers that write MEGABYTES each through --tee 3, compared with 4 tee FILE into one cat

It also measures torchrun 2.14 if scripts/torch-root.sh has made its root. Times are medians. Absolute times mean little
on a busy machine, so compare the values of one run.
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
DEVNULL = subprocess.DEVNULL


def launchers(elasticrun):
    """Returns the commands to compare, by name."""
    found = {"elasticrun": [elasticrun]}
    cache = os.environ.get("ELASTICRUN_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "elasticrun")
    root = os.path.join(cache, "roots", "forky")
    if os.path.exists(os.path.join(root, ".elasticrun")):
        found["torchrun 2.14"] = [str(HERE / "in-torch-root.sh"), root, "/usr/bin/torchrun"]
    else:
        print("torchrun is not measured: make its root with scripts/torch-root.sh forky", file=sys.stderr)
    return found


def job(launcher, nproc, *arguments, **options):
    """Starts a job whose workers are not Python programs, without output."""
    command = [*launcher, "--standalone", f"--nproc-per-node={nproc}", *arguments]
    return subprocess.Popen(command, **{"stdout": DEVNULL, "stderr": DEVNULL, "env": environment(), **options})


def environment(**variables):
    return {**os.environ, "OMP_NUM_THREADS": "1", **variables}


def finish(process):
    # wait with a time-out would look for the end at growing intervals, such as after 31 ms and after 63 ms.
    limit = threading.Timer(600, process.kill)
    limit.start()
    code = process.wait()
    limit.cancel()
    if code != 0:
        sys.exit(f"bench.py: exit code {process.returncode}: {' '.join(process.args)}")


def wait_for(condition, process):
    """Waits until the condition holds. The job must not end before that."""
    while not condition():
        if process.poll() is not None:
            sys.exit(f"bench.py: ended too early with {process.returncode}: {' '.join(process.args)}")
        time.sleep(0.01)


def launch(launcher, folder):
    """Returns the job's wall time in seconds, minus that of two bare processes."""
    start = time.perf_counter()
    for process in [subprocess.Popen(["true"]) for _ in range(2)]:
        finish(process)
    bare = time.perf_counter() - start
    start = time.perf_counter()
    finish(job(launcher, 2, "--no-python", "true"))
    return time.perf_counter() - start - bare


def own_peaks(mark):
    """Returns VmHWM in bytes of each marked process that is not a worker."""
    peaks = []
    for proc in pathlib.Path("/proc").iterdir():
        try:
            variables = (proc / "environ").read_bytes().split(b"\0")
            status = (proc / "status").read_text()
        except OSError:
            continue  # not a process, another user's process, or gone
        if mark.encode() in variables and not any(v.startswith(b"RANK=") for v in variables):
            peaks += [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")]
    return peaks


def memory(launcher, folder):
    """Returns the sum of the launcher's peaks in bytes, while two workers wait."""
    identity = uuid.uuid4().hex
    script = f"touch {folder}/ready.$RANK; while [ ! -e {folder}/go ]; do sleep 0.05; done"
    process = job(launcher, 2, "--no-python", "sh", "-c", script, env=environment(BENCH_JOB=identity))
    wait_for(lambda: all((folder / f"ready.{rank}").exists() for rank in (0, 1)), process)
    peaks = own_peaks(f"BENCH_JOB={identity}")
    (folder / "go").touch()
    finish(process)
    return sum(peaks)


def restart(launcher, folder):
    """Returns seconds from rank 0's death to the restart of both workers. bash reads the time without a process."""
    script = f"""
        first=$EPOCHREALTIME
        if [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]; then echo $first >{folder}/again.$RANK; exit; fi
        touch {folder}/ready.$RANK
        [ "$RANK" = 0 ] || exec sleep 60
        while [ ! -e {folder}/ready.1 ]; do sleep 0.01; done
        echo $EPOCHREALTIME >{folder}/death
        kill -9 $$"""
    finish(job(launcher, 2, "--max-restarts=1", "--no-python", "bash", "-c", script))
    again = max(float((folder / f"again.{rank}").read_text()) for rank in (0, 1))
    return again - float((folder / "death").read_text())


# The program of an output worker: it writes SIZE bytes in lines of LENGTH bytes, 64 KiB at a time, and then its CPU
# time to a file.
WRITER = """
import os, sys
size, length, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
block = (b"x" * (length - 1) + b"\\n") * (65536 // length)
while size > 0:
    size -= os.write(1, block[:size])
times = os.times()
open(path + str(os.getpid()), "w").write(str(times.user + times.system))
"""


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def tee_output(writer, folder):
    """Returns the wall time of the tee pipelines in seconds."""
    start = time.perf_counter()
    lines = [f'"$@" {folder}/cpu. | tee {folder}/tee.{i} &' for i in range(4)]
    finish(subprocess.Popen(["sh", "-c", "{ " + " ".join(lines) + " wait; } | cat >/dev/null", "sh", *writer]))
    return time.perf_counter() - start


def elasticrun_output(elasticrun, writer, folder):
    """Returns the job's wall time and the launcher's CPU time in seconds. The console is a pipe, as with tee."""
    before, start = cpu_seconds(), time.perf_counter()
    console = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=DEVNULL)
    flags = [f"--log-dir={folder}/logs", "--tee=3", "--no-python"]
    finish(job(elasticrun, 4, *flags, *writer, f"{folder}/cpu.", stdout=console.stdin))
    cpu = cpu_seconds() - before - sum(float(path.read_text()) for path in folder.glob("cpu.*"))
    console.stdin.close()
    finish(console)
    return time.perf_counter() - start, cpu


def output(elasticrun, size, length, elasticrun_first):
    """Returns the wall times of the job and of tee in seconds, and the launcher's CPU seconds per GB.

    Each side deletes its files before the other starts. Otherwise the second side would wait for new page cache memory.
    """
    writer = [sys.executable, "-c", WRITER, str(size), str(length)]
    for side in ("elasticrun", "tee") if elasticrun_first else ("tee", "elasticrun"):
        with tempfile.TemporaryDirectory() as folder:
            if side == "tee":
                tee = tee_output(writer, folder)
            else:
                seconds, cpu = elasticrun_output(elasticrun, writer, pathlib.Path(folder))
    return seconds, tee, cpu / (4 * size / 1e9)


def compare(name, measure, unit, scale, limit, found, runs):
    samples = {launcher: [] for launcher in found}
    for _ in range(runs):
        for launcher, command in found.items():
            with tempfile.TemporaryDirectory() as folder:
                samples[launcher].append(measure(command, pathlib.Path(folder)) * scale)
    for launcher, values in samples.items():
        goal = f"   (goal: at most {limit} {unit})" if launcher == "elasticrun" else ""
        print(f"{name:8} {launcher:14} {statistics.median(values):9.1f} {unit}{goal}", flush=True)


def compare_output(elasticrun, megabytes, runs):
    for length in (80, 8192):
        samples = []
        for turn in range(runs):
            samples.append(output(elasticrun, megabytes * 1_000_000, length, turn % 2 == 1))
        seconds, tee, cpu = (statistics.median(column) for column in zip(*samples))
        ratio = statistics.median(a / b for a, b, _ in samples)
        print(f"output   {length:4}-byte lines {seconds:9.2f} s, tee {tee:.2f} s, ratio {ratio:.2f}"
              f"   (goal: at most 1.5); {cpu:.2f} CPU s per GB", flush=True)


def measure_all(options):
    only = options.only.split(",")
    found = launchers(os.path.abspath(options.elasticrun))
    for name, measure, unit, scale, limit in [
        ("launch", launch, "ms", 1e3, 40),
        ("memory", memory, "MB", 1e-6, 40),
        ("restart", restart, "ms", 1e3, 20),
    ]:
        if name in only:
            compare(name, measure, unit, scale, limit, found, options.runs)
    if "output" in only:
        compare_output(found["elasticrun"], options.megabytes, options.runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("elasticrun")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--only", default="launch,memory,restart,output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # torchrun leaves its log folders behind
        measure_all(options)


if __name__ == "__main__":
    main()
