"""Builds a run from a suite: its targets, judge, simulated users and secrets. Nothing is connected yet.

Every entry point builds its runs here and passes its policy (`run_policy.py`). An MCPLab suite for which no target is named is driven by
its own agents; every other suite by its own target, one of its workspace, or one from the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from proctor.actions.checking.check_stream import prepare_once
from proctor.actions.judging.judges import require_judge
from proctor.actions.running.named_target import DrivenTarget
from proctor.actions.running.run_policy import JudgeChoice, McplabOptions, Policy, TargetLike
from proctor.actions.workspace.close_all import Closes, close_all
from proctor.actions.workspace.combined_suites import TARGET_KEYS, CasesOf, CombinedTargets, name_suite_in_error, split_suite
from proctor.actions.workspace.models import built_model, model_settings
from proctor.cassettes.ports import Tape
from proctor.decide.matching import list_messages
from proctor.decide.prepare import PreparedCase
from proctor.errors import InputError
from proctor.evidence.unknowns.account import declare_complete
from proctor.formats.text.located import Located
from proctor.formats.text.placeholders import LocatedTemplate
from proctor.formats.workspace_file import Section, Workspace
from proctor.llm.ports import ChatModel
from proctor.model.account import Account
from proctor.model.attempt import Attempt, Speaker
from proctor.model.case import FILLED, MATRIX, Case, Suite, is_variant
from proctor.model.evidence import Evidence, Json
from proctor.model.lazy_cases import group_cases, may_have
from proctor.model.mapping import DeclaredEvidence, EvidenceSettings
from proctor.model.show import show
from proctor.runner.ports import Target
from proctor.scoring.statistics import count_planned_attempts
from proctor.targets.build import build_target, check_cases

if TYPE_CHECKING:
    from proctor.actions.running.mcplab_run import Ready
    from proctor.targets.capture.otel_capture import Capture


def wrap_function(function: Callable[..., object], *, capture: Capture | None = None) -> Target:
    """Return a Python function as a target. Raises `InputError` for one that cannot be driven."""
    from proctor.targets.local.callable import CallableTarget  # only needed for functions

    return CallableTarget(getattr(function, "__name__", "function"), function, capture=capture)


def with_capture(target: TargetLike, capture: Capture | None) -> TargetLike:
    """Return a target with the requested capture. Raises `InputError` if it is not a Python function."""
    if capture is None:
        return target
    if isinstance(target, Mapping):
        return {**cast("Mapping[str, Json]", target), "capture": capture}
    if target is None or isinstance(target, str) or (hasattr(target, "run") and hasattr(target, "open")):
        raise InputError(
            "capture is for a Python function that is given as the target; of a target that has a name, "
            "write `capture: otel` next to its `function` in proctor.yaml"
        )
    return wrap_function(cast("Callable[..., object]", target), capture=capture)


class PartModels(msgspec.Struct, frozen=True):
    """The models that the cases of one of several combined suites name."""

    by_name: Mapping[str, ChatModel]
    cases: frozenset[str] | None
    """The ids of its cases; None: all."""


class RunUsers:
    """The simulated users of one run. `close` closes the connections of their models."""

    def __init__(self, models: Sequence[PartModels], secrets: frozenset[str], *, offline: bool) -> None:
        self._models = models
        self._offline = offline
        self.secrets = secrets

    def list_models(self) -> list[str]:
        """Return the models that play users, each with its provider."""
        return list(dict.fromkeys(f"{model.provider}/{model.name}" for part in self._models for model in part.by_name.values()))

    def make_speaker_for(self, clock: Callable[[], str]) -> Callable[[Case, Tape], Speaker]:
        """Return the factory of simulated users, which read the time from `clock`."""
        from proctor.llm.taped import TapedModel  # only runs with simulated users need these
        from proctor.users import make_speaker

        def make(case: Case, tape: Tape) -> Speaker:
            model = self._find_model(case)
            taped = None if model is None else TapedModel(model, tape)
            return make_speaker(case, taped, clock, pause=_skip_pause) if self._offline else make_speaker(case, taped, clock)

        return make

    def _find_model(self, case: Case) -> ChatModel | None:
        name = case.user.model if case.user is not None else None
        if name is None:
            return None
        return next((part.by_name[name] for part in self._models if part.cases is None or case.id in part.cases), None)

    async def close(self) -> None:
        """Give back connections."""
        await close_all(model for part in self._models for model in part.by_name.values())


def build_users(suite: Suite, policy: Policy) -> RunUsers | None:
    """Return the simulated users of a suite, or None if no case has one. Raises `InputError`. Nothing is connected yet."""
    played = may_have(suite.cases, "user") and any(case.user is not None for case in suite.cases)
    parts = split_suite(suite, TARGET_KEYS) if played else []
    if not parts:
        return None
    models: list[PartModels] = []
    secrets: set[str] = set()
    for part in parts:
        try:
            # A single suite may have very many cases, and needs no set of their ids.
            ids = frozenset(case.id for case in part.cases) if len(parts) > 1 else None
            model_names = dict.fromkeys(case.user.model for case in part.cases if case.user is not None and case.user.model is not None)
            workspace = policy.find_workspace(part) if model_names else None
            built: dict[str, ChatModel] = {}
            for name in model_names:
                assert workspace is not None
                built[name] = _build_model(name, workspace, policy, secrets)
            models.append(PartModels(built, ids))
        except InputError as error:
            raise name_suite_in_error(error, part, parts) from None
    return RunUsers(models, frozenset(secrets), offline=policy.offline)


def _build_model(name: str | None, workspace: Workspace, policy: Policy, secrets: set[str]) -> ChatModel:
    """Return a model that the policy admits, and add its secrets."""
    settings = model_settings(name, workspace, policy.references, policy.variables)
    policy.admit_model(name, workspace, settings)
    secrets.update(settings.list_secrets())
    return built_model(settings, offline=policy.offline, transport=policy.surroundings.model_transport)


async def _skip_pause(seconds: float) -> None:
    """Do not wait: a recording answers at once."""


# Targets of a suite with a matrix: each combination of values may have its own target.

EXAMINED = "mcp_server"
"""The type of a target that is an MCP server, which is examined."""
TARGET_AXES = ("target", "agent")
_FILLED_BY_TARGET = {"http": ("url", "headers", "template"), "n8n": ("webhook", "headers", "template")}

FindSection = Callable[[str | None], Section]


class TargetGroup(msgspec.Struct, frozen=True):
    """Cases that share a target, and the axis values for its settings."""

    suite: Suite
    target: TargetLike
    values: Mapping[str, Json]
    takes: Callable[[Case], bool]
    """Whether a case of the suite belongs to this group."""


def split_by_matrix(suite: Suite, target: TargetLike, find_section: FindSection) -> list[TargetGroup]:
    """Return the groups of a suite; a single one without a matrix. `find_section` gives the settings of a target by its name."""
    if not (may_have(suite.cases, "settings") and any(map(is_variant, suite.cases))):
        return [TargetGroup(suite, target, {}, lambda case: True)]
    known: dict[tuple[str | None, tuple[str, ...]], frozenset[str]] = {}

    def find_key(case: Case) -> str:
        values: dict[str, Json] = case.settings.get(MATRIX) or {}
        name = _choose_target(values, target)
        if name is not None and not isinstance(name, str):
            return ""
        # Cached, because the key is computed for every case and every attempt. Suites of one folder may have different axes.
        key = (name, tuple(values))
        if key not in known:
            known[key] = frozenset(_find_axes(find_section(name), values))
        used = {axis: value for axis, value in values.items() if axis in known[key]}
        return msgspec.json.encode((name, used), order="sorted").decode()

    groups: list[TargetGroup] = []
    for cases in group_cases(suite.cases, find_key):
        values: dict[str, Json] = cases[0].settings.get(MATRIX) or {}
        part = msgspec.structs.replace(suite, cases=cases)
        groups.append(TargetGroup(part, _choose_target(values, target), values, _takes_key(find_key, find_key(cases[0]))))
    return groups


def _takes_key(find_key: Callable[[Case], str], key: str) -> Callable[[Case], bool]:
    return lambda case: find_key(case) == key


def _choose_target(values: Mapping[str, Json], target: TargetLike) -> TargetLike:
    axis = next((axis for axis in TARGET_AXES if axis in values), None)
    if axis is None:
        return target
    if target is not None:
        raise InputError(f"the matrix of the suite names its targets under {axis!r}; leave out the one that is given")
    name = values[axis]
    if not isinstance(name, str):
        raise InputError(f"matrix {axis!r}: expected names of targets, found {show(name, 60)}")
    return name


def _find_axes(section: Section, values: Mapping[str, Json]) -> Iterator[str]:
    filled_by_target = _FILLED_BY_TARGET.get(section.find_text("type") or "", ())
    for key, member in section.node.members():
        if key not in filled_by_target:
            yield from LocatedTemplate(member, only=frozenset(values)).placeholders


def fill_section(section: Section, values: Mapping[str, Json]) -> Section:
    """Return the settings of a target with the axes of a matrix filled in."""
    if not values:
        return section
    filled_by_target = _FILLED_BY_TARGET.get(section.find_text("type") or "", ())
    filled = {
        key: member if key in filled_by_target else LocatedTemplate(member, only=frozenset(values)).fill(values)
        for key, member in section.node.members()
    }
    # The same section if nothing was filled in: a new one has no source text, so errors would have no line number.
    if all(filled[key] is member for key, member in section.node.members()):
        return section
    node = msgspec.structs.replace(section.node, value=filled)
    return Section(node, file=section.file, text=None, trusted=section.trusted)


def require_axes_used(group: TargetGroup, driven: object, section: Section | None) -> None:
    """Raise `InputError` for an axis that neither the cases nor the target of a group use."""
    uses: Callable[[str], bool] | None = getattr(driven, "uses_variable", None)
    if not group.values or uses is None:
        return
    case = group.suite.cases[0]
    in_settings = frozenset(_find_axes(section, group.values)) if section is not None else frozenset[str]()
    in_case = case.settings.get(FILLED) or ()
    for axis in group.values:
        if axis not in TARGET_AXES and axis not in in_settings and axis not in in_case and not uses(axis):
            raise InputError(
                f"the axis {axis!r} of the matrix changes nothing: neither the cases nor the target {getattr(driven, 'name', '')!r} "
                f"say {{{axis}}}; write it into the input of the cases, or into the template or a setting of the target; "
                "a Python function takes it from its parameter `context`"
            )


class EditedTarget(DrivenTarget):
    """Drives another target, and changes its evidence: `edit` gets it with the case."""

    def __init__(self, target: Target, edit: Callable[[Evidence, Case], Evidence]) -> None:
        super().__init__(target)
        self._edit = edit

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Drive the target."""
        return self._edit(await super().run(attempt, tape), attempt.case)


def _complete(target: Target, declared: DeclaredEvidence | None) -> Target:
    """Return a target whose evidence is declared complete in some parts, if any."""
    if declared is None or not declared.complete:
        return target
    return EditedTarget(target, lambda evidence, _: declare_complete(evidence, declared.complete, declared.source))


def take_declared(section: Section, name: str) -> tuple[DeclaredEvidence | None, Section]:
    """Return the `evidence` section of a target, and its other settings. Raises `InputError` for invalid ones.

    A target over HTTP reads the mapping itself. For recordings, `evidence` describes their files.
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


def _explain_environment(evidence: Evidence, case: Case) -> Evidence:
    """Return the evidence; its state is unknown, with a reason, if the case names an environment and no state was observed."""
    environment = case.settings.get(_SETTING)
    if environment is None or case.systems or evidence.state is not None:
        return evidence
    account = evidence.account or Account()
    reason = (
        f"the document names its environment {show(environment)} by id alone, which only a service has; "
        "write its simulators into the document as `environment`, or run the task on the service"
    )
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown={**account.unknown, "state": reason}))


ALL_AGENTS = McplabOptions()


class BuiltRun:
    """A run before anything is sent. `close` closes the connections of models and judge; the runner opens and closes the target."""

    def __init__(self, suite: Suite, target: Target, owned: Sequence[Closes] = ()) -> None:
        self.suite = suite
        """The suite as it is driven; for MCPLab, one case for each scenario and agent."""
        self.target = target
        self.driven: Sequence[tuple[Target, Suite]] = ((target, suite),)
        """Each target of the run, with its cases."""
        self.cases: Sequence[PreparedCase] = ()
        self.judge_choice = JudgeChoice()
        self.users: RunUsers | None = None
        """The simulated users, if any case has one."""
        self.secrets: set[str] = set()
        self.configs: Mapping[str, Ready] = {}
        """Configs for MCPLab's own files, by their folder among those of the run; empty for other runs."""
        self._owned = owned

    def count_attempts(self, repeat: int) -> int:
        """Return how many attempts there will be with this many repeats."""
        cases = self.suite.cases
        # Counted without building the cases, which may be very many.
        if not may_have(cases, "repetitions"):
            return len(cases) * count_planned_attempts(Case(id=""), repeat)
        return sum(count_planned_attempts(case, repeat) for case in cases)

    def list_models(self) -> list[str]:
        """Return the known models that need a price: those of our agents, simulated users, and judges without prices."""
        names: list[object] = [getattr(each, "name", None) for each in self._owned if hasattr(each, "complete")]
        agents: list[object] = [row.agent.get("model") for config in self.configs.values() for row in config.plan.rows]
        judges = (
            [name for name in self.judge_choice.opened.models if name not in self.judge_choice.opened.priced]
            if self.judge_choice.opened is not None
            else []
        )
        users = self.users.list_models() if self.users is not None else []
        return [*(name for name in (*names, *agents) if isinstance(name, str)), *judges, *users]

    async def close(self) -> None:
        """Give back connections."""
        users = () if self.users is None else (self.users,)
        judges = () if self.judge_choice.opened is None else (self.judge_choice.opened.judge,)
        await close_all((*self._owned, *users, *judges))


def build_run(
    suite: Suite, target: TargetLike, policy: Policy, *, own_agents: bool | None = None, mcplab: McplabOptions = ALL_AGENTS
) -> BuiltRun:
    """Build the run of a suite. Raises `InputError`, or the error that the policy turns it into.

    `own_agents` is whether the agents of an MCPLab suite are driven, if that is already decided.
    """
    if own_agents is None:
        own_agents = drives_own_agents(suite, target, policy)
    # First, because building imports the functions and reads the files that a suite names.
    policy.admit_suite(suite, target, own_agents=own_agents)
    # Before the slow import of the agent, so that a missing judge is reported at once. MCPLab's agents have their own.
    judge_choice = None if own_agents else _find_judge(suite, policy)
    built = _build_with_agents(suite, policy, mcplab) if own_agents else _TargetBuilder(policy).build(suite, target)
    if built.suite.prices != suite.prices:
        # Building a combined suite drops its prices.
        built.suite = msgspec.structs.replace(built.suite, prices=suite.prices)
    with policy.blame("suite"):
        built.users = build_users(built.suite, policy)
        built.cases = prepare_once(built.suite).cases
    built.judge_choice = _find_judge(built.suite, policy) if judge_choice is None else judge_choice
    built.secrets |= policy.references.secrets | (built.users.secrets if built.users is not None else frozenset())
    if built.judge_choice.opened is not None:
        built.secrets |= built.judge_choice.opened.secrets
    return built


def _find_judge(suite: Suite, policy: Policy) -> JudgeChoice:
    with policy.blame("judge"):
        judge_choice = policy.find_judge(suite)
    with policy.blame("suite"):
        require_judge(suite, judge_choice.judge, allow_missing=policy.allow_missing_judge)
    return judge_choice


def drives_own_agents(suite: Suite, target: TargetLike, policy: Policy) -> bool:
    """Return whether the agents of an MCPLab suite are driven: it names some, or there is no other target."""
    return target is None and suite.dialect == "mcplab" and (names_agents(suite) or not policy.find_workspace(suite).targets)


def names_agents(suite: Suite) -> bool:
    """Return whether an MCPLab suite, or one of its configs, names its agents."""
    configs = [config["settings"] for config in suite.settings.get("configs") or ()]
    return any(settings.get("agents") for settings in (suite.settings, *configs))


def _build_with_agents(suite: Suite, policy: Policy, options: McplabOptions) -> BuiltRun:
    from proctor.actions.running.mcplab_run import prepare_all  # only MCPLab's own suites need it

    with policy.blame("suite"):
        prepared = prepare_all(suite, policy, options)
    # The target owns models even before it is opened.
    built = BuiltRun(prepared.suite, _complete(prepared.target, suite.find_declared()), [prepared.target])
    built.secrets |= prepared.secrets
    built.configs = prepared.configs
    return built


class _TargetBuilder:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._models: list[ChatModel] = []
        self._secrets: set[str] = set()
        self._declared: DeclaredEvidence | None = None
        """The `evidence` section of the target that was built last."""

    def build(self, suite: Suite, target: TargetLike) -> BuiltRun:
        """Build the given or named target; for several suites, one per suite."""
        parts = split_suite(suite, TARGET_KEYS) if target is None or isinstance(target, str) else [suite]
        targets: list[tuple[Target, CasesOf]] = []
        driven: list[tuple[Target, Suite]] = []
        for part in parts:
            try:
                with self._policy.blame("target"):
                    groups = split_by_matrix(part, target, lambda name, part=part: self._policy.find_workspace(part).find_target(name)[1])
                for group in groups:
                    # Case ids are stored only for several suites: a single one may have very many.
                    cases = group.takes if len(parts) == 1 else [case.id for case in group.suite.cases]
                    targets.append((self._build_group(group), cases))
                    driven.append((targets[-1][0], group.suite))
            except InputError as error:
                raise name_suite_in_error(error, part, parts) from None
        built = BuiltRun(suite, targets[0][0] if len(targets) == 1 else CombinedTargets(targets), self._models)
        built.secrets |= self._secrets
        built.driven = driven
        return built

    def _build_group(self, group: TargetGroup) -> Target:
        section = self._declared = None
        with self._policy.blame("target"):
            if group.target is None or isinstance(group.target, str):
                name, section = self._policy.find_workspace(group.suite).find_target(group.target)
                driven = self._build_target(name, fill_section(section, group.values), group.suite)
            elif isinstance(group.target, Mapping):
                driven = self._build_target("target", cast(Mapping[str, Json], group.target), group.suite)
            elif hasattr(group.target, "run") and hasattr(group.target, "open"):
                driven = cast(Target, group.target)
            else:
                driven = wrap_function(cast(Callable[..., object], group.target))
        with self._policy.blame("suite"):
            require_axes_used(group, driven, section)
            check_cases(driven, group.suite)
            cases, declared = group.suite.cases, group.suite.find_declared(self._declared)
            if hasattr(driven, "learn_cases"):
                # A target of recordings has their recorded state, and applies what is declared complete while it reads them.
                driven.declared = declared  # pyright: ignore[reportAttributeAccessIssue]
                return driven
            if names_environment(group.suite):
                driven = EditedTarget(driven, _explain_environment)
            if may_have(cases, "systems") and any(case.systems for case in cases):
                self._policy.admit_systems()
                from proctor.actions.running.sandboxed_target import SandboxedTarget  # few suites simulate systems

                driven = SandboxedTarget(driven)
            return _complete(driven, declared)

    def _build_target(self, name: str, settings: Section | Mapping[str, Json], suite: Suite) -> Target:
        policy = self._policy
        section = policy.admit_target(name, settings)
        if section.find_text("type") == EXAMINED:
            from proctor.actions.doctor.examination import build_examined_server  # loads the doctor

            return build_examined_server(section.plain(policy.references), policy.surroundings.server_transport)
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
        from proctor.llm.scripted import ScriptedModel  # only our own agents call a model
        from proctor.llm.taped import TapedModel

        if not any(list_messages(case) or case.user is not None for case in suite.cases):
            # Direct calls need no model.
            return lambda tape: ScriptedModel(())
        model = _build_model(section.find_text("model"), self._policy.find_workspace(suite), self._policy, self._secrets)
        # Closed with the run: the target only borrows it.
        self._models.append(model)
        return lambda tape: TapedModel(model, tape)
