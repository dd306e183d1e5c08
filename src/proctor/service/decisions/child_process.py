"""A process that decides, seen from the one that started it: frames in, frames out, killed without asking.

It is started with none of the keys that stand in this environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from proctor.checks.registry import PLUGIN_SWITCH
from proctor.processes.guard import GUARD
from proctor.service.decisions.process import READY, make_frame

COMMAND = (sys.executable, "-P", "-m", "proctor.service.decisions.process")
"""Without the folder it is started in: a file there must not stand in for a module."""
# Far more than it needs: on a machine that starts many things at once, imports alone can take many seconds.
START_S = 60.0
STALL_S = 120.0
"""How long one trace may take before its process is ended: more than the limits inside allow."""
_STOP_S = 5.0
_AT_ONCE = 1 << 20
_MOST_READ = 1 << 22
_NEEDED = frozenset(
    {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH"}
    | {PLUGIN_SWITCH}
)


class CannotStart(Exception):
    """Raised when there is no process to decide in."""


class ChildProcess:
    """One such process, from `start` to `close`."""

    def __init__(self, command: tuple[str, ...] = COMMAND, *, stall_s: float = STALL_S) -> None:
        self._command = command
        self._stall_s = stall_s
        self._process: asyncio.subprocess.Process | None = None
        self._frames: AsyncGenerator[list[bytes]] | None = None
        self._waiting: deque[bytes] = deque()
        """Frames that have come and that nobody has asked for yet."""

    @property
    def is_running(self) -> bool:
        """Whether the process is there, as far as can be known."""
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
                env={**make_child_environment(), **GUARD.mark_child()},
                limit=_MOST_READ,
                # A group of its own, which the guard can end as a whole, and which a Ctrl-C at the terminal does not reach.
                start_new_session=True,
            )
            # What it decides may take long: it must not go on when this process is killed.
            GUARD.watch_group(self._process.pid)
        except OSError as error:
            raise CannotStart(str(error)) from error
        self._frames = self._read_frames(self._process)
        try:
            async with asyncio.timeout(START_S):
                # It says so itself: a process that exists may still fail in its imports, and that would be blamed on the first trace.
                ready = await self.receive()
        except (EOFError, TimeoutError) as error:
            await self.close()
            raise CannotStart(f"it did not get ready: {type(error).__name__}") from error
        except BaseException:
            # Also when cancelled: nobody else knows of this process yet.
            await self.close()
            raise
        if ready != READY:
            await self.close()
            raise CannotStart("something else answered")

    async def send(self, data: bytes) -> None:
        """Send one frame. Raises `ConnectionError` and `TimeoutError`."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(make_frame(data))
        async with asyncio.timeout(self._stall_s):
            await self._process.stdin.drain()

    async def receive(self) -> bytes:
        """Return the next frame. Raises `EOFError` at the end, and `TimeoutError` when none comes for long."""
        if not self._waiting:
            assert self._frames is not None
            self._waiting.extend(await anext(self._frames))
        return self._waiting.popleft()

    async def let_frames_gather(self, seconds: float) -> None:
        """Leave what the process writes in its pipe for a moment, unless something is here already.

        Whoever takes up each frame as it comes is woken for each, which costs as much as half of all else that is done for a trace.
        """
        if self._waiting or self._process is None:
            return
        # asyncio offers no public way to the pipe.
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
        """Kill the process at once; whoever waits for it hears that there is nothing more."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                # Not `terminate`: the child ignores softer signals, and may stand still in C code where no handler runs.
                self._process.kill()

    async def close(self) -> None:
        """End the process, whatever it does, and leave nothing of it behind."""
        process = self._process
        self.kill()
        if self._frames is not None:
            await self._frames.aclose()
            self._frames = None
        self._waiting.clear()
        if process is None:
            return
        # Before it is waited for: once it is reaped, the system may give its number to somebody else.
        GUARD.forget_group(process.pid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        # asyncio offers no public way to let go of the pipes.
        transport: Any = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def wait_for_exit(self) -> int | None:
        """Wait a moment for the end of a process that does not answer any more and return its exit code; None when it has not ended."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return await self._process.wait()
        return None

    async def _read_frames(self, process: asyncio.subprocess.Process) -> AsyncGenerator[list[bytes]]:
        """Yield frames as they come, all of one reading together. Raises `EOFError` at the end, `TimeoutError` when none comes for long."""
        assert process.stdout is not None
        held = bytearray()
        while True:
            start = 0
            frames: list[bytes] = []
            while len(held) >= start + 4 and len(held) >= (end := start + 4 + int.from_bytes(held[start : start + 4], "big")):
                # Cut off once per read, below, and not once per frame, which would move the rest of the buffer each time.
                frames.append(bytes(held[start + 4 : end]))
                start = end
            del held[:start]
            if frames:
                yield frames
            async with asyncio.timeout(self._stall_s):
                data = await process.stdout.read(_AT_ONCE)
            if not data:
                raise EOFError
            held += data


def make_child_environment() -> dict[str, str]:
    """Return the variables that the child needs to find itself, and none of the keys in this environment."""
    return {name: value for name, value in os.environ.items() if name.upper() in _NEEDED}
