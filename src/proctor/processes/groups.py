"""Programs in their own process group: their children end with them, and the end of their standard error is available.

A program may start another one in a session of its own, which signals to the group do not reach. It inherits the mark of the program in
its environment, by which it is found on systems with `/proc`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from contextlib import suppress
from typing import Any

from proctor.processes.guard_script import marked_processes

_MARK = "PROCTOR_PROGRAM"
TAIL_BYTES = 2_000
"""Bytes of standard error that are stored: the reason of a failure is at its end."""


def signal_group(process: asyncio.subprocess.Process, name: str) -> None:
    """Send a signal to a program and to what it started."""
    with suppress(ProcessLookupError, PermissionError):
        # Windows has no process groups of this kind: there only the program itself can be ended.
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, name))
        elif process.returncode is None:
            process.kill()


def mark_program() -> dict[str, str]:
    """Return what marks a program, and what it starts, in its environment."""
    return {_MARK: secrets.token_hex(16)}


def kill_strays(mark: dict[str, str]) -> None:
    """Kill everything that carries the mark of a program which had to be ended."""
    # Several rounds: one that dies may have started another in the meantime.
    for _ in range(3):
        found = marked_processes(f"{_MARK}={mark[_MARK]}".encode())
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def release_pipes(process: asyncio.subprocess.Process) -> None:
    """Let go of the pipes of a program, which a process that left its group can hold open."""
    # asyncio offers no public way to do so.
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


def read_tail(tail: bytes | bytearray) -> str:
    """Return the last lines of standard error."""
    text = bytes(tail).decode("utf-8", "replace")
    if len(tail) == TAIL_BYTES:
        text = text.partition("\n")[2] or text  # the first line is only the end of one
    return text.strip()
