"""A pool of decision processes, shared fairly between tenants.

It decides runs, checks over MCP, completed tasks and judged traces (`record_verdicts.py`). A requester is a tenant and a key, project or
run in it; `FairQueue` decides who gets a free process. Requests are split into slices, so that others get turns in between.

A record that ends its process (memory, a crash of the pattern engine, a hang) is an `error`; the process is replaced, and the next records
are decided. A cancelled request ends its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

import msgspec

from proctor.model.typed import make_msgpack_decoder
from proctor.service.decisions.child_process import COMMAND, STALL_S, CannotStart, ChildProcess
from proctor.service.decisions.messages import CRASHED, TIME_LIMIT, Answer, CaseWork, Job, MutationWork, ReadWork, SuiteSource, Work
from proctor.service.decisions.record_verdicts import CaseDecider
from proctor.service.fair_queue import FairQueue, Requester
from proctor.service.refusals import Refusal

T = TypeVar("T")
CLIENT_LEAVES: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("CLIENT_LEAVES", default=None)
"""Returns when the client of this request has disconnected; None if unknown."""


async def run_while_client_waits(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`, or raise `Refusal` if the client disconnects first."""
    leaves = CLIENT_LEAVES.get()
    if leaves is None:
        return await work
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(leaves())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal("BAD_REQUEST", "the client disconnected")
    finally:
        # Also if this request is cancelled: neither task may outlive it.
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
    return working.result()


PROCESSES = 4
"""Half as many more are started while one tenant uses more than half of these and others wait."""
MEMORY_BYTES = 1_000_000_000
"""Memory of one process, which works for one requester at a time."""
REQUEST_S = 60.0
"""CPU seconds of one request; the rest of it is not decided."""
MOST_DEATHS = 3
"""Processes that one request may end; the rest of it is not decided."""
CHUNK = 64
"""Work items that are sent at once."""
CHUNK_BYTES = 2_000_000
IDLE_S = 30.0
"""Seconds until an unused process is ended; one always stays."""
_NICE = 5
_MOST_SUITES = 20
_LOG = logging.getLogger("proctor.serve")
_ENCODE = msgspec.msgpack.Encoder().encode
_READ = make_msgpack_decoder(Answer)


class Decisions(Protocol):
    """Decides work for requesters."""

    async def answers(self, who: Requester, works: Sequence[Work], suites: Mapping[str, SuiteSource]) -> list[Answer]:
        """Return an answer for every item. Raises `Refusal` if that is not possible now."""
        ...

    async def close(self) -> None:
        """End all processes."""
        ...


class ThreadDecisions:
    """Decides in a thread of this process, for local use and for tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def answers(self, who: Requester, works: Sequence[Work], suites: Mapping[str, SuiteSource]) -> list[Answer]:
        """Return an answer for every item."""

        def work() -> list[Answer]:
            decider, finished = CaseDecider(), list[Answer]()
            with self._lock:
                while len(finished) < len(works):
                    if decider.exhausted:
                        # An exhausted decider starts nothing more; a new one has memory again.
                        decider = CaseDecider()
                    job = Job(works=works[len(finished) :], suites=dict(suites))
                    finished += [answer for answer in decider.answer_job(job) if not answer.undone]
            return finished

        return await asyncio.to_thread(work)

    async def close(self) -> None:
        """Do nothing, since no process was started."""


class _Worker:
    """One process, and the suites that it has."""

    def __init__(self, process: ChildProcess) -> None:
        self.process = process
        self._sent: OrderedDict[str, None] = OrderedDict()
        self.idle_since = 0.0

    def make_job(self, works: Sequence[Work], suites: Mapping[str, SuiteSource]) -> Job:
        """Return the job with the suites that the process does not have yet and those to forget."""
        suite_keys = {work.suite for work in works if isinstance(work, (CaseWork, MutationWork))}
        news = {key: suites[key] for key in suite_keys if key not in self._sent}
        for key in suite_keys:
            self._sent[key] = None
            self._sent.move_to_end(key)
        forget: list[str] = []
        while len(self._sent) > max(_MOST_SUITES, len(suite_keys)):
            forget.append(self._sent.popitem(last=False)[0])
        return Job(works=works, suites=news, forget=forget)


class DecisionPool:
    """Processes that are started when needed and replaced when they end."""

    def __init__(self, *, processes: int = PROCESSES, command: tuple[str, ...] | None = None, stall_s: float = STALL_S) -> None:
        self._command = command or (*COMMAND, str(MEMORY_BYTES), str(_NICE))
        self._stall_s = stall_s
        self._most = processes
        self._queue = FairQueue(processes)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._closed = False

    async def answers(self, who: Requester, works: Sequence[Work], suites: Mapping[str, SuiteSource]) -> list[Answer]:
        """Return an answer for every item, slice by slice. Raises `Refusal` if that is not possible now."""
        finished: list[Answer] = []
        deaths, spent = 0, 0.0
        while len(finished) < len(works):
            remaining = works[len(finished) :]
            if spent > REQUEST_S:
                reason = f"not decided: the records before it took {REQUEST_S:g} s"
                return [*finished, *[Answer(error=(TIME_LIMIT, reason))] * len(remaining)]
            if deaths >= MOST_DEATHS:
                # Every end costs the start of a process, which one request must not repeat without limit.
                reason = f"not decided: {deaths} earlier records ended their process"
                return [*finished, *[Answer(error=(CRASHED, reason))] * len(remaining)]
            received, why = await self._decide_slice(who, _cut_chunk(remaining), suites)
            finished += [answer for answer in received if not answer.undone]
            spent += sum(answer.spent_s for answer in received)
            if why is not None:
                deaths += 1
                finished.append(Answer(error=(CRASHED, why)))
        return finished

    async def close(self) -> None:
        """End every process."""
        self._closed = True
        for worker in self._busy:
            # Its waiting caller gets `EOFError` and is rejected.
            worker.process.kill()
        for start in self._starts:
            start.cancel()
        await asyncio.gather(*self._starts, *self._ends, return_exceptions=True)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.process.close() for worker in idle))

    async def _decide_slice(
        self, who: Requester, works: Sequence[Work], suites: Mapping[str, SuiteSource]
    ) -> tuple[list[Answer], str | None]:
        """Return the answers to the first of these, and why the process ended if it did not answer all."""
        place = self._queue.acquire(who)
        time = asyncio.get_running_loop().time
        begun: float | None = None
        try:
            await place.granted
            worker = await self._get_worker()
            # The start of a process is not charged to the requester.
            begun = time()
            return await self._call_worker(worker, works, suites)
        finally:
            # An early exit is charged for the time used.
            self._queue.release(place, 0.0 if begun is None else time() - begun)

    async def _call_worker(
        self, worker: _Worker, works: Sequence[Work], suites: Mapping[str, SuiteSource]
    ) -> tuple[list[Answer], str | None]:
        process = worker.process
        self._busy.add(worker)
        try:
            answers = await process.exchange(_ENCODE(worker.make_job(works, suites)), len(works), _READ.decode)
            # A process that has grown too large reports that with its last answer, and is not used again.
            if len(answers) == len(works) and not answers[-1].last:
                self._add_idle(worker)
                return answers, None
            # The first record without an answer is the one that ended the process.
            code = None if len(answers) == len(works) else await process.wait_for_exit()
        except BaseException:
            # A job cannot be resumed in the middle.
            _run_in_background(process.close(), self._ends)
            raise
        finally:
            self._busy.discard(worker)
        await process.close()
        if len(answers) == len(works):
            return answers, None
        if self._closed:
            raise _refuse_stopping()
        why = _describe_end(code, self._stall_s)
        _LOG.warning("a decision process ended", extra={"reason": why})
        return answers, why

    async def _get_worker(self) -> _Worker:
        if self._closed:
            raise _refuse_stopping()
        while self._idle:
            # The last used one: it probably has the suite, and the others become old enough to be ended.
            worker = self._idle.pop()
            if worker.process.is_running:
                # One more, if allowed, so that the next requester need not wait.
                if not self._idle and not self._starting and len(self._busy) + 1 < self._most:
                    _run_in_background(self._start_spare(), self._starts)
                return worker
            await worker.process.close()
        try:
            worker = await self._start_worker()
        except CannotStart as error:
            _LOG.warning("no decision process can be started", extra={"error": str(error)})
            raise Refusal("UNAVAILABLE", "no decision process can be started; try again", retry_after_s=5) from None
        # The pool may have been closed while the process started.
        if self._closed:
            await worker.process.close()
            raise _refuse_stopping()
        return worker

    async def _start_worker(self) -> _Worker:
        process = ChildProcess(self._command, stall_s=self._stall_s)
        self._starting += 1
        try:
            await process.start()
        finally:
            self._starting -= 1
        return _Worker(process)

    async def _start_spare(self) -> None:
        with contextlib.suppress(CannotStart):
            self._add_idle(await self._start_worker())

    def _add_idle(self, worker: _Worker) -> None:
        if self._closed:
            _run_in_background(worker.process.close(), self._ends)
            return
        loop = asyncio.get_running_loop()
        worker.idle_since = loop.time()
        self._idle.append(worker)
        if len(self._idle) > 1:
            # A little more, since the event loop may fire early.
            loop.call_later(IDLE_S + 0.1, self._end_idle)

    def _end_idle(self) -> None:
        if self._closed:
            return
        idle_since = asyncio.get_running_loop().time() - IDLE_S
        # The last one is the most recently used.
        while len(self._idle) > 1 and self._idle[0].idle_since <= idle_since:
            _run_in_background(self._idle.pop(0).process.close(), self._ends)


def _refuse_stopping() -> Refusal:
    return Refusal("UNAVAILABLE", "the service is stopping", retry_after_s=5)


def _run_in_background(work: Coroutine[None, None, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _cut_chunk(works: Sequence[Work]) -> Sequence[Work]:
    size = 0
    for count, work in enumerate(works[:CHUNK]):
        # A trace counts as a whole chunk: its pieces are compressed, and may be a hundred times as large.
        size += len(work.evidence) if isinstance(work, CaseWork) else len(work.sent) if isinstance(work, ReadWork) else CHUNK_BYTES
        # The first is always sent, whatever its size.
        if count and size > CHUNK_BYTES:
            return works[:count]
    return works[:CHUNK]


def _describe_end(code: int | None, stall_s: float) -> str:
    if code is None:
        return f"the decision process did not answer for {stall_s:g} s and was ended"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"the decision process was ended by {name}"
    return f"the decision process ended with exit code {code}"
