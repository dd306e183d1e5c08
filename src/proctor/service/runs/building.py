"""Run requests as stored, their suites, and building runs.

A run is built twice: when it is requested, to report problems at once, and when a worker takes it. Building connects to nothing.
`ProjectPolicy` has the rules for runs of a service.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from proctor.actions.checking.check_stream import prepare_once
from proctor.actions.judging.judges import open_home_judge
from proctor.actions.mcplab.plan import Plan
from proctor.actions.running.run_builder import BuiltRun, build_run, names_agents
from proctor.actions.running.run_policy import JudgeChoice, McplabOptions, Policy, TargetLike
from proctor.actions.workspace.settings import Surroundings
from proctor.decide.selection import select
from proctor.errors import InputError
from proctor.formats.mcplab.library import Library
from proctor.formats.suites import read_suite
from proctor.formats.text.located import Reading
from proctor.formats.workspace_file import Section, Workspace, build_workspace, read_prices
from proctor.llm.settings import ModelSettings
from proctor.model.case import Suite
from proctor.model.cost import PriceList
from proctor.model.evidence import Evidence, Json
from proctor.model.result import Ending
from proctor.model.run import RunEntry, RunHeader
from proctor.model.typed import convert_to
from proctor.runner.limits import RunSettings
from proctor.service.access.secrets import read_secrets
from proctor.service.decisions.messages import SuiteSource
from proctor.service.hub import Hub
from proctor.service.runs.backtest import Backtest
from proctor.service.runs.names import read_tags
from proctor.service.settings import ServiceSettings
from proctor.service.suites.documents import refusal_of
from proctor.service.suites.mcplab import LIBRARY_KEY, admit_sent_plan, library_of, plan_sent_suite
from proctor.service.suites.outbound import Outbound, ProjectSecrets, check_wait
from proctor.service.traces.trace_judges import open_project_judge
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import Row
from proctor.targets.mcp.settings import ServerSettings

# --- prices: `prices` in the settings of a project, as in `proctor.yaml`; a sent suite cannot set them

PRICES_KEY = "prices"


def read_project_prices(project: Row) -> PriceList | None:
    """Return the prices in the settings of a project, if any. Raises `Refusal`."""
    settings = project["settings"] or {}
    if PRICES_KEY not in settings:
        return None
    reading = Reading(file=None, text="")
    try:
        prices = read_prices(Section.of({PRICES_KEY: settings[PRICES_KEY]}).node.get(PRICES_KEY), reading)
        reading.finish()
    except InputError as error:
        raise refusal_of(error, "project", what="the prices of the project") from None
    return prices


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run, as sent and stored."""

    target: str | None = None
    inline_target: dict[str, Json] | None = None
    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    selection: str | None = None
    attempts: int = 0
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
    has_target = request.target is not None or request.inline_target is not None
    library: Json = (project["settings"] or {}).get(LIBRARY_KEY)
    return msgspec.structs.replace(request, own_agents=not has_target and names_agents(suite), library=library)


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


def keep_metadata(entry: RunEntry) -> RunEntry:
    """Return an attempt without evidence except its metadata."""
    return entry if entry.evidence is None else msgspec.structs.replace(entry, evidence=Evidence(metadata=entry.evidence.metadata))


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


class ProjectPolicy(Policy):
    """The rules for suites sent to one project, without access to the local machine."""

    def __init__(self, settings: ServiceSettings, project: Row, secrets: Mapping[str, str]) -> None:
        self.variables, self.offline, self.allow_missing_judge = secrets, False, False
        self.references = ProjectSecrets(secrets)
        self._settings = settings
        self._service_home = settings.home
        self._project = project
        self._outbound = Outbound(settings)
        self.surroundings = Surroundings(
            variable="the secret {name} of the project",
            remedy="add {name} as a secret of the project",
            login="get a token elsewhere, add it as a secret of the project, and write auth: {{type: bearer, token: '${{NAME}}'}}",
            model_transport=self._outbound.model_transport,
            server_transport=self._outbound.transport,
        )

    def find_workspace(self, suite: Suite) -> Workspace:
        """Return the settings of the suite over those of the project."""
        settings: dict[str, Json] = self._project["settings"] or {}
        with self.blame("suite"):
            suite_workspace = build_workspace(suite.settings)
        with self.blame("project"):
            return suite_workspace.lay_over(build_workspace(settings))

    def find_folder(self, suite: Suite) -> Path:
        """Return the workspace of the service, since a sent suite has no folder."""
        return self._service_home.resolve()

    def find_judge(self, suite: Suite) -> JudgeChoice:
        """Return the judge of the suite or project, within limits, or that of the service."""
        if not any(case.judged for case in prepare_once(suite).cases):
            return JudgeChoice()
        workspace, plain = self.find_workspace(suite), suite.dialect != "mcplab"
        if workspace.judge is None:
            opened = open_home_judge(self._service_home, os.environ, plain=plain)
        else:
            opened = open_project_judge(self._settings, self._project["id"], workspace, self.variables, plain=plain)
        return JudgeChoice(judge=opened.judge, opened=opened) if opened is not None else JudgeChoice()

    def admit_suite(self, suite: Suite, target: TargetLike, *, own_agents: bool) -> None:
        """Reject a suite without a target."""
        with self.blame("target"):
            if not own_agents and not isinstance(target, Mapping) and not self.find_workspace(suite).targets:
                raise InputError("no target: send one, or add `targets` to the suite or to the settings of the project")

    def admit_systems(self) -> None:
        """Reject cases with simulated systems, which are served on loopback out of the agent's reach."""
        raise InputError("cases with simulated systems need `proctor run` on the agent's machine; the service cannot run them")

    def may_read(self, file: Path) -> bool:
        """Return False: a sent suite has only the secrets of its project."""
        return False

    def admit_target(self, name: str, settings: Section | Mapping[str, Json]) -> Section:
        """Return the settings of a permitted target. Raises for others."""
        section = settings if isinstance(settings, Section) else Section.of(settings, path="$.target", trusted=False)
        return self._outbound.check_target(name, section)

    def admit_model(self, name: str | None, workspace: Workspace, settings: ModelSettings) -> None:
        """Reject a model at a forbidden address, or with a too long timeout."""
        if name in workspace.models:
            self._outbound.check_model(name, workspace.find_model(name))
        check_wait(settings.timeout_s, f"model {settings.model!r}")

    def plan_agents(self, suite: Suite, options: McplabOptions) -> list[tuple[Plan, Mapping[str, ServerSettings]]]:
        """Return the plan of the suite and the servers that are started; a sent suite is one config."""
        plan = plan_sent_suite(suite)
        return [(plan, admit_sent_plan(plan, self.variables, self.references, self._outbound))]

    @contextmanager
    def blame(self, field: str) -> Generator[None]:
        """Turn an `InputError` into a `Refusal` of `field` with all problems."""
        try:
            yield
        except InputError as error:
            raise refusal_of(error, field, what=f"the {field}") from None
