"""What happens to the simulated systems of a task by itself: a file arrives, a resource is added. At once when the task starts, or later.

    {"drop_file_inbox": {"path": "referral.json", "content": "..."}}
    {"steps": [{"simulator": "files", "step": "drop_file_inbox", "given": {...}, "after_s": 30}]}

The short form names steps that one kind of system alone performs. `simulator` is a type (`Files`) or a kind (`files`); left out, it is the
one kind that has the step. A scenario that names what is not there is refused when it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.numbers import is_finite
from proctor.model.show import kind_of, nearest, show
from proctor.service.hub import Hub
from proctor.service.verification.fields import invalid
from proctor.service.verification.seeding import make_surroundings
from proctor.service.verification.system_kinds import ALIASES, TYPES, describe_spec_error, find_kind
from proctor.simulators.ports import Desk
from proctor.simulators.registry import find_simulator, list_kinds
from proctor.simulators.rows import NO_ROWS, Draft

MOST_STEPS = 100
_LONGEST_S = 1e7
_KEYS = ("simulator", "step", "given", "after_s")


class ScenarioStep(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happens."""

    kind: str
    """Of the system that it happens to."""
    step: str
    given: Json = None
    after_s: float = 0.0
    """Seconds after the start of the task."""


class _Wrong(Exception):
    """A part of a scenario that cannot be used: where, and why."""

    def __init__(self, place: str, told: str) -> None:
        super().__init__(told)
        self.place, self.told = place, told


def read_scenario(value: Json) -> tuple[ScenarioStep, ...]:
    """Return the steps of a scenario. Raises `Refusal` that names the place of what is wrong."""
    if value is None:
        return ()
    given = cast("dict[str, Json]", value)
    try:
        if "steps" not in given:
            return tuple(_read_step({"step": name, "given": content}, name) for name, content in given.items())
        for name in given:
            if name != "steps":
                raise _Wrong(name, "unknown key beside steps")
        steps = given["steps"]
        if not isinstance(steps, list) or len(cast("list[Json]", steps)) > MOST_STEPS:
            raise _Wrong("steps", f"expected a list of at most {MOST_STEPS} steps")
        return tuple(_read_step(step, f"steps.{index}") for index, step in enumerate(cast("list[Json]", steps)))
    except _Wrong as wrong:
        raise invalid("task", {f"scenario.{wrong.place}": [wrong.told]}) from None


def check_scenario(hub: Hub, value: Json) -> None:
    """Refuse a scenario with a step that cannot be performed."""
    for index, one in enumerate(read_scenario(value)):
        try:
            find_simulator(one.kind).perform(one.step, one.given, Desk(Draft(NO_ROWS, one.kind), make_surroundings(hub)))
        except SpecError as error:
            raise invalid("task", {f"scenario.steps.{index}": [f"{one.step}: {describe_spec_error(error)}"]}) from None


def _read_step(value: Json, place: str) -> ScenarioStep:
    if not isinstance(value, dict):
        raise _Wrong(place, f"expected an object, got {kind_of(value)}")
    given = cast("dict[str, Json]", value)
    for name in given:
        if name not in _KEYS:
            near = nearest(name, _KEYS)
            raise _Wrong(f"{place}.{name}", f"unknown key; nearest: {', '.join(near or _KEYS)}")
    step, simulator, after_s = given.get("step"), given.get("simulator"), given.get("after_s", 0)
    if not isinstance(step, str):
        raise _Wrong(f"{place}.step", "expected the name of a step")
    if isinstance(after_s, bool) or not isinstance(after_s, (int, float)) or not is_finite(after_s) or not 0 <= after_s <= _LONGEST_S:
        raise _Wrong(f"{place}.after_s", f"expected seconds from 0 to {_LONGEST_S:g}, got {show(after_s, 40)}")
    kind = _find_kind_of_step(step, place) if simulator is None else _find_simulator(simulator, f"{place}.simulator")
    _check_step(kind, step, place)
    return ScenarioStep(kind=kind, step=step, given=given.get("given"), after_s=float(after_s))


def _find_simulator(word: Json, place: str) -> str:
    known = {name.lower(): find_kind(type) for type in TYPES for name in (type, *(a for a, meant in ALIASES.items() if meant == type))}
    known |= {kind: kind for kind in list_kinds()}
    if not isinstance(word, str) or word.lower() not in known:
        near = nearest(str(word).lower(), known)
        more = f"; nearest: {', '.join(near)}" if near else f"; there are {', '.join(list_kinds())}"
        raise _Wrong(place, f"unknown simulator {show(word, 60)}{more}")
    kind = known[word.lower()]
    if kind is None:
        raise _Wrong(place, f"nothing runs behind a simulator of type {show(word, 60)}; there are {', '.join(list_kinds())}")
    return kind


def _find_kind_of_step(step: str, place: str) -> str:
    steps: Mapping[str, list[str]] = _list_steps()
    if len(steps.get(step, ())) != 1:
        near = nearest(step, steps)
        more = f"; nearest: {', '.join(near)}" if near else ""
        told = "several simulators have it: write simulator beside it" if step in steps else f"no simulator has such a step{more}"
        raise _Wrong(place, f"{show(step, 60)}: {told}")
    return steps[step][0]


def _list_steps() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in list_kinds():
        for step in find_simulator(kind).steps:
            found.setdefault(step, []).append(kind)
    return found


def _check_step(kind: str, step: str, place: str) -> None:
    steps = find_simulator(kind).steps
    if step not in steps:
        near = nearest(step, steps)
        more = f"; nearest: {', '.join(near)}" if near else f"; there are: {', '.join(steps) or 'none'}"
        raise _Wrong(f"{place}.step", f"a system of kind {kind} has no step {show(step, 60)}{more}")
