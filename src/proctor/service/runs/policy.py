"""The policy for suites that a client sent: what their runs may use (`actions/running/run_policy.py` is the policy of a local run).

Targets, models and the judge come from the suite, else from the settings of its project (`targets`, `default_target`, `models`, `judge`, as
in `proctor.yaml`); where neither names a judge, from the workspace of the service. Keys and `${NAME}` are the secrets of the project
(`OPENAI_API_KEY`, `OPENAI_BASE_URL` and so on), never variables of the service. What the suite and its project name goes by the rules of
`outbound.py`; the judge of the workspace is the administrator's own.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from proctor.actions.checking.check_stream import prepare_once
from proctor.actions.judging.judge_settings import JudgeSection
from proctor.actions.judging.judges import JudgeSource, open_home_judge, open_judge
from proctor.actions.mcplab.plan import Plan
from proctor.actions.running.run_policy import JudgeChoice, McplabOptions, Policy, TargetLike
from proctor.actions.workspace.settings import Surroundings
from proctor.errors import InputError, SpecError
from proctor.formats.text.references import References
from proctor.formats.workspace_file.workspace import Section, Workspace, build_workspace
from proctor.llm.settings import ModelSettings
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.service.judge_memory import get_folder
from proctor.service.settings import ServiceSettings
from proctor.service.suites.documents import refusal_of
from proctor.service.suites.mcplab_rules import admit_sent_plan, plan_sent_suite
from proctor.service.suites.outbound import Outbound, ProjectSecrets, check_wait
from proctor.store.sql.pages import Row
from proctor.targets.mcp.settings import ServerSettings

MOST_OF_A_JUDGE = {"samples": 25, "model": 10, "concurrency": 64, "retries": 10}
"""What a judge that a suite or a project names may ask for; `model` is how many of them. The judge of the workspace may ask for more."""


class ProjectPolicy(Policy):
    """The rules for suites that were sent to one project; none of one's own machine is left."""

    def __init__(self, settings: ServiceSettings, project: Row, secrets: Mapping[str, str]) -> None:
        self.variables, self.offline, self.allow_missing_judge = secrets, False, False
        self.references = ProjectSecrets(secrets)
        self._service_home = settings.home
        self._project = project
        self._outbound = Outbound(settings)
        self.surroundings = Surroundings(
            variable="the secret {name} of the project",
            remedy="keep {name} as a secret of the project",
            login="get a token elsewhere, keep it as a secret of the project, and write auth: {{type: bearer, token: '${{NAME}}'}}",
            model_transport=self._outbound.model_transport,
            server_transport=self._outbound.transport,
        )

    def find_workspace(self, suite: Suite) -> Workspace:
        """Return what the suite says over the settings of the project."""
        settings: dict[str, Json] = self._project["settings"] or {}
        with self.blame("suite"):
            own = build_workspace(suite.settings)
        with self.blame("project"):
            return own.lay_over(build_workspace(settings))

    def find_folder(self, suite: Suite) -> Path:
        """Return the workspace of the service: a suite that was sent lies nowhere."""
        return self._service_home.resolve()

    def find_judge(self, suite: Suite) -> JudgeChoice:
        """Return the judge that the suite or the project names, within bounds; else that of the service."""
        if not any(case.judged for case in prepare_once(suite).cases):
            return JudgeChoice()
        workspace, plain = self.find_workspace(suite), suite.dialect != "mcplab"
        if workspace.judge is None:
            opened = open_home_judge(self._service_home, os.environ, plain=plain)
        else:
            for key in ("prompt", "examples"):
                if workspace.judge.node.get(key) is not None:
                    raise InputError(f"judge: `{key}` names a file, and a suite that was sent has none")
            _check_judge(workspace, workspace.judge, self.references)
            # A memory of its own: nobody else's replies serve it, and it spoils nobody else's.
            folder = get_folder(self._service_home, self._project["id"])
            source = JudgeSource(
                workspace=workspace,
                references=self.references,
                environment=self.variables,
                home=folder,
                transport=self._outbound.model_transport,
            )
            opened = open_judge(None, source, plain=plain)
        return JudgeChoice(judge=opened.judge, opened=opened) if opened is not None else JudgeChoice()

    def admit_suite(self, suite: Suite, target: TargetLike, *, own_agents: bool) -> None:
        """Refuse a suite for which no target is described; what it names is looked at piece by piece."""
        with self.blame("target"):
            if not own_agents and not isinstance(target, Mapping) and not self.find_workspace(suite).targets:
                raise InputError("no target is described: send one, or describe `targets` in the suite or in the settings of the project")

    def admit_systems(self) -> None:
        """Refuse cases with simulated systems: an agent elsewhere cannot reach what is served on the loopback of the service."""
        raise InputError("cases with simulated systems are driven by `proctor run` beside the agent, not by the service")

    def may_read(self, file: Path) -> bool:
        """Return that no file of variables counts: a suite that was sent has the secrets of its project."""
        return False

    def admit_target(self, name: str, settings: Section | Mapping[str, Json]) -> Section:
        """Return the settings as they may be built; refuse what the rules of the service forbid."""
        section = settings if isinstance(settings, Section) else Section.of(settings, path="$.target", trusted=False)
        return self._outbound.check_target(name, section)

    def admit_model(self, name: str | None, workspace: Workspace, settings: ModelSettings) -> None:
        """Refuse a model at an address that may not be reached, or that is waited for too long."""
        if name in workspace.models:
            self._outbound.check_model(name, workspace.find_model(name))
        check_wait(settings.timeout_s, f"model {settings.model!r}")

    def plan_agents(self, suite: Suite, options: McplabOptions) -> list[tuple[Plan, Mapping[str, ServerSettings]]]:
        """Return the plan of the suite, which is one config since a folder cannot be sent, with the servers that are started."""
        plan = plan_sent_suite(suite)
        return [(plan, admit_sent_plan(plan, self.variables, self.references, self._outbound))]

    @contextmanager
    def blame(self, field: str) -> Generator[None]:
        """Refuse what is wrong in what was sent with every problem; `field` says where it stood."""
        try:
            yield
        except InputError as error:
            raise refusal_of(error, field, what=f"the {field}") from None


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
