"""From a suite to a run that can be driven: who is driven, who judges, and what must stay secret. Nothing is connected yet.

Every door builds its runs here and hands in its policy (`run_policy.py`). An MCPLab suite for which no target is named is driven by its
own agents; every other suite by a target of its own, of its workspace, or one that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from proctor.actions.check_stream import prepared
from proctor.actions.judges import require_judge
from proctor.actions.models import built_model, model_settings
from proctor.actions.run_policy import McplabOptions, Policy, Seat, TargetLike
from proctor.actions.together import TARGET_KEYS, TargetsTogether, of_suite, parts_of
from proctor.cassettes.ports import Tape
from proctor.decide.prepare import PreparedCase
from proctor.errors import InputError
from proctor.formats.workspace import Section
from proctor.llm.ports import ChatModel
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.runner.ports import Target
from proctor.scoring.completeness import count_planned_attempts
from proctor.targets.build import build_target, check_cases

if TYPE_CHECKING:
    from proctor.actions.mcplab_run import Ready

ALL_AGENTS = McplabOptions()


class _Closes(Protocol):
    async def close(self) -> None: ...


class BuiltRun:
    """A run before anything is sent. `close` gives back the connections of models and judge; the runner opens and closes the target."""

    def __init__(self, suite: Suite, target: Target, owned: Sequence[_Closes] = ()) -> None:
        self.suite = suite
        """The suite as it is driven: of MCPLab, one case for each scenario and agent."""
        self.target = target
        self.cases: Sequence[PreparedCase] = ()
        self.seat = Seat()
        self.secrets: set[str] = set()
        self.configs: Mapping[str, Ready] = {}
        """What MCPLab's own files are made of, by their folder among those of the run; nothing of other runs."""
        self._owned = owned

    def count_attempts(self, repeat: int) -> int:
        """Return how many attempts there will be when everything is repeated so often."""
        return sum(count_planned_attempts(case, repeat) for case in self.suite.cases)

    async def close(self) -> None:
        """Give back connections."""
        for each in self._owned:
            await each.close()
        if self.seat.opened is not None:
            await self.seat.opened.judge.close()


def build_run(
    suite: Suite, target: TargetLike, policy: Policy, *, own_agents: bool | None = None, mcplab: McplabOptions = ALL_AGENTS
) -> BuiltRun:
    """Build the run of a suite. Raises `InputError`, or what the policy makes of one.

    `own_agents` says whether the agents of an MCPLab suite are driven, where that was decided before.
    """
    if own_agents is None:
        own_agents = target is None and suite.dialect == "mcplab" and (names_agents(suite) or not policy.find_workspace(suite).targets)
    policy.admit_suite(suite, target, own_agents=own_agents)
    built = _build_with_agents(suite, policy, mcplab) if own_agents else _TargetBuilder(policy).build(suite, target)
    with policy.blame("suite"):
        built.cases = prepared(built.suite).cases
    with policy.blame("judge"):
        built.seat = policy.find_judge(built.suite)
    with policy.blame("suite"):
        require_judge(built.suite, built.seat.judge, allow_missing=policy.allow_missing_judge)
    built.secrets |= policy.references.secrets
    if built.seat.opened is not None:
        built.secrets |= built.seat.opened.secrets
    return built


def names_agents(suite: Suite) -> bool:
    """Return whether an MCPLab suite, or one of its configs, says itself who is to be driven."""
    configs = [config["settings"] for config in suite.settings.get("configs") or ()]
    return any(settings.get("agents") for settings in (suite.settings, *configs))


def _build_with_agents(suite: Suite, policy: Policy, options: McplabOptions) -> BuiltRun:
    from proctor.actions.mcplab_run import prepare_all  # only MCPLab's own suites need it

    with policy.blame("suite"):
        together = prepare_all(suite, policy, options)
    # The target owns models before it is opened.
    built = BuiltRun(together.suite, together.target, [together.target])
    built.secrets |= together.secrets
    built.configs = together.configs
    return built


class _TargetBuilder:
    """Builds the target of a suite, and the models that it talks to."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._models: list[ChatModel] = []
        self._secrets: set[str] = set()

    def build(self, suite: Suite, target: TargetLike) -> BuiltRun:
        """Build the target that is given or named, of several suites that of each."""
        parts = parts_of(suite, TARGET_KEYS) if target is None or isinstance(target, str) else [suite]
        found: list[tuple[Target, list[str]]] = []
        for part in parts:
            try:
                with self._policy.blame("target"):
                    driven = self._find_target(part, target)
                with self._policy.blame("suite"):
                    check_cases(driven, part)
            except InputError as error:
                raise of_suite(error, part, parts) from None
            found.append((driven, [case.id for case in part.cases]))
        built = BuiltRun(suite, found[0][0] if len(found) == 1 else TargetsTogether(found), self._models)
        built.secrets |= self._secrets
        return built

    def _find_target(self, suite: Suite, target: TargetLike) -> Target:
        if target is None or isinstance(target, str):
            return self._build_target(*self._policy.find_workspace(suite).find_target(target), suite)
        if isinstance(target, Mapping):
            return self._build_target("target", cast(Mapping[str, Json], target), suite)
        if hasattr(target, "run") and hasattr(target, "open"):
            return cast(Target, target)
        from proctor.targets.callable import CallableTarget  # only functions come here

        function = cast(Callable[..., object], target)
        return CallableTarget(getattr(function, "__name__", "function"), function)

    def _build_target(self, name: str, settings: Section | Mapping[str, Json], suite: Suite) -> Target:
        policy = self._policy
        section = policy.admit_target(name, settings)
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
        self._models.append(model)
        return lambda tape: TapedModel(model, tape)
