"""Runs the launcher and shows its output where this process shows its own."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional


def run(command: list[str], env: dict[str, str], cwd: Optional[str]) -> int:
    """Runs the launcher and returns its exit code.

    An exception, such as the KeyboardInterrupt of Ctrl-C, stops the job, and is raised when the job has ended. If this
    process dies, the launcher stops the job.
    """
    env["ELASTICRUN_CALLER_PID"] = str(os.getpid())
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    out, err = (None if is_inherited(s, fd) else subprocess.PIPE for s, fd in ((sys.stdout, 1), (sys.stderr, 2)))
    process = subprocess.Popen(command, env=env, cwd=cwd, stdout=out, stderr=err)
    pumps = [Pump(*p) for p in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)) if p[0] is not None]
    error = None
    while True:
        try:
            copy(pumps)
            code = process.wait()
            break
        except BaseException as raised:
            # Ctrl-C in a terminal or a notebook signals the launcher too. SIGTERM is no second Ctrl-C, which would
            # kill the workers at once; a later SIGINT is.
            process.send_signal(signal.SIGTERM if error is None else signal.SIGINT)
            error = error or raised
    if error is not None:
        raise error
    return 128 - code if code < 0 else code


def is_inherited(stream: Any, fd: int) -> bool:
    """Reports whether a child's output to fd appears where the stream's does. In a notebook it does not."""
    try:
        return stream is None or stream.fileno() == fd
    except (AttributeError, OSError, ValueError):
        return False


class Pump:
    """Copies a pipe to a text stream."""

    def __init__(self, pipe: Any, stream: Any) -> None:
        self.pipe = pipe
        self.stream = stream
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def copy(self) -> bool:
        """Copies what is there; returns False at the end. A stream that fails gets nothing more."""
        data = os.read(self.pipe.fileno(), 1 << 16)
        text = self.decoder.decode(data, not data)
        if text and self.stream is not None:
            stream, self.stream = self.stream, None
            stream.write(text)
            stream.flush()
            self.stream = stream
        return bool(data)


def copy(pumps: list[Pump]) -> None:
    """Copies all pipes to their ends. This thread does it, since a notebook shows output of its own cell only."""
    with selectors.DefaultSelector() as selector:
        for pump in pumps:
            if not pump.pipe.closed:
                selector.register(pump.pipe, selectors.EVENT_READ, pump)
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.copy():
                    selector.unregister(key.fileobj)
                    key.data.pipe.close()
