"""FHIR R4 search over resources in memory: the results of `GET Appointment?patient=Patient/1&status=booked`.

Parameters are joined by AND, values between commas by OR. Bundles are opened (their entries are searched), contained resources are not.
Results keep the order of the store unless `_sort` is given; `_count` limits their number. `patient.family=Smith` follows a reference;
`_include` and `_revinclude` add resources that matches refer to, or that refer to them. Unimplemented features are rejected with
`unsupported_search`, never ignored: a search without one of its conditions finds too much.

An index of the resources of one type narrows searches by token or reference. It only excludes resources that cannot match: the search tests
the rest exactly as it tests a store without an index, in the same order. The table of a parameter is built on first use. Changes do not
update it: resources written since then are always scanned, and once there are many, the owner of the index builds a new one.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

import msgspec

from proctor.codecs.fhir_matching import (
    MODIFIERS,
    PlacedResource,
    Test,
    compile_value,
    find_reference_text,
    fold,
    iterate_reference_names,
    iterate_strings,
    iterate_tokens,
    iterate_values,
    open_store,
    split_unescaped,
    strip_version,
    unescape,
)
from proctor.codecs.fhir_parameters import Parameter, iterate_ranges, list_parameters, list_resource_types
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_number, read_digits
from proctor.model.show import show, suggest
from proctor.work import spend

_SEPARATOR = re.compile("[/:]")
_MOST_WRITTEN = 256
"""The maximum number of resources written since the tables were built: every search examines each of them."""
Table = dict[str, list[str]]
"""Keys of resources by a word of their values."""


class Clue(msgspec.Struct, frozen=True):
    """A property of all matches of a condition: one of these words is among the values of a parameter."""

    parameter: Parameter
    words: tuple[str, ...]


def find_clue(parameter: Parameter, modifier: str | None, parts: Sequence[str]) -> Clue | None:
    """Return the clue of a condition, parts joined by OR, or None."""
    words: list[str] = []
    for part in parts:
        if parameter.kind == "token" and modifier is None:
            system, *rest = split_unescaped(part, "|")
            word = unescape("|".join(rest) if rest else system)
            # `system|` matches any code of a system, so there is no word to look up.
            if rest and not word:
                return None
        elif parameter.kind == "reference" and modifier != "identifier":
            word = _find_last_part(strip_version(unescape(part)))
        else:
            return None
        words += [word, word.lower()] if "@" in word else [word]
    return Clue(parameter, tuple(dict.fromkeys(words)))


class ResourceIndex:
    """The resources of one type by the values of their parameters."""

    def __init__(self, rows: Mapping[str, Json]) -> None:
        self._tables = _Tables(rows)
        self._written: dict[str, int | None] = {}
        """Store positions of resources written since; None if deleted."""
        self._next = len(rows)

    def branch(self) -> ResourceIndex:
        """Return an independent copy of the index; the tables are shared."""
        copy = ResourceIndex.__new__(ResourceIndex)
        copy._tables, copy._written, copy._next = self._tables, dict(self._written), self._next
        return copy

    def follow(self, key: str, *, removed: bool) -> bool:
        """Note that a row was written or removed; False if the index should be rebuilt."""
        if removed:
            self._written[key] = None
        # Also one that was removed before: a dict puts it at its end, and so does the order here.
        elif self._find_position(key) is None:
            self._written[key] = self._next
            self._next += 1
        else:
            self._written[key] = self._find_position(key)
        return len(self._written) <= _MOST_WRITTEN

    def list_keys(self, clues: Sequence[Clue]) -> list[str]:
        """Return the keys of all candidates, in the order of the store."""
        tables = [(clue, self._tables.find(clue.parameter)) for clue in clues]
        candidates = [[key for word in clue.words for key in table.get(word, ())] for clue, table in tables]
        # One clue is enough, the one with the fewest candidates: the search tests all conditions of these anyway.
        keys = {key for key in min(candidates, key=len) if key not in self._written}
        # The search must reach these and raise its fault, as in a store without an index.
        keys.update(key for key in self._tables.unread if key not in self._written)
        keys.update(key for key, position in self._written.items() if position is not None)
        return sorted(keys, key=lambda key: self._find_position(key) or 0)

    def _find_position(self, key: str) -> int | None:
        return self._written[key] if key in self._written else self._tables.positions.get(key)


class _Tables:
    """Tables over a snapshot of the rows."""

    def __init__(self, rows: Mapping[str, Json]) -> None:
        # A shallow copy: the owner of the rows may continue writing.
        self._rows = dict(rows)
        self.positions = {key: position for position, key in enumerate(rows)}
        self.unread: set[str] = set()
        """Resources with too many values: the search itself reports that."""
        self._tables_by_name: dict[str, Table] = {}

    def find(self, parameter: Parameter) -> Table:
        known = self._tables_by_name.get(parameter.name)
        if known is not None:
            return known
        table: Table = {}
        spend(len(self._rows))
        for key, resource in self._rows.items():
            try:
                for word in dict.fromkeys(_iterate_words(resource, parameter)):
                    table.setdefault(word, []).append(key)
            except CheckFault:
                self.unread.add(key)
        # Two threads may build the same table; either one is used.
        self._tables_by_name[parameter.name] = table
        return table


def _iterate_words(resource: dict[str, Json], parameter: Parameter) -> Iterator[str]:
    for element in iterate_values(resource, parameter):
        if parameter.kind == "token":
            yield from (code for _, code in iterate_tokens(element))
        else:
            text = find_reference_text(element)
            if text is not None:
                yield _find_last_part(text)


def _find_last_part(reference: str) -> str:
    """Return the common part of two equivalent references, whether relative, an address or a `urn:uuid:`."""
    return _SEPARATOR.split(reference)[-1]


def make_reference_clue(parameter: Parameter, names: Iterable[str]) -> Clue:
    """Return the clue that a reference points at one of these resources (`Patient/17`)."""
    return Clue(parameter, tuple(dict.fromkeys(_find_last_part(name) for name in names)))


class IndexedStore(ABC):
    """The rows of a server: resources by type, with a lookup of candidates. A Bundle is an ordinary resource."""

    @abstractmethod
    def pick(self, resource_type: str, clues: Sequence[Clue]) -> Iterator[PlacedResource]:
        """Yield all candidate resources of a type, in the order of the store."""

    @abstractmethod
    def get(self, resource_type: str, key: str) -> PlacedResource | None:
        """Return the resource with this id."""


class ServedResources(IndexedStore):
    """The rows of a server as evidence stores them: a list that is searched only by type."""

    def __init__(self, resources: Sequence[dict[str, Json]]) -> None:
        self._resources = resources

    def pick(self, resource_type: str, clues: Sequence[Clue]) -> Iterator[PlacedResource]:
        """Yield all resources of a type."""
        for index, resource in enumerate(self._resources):
            if resource.get("resourceType") == resource_type:
                yield PlacedResource(f"resources[{index}]", resource)

    def get(self, resource_type: str, key: str) -> PlacedResource | None:
        """Return the resource with this id."""
        return next((found for found in self.pick(resource_type, ()) if found.resource.get("id") == key), None)


# --- the additional results of a FHIR search: `_include` and `_revinclude`


class Include(msgspec.Struct, frozen=True):
    """Resources to add: those that matches refer to, or, in reverse, those that refer to the matches."""

    source: str
    parameters: tuple[Parameter, ...]
    target: str | None
    """Only resources of this type."""
    reverse: bool


def compile_include(name: str, value: str, *, field: str) -> Include:
    """Return the include for `Appointment:patient` or `Appointment:actor:Patient`; `*` as the parameter means every reference.

    Raises `CheckFault` for a parameter that is not supported, `SpecError` for a value of the wrong form.
    """
    source, _, rest = value.partition(":")
    parameter, _, target = rest.partition(":")
    if not source or not parameter:
        raise SpecError(f"{name}: expected Type:parameter, found {show(value)}", field=field)
    known = {key: each for key, each in list_parameters(source).items() if each.kind == "reference"}
    if parameter != "*" and parameter not in known:
        more = suggest(parameter, known)
        raise CheckFault("unsupported_search", f"{name}: {parameter!r} is not a reference parameter of {source}{more}")
    chosen = tuple(known.values()) if parameter == "*" else (known[parameter],)
    return Include(source, chosen, target or None, name == "_revinclude")


def find_included(
    includes: Iterable[Include], matches: Sequence[PlacedResource], resources: Iterable[Json] | IndexedStore
) -> list[PlacedResource]:
    """Return the added resources, without matches; each is looked up directly instead of searched for."""
    store = resources if isinstance(resources, IndexedStore) else ServedResources([entry.resource for entry in open_store(resources)])
    matched = {match.name for match in matches}
    added: dict[str, PlacedResource] = {}
    for include in includes:
        for entry in _find_pointing(include, matched, store) if include.reverse else _find_pointed_at(include, matches, store):
            if entry.name not in matched:
                added.setdefault(entry.name, entry)
    return list(added.values())


def _find_pointed_at(include: Include, matches: Sequence[PlacedResource], store: IndexedStore) -> Iterator[PlacedResource]:
    names: dict[str, None] = {}
    for match in matches:
        if match.resource.get("resourceType") == include.source:
            names.update((name, None) for parameter in include.parameters for name in iterate_reference_names(match.resource, parameter))
    for name in names:
        kind, _, key = name.partition("/")
        entry = store.get(kind, key) if include.target in (None, kind) else None
        if entry is not None:
            yield entry


def _find_pointing(include: Include, matched: set[str], store: IndexedStore) -> Iterator[PlacedResource]:
    for parameter in include.parameters if matched else ():
        for entry in store.pick(include.source, (make_reference_clue(parameter, sorted(matched)),)):
            names = (name for each in include.parameters for name in iterate_reference_names(entry.resource, each))
            if any(name in matched and include.target in (None, name.partition("/")[0]) for name in names):
                yield entry


_MOST_LINKS = 3
"""The maximum number of references that one search parameter may follow in a chain."""
_MOST_CHAINS = 20
"""The maximum number of chained parameters in one search: each may examine every type for each link."""

Filter = Callable[[dict[str, Json]], bool]
SearchResults = dict[int, frozenset[str]]
"""The names found by searches, by the identity of the search."""


class Search(msgspec.Struct, frozen=True):
    """A compiled search; `find` runs it."""

    resource_type: str
    filters: tuple[Filter, ...]
    order: tuple[tuple[Parameter, bool], ...] = ()
    """Parameters to sort by, each with whether it descends."""
    most: int | None = None
    chains: tuple[Chain, ...] = ()
    includes: tuple[Include, ...] = ()
    clues: tuple[Clue, ...] = ()
    """Conditions that an index can use; the filters include them."""

    def find(self, resources: Iterable[Json] | IndexedStore) -> list[PlacedResource]:
        """Return the matching resources, in order, up to the requested number."""
        matches = self.list_matches(resources)
        return matches if self.most is None else matches[: self.most]

    def list_matches(self, resources: Iterable[Json] | IndexedStore, known: SearchResults | None = None) -> list[PlacedResource]:
        """Return all matching resources, in order; in an indexed store, only candidates are examined.

        `known` are the results of inner searches so far.
        """
        known = {} if known is None else known
        if self.chains and not isinstance(resources, (Sequence, IndexedStore)):
            # A chain iterates over all resources before the search itself does, and an iterator can be used only once.
            resources = tuple(resources)
        linked = [(chain, chain.find_names(resources, known)) for chain in self.chains]
        clues = (*self.clues, *(make_reference_clue(chain.parameter, names) for chain, names in linked))
        candidates = resources.pick(self.resource_type, clues) if isinstance(resources, IndexedStore) else open_store(resources)
        matches = [
            entry
            for entry in candidates
            if entry.resource.get("resourceType") == self.resource_type
            and all(fits(entry.resource) for fits in self.filters)
            and all(chain.fits(entry.resource, names) for chain, names in linked)
        ]
        # Sorting is stable: sorted by the last key first, so that the first key decides.
        for parameter, descending in reversed(self.order):
            spend(len(matches))
            with_key = [(key, entry) for entry in matches if (key := _find_sort_key(entry.resource, parameter, descending)) is not None]
            # By identity: a resource contains dicts, which have no hash, and two resources may be equal.
            keyed = {id(entry) for _, entry in with_key}
            with_key.sort(key=lambda pair: pair[0], reverse=descending)
            matches = [entry for _, entry in with_key] + [entry for entry in matches if id(entry) not in keyed]
        return matches

    def find_included(self, matches: Sequence[PlacedResource], resources: Iterable[Json] | IndexedStore) -> list[PlacedResource]:
        """Return the resources that `_include` and `_revinclude` add to these matches."""
        return find_included(self.includes, matches, resources) if self.includes else []


Made = dict[tuple[str, str, str], Search]
"""Searches at the end of a reference, by type, parameter and value."""


class Chain(msgspec.Struct, frozen=True):
    """A condition on the target of a reference: `patient.family=Smith`."""

    parameter: Parameter
    inner: tuple[Search, ...]
    """One search for each possible target type."""

    def find_names(self, resources: Iterable[Json] | IndexedStore, known: SearchResults) -> frozenset[str]:
        """Return the resources that the reference must point at."""
        names: set[str] = set()
        for search in self.inner:
            # Several links may lead to one search with the same results; without this their number would multiply.
            if id(search) not in known:
                known[id(search)] = frozenset(entry.name for entry in search.list_matches(resources, known))
            names |= known[id(search)]
        return frozenset(names)

    def fits(self, resource: dict[str, Json], names: frozenset[str]) -> bool:
        """Return whether a resource points at one of `names`."""
        return any(name in names for name in iterate_reference_names(resource, self.parameter))


def compile_search(resource_type: str, search: Mapping[str, str] | Iterable[tuple[str, str]], *, field: str = "search") -> Search:
    """Compile a search; if a name is repeated, all of its conditions must hold.

    Raises `CheckFault` for an unimplemented feature, `SpecError` for a value of the wrong form.
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
            if (most := read_digits(value, 9)) is None:
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
    if of_type:
        targets = {of_type}
    types = sorted(targets) or [each for each in list_resource_types() if wanted in list_parameters(each)]
    if not types:
        raise CheckFault("unsupported_search", f"no resource type has the search parameter {wanted!r} of {name!r}")
    for type_name in types:
        if (type_name, rest, value) not in made:
            made[type_name, rest, value] = _compile(type_name, [(rest, value)], field, made)
    return Chain(parameter, tuple(made[type_name, rest, value] for type_name in types))


def _find_parameter(resource_type: str, name: str, known: Mapping[str, Parameter]) -> Parameter:
    if name in known:
        return known[name]
    more = suggest(name, known)
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
        # Every text begins with an empty text, so it would match everything.
        raise SpecError(f"{name}: expected a value, found {'nothing' if not value else f'an empty one in {show(value)}'}", field=field)
    fits: list[Test] = [compile_value(parameter.kind, modifier, part, field=field) for part in parts]
    # FHIR's `:not` also finds resources without any value there.
    negated = modifier == "not"

    def matches(resource: dict[str, Json]) -> bool:
        elements = _count_elements(iterate_values(resource, parameter), len(fits))
        return any(test(element) for element in elements for test in fits) is not negated

    return matches, find_clue(parameter, modifier, parts)


def _count_elements(elements: Iterator[Json], tests: int) -> Iterator[Json]:
    """Yield the elements, counting the work of each comparison."""
    for element in elements:
        parts = element.values() if isinstance(element, dict) else (element,)
        # Counted before comparing, so that a resource with huge lists exceeds the budget instead of taking long. 16 characters count as 1.
        list_sizes = sum(len(part) for part in parts if isinstance(part, list))
        text_sizes = sum(len(part) // 16 for part in parts if isinstance(part, str))
        spend(tests * (1 + list_sizes + text_sizes))
        yield element


def _find_sort_key(resource: dict[str, Json], parameter: Parameter, descending: bool) -> Json:
    keys = [key for element in iterate_values(resource, parameter) if (key := _make_sort_key(element, parameter)) is not None]
    if not keys:
        return None
    # With several values FHIR sorts by the lowest, and descending by the highest.
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
