"""`matrix:` of a suite: every case once for each combination of the values of its axes.

    matrix:
      model: [small, large]
      prompt: {brief: Answer in one sentence., long: Explain every step.}

The id of a case gets the names of the values at its end (`refund[model=small,prompt=brief]`), its tags have one for each axis, and its
context the values, so that a target's template, its settings and the texts of the case may contain `{model}`. A value is called by its
text; a long one by its name in an object, by `{name: ..., value: ...}` in a list, or by its first words.

The defaults of every case are here as well, since the reader of rows needs them too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec

from proctor.expressions.text_form import write_text_form
from proctor.formats.native.drafting import make_slug, make_unique
from proctor.formats.text.located import Located, Reading
from proctor.model.case import FILLED, MATRIX, Case, Scoring, System, make_variant_id
from proctor.model.evidence import Json
from proctor.model.lazy_pattern import lazy_pattern

MOST_VARIANTS = 1_000
_AXIS = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")
_PLAIN_NAME = lazy_pattern(r"[^\s,=\[\]{}\"'][^,=\[\]{}\"'\r\n\t]{0,39}\Z")
_TAKEN = ("user_message", "input", "request_id", "external_id", "session_id", "id", "timezone")
"""Placeholders that already have another meaning."""


class Variant(msgspec.Struct, frozen=True):
    """One combination: the name and the value of every axis."""

    names: dict[str, str]
    values: dict[str, Json]


def read_matrix(node: Located | None, reading: Reading) -> tuple[Variant, ...]:
    """Return every combination in order; none without a matrix, or after a problem."""
    if node is None or reading.require_object(node, "matrix") is None:
        return ()
    axes: dict[str, list[tuple[str, Json]]] = {}
    sound = True
    for axis, member in node.members():
        if not _AXIS.match(axis) or axis in _TAKEN:
            why = "means something else already" if axis in _TAKEN else "is not a name: letters, digits, _ . and -"
            reading.error_at_key(node, axis, f"the axis {axis!r} {why}", code="bad_axis")
            sound = False
        axes[axis] = _read_values(axis, member, reading)
        if not axes[axis]:
            sound = False
    # Multiplied before any is built: a few short axes can mean billions of combinations.
    count = math.prod(len(values) for values in axes.values())
    if count > MOST_VARIANTS:
        size = " x ".join(f"{len(values)} {axis}" for axis, values in axes.items())
        reading.error(node, f"{size} make {count:,} combinations; a matrix has at most {MOST_VARIANTS:,}", code="too_many_variants")
        return ()
    if not sound or not axes:
        return ()
    return tuple(
        Variant({axis: name for axis, (name, _) in chosen}, {axis: value for axis, (_, value) in chosen})
        for chosen in ([*zip(axes, row, strict=True)] for row in itertools.product(*axes.values()))
    )


def _read_values(axis: str, node: Located, reading: Reading) -> list[tuple[str, Json]]:
    """Return the values of an axis with their names; none after a problem."""
    if node.is_object:
        named_values = [(key, member.plain()) for key, member in node.members()]
        for key, _ in named_values:
            if not _PLAIN_NAME.match(key):
                reading.error_at_key(
                    node, key, "a name in a matrix has no , = [ ] { } or quotes and at most 40 characters", code="bad_axis"
                )
                return []
    elif node.is_list:
        named_values: list[tuple[str, Json]] = []
        taken: set[str] = set()
        for index, item in enumerate(node.items()):
            value: Json = item.plain()
            named = isinstance(value, dict) and set(value) == {"name", "value"} and isinstance(value["name"], str)
            if named and _PLAIN_NAME.match(value["name"]):
                name, value = value["name"], value["value"]
            elif isinstance(value, dict):
                name = f"{axis}-{index + 1}"
            else:
                text = write_text_form(value)
                name = text if _PLAIN_NAME.match(text) else make_slug(text)[:40].rstrip("-")
            # Long values are named by their first words, which may be the same.
            name = make_unique(name, taken)
            taken.add(name)
            named_values.append((name, value))
    else:
        reading.error(
            node, f"matrix {axis!r}: expected a list of values, or an object of named values, found {node.kind}", code="wrong_type"
        )
        return []
    if not named_values:
        reading.error(node, f"matrix {axis!r}: expected at least one value", code="wrong_value")
    return named_values


def make_variant(case: Case, variant: Variant, filled: Sequence[str]) -> Case:
    """Return a case as one of its variants; `filled` are the axes that occur in its texts."""
    settings: dict[str, Json] = {**case.settings, MATRIX: variant.values}
    if filled:
        settings[FILLED] = list(filled)
    return msgspec.structs.replace(
        case,
        id=make_variant_id(case.id, variant.names),
        # Two cases with the same name would be confused.
        name=make_variant_id(f"{case.name} ", variant.names) if case.name else "",
        tags={**case.tags, **variant.names},
        context={**case.context, **variant.values},
        settings=settings,
    )


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of every case of a suite."""

    context: dict[str, Json] = {}
    systems: tuple[System, ...] = ()
    timezone: str | None = None
    scoring: Scoring = Scoring()
    tags: dict[str, Json] = {}
