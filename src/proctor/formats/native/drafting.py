"""Shared by the dialect readers: verified assertions, valid dependencies, unique ids."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import msgspec
from msgspec import structs

from proctor.checks.registry import CheckEntry, Registry, default_registry
from proctor.errors import SpecError
from proctor.formats.text.located import Located, Reading
from proctor.model.case import Assertion
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.model.typed import convert_to

_LONGEST_CHAIN = 12


def make_default_label(entry: CheckEntry, spec: msgspec.Struct) -> str:
    """Return the default label of an assertion: the check and its main value."""
    # Without a main value, the first field counts if it is required, such as the field of `json_field`.
    name = entry.shorthand or next((field.name for field in structs.fields(spec)[:1] if field.required and field.type is str), None)
    value = None if name is None else getattr(spec, name)
    return entry.name if value in (None, (), "") else f"{entry.name} · {value if isinstance(value, str) else show(value, 80)}"


def draft_assertion(
    reading: Reading,
    node: Located,
    check: str,
    spec: msgspec.Struct,
    *,
    fields: Mapping[str, Located] | None = None,
    registry: Registry | None = None,
    **more: Json,
) -> Assertion:
    """Return an assertion written at `node`, prepared once to verify its spec.

    `fields` maps spec fields to the values they came from, where the dialect spells them differently. `more` are the
    other fields of `Assertion`.
    """
    try:
        (registry or default_registry()).prepare(check, spec)
    except SpecError as error:
        reading.report_spec_error(node, error, fields)
    return Assertion(check=check, spec=spec, origin=reading.origin(node), **more)


_MOST_CIRCLES = 20
"""Maximum number of circular dependencies reported: each needs a search, and fixing one fixes others."""


def verify_dependencies(reading: Reading, entries: Sequence[tuple[Assertion, Located]]) -> None:
    """Report duplicate ids, unknown dependencies, cycles, and turn assertions that depend on later or whole-run ones."""
    by_id: dict[str, Assertion] = {}

    def refuse(node: Located, key: str, message: str, code: str, **more: Json) -> None:
        reading.error(node.get(key) or node, message, code=code, **more)

    for assertion, node in entries:
        if assertion.id is not None and assertion.id in by_id:
            refuse(node, "id", f"duplicate assertion id {assertion.id!r}", "duplicate_id", hint="ids are unique over the case")
        if assertion.id is not None:
            by_id.setdefault(assertion.id, assertion)
    sound = True
    for assertion, node in entries:
        for dependency in assertion.depends_on:
            other = by_id.get(dependency)
            if other is None:
                sound = False
                message = f"depends on {dependency!r}, but no assertion of this case has that id"
                refuse(node, "depends_on", message, "unknown_dependency", nearest=nearest(dependency, by_id))
            elif assertion.turn is not None and other.turn is None:
                message = f"an assertion of a turn cannot depend on {dependency!r}, which is about the whole conversation"
                refuse(node, "depends_on", message, "unknown_dependency")
    # Only if every id is known: the search for cycles follows each dependency to its assertion.
    cycles = _find_cycles(by_id) if sound else {}
    for assertion, node in [entry for entry in entries if entry[0].id in cycles][:_MOST_CIRCLES]:
        cycle = cycles[assertion.id or ""]
        at = cycle.index(assertion.id or "")
        chain = [*cycle[at:], *cycle[: at + 1]]
        shown = [*chain[:_LONGEST_CHAIN], "...", chain[-1]] if len(chain) > _LONGEST_CHAIN + 1 else chain
        path = f": {' -> '.join(shown)}" if len(chain) > 2 else ""
        refuse(node, "depends_on", f"assertion {assertion.id!r} depends on itself{path}", "dependency_cycle")


def _find_cycles(by_id: Mapping[str, Assertion]) -> dict[str, list[str]]:
    """Return the ids that depend on themselves, each with its cycle."""
    graph = {id: set(assertion.depends_on) for id, assertion in by_id.items()}
    cycles: dict[str, list[str]] = {}
    while len(cycles) < _MOST_CIRCLES:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            # Its first id is also its last, and each is needed by the next.
            cycle: list[str] = error.args[1][:0:-1]
            cycles |= dict.fromkeys(cycle, cycle)
            graph = {id: dependencies - cycles.keys() for id, dependencies in graph.items() if id not in cycles}
        else:
            break
    return cycles


def make_slug(text: str) -> str:
    """Return a short id for a sentence: lower case, words joined by hyphens."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()[:400]).strip("-")
    return words[:60].rstrip("-") or "case"


def make_unique(wanted: str, taken: Container[str]) -> str:
    """Return `wanted`, followed by the next free number if it is taken; the number is stored, not searched for."""
    if wanted not in taken:
        return wanted
    # Doubling, then bisecting: n cases of one name cost n log n lookups instead of n squared. A number in between may be skipped; the
    # returned one is always free.
    used, free = 1, 2
    while f"{wanted}-{free}" in taken:
        used, free = free, free * 2
    while free - used > 1:
        middle = (used + free) // 2
        used, free = (middle, free) if f"{wanted}-{middle}" in taken else (used, middle)
    return f"{wanted}-{free}"


def add_id(text: str, used: set[str]) -> str:
    """Return a new id for a sentence, and add it to the used ones."""
    made = make_unique(make_slug(text), used)
    used.add(made)
    return made


class Claim(NamedTuple):
    """One claim in native form."""

    check: str
    fields: dict[str, Json]
    advisory: bool = False


def build_assertion(reading: Reading, node: Located, claim: Claim, label: str) -> Assertion | None:
    """Return a claim written at `node` as an assertion; None after a problem."""
    registry = default_registry()
    try:
        spec = convert_to(claim.fields, registry.get(claim.check).spec)
        registry.prepare(claim.check, spec)
    except (msgspec.ValidationError, SpecError) as error:
        reading.error(node, f"{label}: {error}", code="wrong_value")
        return None
    return Assertion(check=claim.check, spec=spec, label=label, advisory=claim.advisory, origin=reading.origin(node))


def build_unsupported(reading: Reading, node: Located, label: str, reason: str) -> Assertion | None:
    """Warn about a claim that cannot be decided here, and return an assertion that always fails."""
    reading.warn(node, f"{label} is not decided here: {reason}", code="unsupported_assertion")
    return build_assertion(reading, node, Claim("unsupported", {"reason": reason}), label)
