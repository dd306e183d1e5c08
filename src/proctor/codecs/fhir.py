"""FHIR R4 search over resources held in memory: what `GET Appointment?patient=Patient/1&status=booked` would find.

Parameters are joined by AND, values between commas by OR. Bundles are opened (their entries are searched), contained resources
are not. Results keep the order of the store unless `_sort` is given; `_count` keeps that many. `patient.family=Smith` follows a
reference; `_include` and `_revinclude` bring along what matches point at, or what points at them. What is not
implemented is refused with `unsupported_search`, never ignored: a search that leaves out a condition finds too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

import msgspec

from proctor.codecs.fhir_dates import iterate_ranges
from proctor.codecs.fhir_elements import Found, iterate_reference_names, iterate_values, open_store
from proctor.codecs.fhir_index import Clue, IndexedStore, ServedResources, find_clue, make_reference_clue
from proctor.codecs.fhir_matching import (
    MODIFIERS,
    Test,
    compile_value,
    find_reference_text,
    fold,
    iterate_strings,
    iterate_tokens,
    split_unescaped,
)
from proctor.codecs.fhir_parameters import Parameter, list_parameters, list_resource_types
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_number, read_digits
from proctor.model.show import nearest, show
from proctor.work import spend

# --- what a FHIR search returns in addition to its matches: `_include` and `_revinclude`


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
        raise CheckFault("unsupported_search", f"{name}: {parameter!r} is not a reference parameter of {source}{more}")
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


_MOST_LINKS = 3
"""References that one search parameter may follow, one after the other."""
_MOST_CHAINS = 20
"""Search parameters of one search that follow references: each may look through every type for each link."""

Filter = Callable[[dict[str, Json]], bool]
Known = dict[int, frozenset[str]]
"""The names that searches found, by the identity of the search."""


class Search(msgspec.Struct, frozen=True):
    """A search that was understood; `find` runs it."""

    resource_type: str
    filters: tuple[Filter, ...]
    order: tuple[tuple[Parameter, bool], ...] = ()
    """Parameters to sort by, each with whether it descends."""
    most: int | None = None
    chains: tuple[Chain, ...] = ()
    includes: tuple[Include, ...] = ()
    clues: tuple[Clue, ...] = ()
    """What an index can go by; the filters say the same and more."""

    def find(self, resources: Iterable[Json] | IndexedStore) -> list[Found]:
        """Return the resources that fit, in order, as many as the search asks for."""
        found = self.list_matches(resources)
        return found if self.most is None else found[: self.most]

    def list_matches(self, resources: Iterable[Json] | IndexedStore, known: Known | None = None) -> list[Found]:
        """Return all resources that fit, in order; of an indexed store only those are looked at that may.

        `known` is what searches inside this one have found already.
        """
        known = {} if known is None else known
        # A chain goes over all resources before the search itself does, and an iterator can be gone over once only.
        held = resources if not self.chains or isinstance(resources, (Sequence, IndexedStore)) else tuple(resources)
        linked = [(chain, chain.find_names(held, known)) for chain in self.chains]
        clues = (*self.clues, *(make_reference_clue(chain.parameter, names) for chain, names in linked))
        found = [
            entry
            for entry in (held.pick(self.resource_type, clues) if isinstance(held, IndexedStore) else open_store(held))
            if entry.resource.get("resourceType") == self.resource_type
            and all(fits(entry.resource) for fits in self.filters)
            and all(chain.fits(entry.resource, names) for chain, names in linked)
        ]
        # The last key first: sorting is stable, so the first key decides in the end.
        for parameter, descending in reversed(self.order):
            found = _sort_found(found, parameter, descending)
        return found

    def find_included(self, matches: Sequence[Found], resources: Iterable[Json] | IndexedStore) -> list[Found]:
        """Return what `_include` and `_revinclude` add to these matches."""
        return find_included(self.includes, matches, resources) if self.includes else []


Made = dict[tuple[str, str, str], Search]
"""Searches at the end of a reference: by type, parameter and value."""


class Chain(msgspec.Struct, frozen=True):
    """A condition on what a reference points at: `patient.family=Smith`."""

    parameter: Parameter
    inner: tuple[Search, ...]
    """One search for each type that the reference may point at."""

    def find_names(self, resources: Iterable[Json] | IndexedStore, known: Known) -> frozenset[str]:
        """Return the resources that the reference must point at."""
        found: set[str] = set()
        for search in self.inner:
            # Several links may lead to one search; it finds the same each time, and without this their number would multiply.
            if id(search) not in known:
                known[id(search)] = frozenset(entry.name for entry in search.list_matches(resources, known))
            found |= known[id(search)]
        return frozenset(found)

    def fits(self, resource: dict[str, Json], names: frozenset[str]) -> bool:
        """Return whether a resource points at one of `names`."""
        return any(name in names for name in iterate_reference_names(resource, self.parameter))


def compile_search(resource_type: str, search: Mapping[str, str] | Iterable[tuple[str, str]], *, field: str = "search") -> Search:
    """Compile a search; pairs may repeat a name, and then all of them must hold.

    Raises `CheckFault` for what is not implemented, `SpecError` for a value of the wrong form.
    """
    return _compile(resource_type, search, field, {})


def _compile(resource_type: str, search: Mapping[str, str] | Iterable[tuple[str, str]], field: str, made: Made) -> Search:
    known = list_parameters(resource_type)
    filters: list[Filter] = []
    clues: list[Clue] = []
    chains: list[Chain] = []
    includes: list[Include] = []
    order: list[tuple[Parameter, bool]] = []
    most: int | None = None
    pairs: Iterable[tuple[str, str]] = cast("Mapping[str, str]", search).items() if isinstance(search, Mapping) else search
    for name, value in pairs:
        if name == "_sort":
            for key in filter(None, value.split(",")):
                order.append((_find_parameter(resource_type, key.lstrip("-"), known), key.startswith("-")))
        elif name == "_count":
            most = read_digits(value, 9)
            if most is None:
                raise SpecError(f"_count: expected a whole number, found {show(value)}", field=f"{field}._count")
        elif name in ("_include", "_revinclude"):
            includes.append(compile_include(name, value, field=f"{field}.{name}"))
        elif "." in name:
            if len(chains) == _MOST_CHAINS:
                raise CheckFault("unsupported_search", f"at most {_MOST_CHAINS} parameters of one search may follow references")
            chains.append(_compile_chain(resource_type, (name, value), f"{field}.{name}", made))
        else:
            fits, clue = _compile_parameter(resource_type, name, value, known, f"{field}.{name}")
            filters.append(fits)
            clues.extend(filter(None, (clue,)))
    return Search(resource_type, tuple(filters), tuple(order), most, tuple(chains), tuple(includes), tuple(clues))


def _compile_chain(resource_type: str, pair: tuple[str, str], field: str, made: Made) -> Chain:
    name, value = pair
    if name.count(".") > _MOST_LINKS:
        raise CheckFault("unsupported_search", f"a search parameter follows at most {_MOST_LINKS} references, {name!r} more")
    head, _, rest = name.partition(".")
    head, _, of_type = head.partition(":")
    parameter = _find_parameter(resource_type, head, list_parameters(resource_type))
    if parameter.kind != "reference":
        raise CheckFault(
            "unsupported_search", f"search parameter {head!r} of {resource_type} is not a reference, so {name!r} leads nowhere"
        )
    wanted = rest.partition(".")[0].partition(":")[0]
    targets = {place.target for place in parameter.places if place.target is not None}
    # If no type is given, every type that has the parameter is searched.
    types = [of_type] if of_type else sorted(targets) or [each for each in list_resource_types() if wanted in list_parameters(each)]
    if not types:
        raise CheckFault("unsupported_search", f"no resource type has the search parameter {wanted!r} of {name!r}")
    for each in types:
        if (each, rest, value) not in made:
            made[each, rest, value] = _compile(each, [(rest, value)], field, made)
    return Chain(parameter, tuple(made[each, rest, value] for each in types))


def _find_parameter(resource_type: str, name: str, known: Mapping[str, Parameter]) -> Parameter:
    if name in known:
        return known[name]
    near = nearest(name, known)
    more = f"; nearest: {', '.join(near)}" if near else ""
    raise CheckFault("unsupported_search", f"search parameter {name!r} of {resource_type} is not supported{more}")


def _compile_parameter(resource_type: str, name: str, value: str, known: Mapping[str, Parameter], field: str) -> tuple[Filter, Clue | None]:
    name, _, word = name.partition(":")
    modifier = word or None
    parameter = _find_parameter(resource_type, name, known)
    if modifier == "missing":
        if value not in ("true", "false"):
            raise SpecError(f"{name}:missing: expected true or false, found {show(value)}", field=field)
        absent = value == "true"
        return lambda resource: absent is (next(iterate_values(resource, parameter), None) is None), None
    # A modifier may be a type: `subject:Patient`.
    typed = parameter.kind == "reference" and modifier is not None and modifier[:1].isupper() and modifier.isalpha()
    if modifier is not None and modifier not in MODIFIERS[parameter.kind] and not typed:
        allowed = ", ".join(f":{entry}" for entry in (*MODIFIERS[parameter.kind], "missing"))
        raise CheckFault(
            "unsupported_search", f"modifier {':' + modifier!r} of search parameter {name!r} is not supported; there are {allowed}"
        )
    parts = split_unescaped(value, ",")
    if not all(parts):
        # Every text begins with an empty text: it would find everything.
        raise SpecError(f"{name}: expected a value, found {'nothing' if not value else f'an empty one in {show(value)}'}", field=field)
    fits: list[Test] = [compile_value(parameter.kind, modifier, part, field=field) for part in parts]
    # FHIR's `:not` also finds resources without any value there.
    negated = modifier == "not"

    def test(resource: dict[str, Json]) -> bool:
        return (
            any(one(element) for element in _count_elements(iterate_values(resource, parameter), len(fits)) for one in fits) is not negated
        )

    return test, find_clue(parameter, modifier, parts)


def _count_elements(elements: Iterator[Json], tests: int) -> Iterator[Json]:
    """Yield the elements, each counted as often as it is looked at."""
    for element in elements:
        parts = element.values() if isinstance(element, dict) else (element,)
        # Paid before anything is compared, so that a resource with huge lists
        # runs out of budget instead of time; texts count by their length.
        spend(
            tests * (1 + sum(len(part) if isinstance(part, list) else len(part) // 16 for part in parts if isinstance(part, (list, str))))
        )
        yield element


def _sort_found(found: list[Found], parameter: Parameter, descending: bool) -> list[Found]:
    """Sort resources, equal ones in their old order; those without a value come last either way."""
    spend(len(found))
    with_key = [(key, entry) for entry in found if (key := _sort_key(entry.resource, parameter, descending)) is not None]
    # By identity: a resource holds dicts, which have no hash, and two resources may be equal.
    keyed = {id(entry) for _, entry in with_key}
    with_key.sort(key=lambda pair: pair[0], reverse=descending)
    return [entry for _, entry in with_key] + [entry for entry in found if id(entry) not in keyed]


def _sort_key(resource: dict[str, Json], parameter: Parameter, descending: bool) -> Json:
    keys = [key for element in iterate_values(resource, parameter) if (key := _make_sort_key(element, parameter)) is not None]
    if not keys:
        return None
    # Of several values FHIR sorts by the lowest, and descending by the highest.
    return max(keys) if descending else min(keys)


def _make_sort_key(element: Json, parameter: Parameter) -> Json:
    match parameter.kind:
        case "date":
            return next((found.start for found in iterate_ranges(element)), None)
        case "token":
            return next((code for _, code in iterate_tokens(element)), None)
        case "reference":
            return find_reference_text(element)
        case "string":
            return next((fold(text) for text in iterate_strings(element)), None)
        case "uri":
            return element if isinstance(element, str) else None
        case "number" | "quantity":
            value = element.get("value") if isinstance(element, dict) else element
            return value if is_number(value) else None
