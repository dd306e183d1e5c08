"""Defines what a run may use and where it comes from, which is all that differs between the entry points.

A policy decides whose variables and secrets count, which workspace describes targets and models, who judges, what may be reached and what
may be started. `Policy` is that of the command line, Python, pytest and local MCP runs; the service has its own
(`service/runs/building.py`). `run_builder.py` builds a run with either of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proctor.actions.judging.judge_settings import NO_OPTIONS, JudgeOptions
from proctor.actions.judging.judges import OpenedJudge, has_judged_assertions, make_judge, open_suite_judge
from proctor.actions.judging.trust import (
    Named,
    Trust,
    name_agents,
    name_direct_calls,
    name_judge,
    name_target,
    name_users,
    refuse_untrusted,
)
from proctor.actions.mcplab.plan import Plan, ServerOverrides, configs_of, plan_all
from proctor.actions.workspace.combined_suites import TARGET_KEYS, split_suite
from proctor.actions.workspace.settings import COMMAND_LINE, workspace_for
from proctor.formats.text.references import References, ReplayedReferences
from proctor.formats.workspace_file import Section, Workspace
from proctor.llm.settings import ModelSettings
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.runner.ports import Judge, Target

if TYPE_CHECKING:
    from proctor.targets.mcp.settings import ServerSettings

TargetLike = Target | Callable[..., object | Awaitable[object]] | Mapping[str, Json] | str | None


class McplabOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which agents and servers of an MCPLab suite are used, and where its own files go."""

    agents: tuple[str, ...] | None = None
    agents_all: bool = False
    overrides: ServerOverrides | None = None
    oauth_tokens: Mapping[str, str] = {}
    root: Path | None = None
    """The folder of the workspace, if it is not that of the suite."""
    reached_by: Mapping[str, ServerSettings] = {}
    """How servers are reached, by id, instead of by the address in the file: MCPLab only knows HTTP."""
    artifacts: bool | Path = False
    """Where MCPLab's own files are written: `True` is the folder `mcplab` of the run, a path is a folder of runs."""


class JudgeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The judge of a run, or None."""

    judge: Judge | None = None
    opened: OpenedJudge | None = None
    """The same judge if the policy built it from the configuration: the caller announces and closes it."""


class Policy:
    """The rules of one's own machine: everything may be reached, and what a suite names if the suite is trusted.

    An entry point with its own rules overrides every method.
    """

    surroundings = COMMAND_LINE

    def __init__(
        self,
        home: Path,
        trust: Trust,
        variables: Mapping[str, str],
        *,
        offline: bool = False,
        judge: object | None = None,
        judge_options: JudgeOptions = NO_OPTIONS,
        allow_missing_judge: bool = False,
    ) -> None:
        """With `offline`, everything comes from a recording and no key is needed; `judge` replaces the configured one."""
        self.variables = variables
        """The variables with the keys and addresses that providers' own tools read."""
        self.references = ReplayedReferences(variables) if offline else References(variables)
        self.offline = offline
        self.allow_missing_judge = allow_missing_judge
        self._home = home
        self._trust = trust
        self._judge = judge
        self._judge_options = judge_options

    def find_workspace(self, suite: Suite) -> Workspace:
        """Return the targets, models and judge of a suite: its own override those of the workspace file."""
        return workspace_for(suite, self._home)

    def find_folder(self, suite: Suite) -> Path:
        """Return the folder for files that a suite names: its own, else the current one."""
        return Path(suite.path).resolve().parent if suite.path else Path.cwd()

    def find_judge(self, suite: Suite) -> JudgeChoice:
        """Return the given judge, else that of the suite, the workspace file or the environment."""
        if suite.dialect == "mcplab":
            from proctor.actions.mcplab.access import judge_agent  # only MCPLab's own suites need it

            # An unknown name is an error of the workspace even if nothing is judged.
            judge_agent(suite)
        if not has_judged_assertions(suite):
            return JudgeChoice()
        if self._judge is not None:
            return JudgeChoice(judge=make_judge(self._judge, self.variables, home=self._home))
        opened = open_suite_judge(
            suite, self._home, self.variables, self._judge_options, self._trust, references=self.references, offline=self.offline
        )
        return JudgeChoice(judge=opened.judge, opened=opened) if opened is not None else JudgeChoice()

    def admit_suite(self, suite: Suite, target: TargetLike, *, own_agents: bool) -> None:
        """Reject an untrusted suite that names something itself, before any of that is used."""
        refuse_untrusted(self.list_named(suite, target, own_agents=own_agents), self._trust)

    def admit_systems(self) -> None:
        """Allow simulated systems: they are served on this machine, to an agent that can reach it."""

    def list_named(self, suite: Suite, target: TargetLike, *, own_agents: bool) -> list[tuple[Suite, list[Named]]]:
        """Return what each untrusted suite names itself. In a replay no model is called; functions are imported all the same."""
        effects = [] if self.offline else name_direct_calls(suite, self._trust)
        if own_agents:
            configs = [] if self.offline else [config.suite for config in configs_of(suite) if not self._trust.takes(config.suite)]
            return effects + [(config, name_agents(config, judged=self._uses_configured_judge(config))) for config in configs]
        if not self.offline:
            untrusted = [part for part in split_suite(suite, TARGET_KEYS) if not self._trust.takes(part)]
            effects += [(part, name_users(part, self.find_workspace(part))) for part in untrusted]
        # A target from Python code is trusted; a judge that the suite describes is rejected when it is opened.
        if target is not None and not isinstance(target, str):
            return effects
        for part in split_suite(suite, TARGET_KEYS):
            if not self._trust.takes(part):
                workspace = self.find_workspace(part)
                effects.append((part, name_target(target, workspace)))
                if self._uses_configured_judge(part):
                    effects.append((part, name_judge(part, workspace, self._judge_options.model, self._trust)))
        return effects

    def _uses_configured_judge(self, suite: Suite) -> bool:
        return self._judge is None and not self.offline and has_judged_assertions(suite)

    def may_read(self, file: Path) -> bool:
        """Whether a `.env` file of an MCPLab workspace may be read."""
        return self._trust.may_read(file)

    def admit_target(self, name: str, settings: Section | Mapping[str, Json]) -> Section:
        """Return the settings from which a target may be built; those from Python code are trusted."""
        return settings if isinstance(settings, Section) else Section.of(settings, path=f"$.targets.{name}")

    def admit_model(self, name: str | None, workspace: Workspace, settings: ModelSettings) -> None:
        """Reject a model that may not be reached; here, all may be."""

    def plan_agents(self, suite: Suite, options: McplabOptions) -> list[tuple[Plan, Mapping[str, ServerSettings]]]:
        """Return which scenarios run with which agents, one plan for each config of an MCPLab suite.

        Each comes with the servers that are not reached by their address.
        """
        plans = plan_all(suite, agents=options.agents, agents_all=options.agents_all, overrides=options.overrides)
        return [(plan, options.reached_by) for plan in plans]

    def blame(self, field: str) -> AbstractContextManager[None]:
        """Return a context that reports an `InputError` as an error in `field` of the request; here there is no request."""
        return nullcontext()
