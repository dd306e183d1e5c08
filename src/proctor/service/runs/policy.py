"""The policy for sent suites: the resources their runs may use (`actions/running/run_policy.py` is the policy of a local run).

Targets, models and the judge come from the suite, or from the settings of its project (`targets`, `default_target`, `models`, `judge`, as
in `proctor.yaml`); the judge also from the workspace of the service. Keys and `${NAME}` are secrets of the project, never variables of the
service. `outbound.py` checks what a suite or project names; the judge of the workspace is unrestricted.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from proctor.actions.checking.check_stream import prepare_once
from proctor.actions.judging.judges import open_home_judge
from proctor.actions.mcplab.plan import Plan
from proctor.actions.running.run_policy import JudgeChoice, McplabOptions, Policy, TargetLike
from proctor.actions.workspace.settings import Surroundings
from proctor.errors import InputError
from proctor.formats.workspace_file import Section, Workspace, build_workspace
from proctor.llm.settings import ModelSettings
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.service.settings import ServiceSettings
from proctor.service.suites.documents import refusal_of
from proctor.service.suites.mcplab import admit_sent_plan, plan_sent_suite
from proctor.service.suites.outbound import Outbound, ProjectSecrets, check_wait
from proctor.service.traces.trace_judges import open_project_judge
from proctor.store.sql.pages import Row
from proctor.targets.mcp.settings import ServerSettings


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
