"""Functions for workers: how they, their return values and their exceptions travel."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import sys
import types

from ._errors import LaunchError, RemoteError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

WAY_ON = (
    "is defined in a notebook or an interactive session, where workers cannot import it: "
    "write it to a file, for example with %%writefile train.py, and import it from there"
)


# The workers' interpreter may be older than this one.
PROTOCOL = 4


def main_script() -> Optional[dict[str, str]]:
    """Returns how a worker can import this process's main module; None if it cannot."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return {"module": spec.name}
    path = getattr(main, "__file__", None)
    if path is None or not os.path.exists(path) or hasattr(sys, "ps1"):
        return None
    return {"path": os.path.abspath(path)}


def check(function: Any) -> None:
    """Raises a TypeError if workers cannot import the function."""
    if not callable(function):
        raise TypeError("launch(): target must be the path of a script or a function, not %r" % (function,))
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if isinstance(function, types.MethodType) or module is None or name is None:
        raise TypeError("launch(): %r is no function of a module: give a function, and the rest in args" % (function,))
    if module == "__main__" and main_script() is None:
        raise TypeError("launch(): %s %s" % (name, WAY_ON))
    if "<" in name:
        raise TypeError("launch(): workers cannot import %s of %s: define it at the top of a module" % (name, module))
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise TypeError("launch(): %s is not what workers find as %s in %s: give that" % (function, name, module))


def bind(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises a TypeError if the function does not take these arguments."""
    import inspect

    try:  # a decorator may supply arguments of the function that it wraps
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # some built-in functions have none
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError("launch(): %s: %s" % (function.__qualname__, error)) from None


class Pickler(pickle.Pickler):
    """Notes whether the main module is needed, and refuses what workers cannot import from it."""

    uses_main = False

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, types.FunctionType)) and value.__module__ in ("__main__", "__mp_main__"):
            self.uses_main = True
            if main_script() is None:
                raise TypeError("%s %s" % (value.__qualname__, WAY_ON))
        return NotImplemented


def dump(function: Any, args: Any, kwargs: Any) -> tuple[str, bytes]:
    """Returns the call's name, and what the worker needs for it; raises TypeError."""
    check(function)
    if isinstance(args, (str, bytes, dict)) or not hasattr(args, "__iter__"):
        raise TypeError("launch(): args must be a tuple of the function's arguments, not %r" % (args,))
    call = (function, tuple(args), dict(kwargs or {}))
    bind(*call)
    buffer = io.BytesIO()
    pickler = Pickler(buffer, PROTOCOL)
    try:
        pickler.dump(call)
    except Exception as error:
        raise TypeError("launch(): %s cannot be pickled: %s" % (culprit(call), error)) from error
    main = main_script() if pickler.uses_main else None
    setup = {
        "sys_path": [os.path.abspath(p) for p in sys.path],
        "interpreter": (sys.version, sys.prefix),
        "prefixes": sorted({sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}),
        "argv": list(sys.argv),
        "main": main,
        "name": function.__qualname__,
    }
    module = function.__module__
    if module == "__main__" and main:
        module = main.get("module") or os.path.splitext(os.path.basename(main["path"]))[0]
    return module + "." + function.__qualname__, pickle.dumps(setup, PROTOCOL) + buffer.getvalue()


def culprit(call: Any) -> str:
    """Returns which argument cannot be pickled."""
    named = [("argument %d" % i, value) for i, value in enumerate(call[1])]
    named += [("argument " + name, value) for name, value in call[2].items()]
    for name, value in named:
        try:
            Pickler(io.BytesIO(), PROTOCOL).dump(value)
        except Exception:
            return name
    return "the function"


def save(folder: str, pickled: tuple[str, bytes]) -> str:
    """Writes the call, and beside it the worker's script under the function's name; returns the script's path."""
    name, data = pickled
    opener = os.open(os.path.join(folder, "call"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opener, "wb") as f:
        f.write(data)
    script = os.path.join(folder, name + ".py")
    shutil.copyfile(os.path.join(os.path.dirname(os.path.abspath(__file__)), "_worker.py"), script)
    return script


def load(path: str) -> Any:
    """Returns what a worker pickled. Classes of the main script have its module's name there."""
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    with open(path, "rb") as f:
        return pickle.load(f)


def values(folder: str, report: Optional[dict[str, Any]]) -> dict[int, Any]:
    """Returns the return values of the last round by global rank."""
    rounds = (report or {}).get("rounds") or [{}]
    if rounds[-1].get("end") != "success":
        return {}  # this node was not needed
    prefix = "started-%d-" % rounds[-1]["round"]
    ranks = sorted(int(name[len(prefix) :]) for name in os.listdir(folder) if name.startswith(prefix))
    found = {}
    for rank in ranks:
        path = os.path.join(folder, "value-%d-%d" % (rounds[-1]["round"], rank))
        try:
            found[rank] = load(path)
        except FileNotFoundError:
            message = "rank %d exited with 0 before its function returned, so it has no return value" % rank
        except Exception as error:
            message = "the return value of rank %d cannot be read here: %s: %s" % (rank, type(error).__name__, error)
        if rank not in found:
            raise LaunchError(message, 0, "no_value", message, "", report)
    return found


def cause(folder: str, report: dict[str, Any]) -> Optional[BaseException]:
    """Returns the exception of the worker that caused the failure; None if it raised none on this node."""
    root = report.get("root_cause")
    if not root or report.get("round") is None:
        return None
    path = os.path.join(folder, "error-%d-%d" % (report["round"], root["rank"]))
    try:
        text, data = load(path)
    except Exception:
        return None
    remote = RemoteError(text)
    try:
        error = pickle.loads(data)
    except Exception:
        return remote
    if not isinstance(error, BaseException):
        return remote
    error.__cause__ = remote
    return error
