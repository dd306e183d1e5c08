"""Plants faults in the end state of simulated systems: a wrong value in a row, and a change that was not requested."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

import msgspec

from proctor.model.evidence import Json, State, StateChange
from proctor.model.json_values import is_number
from proctor.model.typed import convert_to

_FAMILIES = ("records", "portal", "fhir", "hl7", "x12", "fax", "messages", "cds", "voice", "files")
_MOST_ROWS = 6
"""Rows of a collection that get a wrong value."""
_MOST_VALUES = 4
"""Values of a row that are changed, one after the other."""
_KEYS = frozenset(("id", "resourceType", "meta", "from", "sender", "to", "call", "path", "speaker"))
"""Members that choose a row, so a wrong one would be another row."""

Step = str | int


def plant_state_faults(state: State) -> Iterator[tuple[str, str, Json, State]]:
    """Yield kind, path, previous value and changed state."""
    document: dict[str, Json] = msgspec.to_builtins(state)
    changed_rows = _list_changed_rows(state)
    for family in _FAMILIES:
        for steps, value in _list_values(document.get(family), (family,), changed_rows):
            changed = f"{value} (changed)" if isinstance(value, str) else value + 1
            new = not value if isinstance(value, bool) else changed
            edited = replace_leaf(document, steps, new)
            yield "state_wrong", write_path(steps, "state"), value, convert_to(edited, State)
    if state.changes is not None:
        system = next(iter(state.systems or ()), "system")
        added = StateChange(system=system, change="added", place="unexpected/1", after={"id": "unexpected"})
        yield "state_extra", f"{system}/unexpected/1", None, msgspec.structs.replace(state, changes=(*state.changes, added))


def write_path(steps: Sequence[Step], root: str) -> str:
    """Return steps as a path from a root: `state` for conditions, `$` for JSONPath."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" if step.isidentifier() else f"[{json.dumps(step)}]" for step in steps]
    return root + "".join(parts)


def _list_changed_rows(state: State) -> set[str] | None:
    """Return the ids of the rows that the run added or changed; None if changes were not recorded."""
    if state.changes is None:
        return None
    return {change.place.rpartition("/")[2] for change in state.changes if change.change != "removed"}


def _list_values(value: Json, steps: tuple[Step, ...], changed: set[str] | None) -> Iterator[tuple[tuple[Step, ...], Json]]:
    """Yield the texts and numbers of the first rows; if changes are recorded, only of rows that the run changed."""
    if isinstance(value, (list, tuple)):
        rows = list(enumerate(value))
        if changed is not None and any(isinstance(row, dict) and "id" in row for row in value):
            rows = [(at, row) for at, row in rows if isinstance(row, dict) and str(row.get("id")) in changed]
        for at, row in rows[:_MOST_ROWS]:
            leaves = (pair for pair in list_leaves(row, (*steps, at)) if pair[0][-1] not in _KEYS)
            yield from itertools.islice(leaves, _MOST_VALUES)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _list_values(item, (*steps, key), changed)


def list_leaves(value: Json, steps: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Json]]:
    """Yield the texts, numbers and booleans of a document, and the steps to each."""
    if (isinstance(value, str) and value) or isinstance(value, bool) or is_number(value):
        yield steps, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from list_leaves(item, (*steps, key))
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            yield from list_leaves(item, (*steps, at))


def replace_leaf(value: Json, steps: tuple[Step, ...], new: Json) -> Json:
    """Return a document with another value at these steps."""
    if not steps:
        return new
    if isinstance(value, (list, tuple)):
        return [replace_leaf(item, steps[1:], new) if at == steps[0] else item for at, item in enumerate(value)]
    return {key: replace_leaf(item, steps[1:], new) if key == steps[0] else item for key, item in value.items()}
