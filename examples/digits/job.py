"""Code shared by the training scripts: arguments, environment, injected failures, atomic files and the result."""

import argparse
import os
import signal
import sys

# The launcher sets these variables for each worker. Each has a name in the arguments, a type and a default.
ENVIRONMENT = {
    "RANK": ("rank", int, None),
    "WORLD_SIZE": ("world_size", int, None),
    "MASTER_ADDR": ("master_addr", str, None),
    "MASTER_PORT": ("master_port", int, None),
    "TORCHELASTIC_RESTART_COUNT": ("attempt", int, "0"),
}


def parse(description, data_path):
    """Returns the command-line arguments with the launcher's variables.

    The variables are args.rank, world_size, attempt, master_addr and master_port. Bad input ends the program with one
    line and exit code 2.
    """
    parser = argparse.ArgumentParser(description=description, usage="%(prog)s --checkpoint-dir DIR [options]")
    option = parser.add_argument
    option("--checkpoint-dir", required=True, metavar="DIR", help="folder of the checkpoint; a run resumes from it")
    option("--checkpoint-every", type=int, default=10, metavar="N", help="steps between checkpoints (10)")
    option("--report-every", type=int, default=10, metavar="N", help="steps between reports (10)")
    option("--steps", type=int, default=60, metavar="N", help="steps to train (60)")
    option("--data", default=data_path, metavar="FILE", help="the images (testdata/digits/digits.csv.gz)")
    option("--kill-at", type=int, metavar="STEP",
           help="in the first attempt, one worker sends itself SIGKILL in this step")
    option("--kill-rank", type=int, default=0, metavar="R", help="that worker's rank (0)")
    option("--fail-at", type=int, metavar="STEP",
           help="in the first attempt, one worker raises an exception in this step")
    option("--fail-rank", type=int, default=0, metavar="R", help="that worker's rank (0)")
    args = parser.parse_args()

    for name, (attribute, kind, default) in ENVIRONMENT.items():
        value = os.environ.get(name) or default
        if value is None:
            fail(f"{name} is not set: start this script with elasticrun")
        try:
            setattr(args, attribute, kind(value))
        except ValueError:
            fail(f"{name} is {value!r}: want a number")
    for name in ("steps", "checkpoint_every", "report_every"):
        if getattr(args, name) < 1:
            fail(f"--{name.replace('_', '-')} is {getattr(args, name)}: want 1 or more")
    for kind in ("kill", "fail"):
        step, rank = getattr(args, f"{kind}_at"), getattr(args, f"{kind}_rank")
        if step is not None and not 1 <= step <= args.steps:
            fail(f"--{kind}-at is {step}: want a step from 1 to {args.steps}")
        if not 0 <= rank < args.world_size:
            fail(f"--{kind}-rank is {rank}: want a rank from 0 to {args.world_size - 1}")
    return args


def fail(message):
    """Ends the program with exit code 2 after one line about bad input."""
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(2)


def say(message):
    # Python buffers output to a pipe, so flush each line.
    print(message, flush=True)


def fail_if_requested(args, step):
    """Applies --kill-at and --fail-at, in the first attempt only, so that the next attempt gets past that step."""
    if args.attempt > 0:
        return
    if (step, args.rank) == (args.kill_at, args.kill_rank):
        say(f"rank {args.rank}: sends itself SIGKILL in step {step}")
        os.kill(os.getpid(), signal.SIGKILL)
    if (step, args.rank) == (args.fail_at, args.fail_rank):
        raise RuntimeError(f"rank {args.rank} fails in step {step}, as --fail-at requests")


def replace(path, write):
    """Replaces the file at path atomically: write(temporary path) writes the new content, a rename puts it at path."""
    temporary = path + ".new"
    write(temporary)
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def report_end(args, loss, accuracy):
    """Prints the result and writes it to result.txt in the checkpoint folder, with every digit of the loss."""
    say(f"final loss {loss:.6f} accuracy {accuracy:.2%}")
    result = f"loss {loss!r}\naccuracy {accuracy:.2%}\nrestarts {args.attempt}\n"

    def write(path):
        with open(path, "w") as file:
            file.write(result)

    replace(os.path.join(args.checkpoint_dir, "result.txt"), write)
