"""The resources of a FHIR server as a search asks for them: by type, and of many only those that may fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.codecs.fhir_elements import Found
from proctor.codecs.fhir_index import Clue, IndexedStore, ResourceIndex
from proctor.simulators.rows import HIDDEN, Draft
from proctor.work import spend

_FEW = 32
"""Resources of a type up to which looking at all of them takes no longer than an index."""


class Shelves(IndexedStore):
    """The current resources of a server."""

    def __init__(self, rows: Draft, steps: int = 1) -> None:
        self._rows = rows
        self._steps = steps
        """Steps of work that looking at one resource costs."""

    def pick(self, resource_type: str, clues: Sequence[Clue]) -> Iterator[Found]:
        """Yield all resources of a type that may fit, in the order of the store."""
        held = self._rows.list(resource_type)
        if clues and len(held) > _FEW:
            index = self._rows.find_index(resource_type, ResourceIndex)
            if isinstance(index, ResourceIndex):
                keys = index.list_keys(clues)
                spend(self._steps * len(keys))
                return (Found("", held[key]) for key in keys)
        spend(self._steps * len(held))
        return (Found("", resource) for resource in held.values())

    def get(self, resource_type: str, key: str) -> Found | None:
        """Return the resource with this id."""
        # What begins with an underscore is bookkeeping, whatever a reference calls a type.
        held = None if resource_type.startswith(HIDDEN) else self._rows.get(resource_type, key)
        return None if held is None else Found("", held)
