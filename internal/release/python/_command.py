"""Turns keyword arguments into the launcher's command line."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# They say what kind of program the script is.
SCRIPT_FLAGS = ("module", "no_python", "run_path", "use_env")


def flags(given: Mapping[str, Any]) -> list[str]:
    """Returns the command line for keyword arguments such as nproc_per_node=2; raises TypeError."""
    from ._flags import SWITCHES, VALUES

    arguments = []
    for name, value in given.items():
        if name not in SWITCHES and name not in VALUES:
            raise TypeError("launch() got an unexpected keyword argument %r%s" % (name, nearest(name, SWITCHES | VALUES)))
        if value is None:
            continue
        dashed = "--" + name.replace("_", "-")
        if name not in SWITCHES:
            arguments.append(dashed + "=" + text(name, value))
        elif not isinstance(value, bool):
            raise TypeError("launch(): %s must be True, False or None, not %r" % (name, value))
        elif value:
            arguments.append(dashed)
    return arguments


def text(name: str, value: Any) -> str:
    """Returns a flag's value as on the command line."""
    from collections.abc import Mapping

    if isinstance(value, Mapping):
        return ",".join("%s=%s" % item for item in value.items())
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    raise TypeError("launch(): %s must be text or a number, not %r" % (name, value))


def nearest(name: str, names: frozenset[str]) -> str:
    """Returns the advice for an unknown flag. An abbreviation counts as near."""
    import difflib

    near = sorted(n for n in names if n.startswith(name.rstrip("s")))
    near = near or difflib.get_close_matches(name, sorted(names), 1, 0.5)
    return "; the nearest flag is " + near[0] if name and near else "; elasticrun --help lists the flags"


def script(target: Any, args: Sequence[Any]) -> list[str]:
    """Returns the command line of a script with its arguments; raises TypeError."""
    if isinstance(args, (str, bytes)):
        raise TypeError("launch(): args must be a list of arguments, not one text: use args=%r" % (args.split(),))
    if not hasattr(args, "__iter__"):
        raise TypeError("launch(): args must be a list of arguments, not %r" % (args,))
    words = [os.fspath(target)]
    for value in args:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not isinstance(value, (str, int, float)):
            raise TypeError("launch(): each argument of a script must be text or a number, not %r" % (value,))
        words.append(str(value))
    return ["--"] + words
