"""A tool: name, input and output schema, and its functions.

A tool is one function (`validate_suite`), or a noun with a required `action` (`criteria` with `list`, `create`, ...). Input schemas are
flat objects, since model APIs reject alternatives at the top level; which parameters belong to which action is described and checked here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import msgspec

from proctor.mcp_server.arguments import read_arguments, to_camel, to_snake
from proctor.model.evidence import Json
from proctor.model.show import nearest, show
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.schemas import Schema, derive_schema, without_limits

if TYPE_CHECKING:
    from proctor.mcp_server.arguments import Runs


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a call: caller and services."""

    hub: Hub
    caller: Caller
    runs: Runs
    folder: Path | None = None
    """The base of relative paths; None: callers cannot name files."""

    trust: bool | None = None
    """Whether suites are trusted; None: the environment decides."""

    root: str | None = None
    """The address of the service, if it was called over HTTP."""

    @property
    def local(self) -> bool:
        """Whether the caller may name files of this machine."""
        return self.folder is not None


Handler = Callable[[Desk, dict[str, Json]], Awaitable[dict[str, Json]]]


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """An action of a noun."""

    call: Handler
    does: str
    """A short description."""
    takes: tuple[str, ...] = ()
    """Parameter names; a trailing `!` means required. Empty for a single action: all properties of its tool."""
    also: dict[str, str] = {}
    """Aliases of parameters."""
    clears: bool = False
    """Whether null is a value."""
    reads: bool = False
    """Whether it is read-only."""

    @property
    def allowed(self) -> tuple[str, ...]:
        """The names of all parameters."""
        return tuple(name.rstrip("!") for name in self.takes)

    @property
    def required(self) -> tuple[str, ...]:
        """The required parameters."""
        return tuple(name.rstrip("!") for name in self.takes if name.endswith("!"))


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool."""

    name: str
    title: str
    about: str
    properties: dict[str, Schema]
    result: Schema
    """The schema of a successful result."""
    actions: dict[str, Action] = {}
    """The actions of a noun; empty for a verb."""
    single: Action | None = None
    """The only action of a verb; None for a noun."""
    destroys: bool = False
    open_world: bool = False
    """Whether it calls agents or models."""

    def __post_init__(self) -> None:
        if self.single is not None and not self.single.takes:
            msgspec.structs.force_setattr(self, "single", msgspec.structs.replace(self.single, takes=tuple(self.properties)))

    @property
    def read_only(self) -> bool:
        """Whether all its actions are read-only."""
        actions = [self.single] if self.single is not None else list(self.actions.values())
        return all(action.reads for action in actions)

    @property
    def description(self) -> str:
        """The description for a model."""
        if self.single is not None:
            return self.about
        lines = [f"- {name} {{{_describe_parameters(action)}}}: {action.does}" for name, action in self.actions.items()]
        return "\n".join([self.about, "", "Actions and their parameters (`?`: may be left out):", *lines])

    @property
    def input_schema(self) -> Schema:
        """The JSON Schema of its arguments."""
        if self.single is not None:
            required = list(self.single.required)
            used = {name: self.properties[name] for name in self.single.allowed}
            return {"type": "object", "properties": used, "required": required, "additionalProperties": False}
        action: Schema = {"type": "string", "enum": list(self.actions), "description": "What to do."}
        return {
            "type": "object",
            "properties": {"action": action, **self.properties},
            "required": ["action"],
            "additionalProperties": False,
        }

    @property
    def output_schema(self) -> Schema:
        """The JSON Schema of its result."""
        # Clients check structured content against this schema, errors included.
        return {"type": "object", "anyOf": [self.result, ERROR]}

    async def call(self, desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
        """Answer one call. Raises `Refusal`."""
        if self.single is not None:
            return await self._call(desk, self.single, arguments, self.name)
        rest = dict(arguments)
        word = rest.pop("action", None)
        name = self._find_action(word)
        return await self._call(desk, self.actions[name], rest, f"{self.name} {name}")

    async def _call(self, desk: Desk, action: Action, arguments: dict[str, Json], what: str) -> dict[str, Json]:
        arguments = _use_first_names(arguments, action.also)
        args = read_arguments(arguments, self.properties, allowed=action.allowed, required=action.required, clears=action.clears, what=what)
        return await action.call(desk, args)

    def _find_action(self, word: Json) -> str:
        if word is None:
            raise Refusal("VALIDATION_ERROR", f"{self.name} needs an action", fields={"action": [f"one of {', '.join(self.actions)}"]})
        if isinstance(word, str):
            by_snake_name = {to_snake(name): name for name in self.actions}
            action = by_snake_name.get(to_snake(word.strip()).replace("-", "_"))
            if action is not None:
                return action
        close = nearest(str(word), self.actions)
        problem = f"expected one of {', '.join(self.actions)}, got {show(word, 60)}" + (f"; nearest: {', '.join(close)}" if close else "")
        raise Refusal("VALIDATION_ERROR", f"{self.name} has no such action: {problem}", fields={"action": [problem]})


def _use_first_names(arguments: dict[str, Json], also: dict[str, str]) -> dict[str, Json]:
    """Return the arguments with aliases resolved."""
    for second, first in also.items():
        if arguments.get(second) is None:
            continue
        if arguments.get(first) is not None:
            fields = {first: [f"given twice, also as {second!r}"]}
            raise Refusal("VALIDATION_ERROR", f"{first} and {second} are the same parameter", fields=fields)
        # A null under the first name must not overwrite the second.
        arguments = {first if name == second else name: value for name, value in arguments.items() if name != first}
    return arguments


def _describe_parameters(action: Action) -> str:
    return ", ".join(name.rstrip("!") if name.endswith("!") else f"{name}?" for name in action.takes)


def text(about: str, *words: str) -> Schema:
    """Return the schema of a text, or of a choice of `words`."""
    return {"type": "string", "description": about, **({"enum": list(words)} if words else {})}


def amount(about: str, *, least: float | None = None, most: float | None = None, whole: bool = False) -> Schema:
    """Return the schema of a number."""
    bounds = {name: bound for name, bound in (("minimum", least), ("maximum", most)) if bound is not None}
    return {"type": "integer" if whole else "number", "description": about, **bounds}


def a_list(about: str, items: Schema | None = None) -> Schema:
    """A list."""
    return {"type": "array", "description": about, "items": items if items is not None else {}}


def a_document(about: str) -> Schema:
    """Return the schema of a document: text or JSON."""
    return {"type": ["string", "object", "array"], "description": about, "items": {}}


def describe_parameter(name: str, hint: Any) -> Schema:
    """Return the schema of a parameter of a declared type (`service/resource.py`)."""
    schema = derive_schema(hint)
    description = schema.get("description") or name.replace("_", " ")
    return {"type": schema["type"], "description": description, **without_limits(schema)}


def describe_fields(kind: type[msgspec.Struct]) -> dict[str, Schema]:
    """Return the parameters for the fields of a declared request."""
    hints = get_type_hints(kind, include_extras=True)
    return {to_camel(field.name): describe_parameter(field.name, hints[field.name]) for field in msgspec.structs.fields(kind)}


def shape(required: dict[str, Schema], **optional: Schema) -> Schema:
    """Return the schema of an object with these fields and any others."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


PAGE_META = shape({"next": {"type": ["string", "null"]}, "prev": {"type": ["string", "null"]}, "limit": {"type": "integer"}})


def page_of(record: Schema) -> Schema:
    """Return the schema of a page of records."""
    return shape({"data": {"type": "array", "items": record}, "_meta": PAGE_META})


DELETED = shape({"id": {"type": "string"}, "deleted": {"const": True}})
ERROR = shape({"error": shape({"code": {"type": "string"}, "message": {"type": "string"}})})
"""The schema of a rejected call."""

PAGING: dict[str, Schema] = {
    "limit": amount("list: how many, 1 to 100 (default 20)", whole=True),
    "cursor": text("list: `_meta.next` or `_meta.prev` of another page"),
}


_SHORT = ("id", "name", "attempt", "outcome", "score", "verdict", "axes")
_MOST_CASES = 500

RESULT: Schema = shape(
    {
        "schema": {"type": "string"},
        "outcome": {"type": "string", "enum": ["pass", "fail", "error", "skip"]},
        "score": {"type": ["number", "null"]},
        "counts": {"type": "object"},
        "cases": {"type": "array", "items": {"type": "object"}},
    },
    run_id={"type": ["string", "null"]},
    suite={"type": "object"},
    warnings={"type": "array", "items": {"type": "object"}},
    unmatched_evidence={"type": "array"},
    unmet={"type": "object"},
    incomplete={"type": ["object", "null"]},
    cases_left_out={"type": "integer"},
)


def shorten_result(result: dict[str, Json], detail: str | None) -> dict[str, Json]:
    """Return a result with one line for each passing case, unless full detail is requested; passing cases are cut first."""
    if detail == "full":
        return result
    cases = [_shorten_case(case) for case in cast(list[dict[str, Json]], result["cases"])]
    left_out = len(cases) - _MOST_CASES
    if left_out > 0:
        # The sort is stable: failed cases come first, in suite order.
        cases = sorted(cases, key=lambda case: case["outcome"] == "pass")[:_MOST_CASES]
    more: dict[str, Json] = {"cases_left_out": left_out} if left_out > 0 else {}
    return {**result, "cases": cases, **more}


def _shorten_case(case: dict[str, Json]) -> dict[str, Json]:
    if case["outcome"] == "pass":
        return {name: case[name] for name in _SHORT if name in case}
    failed = [entry for entry in cast(list[dict[str, Json]], case.get("assertions") or []) if entry["outcome"] != "pass"]
    return {**case, "assertions": failed}
