"""Runs queued runs.

A worker takes one run, holds it by a lease that it renews, and continues where the last worker stopped. It stops within a second when the
run is cancelled, and requeues the run when the service stops. If the worker dies, the lease expires and another one takes over. If the
database is gone, it stops when its lease may have expired. A run that is taken repeatedly without finishing an attempt has failed.

Tenants take turns, and so do the projects of a tenant. After its turn, a run yields to a waiting run of another project: it finishes the
attempts in progress and is requeued. Attempts beyond the longest timeout are cancelled; a run that finished nothing by then has failed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from proctor.actions.checking.check_stream import wall_clock
from proctor.actions.doctor.snapshots import list_snapshots
from proctor.actions.running.run_builder import BuiltRun
from proctor.actions.workspace.run_history import case_result, result_of
from proctor.cassettes.entries import REDACTED
from proctor.cassettes.redaction import redact, redact_text
from proctor.decide.judging import Ask
from proctor.errors import InputError, StoreError, TargetError
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Json
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry
from proctor.model.verdict import OUTCOMES
from proctor.report.words.ranges import add_ranges
from proctor.runner.ports import Event, Listener, RunPorts
from proctor.runner.run import Runner, RunOutcome
from proctor.service.decisions.suite_verdicts import SuiteDecisions
from proctor.service.decisions.trace_verdicts import make_undecided_result
from proctor.service.hub import QUEUED, Hub, new_id, stamp
from proctor.service.refusals import Refusal, describe_error
from proctor.service.runs.backtest_runner import BacktestRunner, build_backtest
from proctor.service.runs.building import (
    build_project_run,
    header_of,
    read_chosen_suite,
    read_run_request,
    read_stored_suite,
    settings_of,
    source_of,
)
from proctor.service.runs.figures import RunFacts, find_failures, find_latency, store_figures, tally_run
from proctor.service.runs.results import suite_of_run
from proctor.service.suites.outbound import LONGEST_ATTEMPT_S
from proctor.service.waiting import wait_for_first
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
    keep_snapshots,
    list_done_attempts,
    list_waiting_projects,
    renew_lease,
    requeue_run,
)
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import projects


async def count_attempts(hub: Hub, run: Row, status: Literal["completed", "cancelled", "failed"]) -> tuple[dict[str, int], str]:
    """Return the number of attempts by outcome, and the outcome of the run."""
    entries: list[RunEntry] = []
    async with hub.database.reading() as connection:
        async for entry in iterate_entries(connection, run["id"], evidence=False):
            entries.append(entry)
    outcome_counts = Counter(entry.outcome for entry in entries)
    counts = {outcome: outcome_counts[outcome] for outcome in OUTCOMES if outcome_counts[outcome]}
    try:
        result = await asyncio.to_thread(lambda: result_of(header_of(run), read_stored_suite(run), entries, status))
    except InputError:
        # It was valid when it was sent, but a newer version cannot read it.
        return counts, "error"
    return counts, result.outcome


async def store_run_figures(hub: Hub, run: Row, counts: Mapping[str, int]) -> None:
    """Compute and store the figures of an ended run. Without them, pages compute them."""
    try:
        async with hub.database.reading() as connection:
            tally = await tally_run(connection, run["id"])
            failures = await find_failures(connection, run)
            latency = await find_latency(connection, run["id"], sum(counts.values()))
        totals = await asyncio.to_thread(lambda: tally.add_up(suite_of_run(run)))
        async with hub.database.writing() as connection:
            await store_figures(connection, run["id"], tally, RunFacts(failures=failures, latency=latency, totals=totals))
    except StoreError as error:
        # The run has ended correctly in any case.
        _LOG.warning("the figures of a run could not be stored", extra={"run": run["id"], "reason": str(error)})


class RunTurns:
    """When each tenant and project was served, in one process."""

    def __init__(self) -> None:
        # A counter, since a clock may give two turns the same time.
        self._number = 0
        self._organizations: dict[str, int] = {}
        self._projects: dict[str, int] = {}
        self._taking = asyncio.Lock()

    async def take(self, hub: Hub, owner: str) -> Row | None:
        """Take the next run, or return None."""
        # One after the other, so that each sees who was served last.
        async with self._taking:
            async with hub.database.reading() as connection:
                waiting = await list_waiting_projects(connection, now=hub.clock())
            if len(self._projects) > 10_000:
                known = {each.project_id for each in waiting}
                self._projects = {id: number for id, number in self._projects.items() if id in known}
                known = {each.organization_id for each in waiting}
                self._organizations = {id: number for id, number in self._organizations.items() if id in known}
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
                # Another worker may have taken it.
                if row is not None:
                    self._number += 1
                    self._organizations[project.organization_id] = self._projects[project.project_id] = self._number
                    return row
            return None

    def _place(self, project: WaitingProject) -> tuple[int, int, str]:
        # Those never served come first, once: there is no credit for staying away.
        served = self._organizations.get(project.organization_id, 0), self._projects.get(project.project_id, 0)
        return (*served, project.since)


class RunDecisions(SuiteDecisions):
    """Decides the cases of a run: a failure to decide is the error of one attempt."""

    async def decide_one(
        self, case: Case, evidence: Evidence, *, attempt: int = 0, clock: str | None = None, ask: Ask | None = None
    ) -> CaseResult:
        """Return the result of a case in any case."""
        try:
            return await super().decide_one(case, evidence, attempt=attempt, clock=clock, ask=ask)
        except Refusal as error:
            return make_undecided_result(case, "not_decided", error.message, attempt=attempt)


# --- text ranges of verdicts, computed when an attempt is stored, since that is too slow for very long texts later


def make_range_finder(cases: Sequence[Case]) -> Callable[[RunEntry], Ranges]:
    """Return a function that finds the text ranges of each verdict of an attempt."""

    def find_ranges(entry: RunEntry) -> Ranges:
        # Searched each time: few attempts are that long, and a run may have very many cases.
        case = next((case for case in cases if case.id == entry.case), None) or Case(id=entry.case)
        result = case_result(case, entry)
        ranges = () if entry.evidence is None else add_ranges(result, entry.evidence).ranges
        # An empty tuple would mean not computed yet.
        return ranges or ((),) * len(result.verdicts)

    return find_ranges


# --- attempts without secrets: those of the project verbatim, others by name and pattern

# Shorter secrets would occur in ordinary text.
_SHORTEST = 4


class Cleaner:
    """Removes secrets from entries and texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # Longest first: one secret may be part of another.
        self._secrets = sorted({secret for secret in secrets if len(secret) >= _SHORTEST}, key=lambda secret: (-len(secret), secret))

    def clean_entry(self, entry: RunEntry) -> bytes:
        """Return the entry as valid JSON, whatever the agent answered."""
        value: Json = redact(msgspec.to_builtins(entry))
        try:
            data = msgspec.json.encode(value)
        except UnicodeEncodeError:
            # Lone surrogates, which cannot be encoded; infinite numbers are null.
            sound: Json = json.loads(json.dumps(value), parse_constant=lambda _: None)
            data = json.dumps(sound, ensure_ascii=False).encode("utf-8", errors="replace")
        return self._replace_secrets(data)

    def clean_snapshot(self, body: bytes) -> bytes:
        """Return what a server offers without secrets; what was found there is cleaned like an entry, schemas stay as they are."""
        value = msgspec.json.decode(body)
        if "examined" in value:
            body = msgspec.json.encode({**value, "examined": redact(value["examined"])})
        return self._replace_secrets(body)

    def _replace_secrets(self, data: bytes) -> bytes:
        for secret in self._secrets:
            # In the encoded form: a secret may also be in a key, or part of a longer text.
            # JSON-encoded: quotes and backslashes of a secret are escaped in the entry.
            data = data.replace(json.dumps(secret, ensure_ascii=False).encode("utf-8", errors="replace")[1:-1], REDACTED.encode())
        return data

    def clean_text(self, text: str) -> str:
        """Return a text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return redact_text(text)


LOOK_EVERY_S = 0.3
"""Seconds between checks whether a run is cancelled by another process."""
IDLE_S = 1.0
"""Seconds between checks of an idle worker for runs that other processes queued."""
PATIENCE_S = 3.0
"""Seconds that a run waits before others yield to it: by then an idle worker would have taken it."""
# Every finished attempt resets the count, so that only a run that ends its workers reaches it.
MOST_CLAIMS = 5
TURN_S = 60.0
"""Seconds after which a run yields to a waiting run of another project."""
LONG_TURN_S = 600.0
"""Seconds after which a run yields without a finished attempt."""
GOODBYE_S = LONGEST_ATTEMPT_S + 60.0
"""Seconds that a yielding run may take to finish its attempts."""
OPEN_S = 300.0
"""Seconds that a target may take to open."""
LEAVE_S = 8.0
"""Seconds that a target may take to close."""
STOPPED = "the service is stopping; the run continues after the restart"
NOTHING_DONE = "failed: no attempt was finished while other runs were waiting"
YIELDED = "other runs are waiting; the run continues at its next turn"
_LOG = logging.getLogger("proctor.service")

Why = Literal["cancelled", "stopping", "lost", "overdue"]
_Task = asyncio.Task[Any]


async def run_worker(hub: Hub, stop: asyncio.Event) -> None:
    """Execute runs until `stop` is set, concurrently as configured."""
    turns = RunTurns()
    places = [asyncio.create_task(_place(hub, stop, turns)) for _ in range(hub.settings.workers)]
    try:
        await stop.wait()
        # They see `stop` themselves and requeue their runs; they are cancelled only if this task is.
        if places:
            await asyncio.wait(places)
    finally:
        for place in places:
            place.cancel()
        await asyncio.gather(*places, return_exceptions=True)


async def work_once(hub: Hub, stop: asyncio.Event | None = None, turns: RunTurns | None = None) -> str | None:
    """Take one run and execute it until it ends or is released; return its id, or None if none waits."""
    # A new owner per run: late writes for a lost run must not count if the same worker takes it again.
    owner = new_id("worker")
    row = await (turns or RunTurns()).take(hub, owner)
    if row is None:
        return None
    await _Drive(hub, row, owner, stop or asyncio.Event()).drive()
    return row["id"]


async def _place(hub: Hub, stop: asyncio.Event, turns: RunTurns) -> None:
    with hub.run_signals.watch(QUEUED) as watch:
        # Watched before the first query, so that a run queued meanwhile wakes the worker.
        while not stop.is_set():
            try:
                busy = await work_once(hub, stop, turns) is not None
            except StoreError as error:
                _LOG.warning("a run could not be continued", extra={"reason": str(error)})
                busy = False
            except Exception:
                # A bug in one run must not cost the service a worker.
                _LOG.exception("a run could not be continued")
                busy = False
            if not busy and not stop.is_set():
                await wait_for_first(watch.wait(IDLE_S), stop.wait())


class _Drive:
    """One run of one worker."""

    def __init__(self, hub: Hub, row: Row, owner: str, stop: asyncio.Event) -> None:
        self._hub = hub
        self._row: dict[str, Any] = dict(row)
        self._id: str = row["id"]
        self._owner = owner
        self._stop = stop
        # A monotonic clock, since the wall clock may be set back.
        self._began = self._held_at = time.monotonic()
        self._runner: Runner | BacktestRunner | None = None
        self._progressed = False
        """Whether an attempt was finished in this turn."""
        self._is_yielding = False
        self._yielding_since = 0.0

    async def drive(self) -> None:
        """Execute the run until it ends or is released. Raises `StoreError` if the database is unavailable."""
        try:
            if self._row["cancel_requested"]:
                return await self._end("cancelled")
            if self._row["claims"] > MOST_CLAIMS:
                return await self._end("failed", error=f"failed: started {MOST_CLAIMS} times without finishing an attempt")
            # Built in a task, since that may take long and the lease must be renewed.
            building = asyncio.create_task(self._ready(), name=f"ready {self._id}")
            try:
                why = await self._watch_until_over(building)
            finally:
                await _end_task(building)
            try:
                ready = building.result()
            except (InputError, Refusal) as error:
                return await self._end("failed", error=describe_error(error))
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
            raise InputError("its project was deleted")
        suite = await asyncio.to_thread(read_chosen_suite, self._row)
        request, organization_id = read_run_request(self._row), self._row["organization_id"]
        if request.backtest is not None:
            return await build_backtest(self._hub, organization_id, project, suite)
        return await build_project_run(self._hub, organization_id, project, suite, request)

    async def _run(self, ready: BuiltRun) -> None:
        hub = self._hub
        rows = RunRows(
            hub.database,
            RunLease(run_id=self._id, owner=self._owner, lasts_s=hub.settings.lease_s),
            clock=hub.clock,
            now=hub.now,
            new_id=new_id,
            clean=(cleaner := Cleaner(ready.secrets)),
            on_written=lambda: hub.run_signals.wake(self._id),
            find_ranges=make_range_finder(ready.suite.cases),
        )
        async with hub.database.reading() as connection:
            # Earlier workers may have stored some attempts: only the rest is run.
            done = await list_done_attempts(connection, self._id)
        rows.add_event("running", {"attempts": read_run_request(self._row).attempts, "finished": len(done), "claims": self._row["claims"]})
        self._runner = runner = self._make_runner(ready, rows, self._listener(rows, cleaner))
        # In a task: a cancelled runner returns what it has, and swallows the cancellation.
        running = asyncio.create_task(runner.run(done), name=f"run {self._id}")
        try:
            why = await self._watch_until_over(running)
        finally:
            await _end_task(running)
            # Before the run is ended or requeued, which releases the lease.
            await rows.wait_until_written()
        await self._keep_snapshots(ready, cleaner)
        await self._finish(running, why, cleaner)

    async def _keep_snapshots(self, ready: BuiltRun, cleaner: Cleaner) -> None:
        snapshots = {kind: cleaner.clean_snapshot(body) for kind, body in list_snapshots(ready.target).items()}
        if snapshots:
            hub = self._hub
            async with hub.database.writing() as connection:
                await keep_snapshots(connection, self._id, self._owner, hub.clock() + hub.settings.lease_s, snapshots)

    def _make_runner(self, ready: BuiltRun, rows: RunRows, listener: Listener) -> Runner | BacktestRunner:
        request = read_run_request(self._row)
        settings = msgspec.structs.replace(settings_of(request), open_s=OPEN_S)
        who = (self._row["organization_id"], f"project {self._row['project_id']}")
        cases = [case.case for case in ready.cases]
        decides = RunDecisions(self._hub.decisions, who, source_of(self._row), cases, fail_fast=settings.fail_fast)
        if request.backtest is not None:
            return BacktestRunner(self._hub, self._row, self._owner, ready, decisions=decides, log=rows, listener=listener)
        ports = RunPorts(
            target=ready.target,
            log=rows,
            listener=listener,
            now=wall_clock,
            judge=ready.judge_choice.judge,
            decides=decides,
            speaker_for=ready.users.make_speaker_for(wall_clock) if ready.users is not None else None,
        )
        return Runner(ready.cases, ports, run_id=self._id, settings=settings)

    def _listener(self, rows: RunRows, cleaner: Cleaner) -> Listener:
        def listen(event: Event) -> None:
            if event.kind in ("finished", "stopping"):
                self._progressed = True
            if event.kind in ("planned", "finished", "stopping"):
                return  # stored with the run and with each attempt
            body: dict[str, Json] = {"case": event.case, "attempt": event.attempt}
            if event.message:
                body["message"] = cleaner.clean_text(event.message)[:500]
            rows.add_event(event.kind, body)

        return listen

    async def _watch_until_over(self, running: _Task) -> Why | None:
        """Wait until the run has ended, or return the reason to end it."""
        with self._hub.run_signals.watch(self._id) as watch:
            while not running.done():
                await wait_for_first(asyncio.wait({running}), watch.wait(LOOK_EVERY_S), self._stop.wait())
                # First: a run that has ended is finished, also if the service stops at the same moment.
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
                # The time before the write, so that the worker never assumes a longer lease than the database has.
                self._held_at = now
            else:
                # Only reads in between: frequent checks must not take the write lock.
                async with hub.database.reading() as connection:
                    cancelled = await is_cancel_requested(connection, self._id, self._owner)
            overdue = await self._yield_turn(now)
        except LeaseLost:
            return "lost"
        except StoreError:
            # The database may be back in a moment; the run is still ours until the lease expires.
            return "lost" if now - self._held_at >= lease_s else None
        if cancelled:
            return "cancelled"
        return "overdue" if overdue else None

    async def _yield_turn(self, now: float) -> bool:
        """Yield to others after this run's turn; return whether it takes too long to stop."""
        if self._is_yielding:
            return now - self._yielding_since >= GOODBYE_S
        # A run that is slow to start would never progress if it were requeued for that.
        if self._runner is None or now - self._began < (TURN_S if self._progressed else LONG_TURN_S):
            return False
        # Checked again after a while, not every time.
        self._began += PATIENCE_S
        clock = self._hub.clock()
        async with self._hub.database.reading() as connection:
            waiting = await list_waiting_projects(connection, now=clock)
        if any(each.project_id != self._row["project_id"] and each.since <= stamp(clock - PATIENCE_S) for each in waiting):
            self._is_yielding, self._yielding_since = True, now
            self._runner.wind_down(YIELDED)
        return False

    async def _leave(self, why: Why | None) -> None:
        """Requeue a run that has not started, or end it if requested; raise `LeaseLost` if another worker has it."""
        if why == "cancelled":
            return await self._end("cancelled")
        if why == "stopping":
            return await self._let_go(STOPPED)
        if why == "overdue":
            # A run that cannot finish anything in that time is not started again.
            return await (self._let_go(YIELDED) if self._progressed else self._end("failed", error=NOTHING_DONE))
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
            # Ended while its target was opening.
            return await self._leave(why)
        except StoreError:
            # A cancelled run is not restarted for results that could not be stored.
            if why == "cancelled":
                return await self._end("cancelled")
            # The next worker continues from the stored results.
            raise
        except TargetError as error:
            return await self._end("failed", error=cleaner.clean_text(f"{error.code}: {error.message}"))
        except Exception as error:
            _LOG.exception("a run failed", extra={"run": self._id})
            return await self._end("failed", error=f"internal_error: a bug in proctor: {type(error).__name__}")
        # Before `why`: a run that completed while it was to be stopped is complete.
        if outcome.ended == "completed":
            return await self._end("completed")
        if why is not None:
            return await self._leave(why)
        if self._is_yielding and outcome.ended == "budget":
            return await self._let_go(YIELDED)
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
        await store_run_figures(hub, self._row, counts)


async def _end_task(running: _Task) -> None:
    """Wait until the task has ended and its target is closed, also if this task is cancelled."""
    while not running.done():
        # Repeated: a target that hangs on closing would block this worker.
        running.cancel()
        try:
            await asyncio.wait({running}, timeout=LEAVE_S)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait({running}, timeout=LEAVE_S)
            raise
