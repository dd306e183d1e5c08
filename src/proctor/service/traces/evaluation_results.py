"""Writes the results of evaluated traces with the lease in hand: one result for each trace, case and version, whoever else tried.

The store writes nothing for a trace whose lease was lost meanwhile, so a slow worker cannot overwrite what another one found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy.exc import IntegrityError

from proctor.errors import StoreError
from proctor.scoring.reduce import reduce_attempts
from proctor.service.decisions.case_selection import ActiveCase
from proctor.service.decisions.trace_verdicts import CaseKey, CaseText, Decision, Finding, Task, make_failed
from proctor.service.hub import Hub, new_id
from proctor.service.traces.evaluation_leases import EvaluationLeases
from proctor.store.database import is_gone
from proctor.store.exports import queue_exports
from proctor.store.many import clean_text
from proctor.store.pages import Row
from proctor.store.trace_work import FinishedTrace, finish_traces


def make_finished(row: Row, decision: Decision) -> FinishedTrace:
    """Return the end of the work on a trace."""
    if decision.error is not None:
        return FinishedTrace(row=row, status="failed", error=decision.error)
    if decision.no_run is not None:
        return FinishedTrace(row=row, status="evaluated", no_run=decision.no_run, input_text=decision.asked)
    counts: dict[str, int] = {}
    for finding in decision.findings:
        counts[finding.outcome] = counts.get(finding.outcome, 0) + 1
    outcome = reduce_attempts(counts) if counts else None
    return FinishedTrace(row=row, status="evaluated", outcome=outcome, input_text=decision.asked)


def make_result_row(row: Row, case: ActiveCase, finding: Finding, now: str) -> dict[str, Any]:
    """Return the row of one result of the trace in `row`."""
    return {
        "id": new_id("res"),
        "organization_id": row["organization_id"],
        "project_id": row["project_id"],
        "agent_id": row["agent_id"],
        "trace_id": row["id"],
        "case_id": case.id,
        "case_version": case.version,
        "case_key": clean_text(finding.key),
        "trace_revision": row["revision"],
        "outcome": finding.outcome,
        "score": finding.score,
        "verdict": finding.verdict,
        "code": finding.code,
        "body": finding.body,
        "created_at": now,
        "updated_at": now,
    }


_LONGEST_ERROR = 1_000
"""How many characters of the database's complaint a failed trace keeps."""


class TraceJob(msgspec.Struct, kw_only=True):
    """One trace of a batch, and what was decided so far."""

    row: dict[str, Any]
    task: Task
    cases: Sequence[ActiveCase]
    """Those of the whole batch; the task says which of them count."""
    texts: Mapping[CaseKey, CaseText]
    decision: Decision | None = None

    def get_decision(self) -> Decision:
        """Return the decision, which must have been made by now."""
        assert self.decision is not None
        return self.decision


class ResultWriter:
    """Writes what one worker decided."""

    def __init__(self, hub: Hub, leases: EvaluationLeases) -> None:
        self._hub = hub
        self._leases = leases

    async def finish(self, jobs: Sequence[TraceJob], ids: set[str]) -> None:
        """Write results, end the leases, and take what is written out of `ids`. Raises `StoreError` when the database is away."""
        if not jobs:
            return
        now = self._hub.now()
        try:
            await self._write([make_finished(job.row, job.get_decision()) for job in jobs], self._make_rows(jobs, now), ids)
        except (StoreError, IntegrityError) as error:
            # Nothing is wrong with the results then: the traces are given back, and evaluated when the database is there again.
            if is_gone(error):
                raise
            # One of them spoils the whole transaction: written one by one, the others get through.
            for job in jobs:
                await self._finish_alone(job, now, ids)

    async def _finish_alone(self, job: TraceJob, now: str, ids: set[str]) -> None:
        """Write one trace by itself; if the database is there and refuses these results, the trace fails with its reason."""
        try:
            await self._write([make_finished(job.row, job.get_decision())], self._make_rows([job], now), ids)
        except (StoreError, IntegrityError) as error:
            if is_gone(error):
                raise
            # Without its results, which the database refuses: the trace must leave the queue, or it would be evaluated for ever.
            await self._write([make_finished(job.row, make_failed("store_error", str(error)[:_LONGEST_ERROR]))], [], ids)

    def _make_rows(self, jobs: Sequence[TraceJob], now: str) -> list[dict[str, Any]]:
        return [make_result_row(job.row, job.cases[finding.case], finding, now) for job in jobs for finding in job.get_decision().findings]

    async def _write(self, finished: Sequence[FinishedTrace], rows: Sequence[dict[str, Any]], ids: set[str]) -> None:
        written = {one.row["id"] for one in finished}
        try:
            async with self._hub.database.writing() as connection:
                count = await finish_traces(connection, owner=self._leases.owner, done=finished, found=rows)
                # In the same transaction: a result that was written is exported even if this process dies now.
                if self._hub.settings.export_otlp_endpoint is not None:
                    await queue_exports(connection, rows, self._hub.clock())
                # Before the commit: from then on the next batch of this worker may have those that are due again, and passes over what is
                # still held.
                self._leases.held -= written
                ids -= written
        except BaseException:
            # Nothing was written: they are still worked on, or given back with the rest.
            self._leases.held |= written
            ids |= written
            raise
        # After the commit: what was rolled back is evaluated again and would count twice.
        self._hub.counters.add("traces_evaluated", count)
        self._hub.counters.add("evaluations", len(rows))
