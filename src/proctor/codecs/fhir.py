"""FHIR R4 search over resources held in memory: what `GET Appointment?patient=Patient/1&status=booked` would find.

Parameters are joined by AND, values between commas by OR. Bundles are opened (their entries are searched), contained resources
are not. Results keep the order of the store unless `_sort` says otherwise; `_count` keeps that many. What is not
implemented is refused with `unsupported_search`, never ignored: a search that leaves out a condition finds too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from proctor.codecs.fhir_dates import iterate_ranges
from proctor.codecs.fhir_matching import (
    MODIFIERS,
    Test,
    compile_value,
    find_reference_text,
    find_reference_type,
    fold,
    iterate_strings,
    iterate_tokens,
    split_unescaped,
)
from proctor.codecs.fhir_parameters import Parameter, Place, list_parameters
from proctor.errors import CheckFault, SpecError
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.work import spend

_MOST_VALUES = 10_000
"""Values of one search parameter in one resource; lists inside lists multiply."""
_MOST_BUNDLES = 100
"""Bundles inside each other that are opened."""
# The types a choice element (`effective[x]`) ends in.
_CHOICES = (
    "DateTime",
    "Period",
    "Timing",
    "Instant",
    "Date",
    "CodeableConcept",
    "Reference",
    "Quantity",
    "String",
    "Boolean",
    "Integer",
    "Decimal",
    "Age",
    "Range",
    "Uri",
)


class Found(msgspec.Struct, frozen=True):
    """One resource and where it stands in the store: `resources[3]`, `resources[0].entry[1].resource`."""

    place: str
    resource: dict[str, Json]

    @property
    def name(self) -> str:
        """`Appointment/17`, or the type alone."""
        kind, key = self.resource.get("resourceType"), self.resource.get("id")
        return f"{kind}/{key}" if isinstance(key, str) else str(kind)


def open_store(resources: Iterable[Json]) -> Iterator[Found]:
    """Yield every resource in order, Bundles replaced by their entries (also a Bundle inside a Bundle, to a depth)."""
    # A stack in place of recursion, as bundles may hold bundles; reversed, so that resources come out in the order of the store.
    waiting = [(f"resources[{index}]", resource, 0) for index, resource in enumerate(resources)]
    waiting.reverse()
    while waiting:
        place, resource, depth = waiting.pop()
        if not isinstance(resource, dict):
            continue
        entries = resource.get("entry")
        if resource.get("resourceType") != "Bundle" or not isinstance(entries, list) or depth >= _MOST_BUNDLES:
            yield Found(place, resource)
            continue
        inner = [
            (f"{place}.entry[{index}].resource", entry.get("resource"), depth + 1)
            for index, entry in enumerate(entries)
            if isinstance(entry, dict)
        ]
        waiting.extend(reversed(inner))


Filter = Callable[[dict[str, Json]], bool]


class Search(msgspec.Struct, frozen=True):
    """A search that was understood; `find` runs it."""

    resource_type: str
    filters: tuple[Filter, ...]
    order: tuple[tuple[Parameter, bool], ...] = ()
    """Parameters to sort by, each with whether it descends."""
    most: int | None = None

    def find(self, resources: Iterable[Json]) -> list[Found]:
        """Return the resources that fit, in order."""
        found = [
            entry
            for entry in open_store(resources)
            if entry.resource.get("resourceType") == self.resource_type and all(fits(entry.resource) for fits in self.filters)
        ]
        # The last key first: sorting is stable, so the first key decides in the end.
        for parameter, descending in reversed(self.order):
            found = _sort_found(found, parameter, descending)
        return found if self.most is None else found[: self.most]


def compile_search(resource_type: str, search: Mapping[str, str], *, field: str = "search") -> Search:
    """Compile a search. Raises `CheckFault` for what is not implemented, `SpecError` for a value of the wrong form."""
    known = list_parameters(resource_type)
    filters: list[Filter] = []
    order: list[tuple[Parameter, bool]] = []
    most: int | None = None
    for name, value in search.items():
        if name == "_sort":
            for key in filter(None, value.split(",")):
                order.append((_find_parameter(resource_type, key.lstrip("-"), known), key.startswith("-")))
        elif name == "_count":
            if not (value.isascii() and value.isdigit()) or len(value) > 9:
                raise SpecError(f"_count: expected a whole number, found {show(value)}", field=f"{field}._count")
            most = int(value)
        else:
            filters.append(_compile_parameter(resource_type, name, value, known, f"{field}.{name}"))
    return Search(resource_type, tuple(filters), tuple(order), most)


def _find_parameter(resource_type: str, name: str, known: Mapping[str, Parameter]) -> Parameter:
    if name in known:
        return known[name]
    near = nearest(name, known)
    more = f"; nearest: {', '.join(near)}" if near else ""
    raise CheckFault("unsupported_search", f"search parameter {name!r} of {resource_type} is not supported{more}")


def _compile_parameter(resource_type: str, name: str, value: str, known: Mapping[str, Parameter], field: str) -> Filter:
    name, _, word = name.partition(":")
    modifier = word or None
    parameter = _find_parameter(resource_type, name, known)
    if modifier == "missing":
        if value not in ("true", "false"):
            raise SpecError(f"{name}:missing: expected true or false, found {show(value)}", field=field)
        absent = value == "true"
        return lambda resource: absent is (next(iterate_values(resource, parameter), None) is None)
    typed = parameter.kind == "reference" and modifier is not None and modifier[:1].isupper() and modifier.isalpha()
    if modifier is not None and modifier not in MODIFIERS[parameter.kind] and not typed:
        allowed = ", ".join(f":{entry}" for entry in (*MODIFIERS[parameter.kind], "missing"))
        raise CheckFault(
            "unsupported_search", f"modifier {':' + modifier!r} of search parameter {name!r} is not supported; there are {allowed}"
        )
    fits: list[Test] = [compile_value(parameter.kind, modifier, part, field=field) for part in split_unescaped(value, ",")]
    # FHIR's `:not` also finds resources without any value there.
    negated = modifier == "not"

    def test(resource: dict[str, Json]) -> bool:
        return (
            any(one(element) for element in _weigh_elements(iterate_values(resource, parameter), len(fits)) for one in fits) is not negated
        )

    return test


def _weigh_elements(elements: Iterator[Json], tests: int) -> Iterator[Json]:
    """Yield the elements, each counted as often as it is looked at."""
    for element in elements:
        parts = element.values() if isinstance(element, dict) else (element,)
        # Paid before anything is compared, so that a resource with huge lists
        # runs out of budget instead of time; texts count by their length.
        spend(
            tests * (1 + sum(len(part) if isinstance(part, list) else len(part) // 16 for part in parts if isinstance(part, (list, str))))
        )
        yield element


def iterate_values(resource: dict[str, Json], parameter: Parameter) -> Iterator[Json]:
    """Yield the elements a parameter looks at, lists opened, null left out."""
    for place in parameter.places:
        for element in _find_elements(resource, place):
            # A reference that names no type may point at the right one, so it is kept.
            if place.target is not None and find_reference_type(element) not in (place.target, None):
                continue
            if place.member is not None and not (isinstance(element, dict) and element.get(place.member[0]) == place.member[1]):
                continue
            yield element


def _find_elements(resource: dict[str, Json], place: Place) -> list[Json]:
    current: list[Json] = [resource]
    for step in place.steps:
        following: list[Json] = []
        for element in current:
            if isinstance(element, dict):
                value = _find_member(element, step)
                following.extend(entry for entry in (value if isinstance(value, list) else (value,)) if entry is not None)
        if len(following) > _MOST_VALUES:
            raise CheckFault("search_limit", f"more than {_MOST_VALUES} values of {'.'.join(place.steps)} in one resource")
        current = following
    return current


def _find_member(element: dict[str, Json], name: str) -> Json:
    if name in element:
        return element[name]
    for choice in _CHOICES:
        if name + choice in element:
            return element[name + choice]
    return None


def _sort_found(found: list[Found], parameter: Parameter, descending: bool) -> list[Found]:
    """Sort resources, equal ones in their old order; those without a value come last either way."""
    with_key = [(key, entry) for entry in found if (key := _sort_key(entry.resource, parameter, descending)) is not None]
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
            return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
