"""From a suite to a run that can be driven: who is driven, who judges, and what must stay secret. Nothing is connected yet.

Every door builds its runs here and hands in its policy (`run_policy.py`). An MCPLab suite for which no target is named is driven by its
own agents; every other suite by a target of its own, of its workspace, or one that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from proctor.actions.checking.check_stream import prepare_once
from proctor.actions.judging.judge_needs import require_judge
from proctor.actions.running.matrix_targets import TargetGroup, fill_section, require_axes_used, split_by_matrix
from proctor.actions.running.run_policy import McplabOptions, Policy, Seat, TargetLike
from proctor.actions.running.run_target import wrap_function
from proctor.actions.running.simulated_users import RunUsers, build_users
from proctor.actions.running.wrapped_target import DrivenTarget
from proctor.actions.workspace.close_all import Closes, close_all
from proctor.actions.workspace.combined_suites import TARGET_KEYS, CasesOf, TargetsTogether, of_suite, parts_of
from proctor.actions.workspace.models import built_model, model_settings
from proctor.cassettes.ports import Tape
from proctor.decide.prepare import PreparedCase
from proctor.errors import InputError
from proctor.evidence.unknowns.account import declare_complete
from proctor.formats.text.located import Located
from proctor.formats.workspace_file.workspace import Section
from proctor.llm.ports import ChatModel
from proctor.model.account import Account
from proctor.model.attempt import Attempt
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.lazy_cases import may_have
from proctor.model.mapping import DeclaredEvidence, EvidenceSettings
from proctor.model.show import show
from proctor.runner.ports import Target
from proctor.scoring.completeness import count_planned_attempts
from proctor.targets.build import build_target, check_cases

if TYPE_CHECKING:
    from proctor.actions.running.mcplab_run import Ready


class CompletedTarget(DrivenTarget):
    """Drives another target, whose evidence is complete in the parts that are declared."""

    def __init__(self, target: Target, declared: DeclaredEvidence) -> None:
        super().__init__(target)
        self._declared = declared

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the target."""
        evidence = await super().run(attempt, tape)
        return declare_complete(evidence, self._declared.complete, self._declared.source)


def take_declared(section: Section, name: str) -> tuple[DeclaredEvidence | None, Section]:
    """Return what a target declares under `evidence`, and its other settings. Raises `InputError` for what cannot be used.

    A target over HTTP reads the mapping itself. Recordings have `evidence` for the files they are in.
    """
    node = section.node.get("evidence")
    kind = section.find_text("type")
    if node is None or kind == "recorded":
        return None, section
    settings = section.with_node(node, lambda placed: placed.get("evidence")).check(EvidenceSettings, f"target {name!r}: evidence")
    place = f"{section.file}:{node.line}" if section.file is not None and node.line else f"target {name!r}"
    if kind == "http":
        return DeclaredEvidence(complete=settings.complete, source=place), section
    if settings.map is not None:
        raise section.unknown_member_error("evidence", f"target {name!r}: `evidence.map` is for targets of type http", ())
    return DeclaredEvidence(complete=settings.complete, source=place), section.with_node(_drop(section.node), _drop)


def _drop(node: Located) -> Located:
    members = {key: member for key, member in node.members() if key != "evidence"}
    return Located(value=members, line=node.line, column=node.column, path=node.path, key_at=node.key_at)


_SETTING = "environment_id"


def names_environment(suite: Suite) -> bool:
    """Return whether a case names an environment and brings no systems."""
    cases = suite.cases
    return may_have(cases, "settings") and any(_SETTING in case.settings and not case.systems for case in cases)


class NamedEnvironmentTarget(DrivenTarget):
    """Drives another target, which may observe a state itself; where it does not, the state is unknown, and why is told."""

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the target."""
        evidence = await super().run(attempt, tape)
        named = attempt.case.settings.get(_SETTING)
        if named is None or attempt.case.systems or evidence.state is not None:
            return evidence
        account = evidence.account or Account()
        told = (
            f"the document names its environment {show(named)} by id alone, which only a service has; "
            "write its simulators into the document as `environment`, or run the task on the service"
        )
        return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown={**account.unknown, "state": told}))


ALL_AGENTS = McplabOptions()


class BuiltRun:
    """A run before anything is sent. `close` gives back the connections of models and judge; the runner opens and closes the target."""

    def __init__(self, suite: Suite, target: Target, owned: Sequence[Closes] = ()) -> None:
        self.suite = suite
        """The suite as it is driven: of MCPLab, one case for each scenario and agent."""
        self.target = target
        self.driven: Sequence[tuple[Target, Suite]] = ((target, suite),)
        """Each target of the run, with the cases that it gets."""
        self.cases: Sequence[PreparedCase] = ()
        self.seat = Seat()
        self.users: RunUsers | None = None
        """Who plays simulated users, where any case has one."""
        self.secrets: set[str] = set()
        self.configs: Mapping[str, Ready] = {}
        """What MCPLab's own files are made of, by their folder among those of the run; nothing of other runs."""
        self._owned = owned

    def count_attempts(self, repeat: int) -> int:
        """Return how many attempts there will be when everything is repeated so often."""
        cases = self.suite.cases
        # Counted without making the cases, of which there may be very many.
        if not may_have(cases, "repetitions"):
            return len(cases) * count_planned_attempts(Case(id=""), repeat)
        return sum(count_planned_attempts(case, repeat) for case in cases)

    def list_models(self) -> list[str]:
        """Return the names of the models that will be asked, as far as they are known: of agents of ours, judges and simulated users."""
        own: list[object] = [getattr(each, "name", None) for each in self._owned if hasattr(each, "complete")]
        agents: list[object] = [row.agent.get("model") for config in self.configs.values() for row in config.plan.rows]
        judges = self.seat.opened.models if self.seat.opened is not None else ()
        users = self.users.list_models() if self.users is not None else []
        return [*(name for name in (*own, *agents) if isinstance(name, str)), *judges, *users]

    async def close(self) -> None:
        """Give back connections."""
        users = () if self.users is None else (self.users,)
        judges = () if self.seat.opened is None else (self.seat.opened.judge,)
        await close_all((*self._owned, *users, *judges))


def build_run(
    suite: Suite, target: TargetLike, policy: Policy, *, own_agents: bool | None = None, mcplab: McplabOptions = ALL_AGENTS
) -> BuiltRun:
    """Build the run of a suite. Raises `InputError`, or what the policy makes of one.

    `own_agents` says whether the agents of an MCPLab suite are driven, where that was decided before.
    """
    if own_agents is None:
        own_agents = drives_own_agents(suite, target, policy)
    # Before everything else, as building imports the functions and reads the files that a suite names.
    policy.admit_suite(suite, target, own_agents=own_agents)
    # Before the agent is imported, which may take long: who lacks a judge is told at once. MCPLab's agents bring theirs along.
    seat = None if own_agents else _find_judge(suite, policy)
    built = _build_with_agents(suite, policy, mcplab) if own_agents else _TargetBuilder(policy).build(suite, target)
    if built.suite.prices != suite.prices:
        # A suite made of several parts is put together anew.
        built.suite = msgspec.structs.replace(built.suite, prices=suite.prices)
    with policy.blame("suite"):
        built.users = build_users(built.suite, policy)
        built.cases = prepare_once(built.suite).cases
    built.seat = _find_judge(built.suite, policy) if seat is None else seat
    built.secrets |= policy.references.secrets | (built.users.secrets if built.users is not None else frozenset())
    if built.seat.opened is not None:
        built.secrets |= built.seat.opened.secrets
    return built


def _find_judge(suite: Suite, policy: Policy) -> Seat:
    """Return the judge of a suite. Raises `InputError` where it needs one and has none."""
    with policy.blame("judge"):
        seat = policy.find_judge(suite)
    with policy.blame("suite"):
        require_judge(suite, seat.judge, allow_missing=policy.allow_missing_judge)
    return seat


def drives_own_agents(suite: Suite, target: TargetLike, policy: Policy) -> bool:
    """Return whether the agents of an MCPLab suite are driven: it names some, or there is nobody else."""
    return target is None and suite.dialect == "mcplab" and (names_agents(suite) or not policy.find_workspace(suite).targets)


def names_agents(suite: Suite) -> bool:
    """Return whether an MCPLab suite, or one of its configs, says itself who is to be driven."""
    configs = [config["settings"] for config in suite.settings.get("configs") or ()]
    return any(settings.get("agents") for settings in (suite.settings, *configs))


def _build_with_agents(suite: Suite, policy: Policy, options: McplabOptions) -> BuiltRun:
    from proctor.actions.running.mcplab_run import prepare_all  # only MCPLab's own suites need it

    with policy.blame("suite"):
        together = prepare_all(suite, policy, options)
    # The target owns models before it is opened.
    declared = suite.find_declared()
    driven = CompletedTarget(together.target, declared) if declared is not None and declared.complete else together.target
    built = BuiltRun(together.suite, driven, [together.target])
    built.secrets |= together.secrets
    built.configs = together.configs
    return built


class _TargetBuilder:
    """Builds the target of a suite, and the models that it talks to."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._models: list[ChatModel] = []
        self._secrets: set[str] = set()
        self._declared: DeclaredEvidence | None = None
        """What the settings of the target that was built last declare under `evidence`."""

    def build(self, suite: Suite, target: TargetLike) -> BuiltRun:
        """Build the target that is given or named, of several suites that of each."""
        parts = parts_of(suite, TARGET_KEYS) if target is None or isinstance(target, str) else [suite]
        found: list[tuple[Target, CasesOf]] = []
        driven: list[tuple[Target, Suite]] = []
        for part in parts:
            try:
                with self._policy.blame("target"):
                    groups = split_by_matrix(part, target, lambda name, part=part: self._policy.find_workspace(part).find_target(name)[1])
                for group in groups:
                    # Ids of cases are held only where several suites have to be told apart: of one there may be very many.
                    cases = group.takes if len(parts) == 1 else [case.id for case in group.suite.cases]
                    found.append((self._build_group(group), cases))
                    driven.append((found[-1][0], group.suite))
            except InputError as error:
                raise of_suite(error, part, parts) from None
        built = BuiltRun(suite, found[0][0] if len(found) == 1 else TargetsTogether(found), self._models)
        built.secrets |= self._secrets
        built.driven = driven
        return built

    def _build_group(self, group: TargetGroup) -> Target:
        """Build the target of cases that share one."""
        section = None
        with self._policy.blame("target"):
            if group.target is None or isinstance(group.target, str):
                name, section = self._policy.find_workspace(group.suite).find_target(group.target)
                driven = self._build_target(name, fill_section(section, group.values), group.suite)
            else:
                driven = self._find_target(group.suite, group.target)
        with self._policy.blame("suite"):
            require_axes_used(group, driven, section)
            check_cases(driven, group.suite)
            return self._declare_evidence(self._give_systems(driven, group.suite), group.suite)

    def _declare_evidence(self, target: Target, suite: Suite) -> Target:
        """Return the target with the parts of its evidence that are declared complete; one that plays recordings reads them so."""
        declared = suite.find_declared(self._declared)
        if hasattr(target, "learn_cases"):
            target.declared = declared  # pyright: ignore[reportAttributeAccessIssue] - a target of recordings
        elif declared is not None and declared.complete:
            return CompletedTarget(target, declared)
        return target

    def _give_systems(self, target: Target, suite: Suite) -> Target:
        """Return the target with the simulated systems of its cases; one that plays recordings has what was recorded of them."""
        if hasattr(target, "learn_cases"):
            return target
        if names_environment(suite):
            target = NamedEnvironmentTarget(target)
        cases = suite.cases
        if not (may_have(cases, "systems") and any(case.systems for case in cases)):
            return target
        self._policy.admit_systems()
        from proctor.actions.running.sandboxed_target import SandboxedTarget  # few suites simulate systems

        return SandboxedTarget(target)

    def _find_target(self, suite: Suite, target: TargetLike) -> Target:
        self._declared = None
        if isinstance(target, Mapping):
            return self._build_target("target", cast(Mapping[str, Json], target), suite)
        if hasattr(target, "run") and hasattr(target, "open"):
            return cast(Target, target)
        return wrap_function(cast(Callable[..., object], target))

    def _build_target(self, name: str, settings: Section | Mapping[str, Json], suite: Suite) -> Target:
        policy = self._policy
        section = policy.admit_target(name, settings)
        self._declared, section = take_declared(section, name)
        return build_target(
            name,
            section,
            policy.references,
            base=policy.find_folder(suite),
            model_for=self._open_model(section, suite) if section.find_text("type") == "mcp_agent" else None,
            offline=policy.offline,
            transport=policy.surroundings.server_transport,
        )

    def _open_model(self, section: Section, suite: Suite) -> Callable[[Tape], ChatModel]:
        """Return how the model that a target names is talked to over a tape."""
        from proctor.llm.taped import TapedModel  # only an agent of ours talks to a model

        policy, name = self._policy, section.find_text("model")
        workspace = policy.find_workspace(suite)
        settings = model_settings(name, workspace, policy.references, policy.variables)
        policy.admit_model(name, workspace, settings)
        self._secrets |= set(settings.list_secrets())
        model = built_model(settings, offline=policy.offline, transport=policy.surroundings.model_transport)
        # Closed with the run: the target only borrows it.
        self._models.append(model)
        return lambda tape: TapedModel(model, tape)
