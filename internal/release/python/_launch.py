"""launch runs a job and waits for it."""

from __future__ import annotations

import os
import sys

from ._errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Optional, TypeVar, Union, overload

    from typing_extensions import Unpack

    from ._flags import Flags

    T = TypeVar("T")


class Result:
    """How the job of a script ended: reason is success, or nothing_started if this node was not needed."""

    def __init__(self, reason: str, report: Optional[dict[str, Any]]) -> None:
        #: success; nothing_started; dry_run; or no_report, where another program such as srun ran the job.
        self.reason = reason
        #: The launcher's report (docs/report.md), if there is one.
        self.report = report
        #: Restarts charged to the job.
        self.restarts: int = (report or {}).get("restarts", 0)
        #: Seconds.
        self.duration: float = (report or {}).get("duration", 0.0)

    def __repr__(self) -> str:
        return "Result(reason=%r, restarts=%d, duration=%.1f)" % (self.reason, self.restarts, self.duration)


if TYPE_CHECKING:

    @overload
    def launch(
        target: Union[str, os.PathLike[str]],
        args: Sequence[Union[str, float, os.PathLike[str]]] = (),
        *,
        python: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Union[str, os.PathLike[str], None] = None,
        **flags: Unpack[Flags],
    ) -> Result: ...

    @overload
    def launch(
        target: Callable[..., T],
        args: Sequence[Any] = (),
        *,
        kwargs: Optional[Mapping[str, Any]] = None,
        python: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Union[str, os.PathLike[str], None] = None,
        **flags: Unpack[Flags],
    ) -> dict[int, T]: ...


def launch(target: Any, args: Any = (), *, kwargs: Any = None, python: Any = None, env: Any = None, cwd: Any = None, **flags: Any) -> Any:
    """Runs a job as the command elasticrun does, and waits for its end.

    target is the path of a script, whose arguments are args: launch returns a Result. Or target is a function that
    workers can import, which each worker calls with args and kwargs: launch returns a dict of the return values of
    this node's workers by global rank. It is empty if this node was not needed.

    python is the workers' interpreter: by default that of PYTHON_EXEC, else this one. env has variables to set beside
    those of this process. cwd is the job's working directory. All other keyword arguments are flags of elasticrun:
    nproc_per_node=2 is --nproc-per-node=2, and True sets a switch. None leaves a flag out.

    Raises LaunchError if the job failed or could not start, and TypeError or ValueError for bad arguments.
    Ctrl-C stops the job. The job also ends if this process dies (Linux).
    """
    if getattr(sys.modules.get("__main__"), "elasticrun_imports_main", False):
        raise RuntimeError(
            "launch() was called while a worker imports the main script: put the call under if __name__ == '__main__':"
        )
    import tempfile

    from . import _command, _function

    options = _command.flags(flags)
    if isinstance(target, (str, os.PathLike)):
        if kwargs:
            raise TypeError("launch(): kwargs are for functions: give a script's arguments in args")
        command, pickled = _command.script(target, args), None
    else:
        command, pickled = [], _function.dump(target, args, kwargs)
        for name in _command.SCRIPT_FLAGS:
            if flags.get(name):
                raise TypeError("launch(): %s is for scripts, and %r is none" % (name, target))
    variables = environment(python, env, cwd)
    with tempfile.TemporaryDirectory(prefix="elasticrun-") as folder:  # only this user may enter it
        if pickled:
            command = ["--", _function.save(folder, pickled)]
        variables["ELASTICRUN_CALLER_REPORT"] = os.path.join(folder, "report.json")
        from ._binary import binary
        from ._process import run

        code = run([binary()] + options + command, variables, None if cwd is None else os.fspath(cwd))
        result = conclude(code, read(variables["ELASTICRUN_CALLER_REPORT"]), bool(flags.get("dry_run")), folder)
        return _function.values(folder, result.report) if pickled else result


def environment(python: Optional[str], env: Optional[Mapping[str, str]], cwd: Any = None) -> dict[str, str]:
    """Returns the launcher's environment; raises ValueError without an interpreter."""
    import shutil

    variables = dict(os.environ)
    variables.update(env or {})
    if python:
        at = os.path.join(cwd or "", python) if os.path.dirname(python) else python
        if shutil.which(at, path=variables.get("PATH")) is None:
            raise ValueError("launch(): python=%r: there is no such program" % (python,))
    variables["PYTHON_EXEC"] = python or variables.get("PYTHON_EXEC") or sys.executable or ""
    if not variables["PYTHON_EXEC"]:
        raise ValueError("launch(): this process is no Python interpreter: name the workers' with python=")
    return variables


def read(path: str) -> Optional[dict[str, Any]]:
    """Returns the launcher's report; None if there is none."""
    import json

    try:
        with open(path, encoding="utf-8") as f:
            report: dict[str, Any] = json.load(f)
            return report
    except (OSError, ValueError):
        return None


def conclude(code: int, report: Optional[dict[str, Any]], dry: bool, folder: str) -> Result:
    """Returns the result of a job that succeeded; raises LaunchError. --exit-code-map may have made 0 of a failure."""
    from . import _function

    if report is None and code == 0:
        return Result("dry_run" if dry else "no_report", None)
    if report is None:
        message = "elasticrun ended with exit code %d and wrote no report: its last lines on stderr say more" % code
        raise LaunchError(message, code, "no_report", message)
    reason = report["reason"]
    if reason in ("success", "nothing_started") and code == 0:
        return Result(reason, report)
    cause = report.get("root_cause") or {}
    summary = report.get("error") or cause.get("summary") or ""
    where = "rank %d on %s: " % (cause["rank"], cause["host"]) if cause and not report.get("error") else ""
    message = "exit code %d (%s): %s" % (code, reason, where + summary)
    error = LaunchError(message, code, reason, summary, cause.get("text") or "", report)
    raise error from _function.cause(folder, report)
