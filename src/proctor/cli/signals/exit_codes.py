"""Exit codes, with the meanings pytest gave them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from enum import IntEnum

# Taken while it is the real one: `refuse_silent_pass` puts another function in its place.
end_process = os._exit
"""Ends this process at once with any code, for a command that means it."""


class Exit(IntEnum):
    """The exit code of the process."""

    PASSED = 0
    FAILED = 1
    INTERRUPTED = 2
    INTERNAL = 3
    USAGE = 4
    NOTHING = 5


class ParserDone(SystemExit):
    """The option parser has printed what was asked for, or what is wrong; any other `SystemExit` is that of somebody else's code."""


@contextlib.contextmanager
def refuse_silent_pass() -> Generator[None]:
    """Turn `os._exit(0)` of somebody else's code into an interruption: a command that did not come to its end has not passed."""
    own = os.getpid()

    def end(code: int) -> None:
        # A child that was forked from here ends as it likes: whoever started it waits for it.
        if code == 0 and os.getpid() == own:
            with contextlib.suppress(OSError, ValueError):
                print("something that was run ended the program (os._exit: 0) before it was done", file=sys.stderr, flush=True)
            code = Exit.INTERRUPTED
        end_process(code)

    before, os._exit = os._exit, end  # type: ignore[assignment]  # it ends the process, as the one it stands for
    try:
        yield
    finally:
        os._exit = before
