"""Run requests: start, list, cancel, backtest, dry run.

A request is checked completely (suite, target, secrets, judge) before it is queued; a worker in this or another process runs it. Only
organization keys start and cancel runs; project keys read those of their project, unless they are limited to some agents.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Unpack, cast

import msgspec
import sqlalchemy as sa

from proctor.actions.checking.check_stream import prepare_once
from proctor.decide.selection import select
from proctor.errors import InputError
from proctor.formats.native.drafting import make_unique
from proctor.formats.native.text import write_native
from proctor.formats.workspace_file import WORKSPACE_KEYS
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_run_reader, select_visible
from proctor.service.access.transactions import Transaction, reading, writing
from proctor.service.field_checks import LARGEST_SETTINGS, read_moment, refuse_plain_secrets, refuse_secrets_in_suite
from proctor.service.hub import QUEUED, Hub, new_id
from proctor.service.paging import read_page
from proctor.service.refusals import Refusal
from proctor.service.resource import Page, Paging, list_fields, operation, show_row
from proctor.service.runs.backtest import STORED_TRACES, Backtest, count_traces
from proctor.service.runs.backtest_runner import build_backtest
from proctor.service.runs.building import RunRequest, build_project_run, complete_request, library_for, read_run_request
from proctor.service.runs.names import check_names, has_tag, mentions, read_run, read_tags, write_tags
from proctor.service.runs.run import (
    MOST_CASES,
    MOST_JUDGED_TRACES,
    MOST_TRACES,
    RUN_COLUMNS,
    USUAL_TRACES,
    NewBacktest,
    NewRun,
    PlannedRun,
    Run,
    RunFinding,
    RunSearch,
    find_previous,
    show_run,
)
from proctor.service.suites.documents import Problem, read_sent_suite, refusal_of, shown_problems
from proctor.store.accounts.tenants import insert_row
from proctor.store.runs.run_rows import add_events
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import Row
from proctor.store.sql.queries import clean_text
from proctor.store.sql.tables import cases, projects, runs

MOST_ATTEMPTS = 50_000
MOST_QUEUED = 1_000
"""Queued runs of one organization."""
EMPTY_SUITE = "proctor: 1\ncases: []\n"
"""The stored suite of a run that could not start."""


class PreparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A checked run, ready for the queue."""

    suite: Suite
    text: str
    chosen: Suite
    """The suite with the selected cases."""
    target: str
    request: RunRequest


class RunSuite(msgspec.Struct, frozen=True, kw_only=True):
    """The suite of a run: as sent, or joined from cases of the project."""

    suite: Suite
    text: str
    from_cases: dict[str, dict[str, str]] | None = None
    """The cases it is made of; see `RunRequest`."""


@operation("runs", "POST /api/runs", status=202, doing="starting runs")
async def start_run(hub: Hub, caller: Caller, spec: NewRun) -> Run:
    """Queue a run; requires an organization key. An invalid run is rejected with all of its problems."""
    check_spec(spec)
    project = await find_startable_project(hub, caller, spec.project_id)
    run_suite = await read_run_suite(hub, caller, project, spec)
    return show_run(await queue_run(hub, caller, spec, await prepare_run(hub, caller, project, spec, run_suite)))


async def read_run_suite(hub: Hub, caller: Caller, project: Row, spec: NewRun) -> RunSuite:
    """Return the suite of a requested run. Raises `Refusal` with all of its problems."""
    if spec.suite is not None:
        read, text = await read_sent_suite(spec.suite, dialect=spec.dialect, field="suite", library=library_for(project))
        run_suite = RunSuite(suite=read, text=text)
    else:
        run_suite = await _join_cases(hub, caller, project, spec.cases or [], alone=spec.target is None)
    await asyncio.to_thread(refuse_secrets_in_suite, run_suite.suite, "suite")
    return run_suite


async def prepare_run(hub: Hub, caller: Caller, project: Row, spec: NewRun, run_suite: RunSuite) -> PreparedRun:
    """Return the run to queue, after building everything it needs. Raises `Refusal`."""
    request = complete_request(_read_options(spec), run_suite.suite, project)
    try:
        chosen = select(run_suite.suite, spec.selection)
    except InputError as error:
        raise refusal_of(error, "selection", what="the selection") from None
    if not chosen.cases:
        why = "no case is selected" if run_suite.suite.cases else "the suite has no case"
        raise Refusal("VALIDATION_ERROR", why, fields={"selection" if run_suite.suite.cases else "suite": [why]})
    # Built to report problems now; the worker builds it again.
    built = await build_project_run(hub, caller.organization_id, project, chosen, request)
    await built.close()
    attempts = built.count_attempts(spec.repeat)
    if attempts > MOST_ATTEMPTS:
        reason = f"{attempts} attempts; expected at most {MOST_ATTEMPTS}"
        raise Refusal("VALIDATION_ERROR", "the run is too large", fields={"repeat": [reason]})
    request = msgspec.structs.replace(request, attempts=attempts, from_cases=run_suite.from_cases)
    return PreparedRun(suite=run_suite.suite, text=run_suite.text, chosen=chosen, target=built.target.name, request=request)


_EVERY_RUN = RunSearch()


@operation("runs", "GET /api/runs")
async def list_runs(hub: Hub, caller: Caller, search: RunSearch = _EVERY_RUN, **paging: Unpack[Paging]) -> Page[Run]:
    """List runs, newest first."""
    require_run_reader(caller)
    filters = [] if search.tag is None else [has_tag(clean_text(search.tag))]
    if search.query:
        filters.append(mentions(search.query))
    equal: dict[str, Json] = {"project_id": search.project_id, "status": search.status, "name": search.name, "suite_name": search.suite}
    equal["schedule_id"] = search.schedule_id
    query = select_visible(runs, caller, columns=RUN_COLUMNS, filters=filters, **equal)
    return await read_page(hub, query, runs, show_run, **paging)


MOST_EARLIER = 500
"""Newest completed runs among which the previous run of each is searched."""


async def find_previous_runs(hub: Hub, caller: Caller, project_id: str, newest_runs: Sequence[Run]) -> dict[str, Run]:
    """Return the previous completed run of the same kind for each of these runs, by id."""
    if not newest_runs:
        return {}
    until = runs.c.created_at <= max(run["created_at"] for run in newest_runs)
    query = select_visible(runs, caller, columns=RUN_COLUMNS, along=(until,), project_id=project_id, status="completed").whole
    newest = query.order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(MOST_EARLIER)
    async with hub.database.reading() as connection:
        earlier = [show_run(dict(row)) for row in (await connection.execute(newest)).mappings()]
    pairs = ((run["id"], find_previous(run, earlier)) for run in newest_runs)
    return {id: cast(Run, before) for id, before in pairs if before is not None}


@operation("runs", "GET /api/runs/{run_id}")
async def get_run(hub: Hub, caller: Caller, id: str) -> Run:
    """Read a run: by its id, its name, `@tag`, `latest` or `previous`; the other routes accept the same."""
    return show_run(await read_run(hub, caller, id, document=False))


async def read_request(hub: Hub, caller: Caller, id: str) -> NewRun:
    """Return the request that would start a run again."""
    row = await read_run(hub, caller, id)
    request = read_run_request(row)
    return NewRun(
        project_id=row["project_id"],
        suite=None if request.from_cases else row["document"],
        cases=list(request.from_cases) if request.from_cases else None,
        dialect=row["dialect"],
        target=request.inline_target or request.target,
        **{name: getattr(request, name) for name in ("repeat", "concurrency", "timeout_s", "selection")},
        note=row["note"] or "",
        name=row["name"] or "",
        tags=read_tags(row["tags"]),
    )


@operation("runs", "POST /api/runs/{run_id}/cancel", doing="cancelling runs")
async def cancel_run(hub: Hub, caller: Caller, id: str) -> Run:
    """Cancel a run; requires an organization key. Finished attempts stay; an ended run is not changed."""
    at = hub.now()
    async with writing(hub, caller) as tx:
        run = await tx.require_row(runs, "run", id, locked=True)
        # A queued run, or one with an expired lease, is ended here. A running one is only flagged.
        if run["status"] == "queued" or (run["status"] == "running" and (run["leased_until"] or math.inf) < hub.clock()):
            over = {"status": "cancelled", "cancel_requested": True, "lease_owner": None, "leased_until": None, "completed_at": at}
            run = await tx.change_row(runs, "run", id, over, "cancel", {})
            await add_events(tx.connection, id, [("cancelled", {"counts": run["counts"] or {}})], at)
        elif run["status"] == "running" and not run["cancel_requested"]:
            run = await tx.change_row(runs, "run", id, {"cancel_requested": True}, "cancel", {})
            await add_events(tx.connection, id, [("cancelling", {})], at)
    # After the commit, since woken workers read the database.
    hub.run_signals.wake(id)
    return show_run(run)


def check_spec(spec: NewRun) -> None:
    """Reject fields that are invalid for any suite."""
    fields: dict[str, list[str]] = {}
    if (spec.suite is None) == (spec.cases is None):
        fields["suite"] = ["expected either `suite`, a document, or `cases`, ids of cases of the project"]
    if spec.cases is not None and not 1 <= len(spec.cases) <= MOST_CASES:
        fields["cases"] = [f"choose at least one case, at most {MOST_CASES}"]
    if fields:
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields=fields)
    check_names(spec.name, spec.tags)


def _read_options(spec: NewRun) -> RunRequest:
    target_name, inline = (spec.target, None) if isinstance(spec.target, str) else (None, spec.target)
    if inline is not None:
        if len(to_json(inline)) > LARGEST_SETTINGS:
            raise Refusal("VALIDATION_ERROR", "the target is too large", fields={"target": [f"expected at most {LARGEST_SETTINGS} bytes"]})
        refuse_plain_secrets(inline, "target")
    limits = {name: getattr(spec, name) for name in ("repeat", "concurrency", "timeout_s")}
    return RunRequest(target=target_name, inline_target=inline, selection=spec.selection or None, **limits)


async def find_startable_project(hub: Hub, caller: Caller, project_id: str) -> Row:
    """Return the project of a new run. Raises `Refusal` if it is missing or paused."""
    async with reading(hub, caller) as tx:
        project = await tx.require_row(projects, "project", project_id)
    if project["paused"]:
        raise Refusal("CONFLICT", "the project is paused and starts no runs", hint=f"resume it: POST /api/projects/{project_id}/resume")
    return project


async def _join_cases(hub: Hub, caller: Caller, project: Row, ids: list[str], *, alone: bool) -> RunSuite:
    """Return the documents of these cases as one suite; a repeated id is prefixed with the name of its document.

    A single MCPLab document without a named target (`alone`) is unchanged, with its own agents and servers.
    """
    joined: list[Case] = []
    used_ids: set[str] = set()
    settings: dict[str, Json] = {}
    renamed: dict[str, dict[str, str]] = {}
    for id in dict.fromkeys(ids):
        async with reading(hub, caller) as tx:
            row = await tx.require_row(cases, "case", id, project_id=project["id"])
        suite, text = await read_sent_suite(
            row["document"], dialect=row["dialect"], name=row["name"], field="cases", library=library_for(project)
        )
        if alone and suite.dialect == "mcplab" and len(set(ids)) == 1:
            return RunSuite(suite=suite, text=text, from_cases={id: {}})
        renamed[id] = {}
        for case in suite.cases:
            name = case.id if case.id not in used_ids else make_unique(f"{row['name']}/{case.id}", used_ids)
            used_ids.add(name)
            if name != case.id:
                renamed[id][case.id] = name
            joined.append(msgspec.structs.replace(case, id=name, settings=_with_named_servers(case.settings)))
        for key in WORKSPACE_KEYS:
            if key in suite.settings:
                are_objects = isinstance(settings.get(key), dict) and isinstance(suite.settings[key], dict) and key != "judge"
                settings[key] = {**suite.settings[key], **settings[key]} if are_objects else settings.get(key, suite.settings[key])
    joined_suite = Suite(name=project["name"], cases=tuple(joined), settings=settings)
    return RunSuite(suite=joined_suite, text=await asyncio.to_thread(write_native, joined_suite), from_cases=renamed)


def _with_named_servers(settings: dict[str, Json]) -> dict[str, Json]:
    """Return the settings of a case with only the ids of MCPLab servers, which the target defines."""
    servers: Json = settings.get("mcp_servers")
    if not isinstance(servers, list):
        return settings
    return {**settings, "mcp_servers": [{"id": each["id"]} if isinstance(each, dict) and "id" in each else each for each in servers]}


async def queue_run(hub: Hub, caller: Caller, spec: NewRun, run: PreparedRun) -> Row:
    """Insert a queued run and return its row. Raises `Refusal` if the queue is full."""
    async with writing(hub, caller) as tx:
        row = await insert_run(tx, spec, run)
    hub.run_signals.wake(QUEUED)
    return row


async def insert_run(tx: Transaction, spec: NewRun, run: PreparedRun | str, **scheduled: str | None) -> Row:
    """Insert a queued run, or one that could not start, with the reason. Raises `Refusal` if the queue is full.

    `scheduled` are `schedule_id` and `due_at`.
    """
    at, connection = tx.hub.now(), tx.connection
    own = {"id": new_id("run"), "organization_id": tx.owner, "project_id": spec.project_id, "counts": {}, **scheduled}
    own |= {"note": spec.note, "name": spec.name or None, "tags": write_tags(spec.tags), "created_at": at, "updated_at": at}
    if isinstance(run, str):
        target = spec.target if isinstance(spec.target, str) else None
        failed = {"suite_name": spec.name, "dialect": "native", "document": EMPTY_SUITE, "target": target, "settings": {}}
        row = await insert_row(connection, runs, {**own, **failed, "status": "failed", "error": run, "completed_at": at})
        await add_events(connection, row["id"], [("failed", {"counts": {}, "outcome": None, "error": run})], at)
        return row
    # Counted without a lock: concurrent requests may exceed the limit by a few.
    waiting = sa.select(sa.func.count()).where(runs.c.organization_id == tx.owner, runs.c.status == "queued")
    if int((await connection.execute(waiting)).scalar_one()) >= MOST_QUEUED:
        raise Refusal("RATE_LIMITED", f"{MOST_QUEUED} runs are already queued", retry_after_s=30)
    suite = {"suite_name": run.suite.name[:200], "dialect": run.suite.dialect, "document": run.text, "target": run.target}
    row = await insert_row(connection, runs, {**own, **suite, "settings": msgspec.to_builtins(run.request), "status": "queued"})
    await add_events(connection, row["id"], [("queued", {"attempts": run.request.attempts})], at)
    await tx.note("create", "run", row["id"], {"suite": row["suite_name"], "attempts": run.request.attempts})
    return row


# --- backtests: a case is queued with stored traces


@operation("cases", "POST /api/cases/{case_id}/backtest", status=202, doing="starting backtests")
async def start_backtest(hub: Hub, caller: Caller, case_id: str, spec: NewBacktest) -> Run:
    """Queue a run that decides the case, active or paused, on stored traces; requires an organization key.

    No agent is called. Each trace is an attempt of the run; `sample` of the case is ignored.
    """
    async with reading(hub, caller) as tx:
        case = await tx.require_row(cases, "case", case_id)
    project = await find_startable_project(hub, caller, case["project_id"])
    suite, text = await read_sent_suite(
        case["document"], dialect=case["dialect"], name=case["name"], field="case", library=library_for(project)
    )
    if not suite.cases:
        raise Refusal("VALIDATION_ERROR", "the document has no case", fields={"case": ["the document has no case"]})
    limit = await asyncio.to_thread(_choose_limit, suite, spec.limit)
    backtest = await _find_traces(hub, caller, case, spec, limit)
    attempts = backtest.traces * len(suite.cases)
    if attempts > MOST_ATTEMPTS:
        reason = f"{len(suite.cases)} cases on {backtest.traces} traces are {attempts} results; expected at most {MOST_ATTEMPTS}"
        raise Refusal("VALIDATION_ERROR", "the backtest is too large", fields={"limit": [reason]})
    request = complete_request(RunRequest(target=STORED_TRACES, backtest=backtest), suite, project)
    request = msgspec.structs.replace(request, attempts=attempts, from_cases={case_id: {}})
    # Built to report problems now; the worker builds it again.
    await (await build_backtest(hub, caller.organization_id, project, suite)).close()
    run_spec = NewRun(project_id=project["id"], suite=text, note=spec.note, name=spec.name, tags=spec.tags)
    check_spec(run_spec)
    prepared = PreparedRun(suite=suite, text=text, chosen=suite, target=STORED_TRACES, request=request)
    return show_run(await queue_run(hub, caller, run_spec, prepared))


def _choose_limit(suite: Suite, limit: int | None) -> int:
    judged = [case.case.id for case in prepare_once(suite).cases if case.judged]
    most = MOST_JUDGED_TRACES if judged else MOST_TRACES
    if judged and limit is None:
        reason = f"the case {judged[0]!r} calls a judge for every trace: set a limit of at most {most}"
    elif limit is not None and not 1 <= limit <= most:
        reason = f"expected 1 to {most}" + (f": the case {judged[0]!r} calls a judge for every trace" if judged else "")
    else:
        return limit or USUAL_TRACES
    raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"limit": [reason]})


async def _find_traces(hub: Hub, caller: Caller, case: Row, spec: NewBacktest, limit: int) -> Backtest:
    agent_id = spec.agent_id or case["agent_id"]
    if case["agent_id"] not in (None, agent_id):
        reason = f"the case belongs to the agent {case['agent_id']}; omit `agent_id`"
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"agent_id": [reason]})
    now = hub.now()
    # At most now: traces that arrive later are not included.
    until = now if spec.until is None else min(now, read_moment(spec.until, "until"))
    since = None if spec.since is None else read_moment(spec.since, "since")
    when: dict[str, Json] | None = case["when_matches"]
    backtest = Backtest(case_id=case["id"], version=case["version"], agent_id=agent_id, when=when, since=since, until=until, traces=0)
    async with reading(hub, caller) as tx:
        await tx.check_place(case["project_id"], agent_id)
        trace_count = await count_traces(tx.connection, tx.owner, case["project_id"], backtest, limit)
    if not trace_count:
        reason = "no stored traces of this agent or time" if agent_id or since or spec.until else "the project has no stored traces"
        raise Refusal("CONFLICT", reason, hint=f"retention of traces: GET /api/projects/{case['project_id']}/retention")
    return msgspec.structs.replace(backtest, traces=trace_count)


# --- dry runs: all checks of a run without starting it, with a list of problems


MOST_CASES_SHOWN = 1_000
"""Listed cases; all are counted."""
_REPORTED = ("VALIDATION_ERROR", "CONFLICT", "NOT_FOUND")
"""Refusals that are reported as problems. Others (permission, database) are raised."""


@operation("runs", "POST /api/runs/dry-run", doing="planning runs")
async def plan_run(hub: Hub, caller: Caller, spec: NewRun) -> PlannedRun:
    """Check a run without starting it; requires an organization key. The response lists every problem."""
    planned = dict[str, Json].fromkeys(list_fields(PlannedRun)) | {"cases": [], "case_count": 0}
    refusals: list[Refusal] = []
    try:
        project = await find_startable_project(hub, caller, spec.project_id)
    except Refusal as refusal:
        if refusal.code != "CONFLICT":
            raise
        return show_row(PlannedRun, planned, startable=False, problems=_list_findings(refusal), warnings=[])
    try:
        check_spec(spec)
    except Refusal as refusal:
        refusals.append(refusal)
    warnings: list[Problem] = []
    if spec.suite is not None or spec.cases:
        try:
            run_suite = await read_run_suite(hub, caller, project, spec)
            planned |= {"suite_name": run_suite.suite.name, "dialect": run_suite.suite.dialect}
            warnings = shown_problems(run_suite.suite.warnings)
            if not refusals:
                prepared = await prepare_run(hub, caller, project, spec, run_suite)
                chosen = [case.id for case in prepared.chosen.cases]
                planned |= {"target": prepared.target, "attempts": prepared.request.attempts}
                planned |= {"cases": chosen[:MOST_CASES_SHOWN], "case_count": len(chosen)}
        except Refusal as refusal:
            if refusal.code not in _REPORTED:
                raise
            refusals.append(refusal)
    problems = [problem for refusal in refusals for problem in _list_findings(refusal)]
    return show_row(PlannedRun, planned, startable=not refusals, problems=problems, warnings=warnings)


def _list_findings(refusal: Refusal) -> list[RunFinding]:
    """Return the problems of a refusal, each with its field and place in the document."""
    nothing: dict[str, Json] = {"line": None, "column": None, "path": None, "nearest": [], "hint": refusal.hint}
    if refusal.problems:
        field = next(iter(refusal.fields), "suite")
        return [show_row(RunFinding, problem, field=field) for problem in refusal.problems]
    texts_of = [(field, text) for field, texts in refusal.fields.items() for text in texts]
    return [show_row(RunFinding, nothing, field=field, message=text) for field, text in texts_of or [("", refusal.message)]]
