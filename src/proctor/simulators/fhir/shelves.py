"""The resources of a FHIR server as a search asks for them: by type, and of many only those that may fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.codecs.fhir_elements import Found, open_store
from proctor.codecs.fhir_index import Clue, IndexedStore, ResourceIndex
from proctor.model.evidence import Json
from proctor.simulators.fhir.resources import list_resources
from proctor.simulators.rows import Draft

_FEW = 32
"""Resources of a type up to which looking at all of them takes no longer than an index."""


class Shelves(IndexedStore):
    """The current resources of a server."""

    def __init__(self, rows: Draft) -> None:
        self._rows = rows

    def pick(self, resource_type: str, clues: Sequence[Clue]) -> Iterator[Found]:
        """Yield all resources of a type that may fit, in the order of the store."""
        held = self._rows.list(resource_type)
        # Bundles are opened, and what is inside them has no key here.
        if clues and len(held) > _FEW and resource_type != "Bundle":
            index = self._rows.find_index(resource_type, ResourceIndex)
            if isinstance(index, ResourceIndex):
                return (Found("", held[key]) for key in index.list_keys(clues))
        return open_store(held.values())

    def __iter__(self) -> Iterator[Json]:
        """Yield all resources."""
        return iter(list_resources(self._rows))
