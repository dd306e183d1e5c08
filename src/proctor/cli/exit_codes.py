"""Exit codes, with the meanings pytest gave them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from enum import IntEnum

# The original function: `refuse_silent_pass` replaces it.
end_process = os._exit
"""Ends this process at once with any exit code, unchecked by `refuse_silent_pass`."""


class Exit(IntEnum):
    """The exit code of the process."""

    PASSED = 0
    FAILED = 1
    INTERRUPTED = 2
    INTERNAL = 3
    USAGE = 4
    NOTHING = 5


class ParserDone(SystemExit):
    """Raised by the option parser after printing; any other `SystemExit` comes from foreign code."""


@contextlib.contextmanager
def refuse_silent_pass() -> Generator[None]:
    """Turn `os._exit(0)` of foreign code into an interruption: an unfinished command has not passed."""
    process_id = os.getpid()

    def end(code: int) -> None:
        # A forked child may exit with any code.
        if code == 0 and os.getpid() == process_id:
            with contextlib.suppress(OSError, ValueError):
                print("something that was run ended the program (os._exit: 0) before it was done", file=sys.stderr, flush=True)
            code = Exit.INTERRUPTED
        end_process(code)

    before, os._exit = os._exit, end  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = before
