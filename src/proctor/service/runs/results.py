"""The results of a run: events, attempts, and reports. A running run has those that are finished."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping
from typing import Annotated, Any, TypedDict

import msgspec
import sqlalchemy as sa

from proctor.actions.workspace.run_history import TARGET, case_result, result_of
from proctor.errors import InputError
from proctor.evidence.unknowns.account import find_known
from proctor.model.account import Known
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.result import CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.report.blocks.exchange import with_exchange
from proctor.report.builders.run import render_markdown
from proctor.report.data.evaluation_events import render_otlp
from proctor.report.data.json_text import CaseEncoder, render_json
from proctor.report.data.junit import render_junit
from proctor.report.data.sarif import render_sarif
from proctor.report.html.report import render_html
from proctor.report.words.ranges import add_ranges
from proctor.service.access.callers import Caller
from proctor.service.access.transactions import reading
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import about, operation
from proctor.service.runs.building import ending_of, header_of, keep_metadata, read_run_request, read_stored_suite
from proctor.service.runs.names import find_run, read_run
from proctor.service.runs.run import AttemptFilter, RunResultSummary, RunResultSummaryPage, show_attempt
from proctor.service.runs.run import RunResult as RunResultDocument
from proctor.store.runs.entry_digests import DIGEST, read_digest
from proctor.store.runs.entry_previews import SEARCHED, fold_text, make_search_text, match_search_text, read_shown
from proctor.store.runs.run_rows import UNFINISHED, get_last_number, get_status, iterate_entries, list_events_after, read_entry
from proctor.store.sql.compressed_json import from_json, to_json
from proctor.store.sql.pages import Row, count_rows, find_cursor
from proctor.store.sql.queries import ListQuery, list_query
from proctor.store.sql.tables import run_entries

LAST = ("completed", "cancelled", "failed")
"""Kinds of the last event."""
LOOK_EVERY_S = 0.5
"""Seconds between checks for events of other processes."""
BEAT_EVERY_S = 15.0
_AT_ONCE = 100


async def find_followed_run(hub: Hub, caller: Caller, id: str, after: int) -> str | None:
    """Return the id of a run with events after a number, now or later, else None. Raises `Refusal` if there is no such run."""
    async with reading(hub, caller) as tx:
        connection = tx.connection
        run = await find_run(tx, id, document=False)
        has_more = run["status"] in UNFINISHED or await list_events_after(connection, run["id"], after, limit=1)
    return run["id"] if has_more else None


async def find_last_event(hub: Hub, caller: Caller, id: str) -> tuple[str, int]:
    """Return the id of a run and the number of its last event."""
    async with reading(hub, caller) as tx:
        connection = tx.connection
        run = await find_run(tx, id, document=False)
        # The id of the run: a reference such as `latest` soon means another run.
        return run["id"], await get_last_number(connection, run["id"])


async def events(
    hub: Hub, id: str, after: int, *, stopping: Callable[[], bool], beat_every_s: float = BEAT_EVERY_S
) -> AsyncIterator[dict[str, Json] | None]:
    """Yield events of a run after a number, until it has ended; None as a heartbeat. The caller has checked access."""
    quiet = 0.0
    # Watched before the first query, so that events between a query and the wait are noticed.
    with hub.run_signals.watch(id) as watch:
        while not stopping():
            async with hub.database.reading() as connection:
                # In one transaction: an ended run then has all of its events.
                status = await get_status(connection, id)
                new_events = await list_events_after(connection, id, after, limit=_AT_ONCE)
            for row in new_events:
                after = row["number"]
                quiet = 0.0
                yield {"id": row["number"], "kind": row["kind"], "at": row["at"], **(row["body"] or {})}
                if row["kind"] in LAST:
                    return
            # There may be more than one page: a slow reader does not wait in between.
            if new_events:
                continue
            if status not in UNFINISHED:
                return
            await watch.wait(min(LOOK_EVERY_S, beat_every_s))
            quiet += LOOK_EVERY_S
            if quiet >= beat_every_s:
                quiet = 0.0
                yield None


REPORTS = {
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "junit": "application/xml",
    "sarif": "application/sarif+json",
    "markdown": "text/markdown",
    "html": "text/html",
    "otlp": "application/x-ndjson",
}
"""Report formats and their media types."""
MOST_SHOWN = 2_000
"""Attempts of the largest run whose page shows evidence."""
RANGES_S = 5.0
"""Seconds that one report spends on finding the text ranges of verdicts."""
LONGEST_TEXT = 200
"""Characters of a search text."""
LARGEST_CACHED = 1_000_000
"""Characters of the largest suite that is cached."""
LARGE_RESULT = 100_000
"""Compressed bytes of an attempt from which its page view is cached."""
_LISTED = (run_entries.c.id, run_entries.c.run_id, run_entries.c.created_at, *DIGEST)
"""The columns for a list of attempts."""
_BODY_UNLESS_SHOWN = sa.case(
    (sa.or_(run_entries.c.shown.is_(None), run_entries.c.digest.is_(None)), run_entries.c.body), else_=sa.null()
).label("body")
"""The body of an attempt, only if its preview or digest is missing."""


EVERY_ATTEMPT = AttemptFilter()


@operation("runs", "GET /api/runs/{run_id}/results")
async def list_run_results(
    hub: Hub,
    caller: Caller,
    id: str,
    filters: AttemptFilter = EVERY_ATTEMPT,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    position: Annotated[
        int | None, about("first attempt of the page, counted from 0 at the newest; instead of `cursor`", ge=0, le=2**31)
    ] = None,
) -> RunResultSummaryPage:
    """List the finished attempts of a run, newest first, by cursor or position.

    With `q` a page may be short: each request searches at most 10,000 attempts, and `_meta.next` continues.
    """
    if filters.text:
        return await _search_run_results(hub, caller, id, filters, limit=limit, cursor=cursor, position=position)
    outcome, case = filters.outcome, filters.case
    if position is not None and cursor is not None:
        raise Refusal("BAD_REQUEST", "`cursor` and `position` exclude each other", hint="omit one of them")
    async with reading(hub, caller) as tx:
        connection = tx.connection
        run = await find_run(tx, id, document=False)
        query = _make_query(run["id"], filters)
        counts: dict[str, int] = run["counts"] or {}
        # A case has few attempts; the run has counts.
        known = sum(counts.values()) if outcome is None else counts.get(outcome, 0)
        total = known if case is None else await count_rows(connection, query)
        place = None if position is None else min(position, total)
        if place:
            cursor = await find_cursor(connection, query, run_entries, place, total)
        page = show_page(await fetch_page_or_refuse(connection, query, run_entries, limit=limit, cursor=cursor), _show_result)
    begin = place if place is not None else 0 if cursor is None else None
    return {"data": page["data"], "_meta": {**page["_meta"], "position": begin, "total": total}}


class FailingPlace(TypedDict):
    """The place of an attempt among those of its run that did not pass, newest first."""

    position: Annotated[int, about("counted from 1")]
    total: int
    previous: str | None
    next: str | None


async def find_failing_place(hub: Hub, caller: Caller, run_id: str, result_id: str) -> FailingPlace | None:
    """Return the place of an attempt among the failing ones of its run; None if it passed."""
    async with reading(hub, caller) as tx:
        connection = tx.connection
        run = await find_run(tx, run_id, document=False)
        failing = (run_entries.c.run_id == run["id"], run_entries.c.outcome.in_(("fail", "error")))
        order = (run_entries.c.created_at, run_entries.c.id)
        own = (await connection.execute(sa.select(*order).where(*failing, run_entries.c.id == result_id))).first()
        if own is None:
            return None
        place, edge = sa.tuple_(*order), sa.tuple_(*map(sa.literal, own))
        newer = sa.select(run_entries.c.id).where(*failing, place > edge)
        older = sa.select(run_entries.c.id).where(*failing, place < edge)
        counts = run["counts"] or {}
        return {
            "position": int((await connection.execute(sa.select(sa.func.count()).select_from(newer.subquery()))).scalar_one()) + 1,
            "total": counts.get("fail", 0) + counts.get("error", 0),
            "previous": (await connection.execute(newer.order_by(*order).limit(1))).scalar_one_or_none(),
            "next": (await connection.execute(older.order_by(*(column.desc() for column in order)).limit(1))).scalar_one_or_none(),
        }


async def _search_run_results(
    hub: Hub, caller: Caller, id: str, filters: AttemptFilter, *, limit: int | None, cursor: str | None, position: int | None
) -> RunResultSummaryPage:
    text = filters.text or ""
    if position is not None:
        raise Refusal("BAD_REQUEST", "a text search has no positions", hint="omit `position`, and continue with `cursor`")
    async with reading(hub, caller) as tx:
        connection = tx.connection
        run = await find_run(tx, id, document=False)
        page = await fetch_page_or_refuse(connection, _make_query(run["id"], filters), run_entries, limit=limit, cursor=cursor)
    # In a thread: bodies of attempts stored by earlier versions may be large.
    matching = await asyncio.to_thread(_filter_matching, page.rows, text)
    values = show_page(msgspec.structs.replace(page, rows=matching), _show_result)
    return {"data": values["data"], "_meta": {**values["_meta"], "position": None, "total": None}}


def _make_query(run_id: str, search: AttemptFilter) -> ListQuery:
    filters = [match_search_text(search.text)] if search.text else []
    query = list_query(run_entries, {"run_id": run_id, "outcome": search.outcome, "case_id": search.case}, filters=filters)
    return msgspec.structs.replace(query, path=query.path.with_only_columns(*_LISTED, *([SEARCHED] if search.text else [])))


def _filter_matching(rows: list[Row], text: str) -> list[Row]:
    """Return the rows that contain a text; those with a body have not been searched by the database."""
    low = fold_text(text)
    return [row for row in rows if row["searched_body"] is None or low in make_search_text(read_entry(row["searched_body"]))]


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    """One stored attempt."""

    summary: RunResultSummary
    """As in a list of attempts."""
    result: CaseResult
    entry: RunEntry


async def read_run_result(hub: Hub, caller: Caller, id: str, result_id: str, *, to_show: bool = False) -> ReadResult:
    """Return one attempt with its case, verdicts and evidence; `to_show` shortens very long texts (`store/runs/entry_previews.py`)."""
    columns = (run_entries.c.shown, _BODY_UNLESS_SHOWN) if to_show else (sa.null().label("shown"), run_entries.c.body)
    async with reading(hub, caller) as tx:
        connection = tx.connection
        run = await find_run(tx, id)
        query = sa.select(run_entries.c.id, run_entries.c.run_id, run_entries.c.created_at, run_entries.c.digest, *columns)
        query = query.where(run_entries.c.run_id == run["id"], run_entries.c.id == result_id)
        row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise not_found("result", result_id)
    # In a thread, since the evidence may be large.
    return await asyncio.to_thread(_read_result, run, dict(row))


def _read_result(run: Row, row: Row) -> ReadResult:
    entry, ranges = (read_entry(row["body"]), ()) if row["shown"] is None else read_shown(row["shown"])
    case = next((case for case in suite_of_run(run).cases if case.id == entry.case), None) or Case(id=entry.case)
    result = msgspec.structs.replace(case_result(case, entry), ranges=ranges)
    return ReadResult(summary=_show_result(row), result=result, entry=entry)


async def show_run_result(
    hub: Hub, caller: Caller, id: str, result_id: str, *, view: Hashable, write: Callable[[ReadResult], Mapping[str, Json]]
) -> Mapping[str, Json]:
    """Return the view of one attempt that `write` makes, cached by `view` for large attempts, which do not change."""
    async with reading(hub, caller) as tx:
        connection = tx.connection
        run = await find_run(tx, id, document=False)
        size = sa.select(sa.func.length(run_entries.c.body)).where(run_entries.c.run_id == run["id"], run_entries.c.id == result_id)
        length = (await connection.execute(size)).scalar()
    if length is None:
        raise not_found("result", result_id)
    key = (run["id"], run["created_at"], result_id, length, view)
    known: Mapping[str, Json] | None = hub.shown_results.get(key)
    if known is None:
        known = await asyncio.to_thread(write, await read_run_result(hub, caller, run["id"], result_id, to_show=True))
        if length > LARGE_RESULT:
            hub.shown_results.put(key, known, 1)
    return known


@operation("runs", "GET /api/runs/{run_id}/results/{result_id}")
async def get_run_result(hub: Hub, caller: Caller, id: str, result_id: str) -> RunResultDocument:
    """Read an attempt with every assertion, its verdict and the evidence."""
    # In a thread, since text ranges are computed.
    return await asyncio.to_thread(write_read_result, await read_run_result(hub, caller, id, result_id))


def write_read_result(read: ReadResult) -> RunResultDocument:
    """Return one attempt as JSON."""
    document: Json = msgspec.json.decode(CaseEncoder().encode(with_exchange(read.result, read.entry.evidence)))
    evidence = None if read.entry.evidence is None else write_plain(read.entry.evidence)
    return {**read.summary, "result": document, "evidence": evidence}


async def run_report(hub: Hub, caller: Caller, id: str, format: str) -> bytes:
    """Return a report of a run in one of the formats of `REPORTS`."""
    if format not in REPORTS:
        raise Refusal("VALIDATION_ERROR", "the format is unknown", fields={"format": [f"expected one of {', '.join(REPORTS)}"]})
    run = await read_run(hub, caller, id)
    suite = await asyncio.to_thread(suite_of_run, run)
    short = sum((run["counts"] or {}).values()) <= MOST_SHOWN
    shown_evidence = _ShownEvidence(suite, exchanges=short and format in ("json", "jsonl"))
    trim = None if format == "html" else keep_metadata if format == "otlp" else shown_evidence.strip
    entries = await read_entries(hub, run["id"], evidence=short or trim is not None, trim=trim)
    return await asyncio.to_thread(_render_run, run, suite, entries, format, shown_evidence)


class _ShownEvidence:
    """Parts of the evidence that a report shows, since the evidence of a long run does not fit into memory."""

    def __init__(self, suite: Suite, *, exchanges: bool) -> None:
        self._cases = {case.id: case for case in suite.cases} if exchanges else None
        self._collected: dict[tuple[str, int], tuple[Known, CaseResult | None]] = {}
        self._ranges_until = time.monotonic() + RANGES_S

    def strip(self, entry: RunEntry) -> RunEntry:
        """Return the entry without evidence, and collect its coverage and exchange."""
        evidence = entry.evidence
        if evidence is None:
            return entry
        collected = None
        if self._cases is not None:
            result = case_result(self._cases.get(entry.case) or Case(id=entry.case), entry)
            collected = with_exchange(result, evidence, ranges=time.monotonic() < self._ranges_until)
        self._collected[entry.case, entry.attempt] = (find_known(evidence, TARGET), collected)
        user = evidence.simulated_user
        return msgspec.structs.replace(entry, evidence=None if user is None else Evidence(simulated_user=user))

    def add_to(self, result: RunResult) -> RunResult:
        """Return the result with the collected parts."""
        if not self._collected:
            return result
        cases: list[CaseResult] = []
        for case in result.cases:
            account, collected = self._collected.get((case.id, case.attempt), (None, None))
            parts = {} if collected is None else {"exchange": collected.exchange, "ranges": collected.ranges}
            cases.append(msgspec.structs.replace(case, account=account, **parts))
        return msgspec.structs.replace(result, cases=tuple(cases))


async def read_entries(hub: Hub, id: str, *, evidence: bool = True, trim: Callable[[RunEntry], RunEntry] | None = None) -> list[RunEntry]:
    """Return the entries of a run, after `trim`."""
    # `trim` runs in the thread that unpacks the entries, since it may be slow.
    options: dict[str, Any] = {} if trim is None else {"trim": trim}
    async with hub.database.reading() as connection:
        return [entry async for entry in iterate_entries(connection, id, evidence=evidence, **options)]


@functools.lru_cache(maxsize=8)
def _read_suite(document: str, dialect: str, suite_name: str, choice: bytes) -> Suite:
    """Return the suite of a run, cached, since reading a thousand cases takes most of a second."""
    return read_stored_suite({"document": document, "dialect": dialect, "suite_name": suite_name, "settings": from_json(choice)})


def suite_of_run(run: Row) -> Suite:
    """Return the suite of a run; without cases if it can no longer be read."""
    request = read_run_request(run)
    # Only the settings that select cases: runs of the same suite share the cache entry.
    choice = to_json({"selection": request.selection, "library": request.library, "own_agents": request.own_agents})
    try:
        # `__wrapped__` bypasses the cache for very large suites.
        read = _read_suite if len(run["document"]) <= LARGEST_CACHED else _read_suite.__wrapped__
        return read(run["document"], run["dialect"], run["suite_name"], choice)
    except InputError:
        # It was valid when it was sent; its results can still be shown.
        return Suite(name=run["suite_name"], dialect=run["dialect"])


def _render_run(run: Row, suite: Suite, entries: list[RunEntry], format: str, shown_evidence: _ShownEvidence) -> bytes:
    result = shown_evidence.add_to(result_of(header_of(run), suite, entries, ending_of(run)))
    if format == "jsonl":
        encode = CaseEncoder().encode
        return b"".join(encode(case) + b"\n" for case in result.cases)
    by_attempt = {(entry.case, entry.attempt): entry for entry in entries}
    if format == "otlp":
        return b"".join(render_otlp(result, by_attempt))
    if format == "html":
        result = msgspec.structs.replace(result, cases=tuple(_add_ranges(result.cases, by_attempt)))
        return render_html(result, by_attempt).encode("utf-8", errors="replace")
    writers: dict[str, Callable[[RunResult], str]] = {"json": render_json, "junit": render_junit, "sarif": render_sarif}
    return writers.get(format, render_markdown)(result).encode("utf-8", errors="replace")


def _add_ranges(cases: Iterable[CaseResult], entries: Mapping[tuple[str, int], RunEntry]) -> Iterator[CaseResult]:
    """Yield attempts with text ranges while there is time; the others get empty ranges."""
    end = time.monotonic() + RANGES_S
    for case in cases:
        entry = entries.get((case.id, case.attempt))
        if entry is None or entry.evidence is None:
            yield case
        elif time.monotonic() < end:
            yield add_ranges(case, entry.evidence)
        else:
            yield msgspec.structs.replace(case, ranges=((),) * len(case.verdicts))


def _show_result(row: Row) -> RunResultSummary:
    return show_attempt(read_digest(row), id=row["id"], run_id=row["run_id"], created_at=row["created_at"])


def write_plain(value: msgspec.Struct) -> Json:
    """Return a value as plain JSON."""
    # Encoded and decoded: NaN is null in JSON.
    return msgspec.json.decode(msgspec.json.encode(value))
