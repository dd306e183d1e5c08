"""What a FHIR search brings along beside its matches: `_include` and `_revinclude`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from proctor.codecs.fhir_elements import Found, iterate_reference_names, open_store
from proctor.codecs.fhir_parameters import Parameter, list_parameters
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Json
from proctor.model.show import nearest, show


class Include(msgspec.Struct, frozen=True):
    """Resources that are brought along: those the matches point at, or, in reverse, those that point at the matches."""

    source: str
    parameters: tuple[Parameter, ...]
    target: str | None
    """Only resources of this type."""
    reverse: bool


def compile_include(name: str, value: str, *, field: str) -> Include:
    """Return what `Appointment:patient` or `Appointment:actor:Patient` asks for; `*` in place of the parameter is every reference.

    Raises `CheckFault` for a parameter that is not supported, `SpecError` for a value of the wrong form.
    """
    source, _, rest = value.partition(":")
    parameter, _, target = rest.partition(":")
    if not source or not parameter:
        raise SpecError(f"{name}: expected Type:parameter, found {show(value)}", field=field)
    known = {key: each for key, each in list_parameters(source).items() if each.kind == "reference"}
    if parameter != "*" and parameter not in known:
        near = nearest(parameter, known)
        more = f"; nearest: {', '.join(near)}" if near else ""
        raise CheckFault("unsupported_search", f"{name}: {parameter!r} is no reference parameter of {source}{more}")
    chosen = tuple(known.values()) if parameter == "*" else (known[parameter],)
    return Include(source, chosen, target or None, name == "_revinclude")


def find_included(includes: Iterable[Include], matches: Sequence[Found], resources: Iterable[Json]) -> list[Found]:
    """Return the resources that are brought along, in the order of the store, none of them a match."""
    wanted: set[str] = set()
    pointing: list[Include] = []
    for include in includes:
        if include.reverse:
            pointing.append(include)
            continue
        for match in matches:
            if match.resource.get("resourceType") == include.source:
                names = (name for each in include.parameters for name in iterate_reference_names(match.resource, each))
                wanted.update(name for name in names if include.target in (None, name.partition("/")[0]))
    matched = {match.name for match in matches}
    return [
        entry
        for entry in open_store(resources)
        if entry.name not in matched and (entry.name in wanted or any(_points_at(entry, include, matched) for include in pointing))
    ]


def _points_at(entry: Found, include: Include, matched: set[str]) -> bool:
    if entry.resource.get("resourceType") != include.source:
        return False
    names = (name for each in include.parameters for name in iterate_reference_names(entry.resource, each))
    return any(name in matched and include.target in (None, name.partition("/")[0]) for name in names)
