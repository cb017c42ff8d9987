"""The script of workers that call a function. launch copies it beside the pickled call, and runs the copy."""

import os
import pickle
import sys

elasticrun_imports_main = False  # launch() refuses to run while it is set


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    files = Files(folder, os.environ["ELASTICRUN_ROUND"], os.environ["RANK"])
    files.write("started", b"")
    with open(os.path.join(folder, "call"), "rb") as f:
        setup = pickle.load(f)
        data = f.read()
    sys.path[:], sys.argv[:] = search_path(setup), setup["argv"]
    try:
        import faulthandler

        faulthandler.enable()
    except (OSError, RuntimeError, ValueError, AttributeError):
        pass  # stderr is closed
    try:
        import_main(setup["main"])
        function, args, kwargs = pickle.loads(data)
        value = call(function, args, kwargs)
        files.write("value", dump(value, setup["name"]))
    except Exception as error:
        sys.exit(fail(error, files))


def search_path(setup):
    """Returns the caller's sys.path. Another interpreter has libraries of its own in place of the caller's."""
    if setup["interpreter"] == (sys.version, sys.prefix):
        return setup["sys_path"]
    libraries = tuple(os.path.join(prefix, "lib") for prefix in setup["prefixes"])
    return [p for p in setup["sys_path"] if not p.startswith(libraries)] + sys.path[1:]


class Files:
    """The files of this worker in this round."""

    def __init__(self, folder, round_number, rank):
        self.folder, self.suffix, self.rank = folder, "-%s-%s" % (round_number, rank), rank

    def write(self, kind, data):
        path = os.path.join(self.folder, kind + self.suffix)
        with os.fdopen(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
            f.write(data)
        os.replace(path + ".new", path)


def import_main(main):
    """Imports the caller's main module as __mp_main__, as multiprocessing does."""
    global elasticrun_imports_main
    if main is None:
        return
    import runpy
    import types

    elasticrun_imports_main = True
    if "module" in main:
        content = runpy.run_module(main["module"], run_name="__mp_main__", alter_sys=True)
    else:
        content = runpy.run_path(main["path"], run_name="__mp_main__")
    elasticrun_imports_main = False
    module = types.ModuleType("__mp_main__")
    module.__dict__.update(content)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def call(function, args, kwargs):
    """Calls the function. sys.exit() and sys.exit(0) return None."""
    try:
        return function(*args, **kwargs)
    except SystemExit as end:
        if end.code in (None, 0):
            return None
        raise


def dump(value, name):
    """Returns the pickled return value."""
    try:
        return pickle.dumps(value, 4)
    except Exception as error:
        raise TypeError("the return value of %s cannot be pickled: %s" % (name, error)) from None


def fail(error, files):
    """Records an exception for the caller and for the launcher, prints it, and returns the exit code."""
    import traceback

    # The first frames are those of this file.
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    try:
        pickled = pickle.dumps(error, 4)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    try:
        files.write("error", pickle.dumps((text, pickled), 4))
        write_error_file(error, text)
    except OSError as problem:
        print("elasticrun: the error of rank %s could not be recorded: %s" % (files.rank, problem), file=sys.stderr)
    sys.excepthook(type(error), error.with_traceback(frames), frames)
    return 1


def write_error_file(error, text):
    """Writes torch's error file, unless torch's @record has written it."""
    import json
    import time

    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or os.path.exists(path) and os.path.getsize(path):
        return
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    with open(path, "w") as f:
        json.dump({"message": {"message": "%s: %s" % (type(error).__name__, error), "extraInfo": extra}}, f)


if __name__ == "__main__":
    main()
