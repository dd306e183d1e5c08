"""Programs in a process group of their own: what they started is ended with them, and their last words are kept."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

TAIL_BYTES = 2_000
"""How much of standard error is kept: the reason of a failure stands at its end."""


def signal_group(process: asyncio.subprocess.Process, name: str) -> None:
    """Send a signal to a program and to what it started."""
    with suppress(ProcessLookupError, PermissionError):
        # Windows has no process groups of this kind: there only the program itself can be ended.
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, name))
        elif process.returncode is None:
            process.kill()


def release_pipes(process: asyncio.subprocess.Process) -> None:
    """Let go of the pipes of a program, which a process that left its group can hold open."""
    # asyncio offers no public way to do so.
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


def read_tail(tail: bytes | bytearray) -> str:
    """Return the last lines of standard error, of which the last `TAIL_BYTES` were kept."""
    text = bytes(tail).decode("utf-8", "replace")
    if len(tail) == TAIL_BYTES:
        text = text.partition("\n")[2] or text  # the first line is only the end of one
    return text.strip()
