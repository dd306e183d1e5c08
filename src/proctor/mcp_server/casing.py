"""Names between MCP and the service: `taskId` outside, `task_id` inside.

Only names of ours are turned. What an author wrote (an assertion, a task's item, a dataset) and what was observed (evidence, metadata) is
passed on as it is, and so are the names of axes.
"""

from __future__ import annotations

import re
from typing import cast

from proctor.model.evidence import Json

AS_WRITTEN = frozenset(
    {"assertion", "assert", "config", "task_item", "scenario", "evidence", "axes", "metadata", "settings", "state", "credentials"}
)
"""Fields whose contents are somebody else's."""

_HUMP = re.compile(r"(?<=[A-Za-z0-9])([A-Z])")
_DEEPEST = 12


def to_snake(name: str) -> str:
    """`taskId` as `task_id`."""
    return _HUMP.sub(lambda found: f"_{found[1].lower()}", name)


def to_camel(name: str) -> str:
    """`task_id` as `taskId`; a name that begins with `_` stays."""
    if name.startswith("_"):
        return name
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def camel(value: Json, depth: int = 0) -> Json:
    """A record of the service, or a page of them, as MCP shows it."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [camel(entry, depth + 1) for entry in cast(list[Json], value)]
    if not isinstance(value, dict):
        return value
    fields = cast(dict[str, Json], value)
    # In a page `data` holds records; in a record it holds what somebody put there.
    is_page = "_meta" in fields
    return {to_camel(name): entry if _is_foreign(name, entry, is_page) else camel(entry, depth + 1) for name, entry in fields.items()}


def _is_foreign(name: str, entry: Json, is_page: bool) -> bool:
    if name == "data":
        return not is_page
    if name == "entities" and isinstance(entry, list):
        # Entities in the frozen copy of a task have their fields beside their id.
        return any(not isinstance(one, dict) or "dataset_id" not in one for one in cast(list[Json], entry))
    return name in AS_WRITTEN


def camel_path(path: str) -> str:
    """The place of a mistake: `input_entity_id` as `inputEntityId`; below the first name everything is the author's."""
    head, mark, rest = re.match(r"([^.\[]*)([.\[]?)(.*)", path, re.DOTALL).groups()  # type: ignore[union-attr]  # matches anything
    return f"{to_camel(head)}{mark}{rest}"
