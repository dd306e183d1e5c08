"""Decides everything that somebody waits for: a few processes beside this one, shared fairly.

Runs, checks over MCP, completed tasks and judged traces all come here; `record_verdicts.py` does the work. Whoever asks has a tenant, and
within it a caller: a key, a project or a run. `FairTurns` says whose turn it is when a process is free. A request is done in
slices, so that others have a turn between two of them.

What ends its process (memory, a crash of the pattern engine, standing still) is an `error` of that record; the process is replaced, and the
records after it are decided. A request that is cancelled ends its process: nothing is decided that nobody waits for.
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
from proctor.service.decisions.messages import CRASHED, TIME_LIMIT, Answer, CaseWork, Job, ReadWork, SuiteSource, Work
from proctor.service.decisions.record_verdicts import CaseDecider
from proctor.service.fair_turns import FairTurns, Who
from proctor.service.refusals import Refusal

T = TypeVar("T")
CLIENT_LEAVES: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("CLIENT_LEAVES", default=None)
"""Returns when the client of this request has left; nothing where nobody knows."""


async def run_while_client_waits(work: Coroutine[Any, Any, T]) -> T:
    """Do the work, unless the client leaves before it is done; then raise `Refusal`, which nobody hears."""
    leaves = CLIENT_LEAVES.get()
    if leaves is None:
        return await work
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(leaves())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal("BAD_REQUEST", "the client left before there was an answer")
    finally:
        # Also when this request is cancelled itself: neither of the two may outlive it.
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
    return working.result()


PROCESSES = 4
"""Half as many more are started while one tenant uses more than half of these and others come."""
MEMORY_BYTES = 1_000_000_000
"""What one process may hold; it works for one caller at a time."""
REQUEST_S = 60.0
"""Seconds of computing that one request may take; the rest of it is not decided."""
MOST_DEATHS = 3
"""How many processes one request may end; the rest of it is not decided."""
CHUNK = 64
"""Pieces of work that are handed over at once."""
CHUNK_BYTES = 2_000_000
IDLE_S = 30.0
"""How long a process is kept that nobody needs; one is always kept."""
_NICE = 5
_MOST_SUITES = 20
_LOG = logging.getLogger("proctor.serve")
_ENCODE = msgspec.msgpack.Encoder().encode
_READ = make_msgpack_decoder(Answer).decode


class Decisions(Protocol):
    """Does work for whoever asks."""

    async def answers(self, who: Who, works: Sequence[Work], suites: Mapping[str, SuiteSource]) -> list[Answer]:
        """Answer every piece of work. Raises `Refusal` where that is not possible now."""
        ...

    async def close(self) -> None:
        """Leave no process behind."""
        ...


class ThreadDecisions:
    """Decides in a thread of this process: for one user on a machine of their own, and for tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def answers(self, who: Who, works: Sequence[Work], suites: Mapping[str, SuiteSource]) -> list[Answer]:
        """Answer every piece of work."""

        def work() -> list[Answer]:
            decider, found = CaseDecider(), list[Answer]()
            with self._lock:
                while len(found) < len(works):
                    if decider.exhausted:
                        # Such a one begins nothing any more; what it held is given back with it.
                        decider = CaseDecider()
                    job = Job(works=works[len(found) :], suites=dict(suites))
                    found += [answer for answer in decider.answer_job(job) if not answer.undone]
            return found

        return await asyncio.to_thread(work)

    async def close(self) -> None:
        """Do nothing: no process was started."""


class _Worker:
    """One process, and the suites it was told."""

    def __init__(self, process: ChildProcess) -> None:
        self.process = process
        self._told: OrderedDict[str, None] = OrderedDict()
        self.idle_since = 0.0

    def make_job(self, works: Sequence[Work], suites: Mapping[str, SuiteSource]) -> Job:
        """Return the job, with the suites that the process does not know yet and those it need not know any more."""
        wanted = {work.suite for work in works if isinstance(work, CaseWork)}
        news = {key: suites[key] for key in wanted if key not in self._told}
        for key in wanted:
            self._told[key] = None
            self._told.move_to_end(key)
        forget: list[str] = []
        while len(self._told) > max(_MOST_SUITES, len(wanted)):
            forget.append(self._told.popitem(last=False)[0])
        return Job(works=works, suites=news, forget=forget)


class DecisionPool:
    """The processes, started when they are needed and replaced when they have died."""

    def __init__(self, *, processes: int = PROCESSES, command: tuple[str, ...] | None = None, stall_s: float = STALL_S) -> None:
        self._command = command or (*COMMAND, str(MEMORY_BYTES), str(_NICE))
        self._stall_s = stall_s
        self._most = processes
        self._turns = FairTurns(processes)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._closed = False

    async def answers(self, who: Who, works: Sequence[Work], suites: Mapping[str, SuiteSource]) -> list[Answer]:
        """Answer every piece of work, a slice at a time. Raises `Refusal` where that is not possible now."""
        found: list[Answer] = []
        deaths, spent = 0, 0.0
        while len(found) < len(works):
            left = works[len(found) :]
            if spent > REQUEST_S:
                told = f"not decided: the records before it took {REQUEST_S:g} s"
                return [*found, *[Answer(error=(TIME_LIMIT, told))] * len(left)]
            if deaths >= MOST_DEATHS:
                # Every death costs the start of a process; a request made of such records must not keep the pool busy with that.
                told = f"not decided: {deaths} records before it ended the process that decided them"
                return [*found, *[Answer(error=(CRASHED, told))] * len(left)]
            got, why = await self._decide_slice(who, _cut_chunk(left), suites)
            found += [answer for answer in got if not answer.undone]
            spent += sum(answer.spent_s for answer in got)
            if why is not None:
                deaths += 1
                found.append(Answer(error=(CRASHED, why)))
        return found

    async def close(self) -> None:
        """End every process."""
        self._closed = True
        for worker in self._busy:
            # Whoever waits for its answers hears the end of the pipe, and is refused.
            worker.process.kill()
        for start in self._starts:
            start.cancel()
        await asyncio.gather(*self._starts, *self._ends, return_exceptions=True)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.process.close() for worker in idle))

    async def _decide_slice(self, who: Who, works: Sequence[Work], suites: Mapping[str, SuiteSource]) -> tuple[list[Answer], str | None]:
        """Return the answers to the first of these, and what ended the process when it did not come to all of them."""
        place = self._turns.enter(who)
        time = asyncio.get_running_loop().time
        begun: float | None = None
        try:
            await place.granted
            worker = await self._get_worker()
            # Not before: the start of a process is not charged to whoever happens to be first.
            begun = time()
            return await self._ask_worker(worker, works, suites)
        finally:
            # Whoever leaves early has used what it has used.
            self._turns.leave(place, 0.0 if begun is None else time() - begun)

    async def _ask_worker(
        self, worker: _Worker, works: Sequence[Work], suites: Mapping[str, SuiteSource]
    ) -> tuple[list[Answer], str | None]:
        process = worker.process
        got: list[Answer] = []
        self._busy.add(worker)
        try:
            # All of these mean the same: no answer comes any more. Which record it was is known by how many answers there are.
            with contextlib.suppress(ConnectionError, EOFError, TimeoutError, msgspec.MsgspecError):
                await process.send(_ENCODE(worker.make_job(works, suites)))
                while len(got) < len(works):
                    got.append(_READ(await process.receive()))
                # A process that has grown too large says so with its last answer, and is not used again.
                if not got[-1].last:
                    self._keep_idle(worker)
                    return got, None
            code = None if len(got) == len(works) else await process.wait_for_exit()
        except BaseException:
            # In the middle of a job there is no way to go on with it: whatever it does, nobody waits for it.
            _run_in_background(process.close(), self._ends)
            raise
        finally:
            self._busy.discard(worker)
        await process.close()
        if len(got) == len(works):
            return got, None
        if self._closed:
            raise _refuse_stopping()
        why = _describe_end(code, self._stall_s)
        _LOG.warning("a process that decides ended", extra={"reason": why})
        return got, why

    async def _get_worker(self) -> _Worker:
        if self._closed:
            raise _refuse_stopping()
        while self._idle:
            # The one that was used last: it most likely knows the suite, and the others grow old enough to be ended.
            worker = self._idle.pop()
            if worker.process.is_running:
                self._prepare_spare()
                return worker
            await worker.process.close()
        try:
            worker = await self._start_worker()
        except CannotStart as error:
            _LOG.warning("no process can be started to decide in", extra={"error": str(error)})
            raise Refusal("UNAVAILABLE", "nothing can be decided now: no process can be started", retry_after_s=5) from None
        # The pool may have been closed while the process started, and nobody would end it.
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

    def _prepare_spare(self) -> None:
        """Start one more process, if there may be more, so that the next one who asks need not wait for it."""
        if not self._idle and not self._starting and len(self._busy) + 1 < self._most:
            _run_in_background(self._start_spare(), self._starts)

    async def _start_spare(self) -> None:
        with contextlib.suppress(CannotStart):
            worker = await self._start_worker()
            self._keep_idle(worker)

    def _keep_idle(self, worker: _Worker) -> None:
        if self._closed:
            _run_in_background(worker.process.close(), self._ends)
            return
        loop = asyncio.get_running_loop()
        worker.idle_since = loop.time()
        self._idle.append(worker)
        if len(self._idle) > 1:
            # A little more than its time: the event loop may ring a hair early, and would find it too young to be ended.
            loop.call_later(IDLE_S + 0.1, self._end_idle)

    def _end_idle(self) -> None:
        if self._closed:
            return
        before = asyncio.get_running_loop().time() - IDLE_S
        # The last one is the one that was used last.
        while len(self._idle) > 1 and self._idle[0].idle_since <= before:
            _run_in_background(self._idle.pop(0).process.close(), self._ends)


def _refuse_stopping() -> Refusal:
    return Refusal("UNAVAILABLE", "the service stops", retry_after_s=5)


def _run_in_background(work: Coroutine[None, None, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _cut_chunk(works: Sequence[Work]) -> Sequence[Work]:
    """Return as many of the first as are handed over at once."""
    size = 0
    for count, work in enumerate(works[:CHUNK]):
        # A trace counts as a whole chunk: its pieces are compressed, and may be a hundred times as large when they are read.
        size += len(work.evidence) if isinstance(work, CaseWork) else len(work.sent) if isinstance(work, ReadWork) else CHUNK_BYTES
        # The first is handed over however large it is; else a request would never get on.
        if count and size > CHUNK_BYTES:
            return works[:count]
    return works[:CHUNK]


def _describe_end(code: int | None, stall_s: float) -> str:
    if code is None:
        return f"the process that decided it gave no answer for {stall_s:g} s and was ended"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"the process that decided it was ended by {name}"
    return f"the process that decided it ended with exit code {code}"
