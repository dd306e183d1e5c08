"""Handles the signals that end a process, for a command that drives an agent.

The first one (Ctrl-C, SIGTERM, SIGHUP) ends the run: what is finished is kept, servers are left, the report is written. The second one ends
the process at once, and every child with it. A SIGHUP that whoever started the process wants ignored (`nohup`) stays ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Generator
from typing import Any

from proctor.cli.exits import Exit
from proctor.processes.guard import GUARD

# Windows has no SIGHUP.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def end_by_signals(task: asyncio.Task[Any]) -> Generator[None]:
    """Cancel the task at the first signal, end the process at the second."""
    loop = asyncio.get_running_loop()
    told: list[int] = []

    def end(number: int) -> None:
        told.append(number)
        if len(told) == 1:
            GUARD.note_interruption()
            task.cancel()
        else:
            end_at_once()

    # `nohup` sets SIGHUP to be ignored before it starts us, and a handler would undo that.
    chosen = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    # The event loop on Windows has no signal handlers; there Ctrl-C comes as an exception.
    with contextlib.suppress(NotImplementedError):
        for number in chosen:
            loop.add_signal_handler(number, end, number)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError):
            for number in chosen:
                loop.remove_signal_handler(number)


def end_at_once() -> None:
    """End this process and its children now; what was finished is on the disk."""
    GUARD.kill_all()
    with contextlib.suppress(OSError, ValueError):
        print("interrupted", file=sys.stderr, flush=True)
    # Without cleaning up: whoever asks for the second time does not want to wait for threads and servers again.
    os._exit(Exit.INTERRUPTED)
