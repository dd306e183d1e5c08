"""Cases that a matrix made of one: what tells them apart is kept in their settings, their tags and at the end of their id.

refund[model=a,prompt=brief]
"""

from __future__ import annotations

from proctor.model.case import Case

MATRIX = "matrix"
"""In the settings of a case: the value of every axis."""
FILLED = "matrix_in_case"
"""In the settings of a case: the axes that stand in its texts."""


def is_variant(case: Case) -> bool:
    """Return whether a case is one of several that ask the same of different agents, models or prompts."""
    return MATRIX in case.settings


def list_axes(case: Case) -> tuple[str, ...]:
    """Return the axes of a case, in the order of the matrix."""
    axes = case.settings.get(MATRIX)
    return tuple(axes) if isinstance(axes, dict) else ()


def make_variant_id(base: str, names: dict[str, str]) -> str:
    """Return the id of a variant, from the names of its values by axis."""
    return f"{base}[{','.join(f'{axis}={name}' for axis, name in names.items())}]"


def strip_axis(case: Case, axis: str) -> str:
    """Return the id of a case without one of its axes: the same for all values of that axis."""
    axes = list_axes(case)
    if axis not in axes:
        return case.id
    names = {each: str(case.tags.get(each, "")) for each in axes}
    base = case.id.removesuffix(make_variant_id("", names))
    left = {each: name for each, name in names.items() if each != axis}
    return make_variant_id(base, left) if left else base
