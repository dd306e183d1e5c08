"""Who plays the simulated users of a run: the models that its cases name, or their scripts.

A model is one of `models`, of the suite or its workspace, and by the same rules as those of targets and judges: what a suite that is not
trusted describes itself is refused before anything is sent, and a service admits each model by its own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from proctor.actions.running.run_policy import Policy
from proctor.actions.workspace.close_all import close_all
from proctor.actions.workspace.combined_suites import TARGET_KEYS, of_suite, parts_of
from proctor.actions.workspace.models import built_model, model_settings
from proctor.cassettes.ports import Tape
from proctor.errors import InputError
from proctor.llm.ports import ChatModel
from proctor.model.attempt import Speaker
from proctor.model.case import Case, Suite
from proctor.model.lazy_cases import may_have


class PartModels(msgspec.Struct, frozen=True):
    """The models that the cases of one suite name, of those that are run together."""

    by_name: Mapping[str, ChatModel]
    cases: frozenset[str] | None
    """The ids of its cases; None: all there are."""


class RunUsers:
    """The simulated users of one run. `close` gives back the connections of their models."""

    def __init__(self, models: Sequence[PartModels], secrets: frozenset[str], *, offline: bool) -> None:
        self._models = models
        self._offline = offline
        self.secrets = secrets

    def list_models(self) -> list[str]:
        """Return the models that play users, each with its provider."""
        return list(dict.fromkeys(f"{model.provider}/{model.name}" for part in self._models for model in part.by_name.values()))

    def make_speaker_for(self, clock: Callable[[], str]) -> Callable[[Case, Tape], Speaker]:
        """Return how the user of a case is made for one try, who tells the time by `clock`."""
        from proctor.llm.taped import TapedModel  # only runs with simulated users need these
        from proctor.users.build import make_speaker

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
    """Return who plays the users of a suite, or None where no case has one. Raises `InputError`. Nothing is connected yet."""
    played = may_have(suite.cases, "user") and any(case.user is not None for case in suite.cases)
    parts = parts_of(suite, TARGET_KEYS) if played else []
    if not parts:
        return None
    models: list[PartModels] = []
    secrets: set[str] = set()
    for part in parts:
        try:
            # The cases of one suite alone need not be told apart from others, and may be very many.
            ids = frozenset(case.id for case in part.cases) if len(parts) > 1 else None
            models.append(PartModels(_build_models(part, policy, secrets), ids))
        except InputError as error:
            raise of_suite(error, part, parts) from None
    return RunUsers(models, frozenset(secrets), offline=policy.offline)


def _build_models(suite: Suite, policy: Policy, secrets: set[str]) -> dict[str, ChatModel]:
    """Return the models that the cases of one suite name; cases that name the same one share it."""
    named = dict.fromkeys(case.user.model for case in suite.cases if case.user is not None and case.user.model is not None)
    workspace = policy.find_workspace(suite) if named else None
    built: dict[str, ChatModel] = {}
    for name in named:
        assert workspace is not None
        settings = model_settings(name, workspace, policy.references, policy.variables)
        policy.admit_model(name, workspace, settings)
        secrets |= set(settings.list_secrets())
        built[name] = built_model(settings, offline=policy.offline, transport=policy.surroundings.model_transport)
    return built


async def _skip_pause(seconds: float) -> None:
    """Wait for nobody: what a recording answers comes at once."""
