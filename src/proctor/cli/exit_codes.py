"""Exit codes, with the meanings pytest gave them, and signals that end a command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Iterable
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


def find_signals(*names: str) -> list[int]:
    """Return the signals that this system has: Windows has no SIGHUP."""
    import signal  # most commands handle none

    return [getattr(signal, name) for name in names if hasattr(signal, name)]


@contextlib.contextmanager
def handle_signals(numbers: Iterable[int], handle: Callable[[int], None]) -> Generator[None]:
    """Call `handle` on these signals while the event loop runs; on Windows, where loops cannot, Ctrl-C stays an exception."""
    import asyncio  # many commands have no event loop

    loop, handled = asyncio.get_running_loop(), list(numbers)
    with contextlib.suppress(NotImplementedError):
        for number in handled:
            loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError):
            for number in handled:
                loop.remove_signal_handler(number)


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
