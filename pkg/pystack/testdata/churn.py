"""Calls, returns, compiles and starts threads all the time.

down_9 calls down_8, and so on. Each is compiled anew in each turn, in a file and at lines that have its number, so that
a frame's file, line and function must agree. The file also has the number of empty lines in the function.
"""

import sys
import threading

DEPTH = 10


# Locals that nobody sets make a frame larger than a page, so that a reader cannot see two frames at one moment.
LOCALS = " = ".join(f"local_{i}" for i in range(600))


def compiled(n, gap, below):
    lines = "\n" * (3 * n) + f"def down_{n}():\n  for i in range(3):" + "\n" * gap
    lines += f"\n    below()\n  if not below: {LOCALS} = 0"
    names = {"below": below}
    exec(compile(lines, f"<number {n} {gap}>", "exec"), names)
    return names[f"down_{n}"]


def turn(gap):
    call = int
    for n in range(DEPTH):
        call = compiled(n, gap, call)
    call()


def forever():
    while True:
        for gap in range(5):
            turn(gap)


def starts_threads():
    while True:
        thread = threading.Thread(target=turn, args=(1,))
        thread.start()
        thread.join()


print("ready", flush=True)
if "alone" not in sys.argv:  # with other threads, each one mostly waits for its turn
    threading.Thread(target=forever, daemon=True).start()
    threading.Thread(target=starts_threads, daemon=True).start()
forever()
