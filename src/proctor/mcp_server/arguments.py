"""Reads the arguments of a tool by its schema and reports all mistakes at once.

Frequent mistakes of models are accepted: names in snake_case, null for a missing value, JSON as text instead of an object or a list, a
whole number with a decimal point.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Protocol, cast

import msgspec

from proctor.model.evidence import Json
from proctor.model.show import nearest
from proctor.service.access.callers import Caller
from proctor.service.refusals import Refusal
from proctor.service.runs.run import RunSearch
from proctor.service.schemas import Schema, check_value, list_kinds
from proctor.store.sql.compressed_json import from_json

AS_WRITTEN = frozenset(
    {"assertion", "assert", "config", "task_item", "scenario", "evidence", "axes", "metadata", "settings", "state", "credentials", "run"}
)
"""Fields with user content."""

_HUMP = re.compile(r"(?<=[A-Za-z0-9])([A-Z])")
_DEEPEST = 12


def to_snake(name: str) -> str:
    """Return `taskId` as `task_id`."""
    return _HUMP.sub(lambda match: f"_{match[1].lower()}", name)


def to_camel(name: str) -> str:
    """Return `task_id` as `taskId`; a name that begins with `_` is unchanged."""
    if name.startswith("_"):
        return name
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def camel(value: Json, depth: int = 0) -> Json:
    """Return a record of the service, or a page of them, in camelCase."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [camel(entry, depth + 1) for entry in cast(list[Json], value)]
    if not isinstance(value, dict):
        return value
    fields = cast(dict[str, Json], value)
    # In a page `data` holds records; in a record it holds user content.
    is_page = "_meta" in fields
    return {to_camel(name): entry if _is_foreign(name, entry, is_page) else camel(entry, depth + 1) for name, entry in fields.items()}


def _is_foreign(name: str, entry: Json, is_page: bool) -> bool:
    if name == "data":
        return not is_page
    if name == "entities" and isinstance(entry, list):
        # Entities in the snapshot of a task have their fields next to their id.
        return any(not isinstance(part, dict) or "dataset_id" not in part for part in cast(list[Json], entry))
    return name in AS_WRITTEN


def camel_path(path: str) -> str:
    """Return the path of a mistake in camelCase: `input_entity_id` as `inputEntityId`; deeper names are user content and unchanged."""
    head, mark, rest = re.match(r"([^.\[]*)([.\[]?)(.*)", path, re.DOTALL).groups()  # type: ignore[union-attr]  # matches anything
    return f"{to_camel(head)}{mark}{rest}"


_LONGEST_JSON = 1_000_000
_MOST_NAMED = 50
"""Mistakes named in an answer."""


def read_arguments(
    arguments: Mapping[str, Json],
    properties: Mapping[str, Schema],
    *,
    allowed: Collection[str],
    required: Collection[str] = (),
    clears: bool = False,
    what: str,
) -> dict[str, Json]:
    """Return the arguments by the names of the service; with `clears`, null is a value. Raises `Refusal` with every mistake."""
    wrong: dict[str, list[str]] = {}
    values: dict[str, Json] = {}
    names = {to_snake(name): name for name in allowed}
    for key, value in arguments.items():
        name = names.get(to_snake(key))
        # The search for the nearest name is slow, and there may be many unknown names.
        if name is None and len(wrong) >= _MOST_NAMED:
            continue
        if name is None:
            wrong[key] = [_describe_unknown(key, allowed, properties, what)]
        elif to_snake(name) in values:
            wrong[name] = [f"given twice, also as {key!r}"]
        elif value is None and not (clears and _allows_null(properties[name])):
            if name in required or clears:
                wrong[name] = ["expected a value, got null"]
        else:
            try:
                values[to_snake(name)] = _read(value, properties[name])
            except ValueError as error:
                wrong[name] = [str(error)]
    for name in required:
        if to_snake(name) not in values and name not in wrong:
            wrong[name] = ["required"]
    if wrong:
        name, texts = next(iter(wrong.items()))
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise Refusal("VALIDATION_ERROR", f"{what} cannot be called like this: {name}: {texts[0]}{more}", fields=wrong)
    return values


def _describe_unknown(written: str, allowed: Collection[str], properties: Mapping[str, Schema], what: str) -> str:
    if to_camel(to_snake(written)) in properties:
        return f"{what} does not take it; it takes {', '.join(allowed) or 'nothing'}"
    close = nearest(written, allowed)
    expected = f"nearest: {', '.join(close)}" if close else f"it takes {', '.join(allowed) or 'nothing'}"
    return f"unknown parameter of {what}; {expected}"


def _allows_null(schema: Schema) -> bool:
    return "null" in list_kinds(schema)


def _read(value: Json, schema: Schema) -> Json:
    # Models often send an object as JSON text; accepted if no text is expected.
    is_json = isinstance(value, str) and "string" not in list_kinds(schema) and value.lstrip()[:1] in ("{", "[")
    if is_json and len(value) <= _LONGEST_JSON:
        try:
            value = from_json(value)
        except Exception:
            raise ValueError("it begins like JSON, but is none") from None
    return check_value(value, schema)


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A suite to run."""

    document: Json = None
    """The suite: text of any dialect, or JSON."""
    path: str | None = None
    """Or its path on the caller's machine."""
    case_ids: tuple[str, ...] = ()
    """Or cases of the service."""
    project_id: str | None = None
    dialect: str | None = None
    target: Json = None
    repeat: int = 1
    concurrency: int = 4
    timeout_s: float = 120.0
    select: str | None = None
    note: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()


class Runs(Protocol):
    """A source of runs. Records are snake_case; the server converts the names."""

    async def start(self, caller: Caller, request: RunRequest, wait_s: float) -> dict[str, Json]:
        """Start a run, wait a while for its end, and return its state."""
        ...

    async def examine(self, caller: Caller, arguments: dict[str, Json], wait_s: float) -> dict[str, Json]:
        """Examine an MCP server; `arguments` has the fields of `NewExamination`. Return the run, with `findings` when it has ended."""
        ...

    async def list(self, caller: Caller, search: RunSearch, *, limit: int | None, cursor: str | None) -> Mapping[str, Json]:
        """A page of runs, newest first."""
        ...

    async def get(self, caller: Caller, id: str, *, wait_s: float = 0.0) -> dict[str, Json]:
        """One run: `id`, `status`, and `result` (`proctor.result/1`) so far."""
        ...

    async def compare(self, caller: Caller, base: str | None, candidate: str | None) -> dict[str, Json]:
        """Two runs compared, with defaults resolved."""
        ...

    async def page(self, caller: Caller, id: str) -> str:
        """One run as a page of Markdown."""
        ...
