"""Runs one program to its end: writes to its standard input, reads what it says within bounds, and leaves no process behind.

The program has a process group of its own, which is ended with it, in time or not; of a program that had to be ended, also what it started
in other sessions. Where this process ends without that (killed, or told
twice to end), its guard does the same (`processes/guard.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from proctor.processes.groups import TAIL_BYTES, kill_strays, mark_program, read_tail, release_pipes, signal_group
from proctor.processes.guard import GUARD

_GRACE_S = 2.0
"""How long a program may take to end after SIGTERM, and its pipes to end after it."""
_POLL_S = 0.01
"""How often the exit code is looked for."""
_CHUNK = 1 << 16


class TooLarge(Exception):
    """A program said more than it may."""


class Finished(msgspec.Struct, frozen=True):
    """A program that has ended."""

    code: int
    """The exit code; negative: the signal that ended it."""
    output: bytes
    last_words: str
    """The end of its standard error."""


class _Child:
    """One process and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process, mark: dict[str, str], limit_bytes: int) -> None:
        self._process = process
        self._mark = mark
        self._limit_bytes = limit_bytes
        self._output = bytearray()
        self._errors = bytearray()

    async def finish(self, given: bytes) -> Finished:
        """Write the input, read until the process has ended, and return what it said. Raises `TooLarge`."""
        # Read and written side by side: a program that prints before it has read everything would wait for us, and we for it.
        reading = [asyncio.create_task(self._read_output()), asyncio.create_task(self._read_errors())]
        writing = asyncio.create_task(self._write(given))
        try:
            await self._wait_for_exit(reading[0])
            # Something that the program started may hold the pipes open for as long as it likes.
            await asyncio.wait(reading, timeout=_GRACE_S)
            # `asyncio.wait` raises nothing itself: that too much was said in the last moment shows only here.
            if reading[0].done():
                reading[0].result()
        finally:
            for task in (*reading, writing):
                task.cancel()
            await asyncio.gather(*reading, writing, return_exceptions=True)
        assert self._process.returncode is not None
        return Finished(self._process.returncode, bytes(self._output), self.read_last_words())

    def read_last_words(self) -> str:
        """Return the last lines of standard error."""
        return read_tail(self._errors)

    async def end(self) -> None:
        """End the process and what it started in its group; bounded in time."""
        process = self._process
        is_running = process.returncode is None
        if is_running:
            signal_group(process, "SIGTERM")
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await self._wait_for_exit(None)
        # Also where the program has ended by itself: what it started in its group may go on.
        signal_group(process, "SIGKILL")
        if is_running:
            kill_strays(self._mark)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await self._wait_for_exit(None)
        GUARD.forget_group(process.pid)
        release_pipes(process)

    async def _wait_for_exit(self, output: asyncio.Task[None] | None) -> None:
        # Not `wait()`: that also waits for pipes that a grandchild may hold open.
        while self._process.returncode is None:
            if output is not None and output.done():
                output.result()  # raises where too much was said
            await asyncio.sleep(_POLL_S)

    async def _read_output(self) -> None:
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(_CHUNK):
            self._output += chunk
            if len(self._output) > self._limit_bytes:
                raise TooLarge

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        # Read to its end although only the tail is kept: a program whose pipe is full stops and waits.
        while chunk := await self._process.stderr.read(_CHUNK):
            self._errors = (self._errors + chunk)[-TAIL_BYTES:]

    async def _write(self, given: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        # A program may end, or close its input, without having read what it was told.
        with suppress(ConnectionError):
            stdin.write(given)
            await stdin.drain()
        with suppress(ConnectionError):
            stdin.close()
            await stdin.wait_closed()


async def run_child(command: Sequence[str], given: bytes, *, env: Mapping[str, str], cwd: Path | None, limit_bytes: int) -> Finished:
    """Run a program with `given` on its standard input until it ends. Raises `OSError` where it cannot be started, and `TooLarge`.

    A caller that is cancelled waits until the program has been ended.
    """
    child = await _start_safely(command, env, cwd, limit_bytes)
    try:
        return await child.finish(given)
    finally:
        await _finish_despite_cancel(asyncio.ensure_future(child.end()))


async def _start_safely(command: Sequence[str], env: Mapping[str, str], cwd: Path | None, limit_bytes: int) -> _Child:
    """Start the process; a caller that is cancelled meanwhile leaves neither it nor what it started."""

    async def start() -> _Child:
        mark = mark_program()
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**env, **GUARD.mark_child(), **mark},
            cwd=cwd,
            # A group of its own: what the program starts can be ended with it, and Ctrl-C on a terminal does not reach it.
            start_new_session=True,
        )
        GUARD.watch_group(process.pid)
        return _Child(process, mark, limit_bytes)

    # Shielded: a start that is cancelled half way leaves a process whose id nobody knows.
    spawning = asyncio.ensure_future(start())
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        await asyncio.wait({spawning})
        if not spawning.cancelled() and spawning.exception() is None:
            await spawning.result().end()
        raise


async def _finish_despite_cancel(task: asyncio.Future[None]) -> None:
    """Await work that must be completed, also when the caller is cancelled meanwhile; the work itself is bounded in time."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
