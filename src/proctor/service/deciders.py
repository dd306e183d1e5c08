"""Where traces are decided: in a process beside this one, or in a thread of it.

The service uses a process (`deciding_process.py`); what is done once and by hand uses a thread, and so does a service on a system that
does not let it start one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from proctor.checks.registry import PLUGIN_SWITCH
from proctor.service.deciding import Batch, CaseKey, CaseText, Decider, Decision
from proctor.service.deciding_process import READY, framed

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
_LOG = logging.getLogger("proctor.serve")


class Deciding(Protocol):
    """Decides batches of traces, one batch at a time."""

    async def decide(self, batch: Batch, texts: Mapping[CaseKey, CaseText]) -> list[Decision]:
        """The decisions, in the order of the tasks; fewer than tasks when the first one without was the end of the process."""
        ...

    async def close(self) -> None:
        """Leave nothing behind."""
        ...


class CannotStart(Exception):
    """There is no process to decide in."""


class _Told:
    """Which cases somebody was told already."""

    def __init__(self) -> None:
        self._keys: set[CaseKey] = set()

    def complete(self, batch: Batch, texts: Mapping[CaseKey, CaseText]) -> Batch:
        """The batch with what is new in `texts`, and what is no longer there."""
        news = [text for key, text in texts.items() if key not in self._keys]
        old = [key for key in self._keys if key not in texts]
        self._keys = set(texts)
        return msgspec.structs.replace(batch, texts=news, forget=old) if news or old else batch


class InThread:
    """Decides in a thread of this process."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="evaluate")
        self._decider = Decider()
        self._told = _Told()

    async def decide(self, batch: Batch, texts: Mapping[CaseKey, CaseText]) -> list[Decision]:
        """Every decision."""
        whole = self._told.complete(batch, texts)
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: list(self._decider.decide(whole)))

    async def close(self) -> None:
        """Wait for the thread."""
        await asyncio.to_thread(self._pool.shutdown)


class InProcess:
    """Decides in a child process, started when it is needed and again when it has died."""

    def __init__(self, *, command: tuple[str, ...] | None = None, stall_s: float = STALL_S) -> None:
        # Without the folder it is started in: a file there must not stand in for a module.
        self._command = command or (sys.executable, "-P", "-m", "proctor.service.deciding_process")
        self._stall_s = stall_s
        self._process: asyncio.subprocess.Process | None = None
        self._frames: AsyncGenerator[bytes] | None = None
        self._told = _Told()
        self._encode = msgspec.msgpack.Encoder().encode
        self._read = msgspec.msgpack.Decoder(Decision).decode
        self.was_ready = False
        """Whether there ever was a process; then there can be one again."""

    async def decide(self, batch: Batch, texts: Mapping[CaseKey, CaseText]) -> list[Decision]:
        """The decisions; fewer than tasks when the process died. Raises `CannotStart`."""
        process = await self._running()
        assert self._frames is not None and process.stdin is not None
        found: list[Decision] = []
        try:
            with contextlib.suppress(ConnectionError, EOFError, TimeoutError, msgspec.MsgspecError):
                process.stdin.write(framed(self._encode(self._told.complete(batch, texts))))
                async with asyncio.timeout(self._stall_s):
                    await process.stdin.drain()
                while len(found) < len(batch.tasks):
                    found.append(self._read(await anext(self._frames)))
                return found
        except BaseException:
            # In the middle of a batch there is no way to go on with it.
            await self.close()
            raise
        await self.close()
        _LOG.warning("the process that decides traces ended", extra={"exit_code": process.returncode})
        return found

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if self._frames is not None:
            await self._frames.aclose()
            self._frames = None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        # asyncio offers no public way to let go of the pipes.
        transport: Any = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self.close()
        self._told = _Told()
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, env=_environment(), limit=_MOST_READ
            )
        except OSError as error:
            raise CannotStart(str(error)) from error
        self._frames = self._received(self._process)
        try:
            async with asyncio.timeout(START_S):
                ready = await anext(self._frames)
        except (EOFError, TimeoutError) as error:
            await self.close()
            raise CannotStart(f"it did not get ready: {type(error).__name__}") from error
        if ready != READY:
            await self.close()
            raise CannotStart("something else answered")
        self.was_ready = True
        return self._process

    async def _received(self, process: asyncio.subprocess.Process) -> AsyncGenerator[bytes]:
        """Frames as they come, many of them read at once. Raises `EOFError` at the end, `TimeoutError` when none comes for long."""
        assert process.stdout is not None
        held = bytearray()
        while True:
            start = 0
            while len(held) >= start + 4 and len(held) >= (end := start + 4 + int.from_bytes(held[start : start + 4], "big")):
                yield bytes(held[start + 4 : end])
                start = end
            del held[:start]
            async with asyncio.timeout(self._stall_s):
                data = await process.stdout.read(_AT_ONCE)
            if not data:
                raise EOFError
            held += data


def _environment() -> dict[str, str]:
    """What the child needs to find itself, and none of the keys that stand in this environment."""
    return {name: value for name, value in os.environ.items() if name.upper() in _NEEDED}
