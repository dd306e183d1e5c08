"""For which reasons results of traces fail since a moment, and did not before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.overview import FailedResult, NewReason, find_new_reasons
from proctor.errors import StoreError
from proctor.model.show import shorten
from proctor.model.typed import make_json_decoder
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import list_seen
from proctor.store.bodies import expand_bytes
from proctor.store.pages import Row
from proctor.store.tables import results

MOST_SINCE = 150
"""Failed results since the moment that are looked at, the newest first; of each outcome."""
MOST_BEFORE = 250
"""Failed results before it whose reasons count as known."""
MOST_REASON = 300
"""Characters of a reason."""


class _Assertion(msgspec.Struct):
    outcome: str = ""
    check: str | None = None
    label: str | None = None
    reason: str | None = None
    code: str | None = None


class _Result(msgspec.Struct):
    reason: str | None = None
    code: str | None = None
    assertions: list[_Assertion] = []


_RESULT = make_json_decoder(_Result)


async def find_trace_reasons(connection: AsyncConnection, caller: Caller, project_id: str, since: str) -> tuple[tuple[NewReason, ...], int]:
    """Return new reasons, the commonest first, and how many there are."""
    new = await _list_failed(connection, caller, project_id, results.c.created_at >= since, MOST_SINCE)
    if not new:
        return (), 0
    known = await _list_failed(connection, caller, project_id, results.c.created_at < since, MOST_BEFORE)
    return await asyncio.to_thread(lambda: find_new_reasons(_read_all(new), _read_all(known)))


async def _list_failed(connection: AsyncConnection, caller: Caller, project_id: str, when: sa.ColumnElement[bool], limit: int) -> list[Row]:
    found: list[Row] = []
    for outcome in ("error", "fail"):
        columns = ("id", "trace_id", "outcome", "code", "body", "created_at")
        query = list_seen(results, caller, columns=columns, along=(when,), project_id=project_id, outcome=outcome).whole
        newest = query.order_by(results.c.created_at.desc(), results.c.id.desc()).limit(limit)
        found += [dict(row) for row in (await connection.execute(newest)).mappings()]
    return found


def _read_all(rows: Sequence[Row]) -> list[FailedResult]:
    return [_read_failed(row) for row in rows]


def _read_failed(row: Row) -> FailedResult:
    """Return why a result failed: the first assertion that did not hold, else what is said of the case."""
    try:
        read = _RESULT.decode(expand_bytes(row["body"]))
    # One broken body must not keep everything else from being seen.
    except (msgspec.MsgspecError, StoreError) as error:
        read = _Result(reason=f"the stored result cannot be read: {error}")
    reason, code = read.reason or "", row["code"] or read.code
    for assertion in read.assertions:
        if assertion.outcome in ("fail", "error"):
            name = assertion.label or assertion.check
            reason = f"{name}: {assertion.reason or ''}" if name else assertion.reason or ""
            code = code or assertion.code
            break
    return FailedResult(id=row["id"], trace_id=row["trace_id"], outcome=row["outcome"], code=code, reason=shorten(reason, MOST_REASON))
