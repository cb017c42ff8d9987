"""A worker: fail.py HOW RANK. The worker of that rank fails as HOW says. The others wait to be stopped."""
import json
import os
import resource
import signal
import sys
import time

how, failing_rank = sys.argv[1], sys.argv[2]


def wait():
    print("ready", os.getpid(), flush=True)
    while True:
        signal.pause()


def write_error(text):
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
        f.write(text)


def write_record():
    stack = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\nRuntimeError: no data\n'
    extra = {"py_callstack": stack, "timestamp": str(int(time.time()))}
    write_error(json.dumps({"message": {"message": "RuntimeError: no data", "extraInfo": extra}}))


if os.environ["RANK"] != failing_rank:
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
    write_record()
    sys.exit(1)
elif how == "error_file_success":
    write_record()
elif how == "error_file_half":
    write_error('{"message": {"message": "RuntimeErr')
    sys.exit("cut short")
elif how == "eat":
    hoard = []
    while True:
        hoard.append(bytearray(1 << 20))
elif how == "stuck":
    write_record()
    wait()
else:
    wait()
