"""What a FHIR search brings along beside its matches: `_include` and `_revinclude`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proctor.codecs.fhir_elements import Found, iterate_reference_names, open_store
from proctor.codecs.fhir_index import IndexedStore, ServedResources, make_reference_clue
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


def find_included(includes: Iterable[Include], matches: Sequence[Found], resources: Iterable[Json] | IndexedStore) -> list[Found]:
    """Return the resources that are brought along, none of them a match; each is looked up, none is looked for among all."""
    store = resources if isinstance(resources, IndexedStore) else ServedResources([found.resource for found in open_store(resources)])
    matched = {match.name for match in matches}
    brought: dict[str, Found] = {}
    for include in includes:
        for found in _find_pointing(include, matched, store) if include.reverse else _find_pointed_at(include, matches, store):
            if found.name not in matched:
                brought.setdefault(found.name, found)
    return list(brought.values())


def _find_pointed_at(include: Include, matches: Sequence[Found], store: IndexedStore) -> Iterator[Found]:
    names: dict[str, None] = {}
    for match in matches:
        if match.resource.get("resourceType") == include.source:
            names.update((name, None) for each in include.parameters for name in iterate_reference_names(match.resource, each))
    for name in names:
        kind, _, key = name.partition("/")
        found = store.get(kind, key) if include.target in (None, kind) else None
        if found is not None:
            yield found


def _find_pointing(include: Include, matched: set[str], store: IndexedStore) -> Iterator[Found]:
    for parameter in include.parameters if matched else ():
        for entry in store.pick(include.source, (make_reference_clue(parameter, sorted(matched)),)):
            if _points_at(entry, include, matched):
                yield entry


def _points_at(entry: Found, include: Include, matched: set[str]) -> bool:
    names = (name for each in include.parameters for name in iterate_reference_names(entry.resource, each))
    return any(name in matched and include.target in (None, name.partition("/")[0]) for name in names)
