"""Starts backtests: a case of the project is put in the queue with the traces that are kept, before it is activated or after a change.

Everything is looked at while the sender listens: the document, the traces, the judge. A case that asks a judge needs a `limit`, since
every trace is then a question that somebody pays for.
"""

from __future__ import annotations

import asyncio

import msgspec

from proctor.actions.checking.check_stream import prepare_once
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import check_place, require_writer
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.rows import require_row
from proctor.service.run_signals import QUEUED
from proctor.service.runs.backtest import STORED_TRACES, Backtest, count_traces
from proctor.service.runs.backtest_runner import build_backtest
from proctor.service.runs.building import Asked, fill_what_is_unsaid, library_for
from proctor.service.runs.requests import MOST_ATTEMPTS, PreparedRun, RunSpec, check_spec, find_startable_project, queue_run, show_run
from proctor.service.suites.documents import read_sent_suite
from proctor.service.traces.search import read_moment
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import cases

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
