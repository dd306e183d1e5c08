"""What came of a run: its attempts, reports of it, and how it compares with another one.

Everything can be read while the run goes on: it is then what is finished so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import sqlalchemy as sa

from proctor.actions.compare import compare_entries, how_much, tell_incomplete
from proctor.actions.history import TARGET, case_result, result_of
from proctor.errors import InputError
from proctor.evidence.account import find_known
from proctor.model.account import Known
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json
from proctor.model.result import RunResult
from proctor.model.run import RunEntry
from proctor.report.evaluation_events import render_otlp
from proctor.report.html import render_html
from proctor.report.json_text import CaseEncoder, render_json
from proctor.report.junit import render_junit
from proctor.report.markdown import render_markdown
from proctor.scoring.paired import LEAST_ALPHA
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.paging import paged, shown_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs.building import ending_of, header_of, read_kept_suite
from proctor.service.runs.requests import find_run
from proctor.store.list_queries import list_query
from proctor.store.pages import Row
from proctor.store.run_rows import iterate_entries, read_entry
from proctor.store.tables import run_entries

REPORTS = {
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "junit": "application/xml",
    "markdown": "text/markdown",
    "html": "text/html",
    "otlp": "application/x-ndjson",
}
"""Every format of a report, and its media type."""
MOST_SHOWN = 2_000
"""Attempts whose evidence a page can show; that of a larger run shows the verdicts."""
_SHOWN = ("case", "attempt", "outcome", "score", "verdict", "code", "reason", "started_at", "duration_ms")


async def list_run_results(
    hub: Hub,
    caller: Caller,
    id: str,
    *,
    outcome: str | None = None,
    case: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> dict[str, Json]:
    """A page of the attempts of a run, newest first, without assertions and evidence."""
    async with hub.database.reading() as connection:
        await find_run(connection, caller, id)
        query = list_query(run_entries, {"run_id": id, "outcome": outcome, "case_id": case})
        return shown_page(await paged(connection, query, run_entries, limit=limit, cursor=cursor), _shown)


async def get_run_result(hub: Hub, caller: Caller, id: str, result_id: str) -> dict[str, Json]:
    """One attempt with its assertions, their verdicts, and the evidence."""
    async with hub.database.reading() as connection:
        run = await find_run(connection, caller, id)
        query = sa.select(run_entries).where(run_entries.c.run_id == id, run_entries.c.id == result_id)
        row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise not_found("result", result_id)
    entry = read_entry(row["body"])
    suite = await asyncio.to_thread(_suite, run)
    case = next((case for case in suite.cases if case.id == entry.case), None) or Case(id=entry.case)
    document: Json = msgspec.json.decode(CaseEncoder().encode(case_result(case, entry)))
    evidence = None if entry.evidence is None else _plain(entry.evidence)
    return {**_shown(dict(row)), "result": document, "evidence": evidence}


async def run_report(hub: Hub, caller: Caller, id: str, format: str) -> bytes:
    """A report of a run; `format` is one of `REPORTS`."""
    if format not in REPORTS:
        raise Refusal("VALIDATION_ERROR", "the format is not known", fields={"format": [f"expected one of {', '.join(REPORTS)}"]})
    accounts: dict[tuple[str, int], Known] = {}

    def only_account(entry: RunEntry) -> RunEntry:
        """Return everything but the evidence, of which what is known is kept: a long run would not fit into memory with it."""
        if entry.evidence is not None:
            accounts[entry.case, entry.attempt] = find_known(entry.evidence, TARGET)
        return msgspec.structs.replace(entry, evidence=None)

    if format == "html":
        run, entries = await _kept(hub, caller, id, evidence_up_to=MOST_SHOWN)
    else:
        run, entries = await _kept(hub, caller, id, trim=_with_trace if format == "otlp" else only_account)
    return await asyncio.to_thread(_rendered, run, entries, format, accounts)


async def compare_runs(hub: Hub, caller: Caller, id: str, base: str, *, alpha: float = 0.05) -> dict[str, Json]:
    """A run compared with `base`, joined by case: what changed, and whether it is more than chance."""
    if not LEAST_ALPHA <= alpha < 1:
        told = [f"expected a number from {LEAST_ALPHA:g} to less than 1"]
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"alpha": told})
    candidate, after = await _kept(hub, caller, id, trim=_measured)
    first, before = await _kept(hub, caller, base, trim=_measured)

    def work() -> dict[str, Json]:
        base_header, header, suite = header_of(first), header_of(candidate), _suite(candidate)
        found = compare_entries((base_header, before), (header, after), suite, alpha=alpha)
        missing_before = how_much(base_header, _suite(first), before, ending_of(first))
        return _plain(tell_incomplete(found, base=missing_before, candidate=how_much(header, suite, after, ending_of(candidate))))

    return await asyncio.to_thread(work)


async def _kept(
    hub: Hub, caller: Caller, id: str, *, evidence_up_to: int = 0, trim: Callable[[RunEntry], RunEntry] | None = None
) -> tuple[Row, list[RunEntry]]:
    """A run and what was kept of it: with evidence where there are not more attempts than that, or what `trim` leaves of each."""
    async with hub.database.reading() as connection:
        run = await find_run(connection, caller, id)
        whole = trim is not None or sum((run["counts"] or {}).values()) <= evidence_up_to
        entries = [entry if trim is None else trim(entry) async for entry in iterate_entries(connection, id, evidence=whole)]
    return run, entries


def _measured(entry: RunEntry) -> RunEntry:
    """What two runs are compared by."""
    seen = entry.evidence
    if seen is None:
        return entry
    return msgspec.structs.replace(entry, evidence=type(seen)(duration_ms=seen.duration_ms, usage=seen.usage), verdicts=())


def _with_trace(entry: RunEntry) -> RunEntry:
    """Everything but the evidence; of that, which trace it was."""
    seen = entry.evidence
    return entry if seen is None else msgspec.structs.replace(entry, evidence=type(seen)(metadata=seen.metadata))


def _suite(run: Row) -> Suite:
    try:
        return read_kept_suite(run)
    except InputError:
        # Read when it came; a newer version may read it no more. What was decided can still be told.
        return Suite(name=run["suite_name"], dialect=run["dialect"])


def _rendered(run: Row, entries: list[RunEntry], format: str, accounts: Mapping[tuple[str, int], Known]) -> bytes:
    result = result_of(header_of(run), _suite(run), entries, ending_of(run))
    if accounts:
        told = (msgspec.structs.replace(case, account=accounts.get((case.id, case.attempt))) for case in result.cases)
        result = msgspec.structs.replace(result, cases=tuple(told))
    if format == "jsonl":
        encode = CaseEncoder().encode
        return b"".join(encode(case) + b"\n" for case in result.cases)
    by_attempt = {(entry.case, entry.attempt): entry for entry in entries}
    if format == "otlp":
        return b"".join(render_otlp(result, by_attempt))
    if format == "html":
        return render_html(result, by_attempt).encode("utf-8", errors="replace")
    render: Callable[[RunResult], str] = {"json": render_json, "junit": render_junit, "markdown": render_markdown}[format]
    return render(result).encode("utf-8", errors="replace")


def _shown(row: Row) -> dict[str, Json]:
    entry = read_entry(row["body"])
    told = {name: getattr(entry, name) for name in _SHOWN}
    return {"id": row["id"], "run_id": row["run_id"], **told, "created_at": row["created_at"]}


def _plain(value: msgspec.Struct) -> Json:
    # There and back: numbers that are none (a rate of nothing) are null in JSON.
    return msgspec.json.decode(msgspec.json.encode(value))
