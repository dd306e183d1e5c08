"""Who is driven where a suite has a matrix: the cases of one combination of values may go to another target than those of the next.

An axis called `target` (or `agent`) names the target. Any other may stand in the settings of a target as `{axis}`, so that each value makes
a target of its own; what a target fills in itself for every message (`template`, addresses, headers) is left to it. An axis that stands
nowhere would make columns that differ by chance alone, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from proctor.actions.running.run_policy import TargetLike
from proctor.errors import InputError
from proctor.formats.text.placeholders import LocatedTemplate
from proctor.formats.workspace_file.workspace import Section
from proctor.model.case import FILLED, MATRIX, Case, Suite, is_variant
from proctor.model.evidence import Json
from proctor.model.lazy_cases import group_cases, may_have
from proctor.model.show import show

TARGET_AXES = ("target", "agent")
_FILLED_BY_TARGET = {"http": ("url", "headers", "template"), "n8n": ("webhook", "headers", "template")}

FindSection = Callable[[str | None], Section]


class TargetGroup(msgspec.Struct, frozen=True):
    """Cases that go to one target, and the values that its settings are filled with."""

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
        # Looked up once: the key is asked for with every case, and again with every attempt. Suites of one folder may have different axes.
        asked = (name, tuple(values))
        if asked not in known:
            known[asked] = frozenset(_find_axes(find_section(name), values))
        used = {axis: value for axis, value in values.items() if axis in known[asked]}
        return msgspec.json.encode((name, used), order="sorted").decode()

    groups: list[TargetGroup] = []
    for cases in group_cases(suite.cases, find_key):
        values: dict[str, Json] = cases[0].settings.get(MATRIX) or {}
        part = msgspec.structs.replace(suite, cases=cases)
        groups.append(TargetGroup(part, _choose_target(values, target), values, _takes_key(find_key, find_key(cases[0]))))
    return groups


def _takes_key(find_key: Callable[[Case], str], key: str) -> Callable[[Case], bool]:
    return lambda case: find_key(case) == key


def _choose_target(values: Mapping[str, Json], given: TargetLike) -> TargetLike:
    axis = next((axis for axis in TARGET_AXES if axis in values), None)
    if axis is None:
        return given
    if given is not None:
        raise InputError(f"the matrix of the suite names its targets under {axis!r}; leave out the one that is given")
    name = values[axis]
    if not isinstance(name, str):
        raise InputError(f"matrix {axis!r}: expected names of targets, found {show(name, 60)}")
    return name


def _find_axes(section: Section, values: Mapping[str, Json]) -> Iterator[str]:
    own = _FILLED_BY_TARGET.get(section.find_text("type") or "", ())
    for key, member in section.node.members():
        if key not in own:
            yield from LocatedTemplate(member, only=frozenset(values)).placeholders


def fill_section(section: Section, values: Mapping[str, Json]) -> Section:
    """Return the settings of a target with the axes of a matrix filled in."""
    if not values:
        return section
    own = _FILLED_BY_TARGET.get(section.find_text("type") or "", ())
    filled = {
        key: member if key in own else LocatedTemplate(member, only=frozenset(values)).fill(values)
        for key, member in section.node.members()
    }
    # The same section, where nothing was filled in: one that is made anew has lost its text, which tells the line of a fault.
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
