"""The exceptions of launch."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional


class LaunchError(Exception):
    """The job failed, or nothing was started.

    If the worker that caused the failure ran a function on this node, __cause__ is its exception, with the worker's
    traceback.
    """

    def __init__(
        self,
        message: str,
        exit_code: int = 1,
        reason: str = "",
        summary: str = "",
        text: str = "",
        report: Optional[dict[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        #: The launcher's exit code.
        self.exit_code = exit_code
        #: The word that says why, such as worker_failed; docs/exit-codes.md lists them.
        self.reason = reason
        #: Why, in one line.
        self.summary = summary
        #: The root cause's traceback, or the last lines of its stderr; empty if no worker caused the failure.
        self.text = text
        #: The launcher's report (docs/report.md); None if the launcher could not write one.
        self.report = report

    def __reduce__(self) -> Any:
        fields = (str(self), self.exit_code, self.reason, self.summary, self.text, self.report)
        return LaunchError, fields


class RemoteError(Exception):
    """Stands for the exception of a worker: str() is the worker's traceback."""

    def __init__(self, traceback: str) -> None:
        super().__init__(traceback)
        self.traceback = traceback

    def __str__(self) -> str:
        return '\n"""\n' + self.traceback.rstrip("\n") + '\n"""'
