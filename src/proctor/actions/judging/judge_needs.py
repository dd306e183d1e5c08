"""Whether a judge is needed, and what judging will take: known from the suite alone, before anything is asked."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proctor.actions.workspace.combined_suites import JudgesTogether
from proctor.checks.registry import Registry, default_registry
from proctor.errors import InputError
from proctor.judge.settings import JudgeSettings
from proctor.model.case import Assertion, Case, Suite
from proctor.model.evidence import Json
from proctor.model.lazy_cases import may_claim
from proctor.model.show import count_rest

_CHARACTERS_PER_TOKEN = 4
_INSTRUCTION_TOKENS = 700
"""What the instruction and the shape of the reply cost, about."""


def has_judged_assertions(suite: Suite) -> bool:
    """Return whether a judge has anything to say about a suite."""
    return may_claim(suite.cases, _is_judged) and any(_is_judged(a) for case in suite.cases for a in case.assertions)


def _is_judged(assertion: Assertion) -> bool:
    return default_registry().get_for(assertion.check, assertion.spec).judged


def needs_judge(assertion: Assertion, registry: Registry | None = None) -> bool:
    """Return whether an assertion cannot be decided without a judge."""
    if not (registry or default_registry()).get_for(assertion.check, assertion.spec).judged:
        return False
    asked = getattr(assertion.spec, "needs_judge", None)
    return bool(asked()) if callable(asked) else True


def list_cases_for_judge(suite: Suite) -> list[Case]:
    """Return the cases that hold an assertion only a judge can decide."""
    if not may_claim(suite.cases, _is_judged):
        return []
    return [case for case in suite.cases if case.skip is None and any(needs_judge(a) for a in case.assertions)]


def require_judge(suite: Suite, judge: object | None, *, allow_missing: bool = False) -> None:
    """Raise `InputError` where a judge is needed and there is none."""
    cases = [] if allow_missing else list_cases_for_judge(suite)
    if judge is not None:
        # Of several suites one may have none.
        cases = [case for case in cases if isinstance(judge, JudgesTogether) and not judge.has(case.id)]
    if cases:
        names = ", ".join(repr(case.id) for case in cases[:5]) + count_rest(len(cases), 5)
        raise InputError(
            f"claims of {len(cases)} case{'s' if len(cases) > 1 else ''} need a judge, and none is configured: {names}\n"
            "  name one: `judge: {model: ...}` in the suite or in proctor.yaml, or the variable PROCTOR_JUDGE_MODEL\n"
            "  --allow-missing-judge runs all the same; those assertions are then errors"
        )


class Estimate(msgspec.Struct, frozen=True):
    """What judging a suite will take, as far as it can be known before anything has happened."""

    calls: int
    tokens: int
    """At least: what the agents will answer is unknown yet."""


def estimate_judging(suite: Suite, settings: JudgeSettings, *, jurors: int = 1, repeat: int = 1) -> Estimate:
    """Return how many requests and tokens judging `suite` will take, before what is remembered is taken off."""
    calls = tokens = 0
    for case in suite.cases:
        judged = [a for a in case.assertions if needs_judge(a)] if case.skip is None else []
        if not judged:
            continue
        groups = {group for a in judged for group in _list_groups(a)}
        times = max(repeat, case.repetitions or 1) * settings.samples * jurors
        written = sum(len(msgspec.json.encode(a.spec)) for a in judged) // _CHARACTERS_PER_TOKEN
        calls += len(groups) * times
        tokens += (len(groups) * _INSTRUCTION_TOKENS + written) * times
    return Estimate(calls, tokens)


_MATERIAL = ("kind", "subject", "target_node", "output_key", "reference")
"""Fields of a claim that, with those beginning with `show_`, say what the judge sees."""


def _list_groups(assertion: Assertion) -> Iterator[tuple[Json, ...]]:
    """Yield what tells the requests of a claim apart: what the judge sees, and whether it answers yes or no, as constraints are."""
    spec = assertion.spec
    fields = [*_MATERIAL, *(name for name in getattr(spec, "__struct_fields__", ()) if name.startswith("show_"))]
    seen = (assertion.turn, *(getattr(spec, name, None) for name in fields))
    yield (*seen, getattr(spec, "threshold", None) is None)
    if getattr(spec, "negative_constraints", ()):
        yield (*seen, True)
