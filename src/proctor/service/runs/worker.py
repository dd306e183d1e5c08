"""Drives the runs that wait in the queue.

A worker takes one run at a time, holds it by a lease that it renews, and goes on where the last one stopped: attempts that are kept are not
repeated. When the end of the run is asked for it stops within a second; when the service stops it gives the run back to the queue; when it
dies, the lease runs out and another one takes over. When the database is gone it stops as soon as it cannot know any more that the run is
still its own. A run that is taken up again and again without one attempt being finished is given up: it is what ends its workers.

Tenants take turns, and so do the projects of a tenant, however many runs one of them has sent (`run_turns.py`). A run that has had its turn
makes room when a run of another project waits: it starts no further attempt, finishes those under way, and goes back to the queue. What is
still under way after the longest time that an attempt may take is broken off; a run that has finished nothing by then has failed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from proctor.actions.checking.check_stream import wall_clock
from proctor.actions.running.run_builder import BuiltRun
from proctor.actions.workspace.run_history import case_result, result_of
from proctor.cassettes.scrub import REDACTED
from proctor.decide.judging import Ask
from proctor.errors import InputError, StoreError, TargetError
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry
from proctor.model.verdict import OUTCOMES
from proctor.report.words.ranges import add_ranges
from proctor.runner.events import Event, Listener
from proctor.runner.ports import RunPorts
from proctor.runner.run import Runner, RunOutcome
from proctor.service.decisions.messages import make_undecided_result
from proctor.service.decisions.suite_verdicts import SuiteDecisions
from proctor.service.hub import QUEUED, Hub, new_id, stamp
from proctor.service.redaction import redact, redact_text
from proctor.service.refusals import Refusal
from proctor.service.runs.backtest_runner import BacktestRunner, build_backtest
from proctor.service.runs.building import asked_of, build_project_run, header_of, read_chosen_suite, read_kept_suite, settings_of, source_of
from proctor.service.runs.figures import find_failures, find_latency, keep_figures, tally_run
from proctor.service.suites.outbound import LONGEST_ATTEMPT_S
from proctor.store.accounts.tenants import find_row
from proctor.store.runs.entry_previews import Ranges
from proctor.store.runs.run_rows import (
    LeaseLost,
    RunLease,
    RunRows,
    WaitingProject,
    claim_run,
    end_run,
    is_cancel_requested,
    iterate_entries,
    list_done_attempts,
    list_waiting_projects,
    renew_lease,
    requeue_run,
)
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import projects


async def count_attempts(hub: Hub, run: Row, status: Literal["completed", "cancelled", "failed"]) -> tuple[dict[str, int], str]:
    """Return how many attempts ended how, and what the run as a whole is."""
    entries: list[RunEntry] = []
    async with hub.database.reading() as connection:
        async for entry in iterate_entries(connection, run["id"], evidence=False):
            entries.append(entry)
    found = Counter(entry.outcome for entry in entries)
    counts = {outcome: found[outcome] for outcome in OUTCOMES if found[outcome]}
    try:
        result = await asyncio.to_thread(lambda: result_of(header_of(run), read_kept_suite(run), entries, status))
    except InputError:
        # It could be read when it came; a newer version may read it no more.
        return counts, "error"
    return counts, result.outcome


async def keep_run_figures(hub: Hub, run: Row, counts: Mapping[str, int]) -> None:
    """Work out what pages and comparisons ask of a run that has just ended, and keep it. Without it they work it out themselves."""
    try:
        async with hub.database.reading() as connection:
            tally = await tally_run(connection, run["id"])
            failures = await find_failures(connection, run)
            latency = await find_latency(connection, run["id"], sum(counts.values()))
        async with hub.database.writing() as connection:
            await keep_figures(connection, run["id"], tally, failures, latency)
    except StoreError as error:
        # The run has ended well, whatever becomes of this.
        _LOG.warning("what was found out about a run could not be kept", extra={"run": run["id"], "reason": str(error)})


# --- whose run is next


class RunTurns:
    """Who was served when, in the workers of one process."""

    def __init__(self) -> None:
        # Counts turns, where a clock might give two of them the same place.
        self._number = 0
        self._organizations: dict[str, int] = {}
        self._projects: dict[str, int] = {}
        self._taking = asyncio.Lock()

    async def take(self, hub: Hub, owner: str) -> Row | None:
        """Take the next run; None when none waits."""
        # One after the other, so that each sees who was served last.
        async with self._taking:
            return await self._take(hub, owner)

    async def _take(self, hub: Hub, owner: str) -> Row | None:
        async with hub.database.reading() as connection:
            waiting = await list_waiting_projects(connection, now=hub.clock())
        self._forget(waiting)
        for project in sorted(waiting, key=self._place):
            async with hub.database.writing() as connection:
                row = await claim_run(
                    connection,
                    owner=owner,
                    now=hub.clock(),
                    lease_s=hub.settings.lease_s,
                    at=hub.now(),
                    project_id=project.project_id,
                )
            # Another worker may have been faster.
            if row is not None:
                self._number += 1
                self._organizations[project.organization_id] = self._projects[project.project_id] = self._number
                return row
        return None

    def _place(self, project: WaitingProject) -> tuple[int, int, str]:
        # Who was never served comes first, for one turn: then it has the highest number of all. So nobody saves up turns by staying away.
        served = self._organizations.get(project.organization_id, 0), self._projects.get(project.project_id, 0)
        return (*served, project.since)

    def _forget(self, waiting: list[WaitingProject]) -> None:
        """Keep no memory of those who have stayed away while many others came."""
        if len(self._projects) > 10_000:
            known = {each.project_id for each in waiting}
            self._projects = {id: number for id, number in self._projects.items() if id in known}
            known = {each.organization_id for each in waiting}
            self._organizations = {id: number for id, number in self._organizations.items() if id in known}


# ---


# --- decides the cases of a run by the pool


class RunDecisions(SuiteDecisions):
    """Decides the cases of a run: where nothing can be decided now, that is the error of one attempt."""

    async def decide_one(
        self, case: Case, evidence: Evidence, *, attempt: int = 0, clock: str | None = None, ask: Ask | None = None
    ) -> CaseResult:
        """Return the result of a case, whatever happens."""
        try:
            return await super().decide_one(case, evidence, attempt=attempt, clock=clock, ask=ask)
        except Refusal as error:
            return make_undecided_result(case, "not_decided", error.message, attempt=attempt)


# ---


# --- finds what the verdicts of an attempt are about when it is kept: of very long texts nobody can look for it in time later


def make_range_finder(cases: Sequence[Case]) -> Callable[[RunEntry], Ranges]:
    """Return what finds, of each verdict of an attempt, the characters that it is about."""

    def find_ranges(entry: RunEntry) -> Ranges:
        # Looked for each time: few attempts are so long, and a run may have very many cases.
        case = next((case for case in cases if case.id == entry.case), None) or Case(id=entry.case)
        result = case_result(case, entry)
        found = () if entry.evidence is None else add_ranges(result, entry.evidence).ranges
        # None at all would be looked for again.
        return found or ((),) * len(result.verdicts)

    return find_ranges


# ---


# --- what is kept of an attempt on the service, without secrets: those of the project word for word, others by name and by looks

# A shorter secret would be found all over innocent text, and take it along.
_SHORTEST = 4


class Cleaner:
    """Takes secrets out of entries and texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # Longest first: one secret may be part of another.
        self._secrets = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=lambda secret: (-len(secret), secret))

    def clean_entry(self, entry: RunEntry) -> bytes:
        """Return the entry as JSON that can be read again, whatever an agent answered."""
        value: Json = redact(msgspec.to_builtins(entry))
        try:
            data = msgspec.json.encode(value)
        except UnicodeEncodeError:
            # Halves of surrogate pairs, which no encoding knows; infinite numbers are null, as everywhere.
            sound: Json = json.loads(json.dumps(value), parse_constant=lambda _: None)
            data = json.dumps(sound, ensure_ascii=False).encode("utf-8", errors="replace")
        for secret in self._secrets:
            # In the encoded entry as a whole: a secret may also stand in a name, or be a part of a longer text.
            data = data.replace(_in_json(secret), REDACTED.encode())
        return data

    def clean_text(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return redact_text(text)


def _in_json(secret: str) -> bytes:
    # As JSON spells it: a secret with a quote or a backslash stands escaped in the entry.
    return json.dumps(secret, ensure_ascii=False).encode("utf-8", errors="replace")[1:-1]


LOOK_EVERY_S = 0.3
"""How often a worker asks whether its run is to end. What is said in this process it hears at once."""
IDLE_S = 1.0
"""How often an idle worker looks for runs that were queued elsewhere."""
PATIENCE_S = 3.0
"""How long a run waits before others make room for it: by then an idle worker would have taken it."""
# Every attempt that is finished sets the count back, so only a run that ends its workers comes to it.
MOST_CLAIMS = 5
TURN_S = 60.0
"""After how long a run makes room for one of another project that waits."""
LONG_TURN_S = 600.0
"""After how long a run makes room although it has not finished one attempt: by then its target is open, or the run has failed."""
GOODBYE_S = LONGEST_ATTEMPT_S + 60.0
"""How long a run that makes room may take to finish what is under way."""
OPEN_S = 300.0
"""How long a target may take to open."""
LEAVE_S = 8.0
"""How long a target may take to close."""
STOPPED = "the service stops; the run goes on when it is back"
NOTHING_DONE = "given up: no attempt was finished while runs of others waited"
MADE_ROOM = "runs of others wait; the run goes on when it is its turn again"
_LOG = logging.getLogger("proctor.service")

Why = Literal["cancelled", "stopping", "lost", "overdue"]
_Task = asyncio.Task[Any]


async def run_worker(hub: Hub, stop: asyncio.Event) -> None:
    """Drive runs until told to stop, as many at once as the settings say."""
    turns = RunTurns()
    places = [asyncio.create_task(_place(hub, stop, turns)) for _ in range(hub.settings.workers)]
    try:
        await stop.wait()
        # They see `stop` themselves and give their runs back to the queue; only if this task is cancelled, so are they.
        if places:
            await asyncio.wait(places)
    finally:
        for place in places:
            place.cancel()
        await asyncio.gather(*places, return_exceptions=True)


async def work_once(hub: Hub, stop: asyncio.Event | None = None, turns: RunTurns | None = None) -> str | None:
    """Take one run and drive it to its end, or until it has to be let go; its id, or None when none waits."""
    # A name for every run that is taken: what a place has left to write for a run it lost counts for nothing when it takes that run again.
    owner = new_id("worker")
    row = await (turns or RunTurns()).take(hub, owner)
    if row is None:
        return None
    await _Drive(hub, row, owner, stop or asyncio.Event()).drive()
    return row["id"]


async def _place(hub: Hub, stop: asyncio.Event, turns: RunTurns) -> None:
    with hub.run_signals.watch(QUEUED) as watch:
        # Watched before the first look: a run that is queued during a look wakes the place at once.
        while not stop.is_set():
            try:
                busy = await work_once(hub, stop, turns) is not None
            except StoreError as error:
                _LOG.warning("a run could not be driven on", extra={"reason": str(error)})
                busy = False
            except Exception:
                # A bug in one run must not cost the service a place for runs.
                _LOG.exception("a run could not be driven on")
                busy = False
            if not busy and not stop.is_set():
                await _first(watch.wait(IDLE_S), stop.wait())


class _Drive:
    """One run in the hands of one worker."""

    def __init__(self, hub: Hub, row: Row, owner: str, stop: asyncio.Event) -> None:
        self._hub = hub
        self._row: dict[str, Any] = dict(row)
        self._id: str = row["id"]
        self._owner = owner
        self._stop = stop
        # Not by the clock of the wall, which may be put back.
        self._began = self._held_at = time.monotonic()
        self._runner: Runner | BacktestRunner | None = None
        self._got_on = False
        """Whether an attempt was finished in this turn."""
        self._makes_room = False
        self._asked_to_go = 0.0
        """Since when it makes room."""

    async def drive(self) -> None:
        """To its end, or until it has to be let go. Raises `StoreError` where the database is gone."""
        try:
            if self._row["cancel_requested"]:
                return await self._end("cancelled")
            if self._row["claims"] > MOST_CLAIMS:
                return await self._end("failed", error=f"given up: taken up {MOST_CLAIMS} times without one attempt being finished")
            # Made ready in a task of its own, too: what somebody sent may take long, and the run is to be held meanwhile.
            building = asyncio.create_task(self._ready(), name=f"ready {self._id}")
            try:
                why = await self._watch_until_over(building)
            finally:
                await _end_task(building)
            try:
                ready = building.result()
            except (InputError, Refusal) as error:
                return await self._end("failed", error=_words(error))
            except asyncio.CancelledError:
                return await self._leave(why)
            try:
                await self._run(ready) if why is None else await self._leave(why)
            finally:
                await ready.close()
        except LeaseLost:
            _LOG.info("a run was taken over by another worker", extra={"run": self._id})

    async def _ready(self) -> BuiltRun:
        async with self._hub.database.reading() as connection:
            project = await find_row(connection, projects, self._row["organization_id"], self._row["project_id"])
        if project is None:
            raise InputError("its project is gone")
        suite = await asyncio.to_thread(read_chosen_suite, self._row)
        asked, organization_id = asked_of(self._row), self._row["organization_id"]
        if asked.backtest is not None:
            return await build_backtest(self._hub, organization_id, project, suite)
        return await build_project_run(self._hub, organization_id, project, suite, asked)

    async def _run(self, ready: BuiltRun) -> None:
        hub = self._hub
        rows = RunRows(
            hub.database,
            RunLease(run_id=self._id, owner=self._owner, lasts_s=hub.settings.lease_s),
            clock=hub.clock,
            now=hub.now,
            new_id=new_id,
            clean=(cleaner := Cleaner(ready.secrets)),
            told=lambda: hub.run_signals.wake(self._id),
            find_ranges=make_range_finder(ready.suite.cases),
        )
        async with hub.database.reading() as connection:
            # Who held the run before may have kept some of it: only the rest is driven.
            done = await list_done_attempts(connection, self._id)
        rows.add_event("running", {"attempts": asked_of(self._row).attempts, "finished": len(done), "claims": self._row["claims"]})
        self._runner = runner = self._make_runner(ready, rows, self._listener(rows, cleaner))
        # In a task of its own: a runner that is cancelled ends with what it has, and swallows that it was.
        running = asyncio.create_task(runner.run(done), name=f"run {self._id}")
        try:
            why = await self._watch_until_over(running)
        finally:
            await _end_task(running)
            # Before the run is ended or given back, which gives up the lease: after that nothing more of it can be kept.
            await rows.wait_until_written()
        await self._finish(running, why, cleaner)

    def _make_runner(self, ready: BuiltRun, rows: RunRows, listener: Listener) -> Runner | BacktestRunner:
        asked = asked_of(self._row)
        settings = msgspec.structs.replace(settings_of(asked), open_s=OPEN_S)
        who = (self._row["organization_id"], f"project {self._row['project_id']}")
        cases = [case.case for case in ready.cases]
        decides = RunDecisions(self._hub.decisions, who, source_of(self._row), cases, fail_fast=settings.fail_fast)
        if asked.backtest is not None:
            return BacktestRunner(self._hub, self._row, self._owner, ready, decisions=decides, log=rows, listener=listener)
        ports = RunPorts(
            target=ready.target,
            log=rows,
            listener=listener,
            now=wall_clock,
            judge=ready.seat.judge,
            decides=decides,
            speaker_for=ready.users.make_speaker_for(wall_clock) if ready.users is not None else None,
        )
        return Runner(ready.cases, ports, run_id=self._id, settings=settings)

    def _listener(self, rows: RunRows, cleaner: Cleaner) -> Listener:
        def listen(event: Event) -> None:
            if event.kind in ("finished", "stopping"):
                self._got_on = True
            if event.kind in ("planned", "finished", "stopping"):
                return  # the run says how many attempts there will be, and each attempt how it ended, in its own transaction
            body: dict[str, Json] = {"case": event.case, "attempt": event.attempt}
            if event.message:
                body["message"] = cleaner.clean_text(event.message)[:500]
            rows.add_event(event.kind, body)

        return listen

    async def _watch_until_over(self, running: _Task) -> Why | None:
        """Wait until the run has ended, or until there is a reason to end it, which is returned."""
        with self._hub.run_signals.watch(self._id) as watch:
            while not running.done():
                await _first(asyncio.wait({running}), watch.wait(LOOK_EVERY_S), self._stop.wait())
                # First of all: a run that has come to its end is finished as such, also when the service stops in the same moment.
                if running.done():
                    return None
                if self._stop.is_set():
                    return "stopping"
                why = await self._look()
                if why is not None:
                    return why
        return None

    async def _look(self) -> Why | None:
        hub, lease_s = self._hub, self._hub.settings.lease_s
        now = time.monotonic()
        try:
            if now - self._held_at >= lease_s / 3:
                async with hub.database.writing() as connection:
                    cancelled = await renew_lease(connection, self._id, self._owner, hub.clock() + lease_s)
                # Since before it was written: what this worker believes to hold is never longer than what the database says.
                self._held_at = now
            else:
                # Only read in between: a few looks a second of every run must not each take the lock for writing.
                async with hub.database.reading() as connection:
                    cancelled = await is_cancel_requested(connection, self._id, self._owner)
            overdue = await self._make_room(now)
        except LeaseLost:
            return "lost"
        except StoreError:
            # The database may be back in a moment; until the lease is over the run is still ours.
            return "lost" if now - self._held_at >= lease_s else None
        return "cancelled" if cancelled else "overdue" if overdue else None

    async def _make_room(self, now: float) -> bool:
        """Let others have their turn, where this run has had its own; whether it takes too long to go."""
        if self._makes_room:
            return now - self._asked_to_go >= GOODBYE_S
        # One that is slow to begin would never get on, were it sent back for that.
        if self._runner is None or now - self._began < (TURN_S if self._got_on else LONG_TURN_S):
            return False
        # Asked again after a while, not at every look.
        self._began += PATIENCE_S
        clock = self._hub.clock()
        async with self._hub.database.reading() as connection:
            waiting = await list_waiting_projects(connection, now=clock)
        if any(each.project_id != self._row["project_id"] and each.since <= stamp(clock - PATIENCE_S) for each in waiting):
            self._makes_room, self._asked_to_go = True, now
            self._runner.wind_down(MADE_ROOM)
        return False

    async def _leave(self, why: Why | None) -> None:
        """Give a run back that has not begun, or end it where that was asked for; leave it where it is somebody else's."""
        if why == "cancelled":
            return await self._end("cancelled")
        if why == "stopping":
            return await self._let_go(STOPPED)
        if why == "overdue":
            # What cannot be finished in such a time is not begun again and again.
            return await (self._let_go(MADE_ROOM) if self._got_on else self._end("failed", error=NOTHING_DONE))
        raise LeaseLost(f"run {self._id!r} could not be held")

    async def _let_go(self, reason: str) -> None:
        async with self._hub.database.writing() as connection:
            await requeue_run(connection, self._id, self._owner, self._hub.now(), reason)
        self._hub.run_signals.wake(self._id)
        self._hub.run_signals.wake(QUEUED)

    async def _finish(self, running: asyncio.Task[RunOutcome], why: Why | None, cleaner: Cleaner) -> None:
        try:
            outcome = running.result()
        except asyncio.CancelledError:
            # Ended while its target was being opened.
            return await self._leave(why)
        except StoreError:
            # Whoever asked for the end wants no more of it: the run is not taken up again for the sake of what could not be kept.
            if why == "cancelled":
                return await self._end("cancelled")
            # Results that cannot be kept: whoever takes the run up next goes on from those that are.
            raise
        except TargetError as error:
            return await self._end("failed", error=cleaner.clean_text(f"{error.code}: {error.message}"))
        except Exception as error:
            _LOG.exception("a run failed", extra={"run": self._id})
            return await self._end("failed", error=f"internal_error: a bug in proctor: {type(error).__name__}")
        # Before what was asked of it: a run that got to its end while it was to be left has nothing left to do.
        if outcome.ended == "completed":
            return await self._end("completed")
        if why is not None:
            return await self._leave(why)
        if self._makes_room and outcome.ended == "budget":
            return await self._let_go(MADE_ROOM)
        return await self._end("failed", error=outcome.reason)

    async def _end(self, status: Literal["completed", "cancelled", "failed"], *, error: str | None = None) -> None:
        hub = self._hub
        counts, outcome = await count_attempts(hub, self._row, status)
        values = {"status": status, "outcome": outcome if status == "completed" else None, "error": error, "counts": counts}
        body: dict[str, Json] = {"counts": counts, "outcome": values["outcome"], "error": error}
        async with hub.database.writing() as connection:
            await end_run(connection, self._id, self._owner, hub.now(), values, (status, body))
        hub.counters.add("runs_finished")
        hub.run_signals.wake(self._id)
        await keep_run_figures(hub, self._row, counts)


async def _end_task(running: _Task) -> None:
    """Wait until the task has ended and its target is closed, also when whoever waits is cancelled meanwhile."""
    while not running.done():
        # Again after a while: what hangs as it is being closed would keep this place from all other runs.
        running.cancel()
        try:
            await asyncio.wait({running}, timeout=LEAVE_S)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait({running}, timeout=LEAVE_S)
            raise


async def _first(*waits: Awaitable[object]) -> None:
    """Until one of these is done; the others are left."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _words(error: InputError | Refusal) -> str:
    if isinstance(error, InputError):
        return str(error)
    told = [text for texts in error.fields.values() for text in texts]
    return "; ".join([error.message, *told[:5]])
