"""Suites of cases, and the simulated systems of a case.

The simulated systems that a case gives to its agent, as a suite writes them.

Suites of cases, each a list of assertions about an agent.

Every dialect is read into these values, and `convert` writes them as a native suite; nothing below the readers knows which dialect a suite
came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from proctor.model.cost import PriceList
from proctor.model.evidence import Json
from proctor.model.mapping import DeclaredEvidence, merge_declared
from proctor.model.problem import NOWHERE, Origin, Problem

LONGEST_S = 1e7
"""The latest time of a step, in seconds."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """An event in a system, before the agent begins or later: a file arrives."""

    name: str
    given: Json = None
    after_s: float = 0.0
    """Seconds after the start; it takes effect with the next request to the system."""


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated system of a case."""

    name: str
    """Its name in the suite; the variables `NAME_url` and `NAME_token` lead to it."""
    kind: str
    seed: Json = None
    """Its initial content, in the format of its kind."""
    datasets: tuple[Json, ...] = ()
    """Further seeds, each added to those before."""
    scenario: tuple[Step, ...] = ()

    @property
    def wants_mllp(self) -> bool:
        """Whether it also takes messages over MLLP, on its own port."""
        return self.kind == "hl7" and isinstance(self.seed, dict) and self.seed.get("mllp") is True

    @property
    def wants_sftp(self) -> bool:
        """Whether its files are also reached over SFTP, on its own port."""
        return self.kind == "files" and isinstance(self.seed, dict) and self.seed.get("sftp") is True


def list_variables(systems: Iterable[System]) -> tuple[str, ...]:
    """Return the variables of an attempt for its systems: address, token, and the ports for MLLP and SFTP if requested."""
    wanted = ((system.name, {"url": True, "token": True, "mllp": system.wants_mllp, "sftp": system.wants_sftp}) for system in systems)
    return tuple(f"{name}_{what}" for name, kinds in wanted for what, is_wanted in kinds.items() if is_wanted)


WhenMissing = Literal["fail", "error", "skip"]


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """One claim: a check by name, its spec, and how its verdict counts."""

    check: str
    spec: msgspec.Struct
    """The parameters of the check; its type is the one registered under `check`."""
    id: str | None = None
    label: str = ""
    rule: dict[str, str] = {}
    """Its names in its dialect, by the keys of the dialect: `target` and `condition` of Mibo, `type` of MCPLab."""
    weight: float = 1.0
    axis: str | None = None
    required: bool = False
    """A failed required assertion fails the case whatever the mean is."""
    advisory: bool = False
    """Reported, but it enters neither outcome nor score."""
    when_missing: WhenMissing | None = None
    """The outcome if evidence is missing; None: `fail` for a claim that something is present, `error` for a claim that it is absent."""
    depends_on: tuple[str, ...] = ()
    because: str = ""
    """Why the claim is made: the rule and the recordings it was generated from, or a note of the author."""
    turn: int | None = None
    """The turn this claim is about, from 0; `None`: the whole run."""
    origin: Origin = NOWHERE


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One message to the agent. Claims about it are assertions of the case with `turn` set."""

    input: str
    origin: Origin = NOWHERE


MOST_USER_TURNS: Final = 50
"""The maximum number of turns of a simulated user."""


class UserLine(msgspec.Struct, frozen=True, kw_only=True):
    """One message or action of a scripted user."""

    say: str = ""
    when: Assertion | None = None
    """Used whenever the agent's last answer matches; left out: used once, in order."""
    ends: Literal["done", "gave_up"] | None = None
    """The conversation ends here instead of continuing."""


class SimulatedUser(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated user who talks to the agent until the goal is reached: played by a model, or by a script."""

    persona: str = ""
    goal: str = ""
    style: str = ""
    gives_up_after: int = 8
    """The most turns of the conversation."""
    stop_when: Assertion | str | None = None
    """What ends the conversation as `done`: a claim about the agent's last turn, or a condition in plain language for the model."""
    model: str | None = None
    """The name of the model that plays the user, among `models`."""
    script: tuple[UserLine, ...] = ()


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A value to read out of the final text by regular expression; it never affects the outcome."""

    name: str
    pattern: str


class Scoring(msgspec.Struct, frozen=True, kw_only=True):
    """How verdicts become the outcome of a case."""

    mode: Literal["boolean", "weighted"] = "boolean"
    pass_at: float = 0.9
    """Weighted: the verdict is `pass` from this score on."""
    partial_above: float = 0.0
    """Weighted: the verdict is `partial` above this score, else `fail`."""
    when_empty: Literal["pass", "fail", "skip"] = "skip"
    """The outcome of a case without any assertion."""


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """Why a case is not decided at all."""

    code: str
    reason: str


MOST_REPEATS = 1_000
"""Maximum number of repeats of a case in one run."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One situation and the claims about it."""

    id: str
    own_id: str | None = None
    """The id in its own file, if configs that are run together use the same one for different cases."""
    name: str = ""
    description: str = ""
    input: str | None = None
    turns: tuple[Turn, ...] = ()
    user: SimulatedUser | None = None
    """Who writes the messages after the first one; `input` is then that first message, if the author wrote it."""
    custom_body: Json = None
    """A request body sent exactly as written, instead of a message."""
    context: dict[str, Json] = {}
    """Fixed variables for templates and expressions."""
    timezone: str | None = None
    tags: dict[str, Json] = {}
    assertions: tuple[Assertion, ...] = ()
    captures: tuple[Capture, ...] = ()
    scoring: Scoring = Scoring()
    skip: Skip | None = None
    repetitions: int | None = None
    pass_threshold: float | None = None
    """The share of repetitions that must pass."""
    systems: tuple[System, ...] = ()
    """The simulated systems that the agent works in; every attempt gets its own."""
    settings: dict[str, Json] = {}
    """Settings that only a live run needs (servers, attachments, direct tool calls), as the dialect wrote them."""
    origin: Origin = NOWHERE


UNSEEN_TOOLS: Final = "agents_without_tool_records"
"""In the settings of a case: agents, by name, whose tool calls are unknown."""


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A readable set of cases."""

    name: str
    dialect: str = "native"
    path: str | None = None
    description: str = ""
    cases: Sequence[Case] = ()
    """A tuple, or, for very many cases, a sequence that makes each on demand (`lazy_cases.py`)."""
    unselected: Sequence[Case] = ()
    """Cases excluded by a selection. They are not decided, but a record of one of them must not answer another case."""
    warnings: tuple[Problem, ...] = ()
    settings: dict[str, Json] = {}
    """Settings that only a live run needs (targets, agents, servers, judge), as the dialect wrote them."""
    prices: PriceList | None = None
    """Prices of models, from the workspace; not part of the suite itself."""
    evidence: DeclaredEvidence | None = None
    """How recorded evidence is read, from the suite."""
    evidence_given: DeclaredEvidence | None = None
    """The same from the command line, which takes precedence; not part of the suite itself."""
    evidence_here: DeclaredEvidence | None = None
    """The same from the workspace; not part of the suite itself."""
    data_files: tuple[str, ...] = ()
    """The files that cases were made from."""

    def find_declared(self, target: DeclaredEvidence | None = None) -> DeclaredEvidence | None:
        """Return how recorded evidence is read: by the command line, else the suite, else the target, else the workspace."""
        return merge_declared(self.evidence_given, self.evidence, target, self.evidence_here)


MATRIX = "matrix"
"""In the settings of a case: the value of every axis."""
FILLED = "matrix_in_case"
"""In the settings of a case: the axes that appear in its texts."""


def is_variant(case: Case) -> bool:
    """Return whether a case is one of several that send the same input to different agents, models or prompts."""
    return MATRIX in case.settings


def list_axes(case: Case) -> tuple[str, ...]:
    """Return the axes of a case, in the order of the matrix."""
    axes = case.settings.get(MATRIX)
    return tuple(axes) if isinstance(axes, dict) else ()


def make_variant_id(base: str, names: dict[str, str]) -> str:
    """Return the id of a variant, built from the names of its values by axis."""
    return f"{base}[{','.join(f'{axis}={name}' for axis, name in names.items())}]"


def strip_axis(case: Case, axis: str) -> str:
    """Return the id of a case without one of its axes, which is the same for all values of that axis."""
    axes = list_axes(case)
    if axis not in axes:
        return case.id
    names = {each: str(case.tags.get(each, "")) for each in axes}
    base = case.id.removesuffix(make_variant_id("", names))
    left = {each: name for each, name in names.items() if each != axis}
    return make_variant_id(base, left) if left else base
