"""Runs: suites driven against a target on request.

Sending one makes sure that it can be driven (the suite, the target, secrets, the judge) and puts it in the queue; a worker, in this
process or another, takes it from there. Only organization keys start and cancel runs; project keys read those of their project. A key that
is restricted to some agents reads none: a run belongs to its project.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.decide.selection import select
from proctor.errors import InputError
from proctor.formats.drafting import make_unique
from proctor.formats.native_text import write_native
from proctor.formats.workspace import WORKSPACE_KEYS
from proctor.model.case import MOST_REPEATS, Case, Suite
from proctor.model.evidence import Json
from proctor.service.access.audit import note as noted
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import find_seen, list_seen, require_reader, require_writer
from proctor.service.changes import LARGEST_SETTINGS, check_fields
from proctor.service.hub import Hub, new_id
from proctor.service.paging import paged, shown_page
from proctor.service.plain_secrets import refuse_plain_secrets, refuse_secrets_in_suite
from proctor.service.refusals import Refusal, not_found
from proctor.service.run_signals import QUEUED
from proctor.service.runs.building import Asked, asked_of, build_project_run, decided, library_for
from proctor.service.suites.documents import read_sent_suite, refusal_of
from proctor.service.suites.outbound import LONGEST_ATTEMPT_S
from proctor.store.bodies import to_json
from proctor.store.pages import Row
from proctor.store.run_rows import add_events
from proctor.store.tables import cases, projects, runs
from proctor.store.tenants import find_row, insert_row

MOST_AT_ONCE = 64
MOST_ATTEMPTS = 50_000
MOST_CASES = 100
MOST_QUEUED = 1_000
LONGEST_NOTE = 4_000
LONGEST_SELECTION = 4_000

RunStatus = Literal["queued", "running", "completed", "cancelled", "failed"]
Document = str | dict[str, Json] | list[Json]
_SHOWN = (
    "id", "project_id", "suite_name", "dialect", "target", "status", "outcome", "error", "note",
    "cancel_requested", "created_at", "started_at", "completed_at", "updated_at",
)  # fmt: skip


async def start_run(
    hub: Hub,
    caller: Caller,
    *,
    project_id: str,
    suite: Document | None = None,
    cases: list[str] | None = None,
    dialect: str | None = None,
    target: str | dict[str, Json] | None = None,
    repeat: int = 1,
    concurrency: int = 4,
    timeout_s: float = 120.0,
    selection: str | None = None,
    note: str = "",
) -> dict[str, Json]:
    """Put a run in the queue: of a suite, or of cases of the project by their ids."""
    require_writer(caller, "runs are started")
    _check(suite, cases, repeat, concurrency, timeout_s, selection, note)
    project = await _project(hub, caller, project_id)
    if suite is not None:
        read, text = await read_sent_suite(suite, dialect=dialect, field="suite", library=library_for(project))
    else:
        read, text = await _suite_of_cases(hub, caller, project, cases or [], alone=target is None)
    await asyncio.to_thread(refuse_secrets_in_suite, read, "suite")
    asked = decided(_asked(target, repeat, concurrency, timeout_s, selection), read, project)
    chosen = _selected(read, selection)
    built = await build_project_run(hub, caller.organization_id, project, chosen, asked)
    await built.close()
    attempts = built.count_attempts(repeat)
    if attempts > MOST_ATTEMPTS:
        told = f"{attempts} attempts; expected at most {MOST_ATTEMPTS}"
        raise Refusal("VALIDATION_ERROR", "the run is too large", fields={"repeat": [told]})
    asked = msgspec.structs.replace(asked, attempts=attempts)
    row = await _queue(hub, caller, project, read, text, built.target.name, asked, note)
    hub.run_signals.wake(QUEUED)
    return shown_run(row)


async def list_runs(
    hub: Hub,
    caller: Caller,
    *,
    project_id: str | None = None,
    status: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> dict[str, Json]:
    """A page of the runs that the caller may see."""
    require_run_reader(caller)
    async with hub.database.reading() as connection:
        query = list_seen(runs, caller, project_id=project_id, status=status)
        return shown_page(await paged(connection, query, runs, limit=limit, cursor=cursor), shown_run)


async def get_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """One run."""
    async with hub.database.reading() as connection:
        return shown_run(await find_run(connection, caller, id))


async def cancel_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """End a run: at once while it waits, else within a second. What is finished stays. One that has ended is left as it is."""
    require_writer(caller, "runs are cancelled")
    now, at = hub.clock(), hub.now()
    mine = (runs.c.organization_id == caller.organization_id, runs.c.id == id)
    idle = sa.or_(runs.c.status == "queued", sa.and_(runs.c.status == "running", runs.c.leased_until < now))
    async with hub.database.writing() as connection:
        over = {"status": "cancelled", "cancel_requested": True, "lease_owner": None, "leased_until": None, "completed_at": at}
        ended = sa.update(runs).where(*mine, idle).values({**over, "updated_at": at}).returning(*runs.c)
        row = (await connection.execute(ended)).mappings().first()
        if row is not None:
            await add_events(connection, id, [("cancelled", {"counts": row["counts"] or {}})], at)
        else:
            running = sa.update(runs).where(*mine, runs.c.status == "running", runs.c.cancel_requested.is_(False))
            asked = running.values(cancel_requested=True, updated_at=at).returning(*runs.c)
            row = (await connection.execute(asked)).mappings().first()
            if row is not None:
                await add_events(connection, id, [("cancelling", {})], at)
        if row is not None:
            await noted(connection, hub, caller, "cancel", "run", id)
        found = row or await find_row(connection, runs, caller.organization_id, id)
    if found is None:
        raise not_found("run", id)
    hub.run_signals.wake(id)
    return shown_run(dict(found))


def require_run_reader(caller: Caller) -> None:
    """Organization keys, and project keys for the whole project, read runs."""
    require_reader(caller)
    if caller.agent_ids is not None:
        raise Refusal("FORBIDDEN", "a key that is restricted to some agents does not read runs")


async def find_run(connection: AsyncConnection, caller: Caller, id: str) -> Row:
    """A run that the caller may see; refused as not there otherwise."""
    require_run_reader(caller)
    return await find_seen(connection, runs, caller, "run", id)


def shown_run(row: Row) -> dict[str, Json]:
    """A run as it goes over the wire."""
    asked = asked_of(row)
    counts: dict[str, int] = row["counts"] or {}
    return {
        **{name: row[name] for name in _SHOWN},
        "repeat": asked.repeat,
        "concurrency": asked.concurrency,
        "timeout_s": asked.timeout_s,
        "selection": asked.selection,
        "attempts": asked.attempts,
        "finished": sum(counts.values()),
        "counts": {outcome: counts.get(outcome, 0) for outcome in ("pass", "fail", "error", "skip")},
    }


def _check(
    suite: Document | None, cases: list[str] | None, repeat: int, concurrency: int, timeout_s: float, selection: str | None, note: str
) -> None:
    fields: dict[str, list[str]] = {}
    if (suite is None) == (cases is None):
        fields["suite"] = ["expected either `suite`, a document, or `cases`, ids of cases of the project"]
    if cases is not None and not 1 <= len(cases) <= MOST_CASES:
        fields["cases"] = [f"expected 1 to {MOST_CASES} ids"]
    for name, value, most in (("repeat", repeat, MOST_REPEATS), ("concurrency", concurrency, MOST_AT_ONCE)):
        if not 1 <= value <= most:
            fields[name] = [f"expected 1 to {most}"]
    if not 0 < timeout_s <= LONGEST_ATTEMPT_S:
        fields["timeout_s"] = [f"expected a number above 0, at most {LONGEST_ATTEMPT_S:g}"]
    if selection is not None and len(selection) > LONGEST_SELECTION:
        fields["selection"] = [f"expected at most {LONGEST_SELECTION} characters"]
    if fields:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields=fields)
    check_fields({"note": note}, names=(), texts=("note",))


def _asked(target: str | dict[str, Json] | None, repeat: int, concurrency: int, timeout_s: float, selection: str | None) -> Asked:
    named, inline = (target, None) if isinstance(target, str) else (None, target)
    if inline is not None:
        if len(to_json(inline)) > LARGEST_SETTINGS:
            raise Refusal("VALIDATION_ERROR", "the target is too large", fields={"target": [f"expected at most {LARGEST_SETTINGS} bytes"]})
        refuse_plain_secrets(inline, "target")
    return Asked(
        target=named, inline_target=inline, repeat=repeat, concurrency=concurrency, timeout_s=timeout_s, selection=selection or None
    )


async def _project(hub: Hub, caller: Caller, project_id: str) -> Row:
    async with hub.database.reading() as connection:
        project = await find_row(connection, projects, caller.organization_id, project_id)
    if project is None:
        raise not_found("project", project_id)
    if project["paused"]:
        raise Refusal("CONFLICT", "the project is paused: it starts no runs", hint=f"resume it: POST /api/projects/{project_id}/resume")
    return project


def _selected(suite: Suite, selection: str | None) -> Suite:
    try:
        chosen = select(suite, selection)
    except InputError as error:
        raise refusal_of(error, "selection", what="the selection") from None
    if not chosen.cases:
        why = "no case is chosen" if suite.cases else "the suite has no case"
        raise Refusal("VALIDATION_ERROR", why, fields={"selection" if suite.cases else "suite": [why]})
    return chosen


async def _suite_of_cases(hub: Hub, caller: Caller, project: Row, ids: list[str], *, alone: bool) -> tuple[Suite, str]:
    """The documents of these cases as one suite, and its text; an id that two of them use gets the name of its document in front.

    A single MCPLab document for which no target is named (`alone`) stays what it is, with its own agents and servers.
    """
    joined: list[Case] = []
    taken: set[str] = set()
    settings: dict[str, Json] = {}
    for id in dict.fromkeys(ids):
        async with hub.database.reading() as connection:
            row = await find_row(connection, cases, caller.organization_id, id, project_id=project["id"])
        if row is None:
            raise not_found("case", id)
        suite, text = await read_sent_suite(
            row["document"], dialect=row["dialect"], name=row["name"], field="cases", library=library_for(project)
        )
        if alone and suite.dialect == "mcplab" and len(set(ids)) == 1:
            return suite, text
        for case in suite.cases:
            name = case.id if case.id not in taken else make_unique(f"{row['name']}/{case.id}", taken)
            taken.add(name)
            joined.append(msgspec.structs.replace(case, id=name, settings=_with_named_servers(case.settings)))
        for key in WORKSPACE_KEYS:
            if key in suite.settings:
                both = isinstance(settings.get(key), dict) and isinstance(suite.settings[key], dict) and key != "judge"
                settings[key] = {**suite.settings[key], **settings[key]} if both else settings.get(key, suite.settings[key])
    whole = Suite(name=project["name"], cases=tuple(joined), settings=settings)
    return whole, await asyncio.to_thread(write_native, whole)


def _with_named_servers(settings: dict[str, Json]) -> dict[str, Json]:
    """The settings of a case with the servers of MCPLab by their ids: which they are is said by the target, and each may be named often."""
    servers: Json = settings.get("mcp_servers")
    if not isinstance(servers, list):
        return settings
    return {**settings, "mcp_servers": [{"id": each["id"]} if isinstance(each, dict) and "id" in each else each for each in servers]}


async def _queue(hub: Hub, caller: Caller, project: Row, suite: Suite, text: str, target: str, asked: Asked, note: str) -> Row:
    at = hub.now()
    waiting = sa.select(sa.func.count()).where(runs.c.organization_id == caller.organization_id, runs.c.status == "queued")
    async with hub.database.writing() as connection:
        if int((await connection.execute(waiting)).scalar_one()) >= MOST_QUEUED:
            raise Refusal("RATE_LIMITED", f"{MOST_QUEUED} runs wait already", retry_after_s=30)
        row = await insert_row(
            connection,
            runs,
            {
                "id": new_id("run"),
                "organization_id": caller.organization_id,
                "project_id": project["id"],
                "suite_name": suite.name[:200],
                "dialect": suite.dialect,
                "document": text,
                "target": target,
                "settings": msgspec.to_builtins(asked),
                "status": "queued",
                "counts": {},
                "note": note,
                "created_at": at,
                "updated_at": at,
            },
        )
        await add_events(connection, row["id"], [("queued", {"attempts": asked.attempts})], at)
        await noted(connection, hub, caller, "create", "run", row["id"], {"suite": row["suite_name"], "attempts": asked.attempts})
    return row
