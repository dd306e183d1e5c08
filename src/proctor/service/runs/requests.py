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

from proctor.actions.checking.check_stream import prepare_once
from proctor.decide.selection import select
from proctor.errors import InputError
from proctor.formats.native.drafting import make_unique
from proctor.formats.native.text import write_native
from proctor.formats.workspace_file.workspace import WORKSPACE_KEYS
from proctor.model.case import MOST_REPEATS, Case, Suite
from proctor.model.evidence import Json
from proctor.service.access.audit import note as noted
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import check_place, list_seen, query_seen, require_run_reader, require_writer
from proctor.service.field_checks import LARGEST_SETTINGS, check_fields, refuse_plain_secrets, refuse_secrets_in_suite
from proctor.service.hub import QUEUED, Hub, new_id
from proctor.service.paging import fetch_page_or_refuse, require_row, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.runs.backtest import STORED_TRACES, Backtest, count_traces, show_backtest
from proctor.service.runs.backtest_runner import build_backtest
from proctor.service.runs.building import Asked, asked_of, build_project_run, fill_what_is_unsaid, library_for
from proctor.service.runs.names import check_names, find_meant_run, has_tag, mentions, read_tags, write_tags
from proctor.service.suites.documents import read_sent_suite, refusal_of, shown_problems
from proctor.service.suites.outbound import LONGEST_ATTEMPT_S
from proctor.service.traces.search import read_moment
from proctor.store.accounts.tenants import find_row, insert_row
from proctor.store.runs.run_rows import add_events
from proctor.store.sql.chunked_queries import clean_text
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import cases, projects, runs

MOST_AT_ONCE = 64
"""Attempts of one run at the same time: its agent and this process serve others too."""
MOST_ATTEMPTS = 50_000
MOST_CASES = 100
MOST_QUEUED = 1_000
"""Runs of one organization that may wait; more would only wait longer."""
LONGEST_NOTE = 4_000
LONGEST_SELECTION = 4_000

RunStatus = Literal["queued", "running", "completed", "cancelled", "failed"]
Document = str | dict[str, Json] | list[Json]
_SHOWN = (
    "id", "project_id", "suite_name", "dialect", "target", "status", "outcome", "error", "note",
    "cancel_requested", "created_at", "started_at", "completed_at", "updated_at",
)  # fmt: skip
_LISTED = (*_SHOWN, "name", "tags", "settings", "counts")
"""The columns that a list of runs shows."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be driven, and how: a suite, or cases of the project."""

    project_id: str
    suite: Document | None = None
    """A suite of any dialect, as text or as JSON."""
    cases: list[str] | None = None
    """Ids of cases of the project, instead of a suite."""
    dialect: str | None = None
    """Of the suite; None: recognised by shape."""
    target: str | dict[str, Json] | None = None
    """A target by its name, or as such; None: the only one there is, or an MCPLab suite's own agents."""
    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    """How long one attempt may take."""
    selection: str | None = None
    """Which cases, as `-k` of the command line."""
    note: str = ""
    name: str = ""
    """What to call the run; several may have one name, and the newest is meant."""
    tags: list[str] = []


class PreparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that could be put in the queue."""

    suite: Suite
    text: str
    chosen: Suite
    """The suite with only the cases that are driven."""
    target: str
    asked: Asked


class RunSuite(msgspec.Struct, frozen=True, kw_only=True):
    """What a run drives: a suite as it was sent, or cases of the project as one."""

    suite: Suite
    text: str
    from_cases: dict[str, dict[str, str]] | None = None
    """The cases it is made of; see `Asked`."""


async def start_run(hub: Hub, caller: Caller, spec: RunSpec) -> dict[str, Json]:
    """Put a run in the queue: of a suite, or of cases of the project by their ids."""
    require_writer(caller, "runs are started")
    check_spec(spec)
    project = await find_startable_project(hub, caller, spec.project_id)
    sent = await read_run_suite(hub, caller, project, spec)
    row = await queue_run(hub, caller, project, spec, await prepare_run(hub, caller, project, spec, sent))
    hub.run_signals.wake(QUEUED)
    return show_run(row)


async def read_run_suite(hub: Hub, caller: Caller, project: Row, spec: RunSpec) -> RunSuite:
    """Return the suite of a run that is asked for. Raises `Refusal` with every problem in it."""
    if spec.suite is not None:
        read, text = await read_sent_suite(spec.suite, dialect=spec.dialect, field="suite", library=library_for(project))
        sent = RunSuite(suite=read, text=text)
    else:
        sent = await _join_cases(hub, caller, project, spec.cases or [], alone=spec.target is None)
    await asyncio.to_thread(refuse_secrets_in_suite, sent.suite, "suite")
    return sent


async def prepare_run(hub: Hub, caller: Caller, project: Row, spec: RunSpec, sent: RunSuite) -> PreparedRun:
    """Return what is to be queued, once everything that it needs was built. Raises `Refusal`."""
    asked = fill_what_is_unsaid(_read_driving(spec), sent.suite, project)
    chosen = _select_cases(sent.suite, spec.selection)
    # Built to learn what cannot work, while the sender still listens; the worker builds it again.
    built = await build_project_run(hub, caller.organization_id, project, chosen, asked)
    await built.close()
    attempts = built.count_attempts(spec.repeat)
    if attempts > MOST_ATTEMPTS:
        told = f"{attempts} attempts; expected at most {MOST_ATTEMPTS}"
        raise Refusal("VALIDATION_ERROR", "the run is too large", fields={"repeat": [told]})
    asked = msgspec.structs.replace(asked, attempts=attempts, from_cases=sent.from_cases)
    return PreparedRun(suite=sent.suite, text=sent.text, chosen=chosen, target=built.target.name, asked=asked)


class RunSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are listed; what is None does not count."""

    project_id: str | None = None
    status: str | None = None
    name: str | None = None
    tag: str | None = None
    query: str | None = None
    """Looked for in the names of runs and suites, and in notes."""


_EVERY_RUN = RunSearch()


async def list_runs(
    hub: Hub, caller: Caller, wanted: RunSearch = _EVERY_RUN, *, limit: int | None = None, cursor: str | None = None
) -> dict[str, Json]:
    """Return a page of the runs that the caller may see."""
    require_run_reader(caller)
    beside = [] if wanted.tag is None else [has_tag(clean_text(wanted.tag))]
    if wanted.query:
        beside.append(mentions(wanted.query))
    async with hub.database.reading() as connection:
        # Without the suites, which may be megabytes each.
        query = list_seen(
            runs, caller, columns=_LISTED, beside=beside, project_id=wanted.project_id, status=wanted.status, name=wanted.name
        )
        return show_page(await fetch_page_or_refuse(connection, query, runs, limit=limit, cursor=cursor), show_run)


async def get_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one run."""
    async with hub.database.reading() as connection:
        return show_run(await find_run(connection, caller, id, document=False))


async def cancel_run(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """End a run: at once while it waits, else within a second. What is finished stays. One that has ended is left as it is."""
    require_writer(caller, "runs are cancelled")
    now, at = hub.clock(), hub.now()
    # Nobody drives a run that waits, or whose lease has run out: it can be ended here. Whoever drives it is only told.
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
    # After the commit: whoever is woken looks into the database for what has happened.
    hub.run_signals.wake(id)
    return show_run(dict(found))


async def find_run(connection: AsyncConnection, caller: Caller, id: str, *, beside: Row | None = None, document: bool = True) -> Row:
    """Return a run that the caller may see, by its id or a word that means it (`names.py`); refused as not there otherwise.

    Without `document` its suite, which may be megabytes, is left out where that can be.
    """
    require_run_reader(caller)
    query = query_seen(runs, caller, id=id)
    if not document:
        query = query.with_only_columns(*(column for column in runs.c if column is not runs.c.document))
    found = (await connection.execute(query)).mappings().first()
    return dict(found) if found is not None else await find_meant_run(connection, caller, id, beside=beside)


def show_run(row: Row) -> dict[str, Json]:
    """Return a run as it goes over the wire."""
    asked = asked_of(row)
    counts: dict[str, int] = row["counts"] or {}
    return {
        **{name: row[name] for name in _SHOWN},
        "name": row["name"] or "",
        "tags": read_tags(row["tags"]),
        "repeat": asked.repeat,
        "concurrency": asked.concurrency,
        "timeout_s": asked.timeout_s,
        "selection": asked.selection,
        "attempts": asked.attempts,
        "finished": sum(counts.values()),
        "counts": {outcome: counts.get(outcome, 0) for outcome in ("pass", "fail", "error", "skip")},
        "backtest": None if asked.backtest is None else show_backtest(asked.backtest),
    }


def check_spec(spec: RunSpec) -> None:
    """Refuse fields of a request that cannot be used, whatever the suite is."""
    fields: dict[str, list[str]] = {}
    if (spec.suite is None) == (spec.cases is None):
        fields["suite"] = ["expected either `suite`, a document, or `cases`, ids of cases of the project"]
    if spec.cases is not None and not 1 <= len(spec.cases) <= MOST_CASES:
        fields["cases"] = [f"expected 1 to {MOST_CASES} ids"]
    for name, value, most in (("repeat", spec.repeat, MOST_REPEATS), ("concurrency", spec.concurrency, MOST_AT_ONCE)):
        if not 1 <= value <= most:
            fields[name] = [f"expected 1 to {most}"]
    if not 0 < spec.timeout_s <= LONGEST_ATTEMPT_S:
        fields["timeout_s"] = [f"expected a number above 0, at most {LONGEST_ATTEMPT_S:g}"]
    if spec.selection is not None and len(spec.selection) > LONGEST_SELECTION:
        fields["selection"] = [f"expected at most {LONGEST_SELECTION} characters"]
    if fields:
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields=fields)
    check_fields({"note": spec.note}, names=(), texts=("note",))
    check_names(spec.name, spec.tags)


def _read_driving(spec: RunSpec) -> Asked:
    named, inline = (spec.target, None) if isinstance(spec.target, str) else (None, spec.target)
    if inline is not None:
        if len(to_json(inline)) > LARGEST_SETTINGS:
            raise Refusal("VALIDATION_ERROR", "the target is too large", fields={"target": [f"expected at most {LARGEST_SETTINGS} bytes"]})
        refuse_plain_secrets(inline, "target")
    return Asked(
        target=named,
        inline_target=inline,
        repeat=spec.repeat,
        concurrency=spec.concurrency,
        timeout_s=spec.timeout_s,
        selection=spec.selection or None,
    )


async def find_startable_project(hub: Hub, caller: Caller, project_id: str) -> Row:
    """Return the project of a run to be started. Raises `Refusal` for one that is not there, or is paused."""
    async with hub.database.reading() as connection:
        project = await require_row(connection, projects, caller.organization_id, "project", project_id)
    if project["paused"]:
        raise Refusal("CONFLICT", "the project is paused: it starts no runs", hint=f"resume it: POST /api/projects/{project_id}/resume")
    return project


def _select_cases(suite: Suite, selection: str | None) -> Suite:
    try:
        chosen = select(suite, selection)
    except InputError as error:
        raise refusal_of(error, "selection", what="the selection") from None
    if not chosen.cases:
        why = "no case is chosen" if suite.cases else "the suite has no case"
        raise Refusal("VALIDATION_ERROR", why, fields={"selection" if suite.cases else "suite": [why]})
    return chosen


async def _join_cases(hub: Hub, caller: Caller, project: Row, ids: list[str], *, alone: bool) -> RunSuite:
    """Return the documents of these cases as one suite; an id that two of them use gets the name of its document in front.

    A single MCPLab document for which no target is named (`alone`) stays what it is, with its own agents and servers.
    """
    joined: list[Case] = []
    taken: set[str] = set()
    settings: dict[str, Json] = {}
    renamed: dict[str, dict[str, str]] = {}
    for id in dict.fromkeys(ids):
        async with hub.database.reading() as connection:
            row = await require_row(connection, cases, caller.organization_id, "case", id, project_id=project["id"])
        suite, text = await read_sent_suite(
            row["document"], dialect=row["dialect"], name=row["name"], field="cases", library=library_for(project)
        )
        if alone and suite.dialect == "mcplab" and len(set(ids)) == 1:
            return RunSuite(suite=suite, text=text, from_cases={id: {}})
        renamed[id] = {}
        for case in suite.cases:
            name = case.id if case.id not in taken else make_unique(f"{row['name']}/{case.id}", taken)
            taken.add(name)
            if name != case.id:
                renamed[id][case.id] = name
            joined.append(msgspec.structs.replace(case, id=name, settings=_with_named_servers(case.settings)))
        for key in WORKSPACE_KEYS:
            if key in suite.settings:
                both = isinstance(settings.get(key), dict) and isinstance(suite.settings[key], dict) and key != "judge"
                settings[key] = {**suite.settings[key], **settings[key]} if both else settings.get(key, suite.settings[key])
    whole = Suite(name=project["name"], cases=tuple(joined), settings=settings)
    return RunSuite(suite=whole, text=await asyncio.to_thread(write_native, whole), from_cases=renamed)


def _with_named_servers(settings: dict[str, Json]) -> dict[str, Json]:
    """Return the settings of a case with the servers of MCPLab by their ids alone.

    The target says which servers they are, and several cases may name the same one.
    """
    servers: Json = settings.get("mcp_servers")
    if not isinstance(servers, list):
        return settings
    return {**settings, "mcp_servers": [{"id": each["id"]} if isinstance(each, dict) and "id" in each else each for each in servers]}


async def queue_run(hub: Hub, caller: Caller, project: Row, spec: RunSpec, run: PreparedRun) -> Row:
    """Keep a run that waits for a worker, and return its row. Raises `Refusal` where too many wait."""
    at = hub.now()
    # Counted without a lock: many senders at once may overfill the queue by a few, which is no harm.
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
                "suite_name": run.suite.name[:200],
                "dialect": run.suite.dialect,
                "document": run.text,
                "target": run.target,
                "settings": msgspec.to_builtins(run.asked),
                "status": "queued",
                "counts": {},
                "note": spec.note,
                "name": spec.name or None,
                "tags": write_tags(spec.tags),
                "created_at": at,
                "updated_at": at,
            },
        )
        await add_events(connection, row["id"], [("queued", {"attempts": run.asked.attempts})], at)
        await noted(connection, hub, caller, "create", "run", row["id"], {"suite": row["suite_name"], "attempts": run.asked.attempts})
    return row


# --- starts backtests: a case of the project is put in the queue with the traces that are kept, before it is activated or after a change


MOST_TRACES = 10_000
"""Traces of one backtest."""
USUAL_TRACES = 1_000
"""Traces of a backtest that says no number."""
MOST_JUDGED_TRACES = 200
"""Traces of a backtest of a case that asks a judge."""


class BacktestSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which traces a case is tried on, and what the run is called."""

    agent_id: str | None = None
    """None: the agent of the case, else every agent of its project."""
    since: str | None = None
    until: str | None = None
    limit: int | None = None
    """How many traces, the newest; None: as many as are usual."""
    note: str = ""
    name: str = ""
    tags: list[str] = []


async def start_backtest(hub: Hub, caller: Caller, case_id: str, spec: BacktestSpec) -> dict[str, Json]:
    """Put a backtest of a case in the queue; paused cases can be tried, too. Raises `Refusal`."""
    require_writer(caller, "backtests are started")
    async with hub.database.reading() as connection:
        case = await require_row(connection, cases, caller.organization_id, "case", case_id)
    project = await find_startable_project(hub, caller, case["project_id"])
    suite, text = await read_sent_suite(
        case["document"], dialect=case["dialect"], name=case["name"], field="case", library=library_for(project)
    )
    if not suite.cases:
        raise Refusal("VALIDATION_ERROR", "the document has no case", fields={"case": ["the document has no case"]})
    limit = await asyncio.to_thread(_choose_limit, suite, spec.limit)
    wanted = await _find_traces(hub, caller, case, spec, limit)
    attempts = wanted.traces * len(suite.cases)
    if attempts > MOST_ATTEMPTS:
        told = f"{len(suite.cases)} cases on {wanted.traces} traces are {attempts} results; expected at most {MOST_ATTEMPTS}"
        raise Refusal("VALIDATION_ERROR", "the backtest is too large", fields={"limit": [told]})
    asked = fill_what_is_unsaid(Asked(target=STORED_TRACES, backtest=wanted), suite, project)
    asked = msgspec.structs.replace(asked, attempts=attempts, from_cases={case_id: {}})
    # Built to learn what cannot work, while the sender still listens; the worker builds it again.
    await (await build_backtest(hub, caller.organization_id, project, suite)).close()
    about = RunSpec(project_id=project["id"], suite=text, note=spec.note, name=spec.name, tags=spec.tags)
    check_spec(about)
    row = await queue_run(hub, caller, project, about, PreparedRun(suite=suite, text=text, chosen=suite, target=STORED_TRACES, asked=asked))
    hub.run_signals.wake(QUEUED)
    return show_run(row)


def _choose_limit(suite: Suite, limit: int | None) -> int:
    """Return how many traces are looked at. Raises `Refusal`."""
    judged = [case.case.id for case in prepare_once(suite).cases if case.judged]
    most = MOST_JUDGED_TRACES if judged else MOST_TRACES
    if judged and limit is None:
        told = f"the case {judged[0]!r} asks a judge about every trace: say how many they may be, at most {most}"
    elif limit is not None and not 1 <= limit <= most:
        told = f"expected 1 to {most}" + (f": the case {judged[0]!r} asks a judge about every trace" if judged else "")
    else:
        return limit or USUAL_TRACES
    raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"limit": [told]})


async def _find_traces(hub: Hub, caller: Caller, case: Row, spec: BacktestSpec, limit: int) -> Backtest:
    """Return which traces are looked at. Raises `Refusal` where there are none, or their place is not there."""
    agent_id = spec.agent_id or case["agent_id"]
    if case["agent_id"] not in (None, agent_id):
        told = f"the case is about the agent {case['agent_id']}; leave `agent_id` out"
        raise Refusal("VALIDATION_ERROR", "some fields cannot be used", fields={"agent_id": [told]})
    now = hub.now()
    # Never later than now: the traces are counted here, and what arrives while it runs is none of them.
    until = now if spec.until is None else min(now, read_moment(spec.until, "until"))
    since = None if spec.since is None else read_moment(spec.since, "since")
    when: dict[str, Json] | None = case["when_matches"]
    wanted = Backtest(case_id=case["id"], version=case["version"], agent_id=agent_id, when=when, since=since, until=until, traces=0)
    async with hub.database.reading() as connection:
        await check_place(connection, caller, case["project_id"], agent_id)
        found = await count_traces(connection, caller.organization_id, case["project_id"], wanted, limit)
    if not found:
        told = "no trace is kept of this agent, or of this time" if agent_id or since or spec.until else "no trace of the project is kept"
        raise Refusal("CONFLICT", told, hint=f"how long traces are kept: GET /api/projects/{case['project_id']}/retention")
    return msgspec.structs.replace(wanted, traces=found)


# --- dry runs: everything that starting a run looks at, without starting it; what is wrong comes back as a list


MOST_CASES_SHOWN = 1_000
"""Cases that are listed; all of them are counted."""
_TELLING = ("VALIDATION_ERROR", "CONFLICT", "NOT_FOUND")
"""Refusals that are about what was asked for. Others (no permission, no database) are no findings."""


async def plan_run(hub: Hub, caller: Caller, spec: RunSpec) -> dict[str, Json]:
    """Return what a run would be, and every problem that keeps it from being started."""
    require_writer(caller, "runs are planned")
    found: dict[str, Json] = {"suite_name": None, "dialect": None, "target": None, "attempts": None, "cases": [], "case_count": 0}
    refusals: list[Refusal] = []
    try:
        project = await find_startable_project(hub, caller, spec.project_id)
    except Refusal as refusal:
        if refusal.code != "CONFLICT":
            raise
        return {"startable": False, "problems": _list_findings(refusal), "warnings": [], **found}
    try:
        check_spec(spec)
    except Refusal as refusal:
        refusals.append(refusal)
    warnings: list[dict[str, Json]] = []
    if spec.suite is not None or spec.cases:
        try:
            sent = await read_run_suite(hub, caller, project, spec)
            found |= {"suite_name": sent.suite.name, "dialect": sent.suite.dialect}
            warnings = shown_problems(sent.suite.warnings)
            if not refusals:
                prepared = await prepare_run(hub, caller, project, spec, sent)
                chosen = [case.id for case in prepared.chosen.cases]
                found |= {"target": prepared.target, "attempts": prepared.asked.attempts}
                found |= {"cases": chosen[:MOST_CASES_SHOWN], "case_count": len(chosen)}
        except Refusal as refusal:
            if refusal.code not in _TELLING:
                raise
            refusals.append(refusal)
    problems = [problem for refusal in refusals for problem in _list_findings(refusal)]
    return {"startable": not refusals, "problems": problems, "warnings": warnings, **found}


def _list_findings(refusal: Refusal) -> list[dict[str, Json]]:
    """Return what a refusal tells as findings: the field of the request each is about, and where in the document it stands."""
    nothing: dict[str, Json] = {"line": None, "column": None, "path": None, "nearest": [], "hint": refusal.hint}
    if refusal.problems:
        field = next(iter(refusal.fields), "suite")
        kept = ("message", "line", "column", "path", "nearest", "hint")
        return [{**nothing, "field": field, **{name: problem.get(name) for name in kept}} for problem in refusal.problems]  # type: ignore[misc]
    told = [(field, text) for field, texts in refusal.fields.items() for text in texts]
    return [{**nothing, "field": field, "message": text} for field, text in told or [("", refusal.message)]]
