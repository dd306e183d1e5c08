"""Starts a program in its own process group, and ends it with all its child processes, also if the caller is cancelled."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from proctor.processes.guard import GUARD

_MARK = "PROCTOR_PROGRAM"
"""The environment variable that marks a program and its child processes."""
_POLL_S = 0.01
"""Seconds between checks for the exit code."""
_CHUNK = 1 << 16
_GRACE_S = 2.0
"""Seconds for a killed program to be gone."""
TAIL_BYTES = 2_000
"""Bytes of standard error that are stored: the reason of a failure is at its end."""


class Program:
    """A started program, and the end of its standard error."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self.process = process
        self._mark = mark
        self._errors = bytearray()

    @classmethod
    async def start(cls, command: Sequence[str], *, env: Mapping[str, str], cwd: Path | str | None, limit: int = _CHUNK) -> Program:
        """Start a program; if the caller is cancelled, neither it nor its children are left running. Raises `OSError`."""

        async def spawn() -> Program:
            mark = secrets.token_hex(16)
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**env, _MARK: mark},
                cwd=cwd,
                # Its own group: its children can be ended with it, and Ctrl-C on a terminal does not reach it.
                start_new_session=True,
                limit=limit,
            )
            GUARD.watch_group(process.pid)
            return cls(process, mark)

        # Shielded: cancelling a start half way would leave a process with an unknown id.
        spawning = asyncio.ensure_future(spawn())
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:
            await asyncio.wait({spawning})
            if not spawning.cancelled() and spawning.exception() is None:
                await spawning.result().kill()
            raise

    async def read_errors(self) -> None:
        """Read standard error to its end although only the tail is stored: a program with a full pipe would block."""
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(_CHUNK):
            self._errors = (self._errors + chunk)[-TAIL_BYTES:]

    def quote_errors(self) -> str:
        """Return the last lines of standard error."""
        text = bytes(self._errors).decode("utf-8", "replace")
        if len(self._errors) == TAIL_BYTES:
            text = text.partition("\n")[2] or text  # the first line may be incomplete
        return text.strip()

    async def wait_for_exit(self, within_s: float) -> bool:
        """Return whether the program ends within the given seconds."""
        # Not `wait()`: that also waits for pipes that a grandchild may hold open.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while self.process.returncode is None:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def send_signal(self, name: str) -> None:
        """Send a signal to the program and its child processes."""
        with suppress(ProcessLookupError, PermissionError):
            # Windows has no such process groups: there only the program itself can be ended.
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, getattr(signal, name))
            elif self.process.returncode is None:
                self.process.kill()

    def kill_strays(self) -> None:
        """Kill all processes with the mark of this program, also those that left its group."""
        # Several rounds: a dying process may have started another in the meantime.
        for _ in range(3):
            pids = _find_marked(f"{_MARK}={self._mark}".encode())
            for pid in pids:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not pids:
                return

    def release(self) -> None:
        """Kill what is left of the group, and close the pipes, which a process that left the group can hold open."""
        self.send_signal("SIGKILL")
        GUARD.forget_group(self.process.pid)
        # asyncio has no public API for this.
        transport: Any = getattr(self.process, "_transport", None)
        if transport is not None:
            with suppress(PermissionError):
                transport.close()

    async def kill(self) -> None:
        """Kill the program and its group, and wait a limited time until it is gone."""
        self.send_signal("SIGKILL")
        await self.wait_for_exit(_GRACE_S)
        self.release()


def _find_marked(mark: bytes) -> list[int]:
    """Return every process with the mark in its environment, if the system exposes that."""
    pids: list[int] = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        # Already ended, or of another user.
        with suppress(OSError):
            if mark in file.read_bytes().split(b"\0"):
                pids.append(int(file.parent.name))
    return pids


async def finish_despite_cancel(work: Awaitable[None]) -> None:
    """Await work that must be completed, even if the caller is cancelled; the work itself is bounded in time."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    # A second Ctrl-C cancels again during the wait: the work continues, and the cancellation is raised at the end.
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                break
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
