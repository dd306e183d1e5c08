"""Decides traces in separate processes, or in a thread.

The service uses one process (`process.py`), and a second one under load. A thread is used for one-off evaluations, and if no process can be
started.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from proctor.model.typed import make_msgpack_decoder
from proctor.service.decisions.child_process import COMMAND, STALL_S, CannotStart, ChildProcess
from proctor.service.decisions.trace_verdicts import Batch, CaseKey, CaseText, Decision, TraceDecider

__all__ = ["BatchDecider", "CannotStart", "PairDecider", "ProcessDecider", "ThreadDecider", "make_decider"]

MEMORY_BYTES = 3_000_000_000
"""Memory limit of a process: enough for the largest trace."""
_NICE = 5
"""The niceness of the second process."""
_GATHER_S = 0.01
"""Seconds to wait for several decisions: waking up for each costs 0.1 ms per trace."""
_LAST_DECISIONS = 30
"""The last decisions of a batch are read as they arrive, since the process is then idle."""
_IDLE_S = 30.0
"""Seconds until an idle second process is ended."""
_LOG = logging.getLogger("proctor.serve")


class BatchDecider(Protocol):
    """Decides batches of traces."""

    @property
    def places(self) -> int:
        """The number of batches it decides concurrently."""
        ...

    async def decide(self, batch: Batch, texts: Mapping[CaseKey, CaseText]) -> list[Decision]:
        """Return the decisions in the order of the tasks. If there are fewer, the process ended at the first task without one."""
        ...

    async def close(self) -> None:
        """End all processes."""
        ...


class _KnownCases:
    """The cases that a decider has."""

    def __init__(self) -> None:
        self._keys: set[CaseKey] = set()

    def complete_batch(self, batch: Batch, texts: Mapping[CaseKey, CaseText]) -> Batch:
        """Return the batch with new cases in `texts`, and those to forget."""
        news = [text for key, text in texts.items() if key not in self._keys]
        # Both sides have the same cases, and neither grows without limit.
        old = [key for key in self._keys if key not in texts]
        self._keys = set(texts)
        return msgspec.structs.replace(batch, texts=news, forget=old) if news or old else batch


class ThreadDecider:
    """Decides in a thread of this process."""

    places = 1

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="evaluate")
        self._decider = TraceDecider()
        self._known = _KnownCases()

    async def decide(self, batch: Batch, texts: Mapping[CaseKey, CaseText]) -> list[Decision]:
        """Return every decision."""
        complete = self._known.complete_batch(batch, texts)
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: list(self._decider.decide(complete)))

    async def close(self) -> None:
        """Wait for the thread to end."""
        await asyncio.to_thread(self._pool.shutdown)


class ProcessDecider:
    """Decides in a child process, which is started when needed and restarted when it has ended."""

    places = 1

    def __init__(self, *, command: tuple[str, ...] | None = None, stall_s: float = STALL_S) -> None:
        self._command = command or (*COMMAND, str(MEMORY_BYTES))
        self._stall_s = stall_s
        self._process: ChildProcess | None = None
        self._known = _KnownCases()
        self._encode = msgspec.msgpack.Encoder().encode
        self._read = make_msgpack_decoder(Decision).decode
        self.was_ready = False
        """Whether a process was ever started; then it can be started again."""

    async def decide(self, batch: Batch, texts: Mapping[CaseKey, CaseText]) -> list[Decision]:
        """Return the decisions, fewer than tasks if the process ended. Raises `CannotStart`."""
        process = await self._get_process()
        try:
            data = self._encode(self._known.complete_batch(batch, texts))
            decisions = await process.exchange(data, len(batch.tasks), self._read, gather_s=_GATHER_S, last=_LAST_DECISIONS)
        except BaseException:
            # A batch cannot be resumed in the middle.
            await self.close()
            raise
        # The first trace without a decision is the one that ended the process.
        if len(decisions) < len(batch.tasks):
            await self.close()
            _LOG.warning("the process that decides traces ended", extra={"exit_code": process.exit_code})
        return decisions

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            await process.close()

    async def _get_process(self) -> ChildProcess:
        if self._process is not None and self._process.is_running:
            return self._process
        await self.close()
        # A new process has no cases.
        self._known = _KnownCases()
        process = ChildProcess(self._command, stall_s=self._stall_s)
        await process.start()
        self._process = process
        self.was_ready = True
        return process


class PairDecider:
    """Decides in one process, and in a second one while the first is busy. An idle second process is ended."""

    places = 2

    def __init__(self, first: ProcessDecider | None = None, second: ProcessDecider | None = None, *, idle_s: float = _IDLE_S) -> None:
        self._second = second or ProcessDecider(command=(*COMMAND, str(MEMORY_BYTES), str(_NICE)))
        # Taken from the end: the second, with lower priority, is for when the first is busy.
        self._free = [self._second, first or ProcessDecider()]
        self._all = tuple(self._free)
        self._idle_s = idle_s
        self._ending: asyncio.Task[None] | None = None

    @property
    def was_ready(self) -> bool:
        """Whether a process was ever started; then it can be started again."""
        return any(decider.was_ready for decider in self._all)

    async def decide(self, batch: Batch, texts: Mapping[CaseKey, CaseText]) -> list[Decision]:
        """Return the decisions of a free process, fewer than tasks if it ended. Raises `CannotStart`."""
        decider = self._free.pop()
        if decider is self._second:
            # Otherwise a timer could end it in the middle of this batch.
            await self._stop_ending()
        try:
            return await decider.decide(batch, texts)
        finally:
            if decider is self._second:
                # In front, so that the first process is taken before it.
                self._free.insert(0, decider)
                self._ending = asyncio.create_task(self._end_second())
            else:
                self._free.append(decider)

    async def close(self) -> None:
        """End both processes."""
        await self._stop_ending()
        for decider in self._all:
            await decider.close()

    async def _end_second(self) -> None:
        await asyncio.sleep(self._idle_s)
        await self._second.close()

    async def _stop_ending(self) -> None:
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)


def make_decider() -> BatchDecider:
    """Return the decider of a service: two processes if there are cores for them."""
    return PairDecider() if (os.cpu_count() or 1) > 1 else ProcessDecider()
