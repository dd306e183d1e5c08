"""The names that a path of a condition may use, checked when a suite is read: those of evidence and of what it holds.

Below a value that arrives as JSON (`arguments`, `body`, `metadata`) any name may stand, as only the agent knows them.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any

import msgspec

from proctor.errors import SpecError
from proctor.expressions.condition import Key, Step
from proctor.model.evidence import Evidence
from proctor.model.show import nearest

_HIDDEN = frozenset(("account", "no_run", "case"))
"""Fields of evidence that are about the record, not about the run."""


def list_roots() -> tuple[str, ...]:
    """Return the names that a path may begin with."""
    return tuple(name for name in Evidence.__struct_fields__ if name not in _HIDDEN)


def check_step(kind: Any, step: Step, at: str, offset: int) -> Any:
    """Return the type that a step leads to from a value of type `kind`; `at` is the path so far. Raises `SpecError`."""
    kind = _strip_none(kind)
    if kind is Any:
        return Any
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _check_member(kind, step, at, offset)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (tuple, list):
        if isinstance(step, Key):
            raise SpecError(
                f"{at} is a list and has no member {step.name!r}",
                offset=offset,
                hint=f"{at}[*].{step.name} is that of every item, {at}[0].{step.name} that of the first",
            )
        return inner[0]
    if origin is dict:
        if not isinstance(step, Key):
            raise SpecError(f"{at} is an object, not a list", offset=offset, hint=f"name a member: {at}.name")
        return inner[1]
    raise SpecError(f"{at} is {'text' if kind is str else 'a single value'} and holds nothing to look into", offset=offset)


def _check_member(kind: type[msgspec.Struct], step: Step, at: str, offset: int) -> Any:
    names = list_roots() if kind is Evidence else kind.__struct_fields__
    if not isinstance(step, Key):
        raise SpecError(f"{at} is an object, not a list", offset=offset, hint=f"known here: {', '.join(names)}")
    if step.name not in names:
        where = "evidence" if kind is Evidence else at
        raise SpecError(
            f"unknown name {step.name!r} in {where}",
            offset=offset,
            nearest=nearest(step.name, names),
            hint=f"known here: {', '.join(names)}",
        )
    return _get_types(kind)[step.name]


@functools.cache
def _get_types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _strip_none(kind: Any) -> Any:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        inner = [each for each in typing.get_args(kind) if each is not type(None)]
        # Which of several kinds it is comes out only with the evidence, so below it any name may stand.
        return inner[0] if len(inner) == 1 else Any
    return kind
