"""A worker that fails in the way that its first argument names if its rank is the second, and else waits to be stopped."""
import json
import os
import resource
import signal
import sys
import time

how, guilty = sys.argv[1], sys.argv[2]


def wait():
    print("ready", os.getpid(), flush=True)
    while True:
        signal.pause()


def record(text):
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
        f.write(text)


def recorded():
    stack = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\nRuntimeError: no data\n'
    extra = {"py_callstack": stack, "timestamp": str(int(time.time()))}
    record(json.dumps({"message": {"message": "RuntimeError: no data", "extraInfo": extra}}))


if os.environ["RANK"] != guilty:
    wait()
elif how == "succeed":
    pass
elif how == "exception":
    raise ValueError("no data")
elif how == "exit":
    sys.exit(3)
elif how == "segv":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)
elif how == "import":
    import a_module_that_nobody_has
elif how == "error_file":
    recorded()
    sys.exit(1)
elif how == "error_file_success":
    recorded()
elif how == "error_file_half":
    record('{"message": {"message": "RuntimeErr')
    sys.exit("cut short")
elif how == "eat":
    hoard = []
    while True:
        hoard.append(bytearray(1 << 20))
elif how == "stuck":
    recorded()
    wait()
else:
    wait()
