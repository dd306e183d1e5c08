"""Rows inside the details of a verdict, read the same way by every report.

Rows come from any check, also one of another distribution, as mappings or as values of ours.
"""

import msgspec

from proctor.model.evidence import Json


def list_rows(value: Json) -> list[Json]:
    """Return the rows of a list, or none of anything else."""
    return list(value) if isinstance(value, (list, tuple)) else []


def find_part(row: Json, *names: str) -> Json:
    """Return the first of these parts a row has."""
    for name in names:
        if isinstance(row, dict):
            if name in row:
                return row[name]
        elif isinstance(row, msgspec.Struct) and hasattr(row, name):
            return getattr(row, name)
    return None


def phrase_holds(row: Json) -> bool:
    """Return whether a phrase was said if it should be, and was not if it should not."""
    passed = find_part(row, "passed")
    return bool(passed) if passed is not None else bool(find_part(row, "found")) is not bool(find_part(row, "forbidden"))
