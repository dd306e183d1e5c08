"""Run requests as stored, their suites, and building runs.

A run is built twice: when it is requested, to report problems at once, and when a worker takes it. Building connects to nothing
(`policy.py` has the rules for runs of a service).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from proctor.actions.running.run_builder import BuiltRun, build_run, names_agents
from proctor.decide.selection import select
from proctor.errors import InputError
from proctor.formats.mcplab.library import Library
from proctor.formats.suites import read_suite
from proctor.formats.text.located import Reading
from proctor.formats.workspace_file import Section, read_prices
from proctor.model.case import Suite
from proctor.model.cost import PriceList
from proctor.model.evidence import Json
from proctor.model.result import Ending
from proctor.model.run import RunHeader
from proctor.model.typed import convert_to
from proctor.runner.limits import RunSettings
from proctor.service.access.secrets import read_secrets
from proctor.service.decisions.messages import SuiteSource
from proctor.service.hub import Hub
from proctor.service.runs.backtest import Backtest
from proctor.service.runs.names import read_tags
from proctor.service.runs.policy import ProjectPolicy
from proctor.service.suites.documents import refusal_of
from proctor.service.suites.mcplab import LIBRARY_KEY, library_of, plan_sent_suite
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import Row

# --- prices: `prices` in the settings of a project, as in `proctor.yaml`; a sent suite cannot set them

PRICES_KEY = "prices"


def read_project_prices(project: Row) -> PriceList | None:
    """Return the prices in the settings of a project, if any. Raises `Refusal`."""
    settings = project["settings"] or {}
    if PRICES_KEY not in settings:
        return None
    reading = Reading(file=None, text="")
    try:
        found = read_prices(Section.of({PRICES_KEY: settings[PRICES_KEY]}).node.get(PRICES_KEY), reading)
        reading.finish()
    except InputError as error:
        raise refusal_of(error, "project", what="the prices of the project") from None
    return found


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run, as sent and stored."""

    target: str | None = None
    """The name of a target."""
    inline_target: dict[str, Json] | None = None
    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    selection: str | None = None
    attempts: int = 0
    """The total number of attempts."""
    own_agents: bool = False
    """Whether the suite's own agents are run, each scenario with each of them."""
    library: Json = None
    """The library for references of an MCPLab suite, from the settings of the project at the time of the request."""
    prices: PriceList | None = None
    """Model prices, from the settings of the project at the time of the request."""
    from_cases: dict[str, dict[str, str]] | None = None
    """The cases of the project by id, each with its renamed ids. None: a suite was sent."""
    backtest: Backtest | None = None
    """The stored traces of a backtest, and its progress."""


def read_stored_suite(row: Row) -> Suite:
    """Return the suite of a run as it is run: the selected cases, each with each of the suite's own agents. Raises `InputError`."""
    suite = read_chosen_suite(row)
    return plan_sent_suite(suite).suite if read_run_request(row).own_agents else suite


def read_chosen_suite(row: Row) -> Suite:
    """Return the suite of a run as sent, with the selected cases. Raises `InputError`."""
    request = read_run_request(row)
    suite = read_suite(row["document"], dialect=row["dialect"], name=row["suite_name"], library=lambda: library_of(request.library))
    return select(suite, request.selection)


def source_of(row: Row) -> SuiteSource:
    """Return the source of the suite of a run."""
    request = read_run_request(row)
    return SuiteSource(
        text=row["document"],
        dialect=row["dialect"],
        name=row["suite_name"],
        library=None if request.library is None else to_json(request.library),
        in_project=True,
        selection=request.selection,
        own_agents=request.own_agents,
        prices=None if request.prices is None else msgspec.json.encode(request.prices),
    )


def library_for(project: Row) -> Callable[[], Library]:
    """Return a function that reads the library of a project for an MCPLab suite. It raises `InputError`."""
    return lambda: library_of((project["settings"] or {}).get(LIBRARY_KEY))


def complete_request(request: RunRequest, suite: Suite, project: Row) -> RunRequest:
    """Return the request with prices, own agents and library filled in."""
    request = msgspec.structs.replace(request, prices=read_project_prices(project))
    if suite.dialect != "mcplab":
        return request
    named = request.target is not None or request.inline_target is not None
    library: Json = (project["settings"] or {}).get(LIBRARY_KEY)
    return msgspec.structs.replace(request, own_agents=not named and names_agents(suite), library=library)


def read_run_request(row: Row) -> RunRequest:
    """Return the options of a run."""
    return convert_to(row["settings"] or {}, RunRequest)


def header_of(row: Row) -> RunHeader:
    """Return the header of a run."""
    request = read_run_request(row)
    return RunHeader(
        run_id=row["id"],
        started_at=row["started_at"] or row["created_at"],
        suite_name=row["suite_name"],
        dialect=row["dialect"],
        target=row["target"] or "",
        repeat=count_repeats(request),
        planned=request.attempts or None,
        note=row["note"],
        name=row["name"] or "",
        tags=tuple(read_tags(row["tags"])),
    )


def count_repeats(request: RunRequest) -> int:
    """Return the planned results per case: in an unfinished backtest, the number of traces."""
    backtest = request.backtest
    return request.repeat if backtest is None or backtest.is_done else max(1, backtest.traces)


def ending_of(row: Row) -> Ending:
    """Return the ending of a run by its row; a queued run counts as running."""
    status = row["status"]
    return status if status in ("completed", "cancelled", "failed") else "running"


async def build_project_run(hub: Hub, organization_id: str, project: Row, suite: Suite, request: RunRequest) -> BuiltRun:
    """Build a requested run. Raises `Refusal` with all problems."""
    policy = ProjectPolicy(hub.settings, project, await read_secrets(hub, organization_id, project["id"]))
    target = request.target if request.inline_target is None else request.inline_target
    # In a thread, since building parses what the sender wrote.
    return await asyncio.to_thread(build_run, suite, target, policy, own_agents=request.own_agents)


def settings_of(request: RunRequest) -> RunSettings:
    """Return the runner settings of a request."""
    return RunSettings(repeat=request.repeat, concurrency=request.concurrency, timeout_s=request.timeout_s)
