"""The characters of a trace that a kept result is about, found when somebody reads the result.

Traces are decided by the thousand and read one by one, so that places are looked for here and not kept. A trace that has changed since it
was decided, or is not kept any more, and a case that can no longer be read, leave the result as it is.
"""

from __future__ import annotations

import asyncio

import msgspec
import sqlalchemy as sa

from proctor.errors import EvidenceError, InputError, StoreError
from proctor.formats.suites import read_suite
from proctor.model.evidence import Json
from proctor.model.mapping import DeclaredEvidence
from proctor.model.verdict import Verdict
from proctor.report.ranges import find_ranges
from proctor.service.decisions.trace_evidence import get_declared, read_evidence
from proctor.service.hub import Hub
from proctor.store.pages import Row
from proctor.store.tables import agents, case_versions, trace_parts, traces


class _Needed(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace and its case are read from."""

    pieces: list[bytes]
    response_path: str | None
    declared: DeclaredEvidence | None
    text: str
    dialect: str


async def add_result_ranges(hub: Hub, row: Row, document: Json) -> Json:
    """Return a kept result with `ranges` in its assertions."""
    assertions: Json = document.get("assertions") if isinstance(document, dict) else None
    if isinstance(assertions, list) and assertions:
        needed = await _find_needed(hub, row)
        if needed is not None:
            await asyncio.to_thread(_add_ranges, needed, row["case_key"], assertions)
    return document


async def _find_needed(hub: Hub, row: Row) -> _Needed | None:
    async with hub.database.reading() as connection:
        trace = (await connection.execute(traces.select().where(traces.c.id == row["trace_id"]))).mappings().first()
        version = case_versions.select().where(case_versions.c.case_id == row["case_id"], case_versions.c.version == row["case_version"])
        case = (await connection.execute(version)).mappings().first()
        # More has come of the trace since: places in what is there now would not be those that decided.
        if trace is None or case is None or trace["revision"] != row["trace_revision"]:
            return None
        query = sa.select(trace_parts.c.body).where(trace_parts.c.trace_id == row["trace_id"]).order_by(trace_parts.c.number)
        parts: list[bytes] = list((await connection.execute(query)).scalars())
        agent = (await connection.execute(agents.select().where(agents.c.id == trace["agent_id"]))).mappings().first()
    settings: dict[str, Json] = {} if agent is None else agent["settings"] or {}
    path = settings.get("response_path")
    pieces = ([] if trace["body"] is None else [trace["body"]]) + parts
    return _Needed(
        pieces=pieces,
        response_path=path if isinstance(path, str) and path else None,
        declared=get_declared(settings),
        text=case["document"],
        dialect=case["dialect"],
    )


def _add_ranges(needed: _Needed, key: str, told: list[dict[str, Json]]) -> None:
    try:
        evidence = read_evidence(needed.pieces, needed.response_path, needed.declared)
        suite = read_suite(needed.text, dialect=needed.dialect)
    except (EvidenceError, StoreError, InputError):
        # What came of it is kept and can be read; only the places cannot be found any more.
        return
    case = next((case for case in suite.cases if case.id == key), None)
    if case is None or len(case.assertions) != len(told):
        return
    for assertion, one in zip(case.assertions, told, strict=True):
        verdict = Verdict(one["outcome"], one["score"], one["reason"], one["code"], one.get("details") or {})
        ranges = find_ranges(assertion, verdict, evidence)
        if ranges:
            one["ranges"] = [{"pointer": found.path, "start": found.start, "end": found.end} for found in ranges]
