"""How cases stand, for a list of them: the last outcome, and how the latest runs or traces went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.model.evidence import Json
from proctor.scoring.reduce import reduce_attempts
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import list_seen, query_seen, require_reader
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse
from proctor.service.traces.case_history import count_attempts, describe_counts, find_keys_in_run
from proctor.service.traces.case_keys import list_case_keys
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import cases, results, runs

LATEST = 20
"""Runs of the project, and results of each case, that are looked at."""
_MOST_KEYS = 5_000
"""Ids of cases inside documents that are looked for at once."""
_LARGEST = 20_000
"""Characters of a document whose cases are looked for in runs; of a larger one the page of the case tells it."""


async def summarize_cases(hub: Hub, caller: Caller, project_id: str, ids: Sequence[str]) -> dict[str, dict[str, Json]]:
    """Return the last outcome and the latest pass rates, oldest first, of some cases of a project, by their ids."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        found = await connection.execute(query_seen(cases, caller, project_id=project_id).where(cases.c.id.in_(ids)))
        rows: dict[str, Row] = {row["id"]: dict(row) for row in found.mappings()}
    keys = {id: await list_case_keys(row) for id, row in rows.items() if len(row["document"]) <= _LARGEST}
    async with hub.database.reading() as connection:
        latest = await _list_latest_runs(connection, caller, project_id)
        names = {name for run in latest for id, some in keys.items() for name in find_keys_in_run(run["settings"], id, some)}
        wanted = sorted(names)[:_MOST_KEYS]
        counted = await count_attempts(connection, [run["id"] for run in latest], wanted)
        told = {id: await _list_latest_results(connection, caller, id) for id in rows}
    return {id: _summarize(id, keys.get(id, ()), latest, counted, told[id]) for id in rows}


async def _list_latest_runs(connection: AsyncConnection, caller: Caller, project_id: str) -> list[Row]:
    # A key that is restricted to some agents does not read runs.
    if caller.agent_ids is not None:
        return []
    query = list_seen(runs, caller, project_id=project_id, columns=("id", "created_at", "settings"))
    rows = (await fetch_page_or_refuse(connection, query, runs, limit=LATEST)).rows
    # A backtest says how a case would have stood; it is not how it stands.
    return [row for row in rows if (row["settings"] or {}).get("backtest") is None]


async def _list_latest_results(connection: AsyncConnection, caller: Caller, id: str) -> list[tuple[str, str]]:
    query = list_seen(results, caller, case_id=id, columns=("created_at", "outcome")).whole
    found = await connection.execute(query.order_by(results.c.created_at.desc(), results.c.id.desc()).limit(LATEST))
    return [(str(row["created_at"]), str(row["outcome"])) for row in found.mappings()]


def _summarize(
    id: str,
    keys: Sequence[str],
    latest: Sequence[Row],
    counted: Mapping[str, Mapping[str, Mapping[str, int]]],
    told: Sequence[tuple[str, str]],
) -> dict[str, Json]:
    in_runs: list[tuple[str, list[Mapping[str, int]]]] = []
    for run in latest:
        mine = find_keys_in_run(run["settings"], id, keys)
        found = [counts for case, counts in counted.get(run["id"], {}).items() if case in mine]
        if found:
            in_runs.append((run["created_at"], found))
    described = [(at, describe_counts(by_case)) for at, by_case in in_runs]
    last: tuple[str, str] | None = told[0] if told else None
    if described and (last is None or described[0][0] > last[0]):
        last = (described[0][0], reduce_attempts({word: count for word, count in described[0][1]["counts"].items() if count}))
    rates: list[Json] = [one["pass_rate"] for _, one in described]
    if not rates:
        rates = [None if outcome == "skip" else float(outcome == "pass") for _, outcome in told]
    return {
        "last_outcome": None if last is None else last[1],
        "last_at": None if last is None else last[0],
        "over": "runs" if described else "traces",
        "rates": rates[::-1],
        "flaky_runs": sum(one["flaky"] for _, one in described),
    }
