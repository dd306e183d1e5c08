"""From what was sent to what can be driven: the suite, its target, its judge.

Done twice for every run: when it is sent, so that the sender hears at once what cannot work, and when it is taken up. Nothing is
connected by building. Targets, models and the judge come from the suite, else from the settings of its project (`targets`,
`default_target`, `models`, `judge`, as in `proctor.yaml`); where neither names a judge, from the workspace of the service. What the suite
and its project name goes by the rules of `outbound.py`; the judge of the workspace is the administrator's own.

An MCPLab suite for which no target is named is driven by its own agents (`mcplab_building.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from proctor.actions.check_stream import prepared
from proctor.actions.judges import JudgeSection, OpenedJudge, open_judge, require_judge
from proctor.actions.models import model_settings
from proctor.actions.settings import workspace_file
from proctor.cassettes.ports import Tape
from proctor.decide.prepare import PreparedCase
from proctor.decide.selection import select
from proctor.errors import InputError, SpecError
from proctor.formats.mcplab_library import Library
from proctor.formats.references import References
from proctor.formats.suites import read_suite
from proctor.formats.workspace import Section, Workspace, build_workspace
from proctor.llm.build import build_model
from proctor.llm.ports import ChatModel
from proctor.llm.taped import TapedModel
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.result import Ending
from proctor.model.run import RunHeader
from proctor.runner.ports import Target
from proctor.runner.run import RunSettings
from proctor.service.access.secrets import read_secrets
from proctor.service.decisions.messages import SuiteSource
from proctor.service.hub import Hub
from proctor.service.judge_memory import get_folder
from proctor.service.suites.documents import refusal_of
from proctor.service.suites.mcplab_building import has_own_agents, own_agents, plan_of
from proctor.service.suites.mcplab_library import LIBRARY_KEY, library_of
from proctor.service.suites.outbound import Outbound, ProjectSecrets, check_wait
from proctor.store.bodies import to_json
from proctor.store.pages import Row
from proctor.targets.build import build_target, check_cases

MOST_OF_A_JUDGE = {"samples": 25, "model": 10, "concurrency": 64, "retries": 10}
"""What a judge that a suite or a project names may ask for; `model` is how many of them. The judge of the workspace may ask for more."""


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


class _Closes(Protocol):
    async def close(self) -> None: ...


class ReadyRun:
    """What can be driven. `close` gives back the connections of models and judge; the target is opened and closed by the runner."""

    def __init__(self, suite: Suite, target: Target, asked: Asked) -> None:
        self.suite = suite
        self.target = target
        self.cases: tuple[PreparedCase, ...] = ()
        self.judge: OpenedJudge | None = None
        self.owned: list[_Closes] = []
        self.secrets: set[str] = set()
        self.settings = RunSettings(repeat=asked.repeat, concurrency=asked.concurrency, timeout_s=asked.timeout_s)

    @property
    def attempts(self) -> int:
        """How many attempts there will be."""
        return sum(max(self.settings.repeat, case.case.repetitions or 1) for case in self.cases)

    async def close(self) -> None:
        """Give back connections."""
        for each in self.owned:
            await each.close()
        if self.judge is not None:
            await self.judge.judge.close()


def read_kept_suite(row: Row) -> Suite:
    """The suite of a run as it is driven: only the chosen cases, each with each of the suite's own agents. Raises `InputError`."""
    suite = read_chosen_suite(row)
    return plan_of(suite).suite if asked_of(row).own_agents else suite


def read_chosen_suite(row: Row) -> Suite:
    """The suite of a run as it was sent, with only the chosen cases. Raises `InputError`."""
    asked = asked_of(row)
    suite = read_suite(row["document"], dialect=row["dialect"], name=row["suite_name"], library=lambda: library_of(asked.library))
    return select(suite, asked.selection)


def source_of(row: Row) -> SuiteSource:
    """How to get the suite of a run as it is driven."""
    asked = asked_of(row)
    return SuiteSource(
        text=row["document"],
        dialect=row["dialect"],
        name=row["suite_name"],
        library=None if asked.library is None else to_json(asked.library),
        in_project=True,
        selection=asked.selection,
        own_agents=asked.own_agents,
    )


def library_for(project: Row) -> Callable[[], Library]:
    """What the references of an MCPLab suite refer to, once one is read. Raises `InputError` then."""
    return lambda: library_of((project["settings"] or {}).get(LIBRARY_KEY))


def decided(asked: Asked, suite: Suite, project: Row) -> Asked:
    """What was asked for, with what is not said in it: whether the suite's own agents are driven, and what its references refer to."""
    if suite.dialect != "mcplab":
        return asked
    named = asked.target is not None or asked.inline_target is not None
    library: Json = (project["settings"] or {}).get(LIBRARY_KEY)
    return msgspec.structs.replace(asked, own_agents=not named and has_own_agents(suite), library=library)


def asked_of(row: Row) -> Asked:
    """How a run is to be driven."""
    return msgspec.convert(row["settings"] or {}, Asked)


def header_of(row: Row) -> RunHeader:
    """What a run was started with."""
    return RunHeader(
        run_id=row["id"],
        started_at=row["started_at"] or row["created_at"],
        suite_name=row["suite_name"],
        dialect=row["dialect"],
        target=row["target"] or "",
        repeat=asked_of(row).repeat,
        note=row["note"],
    )


def ending_of(row: Row) -> Ending:
    """How a run ended, as its row says: one that waits for its turn is going on too."""
    status = row["status"]
    return status if status in ("completed", "cancelled", "failed") else "running"


async def ready_run(hub: Hub, organization_id: str, project: Row, suite: Suite, asked: Asked) -> ReadyRun:
    """Make ready what was asked for. Raises `Refusal`, with every problem in what was sent."""
    values = await read_secrets(hub, organization_id, project["id"])
    # Building reads and prepares what the sender wrote, as much as that may be.
    return await asyncio.to_thread(_Builder(hub, project, values).build, suite, asked)


class _Builder:
    def __init__(self, hub: Hub, project: Row, values: Mapping[str, str]) -> None:
        self._settings = hub.settings
        self._project = project
        self._values = values
        self._references = ProjectSecrets(values)
        self._outbound = Outbound(hub.settings)
        self._models: list[ChatModel] = []
        self._secrets: set[str] = set()

    def build(self, suite: Suite, asked: Asked) -> ReadyRun:
        workspace = self._workspace(suite)
        ready = self._with_own_agents(suite, asked) if asked.own_agents else self._with_target(suite, workspace, asked)
        driven = ready.suite
        ready.cases = _told("suite", lambda: tuple(prepared(driven).cases))
        ready.judge = _told("judge", lambda: self._judge(ready, workspace))
        _told("suite", lambda: require_judge(driven, ready.judge))
        ready.secrets = {*self._references.secrets, *self._secrets, *(ready.judge.secrets if ready.judge is not None else ())}
        return ready

    def _with_target(self, suite: Suite, workspace: Workspace, asked: Asked) -> ReadyRun:
        target = _told("target", lambda: self._target(workspace, asked))
        _told("suite", lambda: check_cases(target, suite))
        ready = ReadyRun(suite, target, asked)
        ready.owned += self._models
        return ready

    def _with_own_agents(self, suite: Suite, asked: Asked) -> ReadyRun:
        together = _told("suite", lambda: own_agents(suite, self._values, self._references, self._outbound))
        self._secrets |= together.secrets
        ready = ReadyRun(together.suite, together.target, asked)
        # Its models are there before it is opened.
        ready.owned.append(together.target)
        return ready

    def _workspace(self, suite: Suite) -> Workspace:
        own = _told("suite", lambda: build_workspace(suite.settings))
        settings: dict[str, Json] = self._project["settings"] or {}
        return own.lay_over(_told("project", lambda: build_workspace(settings)))

    def _target(self, workspace: Workspace, asked: Asked) -> Target:
        if asked.inline_target is not None:
            name, section = "target", Section.of(asked.inline_target, path="$.target", trusted=False)
        elif not workspace.targets:
            raise InputError("no target is described: send one, or describe `targets` in the suite or in the settings of the project")
        else:
            name, section = workspace.find_target(asked.target)
        section = self._outbound.check_target(name, section)
        model_for = self._model_for(workspace, section) if section.find_text("type") == "mcp_agent" else None
        return build_target(
            name,
            section,
            self._references,
            base=self._settings.home.resolve(),
            model_for=model_for,
            transport=self._outbound.transport,
        )

    def _model_for(self, workspace: Workspace, section: Section) -> Callable[[Tape], ChatModel]:
        name = section.find_text("model")
        if name in workspace.models:
            self._outbound.check_model(name, workspace.find_model(name))
        # The variables that providers' own tools read are looked for among the project's secrets, never in the service's environment.
        settings = model_settings(name, workspace, self._references, self._values)
        check_wait(settings.timeout_s, f"model {settings.model!r}")
        self._secrets |= set(settings.list_secrets())
        model = build_model(settings, transport=self._outbound.model_transport)
        self._models.append(model)
        return lambda tape: TapedModel(model, tape)

    def _judge(self, ready: ReadyRun, workspace: Workspace) -> OpenedJudge | None:
        if not any(case.judged for case in ready.cases):
            return None
        home = self._settings.home
        plain = ready.suite.dialect != "mcplab"
        if workspace.judge is None:
            return open_judge(None, workspace_file(home), References(dict(os.environ)), os.environ, home=home, plain=plain)
        if workspace.judge.node.get("prompt") is not None:
            raise InputError("judge: `prompt` names a file, and a suite that was sent has none")
        _check_judge(workspace, workspace.judge, self._references)
        # A memory of its own: nobody else's replies serve it, and it spoils nobody else's.
        folder = get_folder(home, self._project["id"])
        transport = self._outbound.model_transport
        return open_judge(None, workspace, self._references, self._values, home=folder, transport=transport, plain=plain)


def _check_judge(workspace: Workspace, section: Section, references: References) -> None:
    """Refuse a judge that asks for more than a service gives to one run."""
    try:
        asked = section.build(JudgeSection, references, "judge")
    except SpecError as error:
        raise section.refusal_error(error) from None
    for field, most in MOST_OF_A_JUDGE.items():
        value = len(asked.model) if field == "model" else getattr(asked, field)
        if value > most:
            raise InputError(f"judge: {field}: expected at most {most}, found {value}: a service gives no more to one run")
    check_wait(asked.timeout_s, "judge", field="judge")
    for name in asked.model:
        waited = workspace.models[name].node.get("timeout_s") if name in workspace.models else None
        check_wait(waited.value if waited is not None else None, f"model {name!r}", field="judge")


def _told(field: str, work: Callable[[], Any]) -> Any:
    """What `work` gives; what is wrong in what was sent is refused with every problem, and `field` says where it stood."""
    try:
        return work()
    except InputError as error:
        raise refusal_of(error, field, what=f"the {field}") from None
