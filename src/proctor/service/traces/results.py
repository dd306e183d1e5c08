"""Makes the rows that are written for an evaluated trace."""

from __future__ import annotations

from typing import Any

from proctor.scoring.reduce import reduce_attempts
from proctor.service.decisions.case_selection import ActiveCase
from proctor.service.decisions.trace_verdicts import Decision, Finding
from proctor.service.hub import new_id
from proctor.store.many import clean_text
from proctor.store.pages import Row
from proctor.store.trace_work import FinishedTrace


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
