"""An index of the resources of one type: what a search by token or by reference need not look at.

It leaves out what cannot fit and decides nothing: the search tests what is left exactly as it tests a store without an index, in the same
order. The table of a parameter is built on first use. Changes do not update it: resources written since then are always
scanned, and once there are many, the owner of the index builds another.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from proctor.codecs.fhir_elements import Found, iterate_values
from proctor.codecs.fhir_matching import find_reference_text, iterate_tokens, split_unescaped, strip_version, unescape
from proctor.codecs.fhir_parameters import Parameter
from proctor.errors import CheckFault
from proctor.model.evidence import Json
from proctor.work import spend

_SEPARATOR = re.compile("[/:]")
_MOST_WRITTEN = 256
"""Resources written since the tables were made: each is looked at by every search."""
Table = dict[str, list[str]]
"""Keys of resources by a word of their values."""


class Clue(msgspec.Struct, frozen=True):
    """What each match of a condition has: one of these words among the values of a parameter."""

    parameter: Parameter
    words: tuple[str, ...]


def find_clue(parameter: Parameter, modifier: str | None, parts: Sequence[str]) -> Clue | None:
    """Return the clue that a condition gives, parts joined by OR; None where it gives none."""
    words: list[str] = []
    for part in parts:
        if parameter.kind == "token" and modifier is None:
            system, *rest = split_unescaped(part, "|")
            word = unescape("|".join(rest) if rest else system)
            # `system|` asks for any code of a system, so there is no word to look up.
            if rest and not word:
                return None
        elif parameter.kind == "reference" and modifier != "identifier":
            word = _find_last_part(strip_version(unescape(part)))
        else:
            return None
        words += [word, word.lower()] if "@" in word else [word]
    return Clue(parameter, tuple(dict.fromkeys(words)))


class ResourceIndex:
    """The resources of one type by what their parameters say."""

    def __init__(self, rows: Mapping[str, Json]) -> None:
        self._tables = _Tables(rows)
        self._written: dict[str, int | None] = {}
        """Positions in the store of what was written since; None if it was deleted."""
        self._next = len(rows)

    def branch(self) -> ResourceIndex:
        """Return an index that goes its own way from here; the tables are shared."""
        made = ResourceIndex.__new__(ResourceIndex)
        made._tables, made._written, made._next = self._tables, dict(self._written), self._next
        return made

    def follow(self, key: str, *, removed: bool) -> bool:
        """Note that a row was put or taken away; False where the index is no longer worth its keep."""
        if removed:
            self._written[key] = None
        # Also one that was taken away before: a dict puts it at its end, and so does the order here.
        elif self._find_position(key) is None:
            self._written[key] = self._next
            self._next += 1
        else:
            self._written[key] = self._find_position(key)
        return len(self._written) <= _MOST_WRITTEN

    def list_keys(self, clues: Sequence[Clue]) -> list[str]:
        """Return the keys of all that may fit, in the order of the store."""
        each = [[table.get(word, ()) for word in clue.words] for clue in clues for table in (self._tables.find(clue.parameter),)]
        # One clue is enough, the one that leaves the fewest: the search tests all conditions of what is left anyway.
        fewest = min(each, key=lambda found: sum(map(len, found)))
        keys = {key for found in fewest for key in found if key not in self._written}
        # The search has to meet these and raise its fault, as it does in a store without an index.
        keys.update(key for key in self._tables.unread if key not in self._written)
        keys.update(key for key, position in self._written.items() if position is not None)
        return sorted(keys, key=lambda key: self._find_position(key) or 0)

    def _find_position(self, key: str) -> int | None:
        return self._written[key] if key in self._written else self._tables.positions.get(key)


class _Tables:
    """Tables over rows as they once were."""

    def __init__(self, rows: Mapping[str, Json]) -> None:
        # A copy of the outermost level: the owner of the rows may go on writing.
        self._rows = dict(rows)
        self.positions = {key: position for position, key in enumerate(rows)}
        self.unread: set[str] = set()
        """Resources with more values than are read: the search itself reports that."""
        self._made: dict[str, Table] = {}

    def find(self, parameter: Parameter) -> Table:
        made = self._made.get(parameter.name)
        if made is None:
            # Two threads may build the same table; either one is used.
            made = self._made[parameter.name] = self._make(parameter)
        return made

    def _make(self, parameter: Parameter) -> Table:
        table: Table = {}
        spend(len(self._rows))
        for key, resource in self._rows.items():
            try:
                for word in dict.fromkeys(_iterate_words(resource, parameter)):
                    table.setdefault(word, []).append(key)
            except CheckFault:
                self.unread.add(key)
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
    """Return what two references that mean the same have in common, be they relative, addresses or a `urn:uuid:`."""
    return _SEPARATOR.split(reference)[-1]


def make_reference_clue(parameter: Parameter, names: Iterable[str]) -> Clue:
    """Return the clue that a reference points at one of these resources (`Patient/17`)."""
    return Clue(parameter, tuple(dict.fromkeys(_find_last_part(name) for name in names)))


class IndexedStore(ABC):
    """The rows of a server: resources by type, of which a search can ask for those that may fit. A Bundle is a resource like any other."""

    @abstractmethod
    def pick(self, resource_type: str, clues: Sequence[Clue]) -> Iterator[Found]:
        """Yield all resources of a type that may fit, in the order of the store."""

    @abstractmethod
    def get(self, resource_type: str, key: str) -> Found | None:
        """Return the resource with this id."""


class ServedResources(IndexedStore):
    """The rows of a server as evidence keeps them: a list, in which nothing is looked up by anything but its type."""

    def __init__(self, resources: Sequence[dict[str, Json]]) -> None:
        self._resources = resources

    def pick(self, resource_type: str, clues: Sequence[Clue]) -> Iterator[Found]:
        """Yield all resources of a type."""
        for index, resource in enumerate(self._resources):
            if resource.get("resourceType") == resource_type:
                yield Found(f"resources[{index}]", resource)

    def get(self, resource_type: str, key: str) -> Found | None:
        """Return the resource with this id."""
        return next((found for found in self.pick(resource_type, ()) if found.resource.get("id") == key), None)
