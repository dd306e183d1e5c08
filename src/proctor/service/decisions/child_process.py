"""The parent's side of a decision process: sends and receives frames. The child gets none of the keys in the environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

import msgspec

from proctor.checks.registry import PLUGIN_SWITCH
from proctor.processes.guard import GUARD
from proctor.service.decisions.process import READY, make_frame

T = TypeVar("T")
COMMAND = (sys.executable, "-P", "-m", "proctor.service.decisions.process")
"""`-P` keeps the working directory out of the module path."""
# Generous: on a busy machine, imports alone can take many seconds.
START_S = 60.0
STALL_S = 120.0
"""Seconds without a frame after which the process is ended: more than the limits inside allow."""
_STOP_S = 5.0
_AT_ONCE = 1 << 20
_MOST_READ = 1 << 22
_NEEDED = frozenset(
    {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH"}
    | {PLUGIN_SWITCH}
)


class CannotStart(Exception):
    """Raised if no decision process can be started."""


class ChildProcess:
    """One decision process, from `start` to `close`."""

    def __init__(self, command: tuple[str, ...] = COMMAND, *, stall_s: float = STALL_S) -> None:
        self._command = command
        self._stall_s = stall_s
        self._process: asyncio.subprocess.Process | None = None
        self._frames: AsyncGenerator[list[bytes]] | None = None
        self._waiting: deque[bytes] = deque()
        """Received frames that were not returned yet."""

    @property
    def is_running(self) -> bool:
        """Whether the process is running, as far as known."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """The exit code; negative for the number of a signal."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises `CannotStart`."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=pipe,
                stdout=pipe,
                env=make_child_environment(),
                limit=_MOST_READ,
                # Its own process group, which the guard can end as a whole, and which Ctrl-C does not reach.
                start_new_session=True,
            )
            # It must not continue when this process is killed.
            GUARD.watch_group(self._process.pid)
        except OSError as error:
            raise CannotStart(str(error)) from error
        self._frames = self._read_frames(self._process)
        try:
            async with asyncio.timeout(START_S):
                # It reports that it is ready: a failure of its imports would otherwise be blamed on the first trace.
                ready = await self.receive()
        except (EOFError, TimeoutError) as error:
            await self.close()
            raise CannotStart(f"it did not become ready: {type(error).__name__}") from error
        except BaseException:
            # Also when cancelled: this process would be left running.
            await self.close()
            raise
        if ready != READY:
            await self.close()
            raise CannotStart("unexpected answer")

    async def exchange(self, data: bytes, count: int, decode: Callable[[bytes], T], *, gather_s: float = 0.0, last: int = 0) -> list[T]:
        """Send one frame and return the decoded answers; fewer than `count` if the process ended.

        All but the `last` answers are read several at a time, after `gather_s`: waking up for each is expensive.
        """
        answers: list[T] = []
        # Each of these errors means that the process has ended.
        with contextlib.suppress(ConnectionError, EOFError, TimeoutError, msgspec.MsgspecError):
            await self.send(data)
            while (missing := count - len(answers)) > 0:
                if gather_s and missing > last:
                    await self.wait_for_frames(gather_s)
                answers.append(decode(await self.receive()))
        return answers

    async def send(self, data: bytes) -> None:
        """Send one frame. Raises `ConnectionError` and `TimeoutError`."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(make_frame(data))
        async with asyncio.timeout(self._stall_s):
            await self._process.stdin.drain()

    async def receive(self) -> bytes:
        """Return the next frame. Raises `EOFError` at the end, and `TimeoutError` if none arrives in time."""
        if not self._waiting:
            assert self._frames is not None
            self._waiting.extend(await anext(self._frames))
        return self._waiting.popleft()

    async def wait_for_frames(self, seconds: float) -> None:
        """Leave frames in the pipe for a moment, unless some were received: waking up for each frame is expensive."""
        if self._waiting or self._process is None:
            return
        # asyncio has no public access to the pipe.
        transport: Any = getattr(self._process, "_transport", None)
        pipe: Any = None if transport is None else transport.get_pipe_transport(1)
        if pipe is None:
            return
        pipe.pause_reading()
        try:
            await asyncio.sleep(seconds)
        finally:
            pipe.resume_reading()

    def kill(self) -> None:
        """Kill the process; waiting callers get `EOFError`."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                # Not `terminate`: the child ignores softer signals, and may hang in C code.
                self._process.kill()

    async def close(self) -> None:
        """End the process and clean up."""
        process = self._process
        self.kill()
        if self._frames is not None:
            await self._frames.aclose()
            self._frames = None
        self._waiting.clear()
        if process is None:
            return
        # Before it is reaped: its process id may then be reused.
        GUARD.forget_group(process.pid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        # asyncio has no public way to close the pipes.
        transport: Any = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def wait_for_exit(self) -> int | None:
        """Wait a moment for the end of a process that no longer answers, and return its exit code, or None."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return await self._process.wait()
        return None

    async def _read_frames(self, process: asyncio.subprocess.Process) -> AsyncGenerator[list[bytes]]:
        """Yield all frames of one read together. Raises `EOFError` at the end, `TimeoutError` if none arrives in time."""
        assert process.stdout is not None
        buffer = bytearray()
        while True:
            start = 0
            frames: list[bytes] = []
            while len(buffer) >= start + 4 and len(buffer) >= (end := start + 4 + int.from_bytes(buffer[start : start + 4], "big")):
                # Removed once per read, since removing each frame would move the rest of the buffer.
                frames.append(bytes(buffer[start + 4 : end]))
                start = end
            del buffer[:start]
            if frames:
                yield frames
            async with asyncio.timeout(self._stall_s):
                data = await process.stdout.read(_AT_ONCE)
            if not data:
                raise EOFError
            buffer += data


def make_child_environment() -> dict[str, str]:
    """Return the environment variables that the child needs, without keys."""
    return {name: value for name, value in os.environ.items() if name.upper() in _NEEDED}
