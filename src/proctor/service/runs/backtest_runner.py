"""Runs a backtest: reads stored traces step by step, decides them, and stores every result as an attempt of its run.

It has the interface of the runner that calls agents (`run`, `wind_down`) and the same worker. Live traffic has priority: the pool decides
in the turns of the project, and the backtest pauses between two steps for as long as it has read.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from proctor.actions.checking.check_stream import prepare_once
from proctor.actions.judging.judges import require_judge
from proctor.actions.running.run_builder import BuiltRun
from proctor.cassettes.ports import LIVE, Tape
from proctor.decide.prepare import PreparedSuite
from proctor.errors import ProctorError
from proctor.model.attempt import Attempt
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Opinion, Question
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry
from proctor.runner.ports import Event, Judge, Listener, RunLog
from proctor.runner.run import RunOutcome, make_entry
from proctor.service.access.secrets import read_secrets
from proctor.service.decisions.suite_verdicts import AskFor, RecordToDecide, SuiteDecisions
from proctor.service.decisions.trace_verdicts import make_undecided_result
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.runs.backtest import STORED_TRACES, Backtest, LeftOut, fetch_next_traces
from proctor.service.runs.building import ProjectPolicy, keep_metadata, read_run_request
from proctor.service.traces.case_history import ReadTrace, read_stored_trace
from proctor.store.runs.run_rows import iterate_entries, keep_settings
from proctor.store.sql.pages import Row

TRACE_KEY = "proctor.trace_id"
"""The metadata key of the trace id in the evidence of an attempt."""
REST = 1.0
"""Pause after a step, as a multiple of its reading time."""
TRIES = 5
"""Attempts at a step while nothing can be decided."""
TRY_AGAIN_S = 2.0


async def build_backtest(hub: Hub, organization_id: str, project: Row, suite: Suite) -> BuiltRun:
    """Prepare the cases of a backtest, and their judge if needed. Raises `Refusal`."""
    policy = ProjectPolicy(hub.settings, project, await read_secrets(hub, organization_id, project["id"]))

    def build() -> BuiltRun:
        built = BuiltRun(suite, StoredTraces())
        with policy.blame("judge"):
            built.judge_choice = policy.find_judge(suite)
        with policy.blame("case"):
            require_judge(suite, built.judge_choice.judge)
            built.cases = prepare_once(suite).cases
        built.secrets |= policy.references.secrets | (
            built.judge_choice.opened.secrets if built.judge_choice.opened is not None else frozenset()
        )
        return built

    return await asyncio.to_thread(build)


class StoredTraces:
    """The target of a backtest, which calls no agent."""

    name = STORED_TRACES

    async def open(self) -> None:
        """Do nothing."""

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Raise an error: stored traces cannot be run."""
        raise ProctorError("stored traces cannot be run")

    async def close(self) -> None:
        """Do nothing."""


class BacktestRunner:
    """One backtest of one worker."""

    def __init__(
        self, hub: Hub, row: dict[str, Any], owner: str, built: BuiltRun, *, decisions: SuiteDecisions, log: RunLog, listener: Listener
    ) -> None:
        """`row` is that of the run, which also stores the progress."""
        request = read_run_request(row)
        assert request.backtest is not None
        self._hub, self._row, self._owner = hub, row, owner
        self._request = request
        self._state: Backtest = request.backtest
        self._suite, self._prepared = built.suite, prepare_once(built.suite)
        self._ask = None if built.judge_choice.judge is None else make_ask(built.judge_choice.judge)
        self._decisions, self._log, self._listener = decisions, log, listener
        self._stop: str | None = None
        self._next: dict[str, int] = {}
        """The number of the next result of each case."""
        self._known: set[tuple[str, str]] = set()
        """Case and trace of results that an earlier worker stored after its last progress update."""

    def wind_down(self, reason: str) -> None:
        """Stop after the current step, and end as a run without budget."""
        self._stop = self._stop or reason

    async def run(self, done: Sequence[tuple[str, int]]) -> RunOutcome:
        """Decide the remaining traces; `done` are case and number of stored results. Raises `StoreError`."""
        for case, number in done:
            self._next[case] = max(self._next.get(case, 0), number + 1)
        if done:
            self._known = await self._list_known()
        while True:
            async with self._hub.database.reading() as connection:
                stored = await fetch_next_traces(connection, self._row["organization_id"], self._row["project_id"], self._state)
            if not stored:
                await self._store_state(msgspec.structs.replace(self._state, is_done=True))
                return RunOutcome(ended="completed")
            began = time.monotonic()
            # One at a time, since reading a trace may need much memory.
            read = [await read_stored_trace(each, self._state.when) for each in stored]
            spent = time.monotonic() - began
            left_out = await self._decide_step(read)
            # The progress is stored after the results: a worker that takes over in between finds them in `_list_known`.
            edge = (stored[-1].row["created_at"], stored[-1].row["id"])
            counts = dict(Counter(self._state.left_out) + Counter(left_out))
            looked_at = self._state.looked_at + len(stored)
            await self._store_state(msgspec.structs.replace(self._state, looked_at=looked_at, left_out=counts, edge=edge))
            # Needed for one step only.
            self._known.clear()
            # After a step, so that every turn makes progress.
            if self._stop is not None:
                return RunOutcome(ended="budget", reason=self._stop)
            await asyncio.sleep(REST * spent)

    async def _list_known(self) -> set[tuple[str, str]]:
        known: set[tuple[str, str]] = set()
        async with self._hub.database.reading() as connection:
            async for entry in iterate_entries(connection, self._row["id"], trim=keep_metadata):
                if entry.evidence is not None:
                    known.add((entry.case, str(entry.evidence.metadata.get(TRACE_KEY))))
        return known

    async def _decide_step(self, read: Sequence[ReadTrace]) -> list[LeftOut]:
        """Store the results of some traces, and return why others have none."""
        left_out: list[LeftOut] = []
        to_decide: list[tuple[ReadTrace, list[int]]] = []
        for each in read:
            why, positions = find_cases(each, self._prepared, len(self._suite.cases))
            if why is not None:
                left_out.append(why)
            fresh = [place for place in positions if (self._suite.cases[place].id, each.row["id"]) not in self._known]
            if fresh:
                to_decide.append((each, fresh))
        began, started_at = time.monotonic(), self._hub.now()
        decided = await self._decide(to_decide)
        each_ms = (time.monotonic() - began) * 1000 / max(1, len(to_decide))
        entries: list[RunEntry] = []
        for (trace, _), results in zip(to_decide, decided, strict=True):
            # With the id of the trace.
            evidence = trace.evidence or Evidence()
            evidence = msgspec.structs.replace(evidence, metadata={**evidence.metadata, TRACE_KEY: trace.row["id"]})
            for result in results:
                number = self._next.get(result.case.id, 0)
                self._next[result.case.id] = number + 1
                numbered = msgspec.structs.replace(result, attempt=number)
                entries.append(make_entry(numbered, evidence, started_at=started_at, duration_ms=each_ms))
        # Together: the log writes waiting entries in few transactions.
        await asyncio.gather(*(self._log.append(entry) for entry in entries))
        for entry in entries:
            self._listener(Event(kind="finished", case=entry.case, attempt=entry.attempt))
        return left_out

    async def _decide(self, to_decide: Sequence[tuple[ReadTrace, list[int]]]) -> list[list[CaseResult]]:
        records = [
            RecordToDecide(evidence=trace.evidence, positions=positions, clock=trace.row["created_at"])
            for trace, positions in to_decide
            if trace.evidence is not None
        ]
        # Unreadable traces were not passed on, so they consume no result.
        decided = iter(await self._decide_records(records))
        return [
            next(decided) if trace.error is None else [make_undecided_result(self._suite.cases[place], *trace.error) for place in positions]
            for trace, positions in to_decide
        ]

    async def _decide_records(self, records: Sequence[RecordToDecide]) -> list[list[CaseResult]]:
        tries = 0
        while records:
            try:
                return await self._decisions.decide(records, self._ask)
            except Refusal as error:
                tries += 1
                if tries >= TRIES:
                    return [
                        [make_undecided_result(self._suite.cases[p], "not_decided", error.message) for p in record.positions]
                        for record in records
                    ]
                # Nothing can be decided now; try again later.
                await asyncio.sleep(TRY_AGAIN_S)
        return []

    async def _store_state(self, state: Backtest) -> None:
        # The number of attempts is known at the end, since each trace determines its cases.
        attempts = sum(self._next.values()) if state.is_done else self._request.attempts
        self._request = msgspec.structs.replace(self._request, backtest=state, attempts=attempts)
        self._state = state
        settings: dict[str, Json] = msgspec.to_builtins(self._request)
        async with self._hub.database.writing() as connection:
            await keep_settings(connection, self._row["id"], self._owner, settings)
        self._row["settings"] = settings


def find_cases(read: ReadTrace, prepared: PreparedSuite, count: int) -> tuple[LeftOut | None, Sequence[int]]:
    """Return the positions of the cases for a trace, or why it is skipped. An unreadable trace is an error of each case."""
    if read.row["status"] == "open":
        return "still_open", ()
    if read.error is not None:
        return None, range(count)
    if not read.is_for:
        return "not_chosen", ()
    if not read.is_decided:
        return "no_run", ()
    positions = read.list_positions(prepared)
    return (None, positions) if positions else ("other_case", ())


def make_ask(judge: Judge) -> AskFor:
    """Return a function that asks the judge about a case of a trace."""

    async def ask(case: Case, questions: tuple[Question, ...]) -> Sequence[Opinion]:
        return await judge.judge(questions, case=case.id, attempt=0, tape=LIVE)

    return ask
