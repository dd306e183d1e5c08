"""Runs as they were sent and are kept: how they are to be driven, their suite, and what is built of both.

A run is built twice: when it is sent, so that the sender hears at once what cannot work, and when a worker takes it up. Nothing is
connected by building (`policy.py` says what the runs of a service may use).
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
from proctor.formats.workspace_file.workspace import Section, read_prices
from proctor.model.case import Suite
from proctor.model.cost import PriceList
from proctor.model.evidence import Json
from proctor.model.result import Ending
from proctor.model.run import RunHeader
from proctor.model.typed import convert_to
from proctor.runner.settings import RunSettings
from proctor.service.access.secrets import read_secrets
from proctor.service.decisions.messages import SuiteSource
from proctor.service.hub import Hub
from proctor.service.runs.backtest import Backtest
from proctor.service.runs.names import read_tags
from proctor.service.runs.policy import ProjectPolicy
from proctor.service.suites.documents import refusal_of
from proctor.service.suites.mcplab_library import LIBRARY_KEY, library_of
from proctor.service.suites.mcplab_rules import plan_sent_suite
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import Row

# --- prices on the service: `prices` in the settings of a project, written as in `proctor.yaml`; a suite that was sent cannot bring any

PRICES_KEY = "prices"


def read_project_prices(project: Row) -> PriceList | None:
    """Return the prices that the settings of a project tell, if any; refused where they cannot be read."""
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


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is to be driven, as it was sent and is kept."""

    target: str | None = None
    """A target by its name."""
    inline_target: dict[str, Json] | None = None
    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    selection: str | None = None
    attempts: int = 0
    """How many attempts there will be."""
    own_agents: bool = False
    """Whether the agents of the suite itself are driven, each scenario with each of them."""
    library: Json = None
    """What the references of an MCPLab suite refer to, as the settings of the project said when it was sent."""
    prices: PriceList | None = None
    """What models cost, as the settings of the project said when it was sent."""
    from_cases: dict[str, dict[str, str]] | None = None
    """The cases of the project that are driven, by id, each with the ids inside its document that were changed. None: a suite was sent."""
    backtest: Backtest | None = None
    """Which kept traces are decided instead of driving anybody, and how far that came."""


def read_kept_suite(row: Row) -> Suite:
    """Return the suite of a run as it is driven: only the chosen cases, each with each of the suite's own agents. Raises `InputError`."""
    suite = read_chosen_suite(row)
    return plan_sent_suite(suite).suite if asked_of(row).own_agents else suite


def read_chosen_suite(row: Row) -> Suite:
    """Return the suite of a run as it was sent, with only the chosen cases. Raises `InputError`."""
    asked = asked_of(row)
    suite = read_suite(row["document"], dialect=row["dialect"], name=row["suite_name"], library=lambda: library_of(asked.library))
    return select(suite, asked.selection)


def source_of(row: Row) -> SuiteSource:
    """Return how to get the suite of a run as it is driven."""
    asked = asked_of(row)
    return SuiteSource(
        text=row["document"],
        dialect=row["dialect"],
        name=row["suite_name"],
        library=None if asked.library is None else to_json(asked.library),
        in_project=True,
        selection=asked.selection,
        own_agents=asked.own_agents,
        prices=None if asked.prices is None else msgspec.json.encode(asked.prices),
    )


def library_for(project: Row) -> Callable[[], Library]:
    """Return what the references of an MCPLab suite refer to, once one is read. Raises `InputError` then."""
    return lambda: library_of((project["settings"] or {}).get(LIBRARY_KEY))


def fill_what_is_unsaid(asked: Asked, suite: Suite, project: Row) -> Asked:
    """Return what was asked for, completed: what models cost, whether the suite's own agents are driven, what its references mean."""
    asked = msgspec.structs.replace(asked, prices=read_project_prices(project))
    if suite.dialect != "mcplab":
        return asked
    named = asked.target is not None or asked.inline_target is not None
    library: Json = (project["settings"] or {}).get(LIBRARY_KEY)
    return msgspec.structs.replace(asked, own_agents=not named and names_agents(suite), library=library)


def asked_of(row: Row) -> Asked:
    """Return how a run is to be driven."""
    return convert_to(row["settings"] or {}, Asked)


def header_of(row: Row) -> RunHeader:
    """Return what a run was started with."""
    asked = asked_of(row)
    return RunHeader(
        run_id=row["id"],
        started_at=row["started_at"] or row["created_at"],
        suite_name=row["suite_name"],
        dialect=row["dialect"],
        target=row["target"] or "",
        repeat=count_repeats(asked),
        planned=asked.attempts or None,
        note=row["note"],
        name=row["name"] or "",
        tags=tuple(read_tags(row["tags"])),
    )


def count_repeats(asked: Asked) -> int:
    """Return how often every case is to be decided: in a backtest that is not done yet, as often as there are traces."""
    backtest = asked.backtest
    return asked.repeat if backtest is None or backtest.is_done else max(1, backtest.traces)


def ending_of(row: Row) -> Ending:
    """Return how a run ended, as its row says: one that waits for its turn is going on too."""
    status = row["status"]
    return status if status in ("completed", "cancelled", "failed") else "running"


async def build_project_run(hub: Hub, organization_id: str, project: Row, suite: Suite, asked: Asked) -> BuiltRun:
    """Build the run that was asked for. Raises `Refusal`, with every problem in what was sent."""
    policy = ProjectPolicy(hub.settings, project, await read_secrets(hub, organization_id, project["id"]))
    target = asked.target if asked.inline_target is None else asked.inline_target
    # Building reads and prepares what the sender wrote, as much as that may be.
    return await asyncio.to_thread(build_run, suite, target, policy, own_agents=asked.own_agents)


def settings_of(asked: Asked) -> RunSettings:
    """Return how the runner drives what was asked for."""
    return RunSettings(repeat=asked.repeat, concurrency=asked.concurrency, timeout_s=asked.timeout_s)
