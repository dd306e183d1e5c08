"""What happens to the simulated systems of a task by itself: a file arrives, a resource is added. At once when the task starts, or later.

    {"drop_file_inbox": {"path": "referral.json", "content": "..."}}
    {"steps": [{"simulator": "files", "step": "drop_file_inbox", "given": {...}, "after_s": 30}]}

The short form names steps that one kind of system alone performs. `simulator` is a type (`Files`) or a kind (`files`); left out, it is the
one kind that has the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_finite, is_number
from proctor.model.show import kind_of, nearest, show
from proctor.model.system import LONGEST_S
from proctor.simulators.registry import find_simulator, list_kinds
from proctor.simulators.type_names import read_kind

MOST_STEPS = 100
_KEYS = ("simulator", "step", "given", "after_s")


class ScenarioStep(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happens."""

    kind: str
    """Of the system that it happens to."""
    step: str
    given: Json = None
    after_s: float = 0.0
    """Seconds after the start of the task."""


def read_scenario(value: Json) -> tuple[ScenarioStep, ...]:
    """Return the steps of a scenario. Raises `SpecError` whose field is the place of what is wrong."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise SpecError(f"a scenario is an object, found {kind_of(value)}")
    given = cast("dict[str, Json]", value)
    if "steps" not in given:
        return tuple(_read_step({"step": name, "given": content}, name) for name, content in given.items())
    for name in given:
        if name != "steps":
            raise SpecError("unknown key, expected only steps", field=name)
    steps = given["steps"]
    if not isinstance(steps, list) or len(cast("list[Json]", steps)) > MOST_STEPS:
        raise SpecError(f"expected a list of at most {MOST_STEPS} steps", field="steps")
    return tuple(_read_step(step, f"steps.{index}") for index, step in enumerate(cast("list[Json]", steps)))


def _read_step(value: Json, place: str) -> ScenarioStep:
    if not isinstance(value, dict):
        raise SpecError(f"expected an object, got {kind_of(value)}", field=place)
    given = cast("dict[str, Json]", value)
    for name in given:
        if name not in _KEYS:
            near = nearest(name, _KEYS)
            raise SpecError(f"unknown key; nearest: {', '.join(near or _KEYS)}", field=f"{place}.{name}")
    step, simulator, after_s = given.get("step"), given.get("simulator"), given.get("after_s", 0)
    if not isinstance(step, str):
        raise SpecError("expected the name of a step", field=f"{place}.step")
    if not is_number(after_s) or not is_finite(after_s) or not 0 <= after_s <= LONGEST_S:
        raise SpecError(f"expected seconds from 0 to {LONGEST_S:g}, got {show(after_s, 40)}", field=f"{place}.after_s")
    kind = _find_kind_of_step(step, place) if simulator is None else _find_simulator(simulator, f"{place}.simulator")
    _check_step(kind, step, place)
    return ScenarioStep(kind=kind, step=step, given=given.get("given"), after_s=float(after_s))


def _find_simulator(word: Json, place: str) -> str:
    try:
        return read_kind(word)
    except SpecError as error:
        raise SpecError(error.message, field=place) from None


def _find_kind_of_step(step: str, place: str) -> str:
    steps: Mapping[str, list[str]] = _list_steps()
    if len(steps.get(step, ())) != 1:
        near = nearest(step, steps)
        more = f"; nearest: {', '.join(near)}" if near else ""
        message = "several simulators have it: add `simulator`" if step in steps else f"no simulator has such a step{more}"
        raise SpecError(f"{show(step, 60)}: {message}", field=place)
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
        raise SpecError(f"a system of kind {kind} has no step {show(step, 60)}{more}", field=f"{place}.step")
