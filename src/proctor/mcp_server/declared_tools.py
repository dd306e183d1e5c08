"""Tools derived from declared operations of the service (`service/resource.py`): one tool per noun, with an action per operation."""

from __future__ import annotations

import inspect
import types
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec

from proctor.mcp_server.arguments import to_camel
from proctor.mcp_server.tool import DELETED, PAGING, Action, Desk, Tool, describe_fields, describe_parameter, page_of, shape
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.resource import OPERATIONS, Operation, Page, list_fields
from proctor.service.runs import proposals, schedules
from proctor.service.schemas import Schema


def make_declared_tool(module: types.ModuleType, name: str, title: str) -> Tool:
    """Return the tool of the operations that a module declares."""
    properties: dict[str, Schema] = {}
    results: list[Schema] = []
    actions: dict[str, Action] = {}
    for operation in OPERATIONS:
        if operation.call.__module__ == module.__name__:
            first, *_, last = operation.name.split("_")
            action = first if last in (name, name.rstrip("s")) else f"{first}{last.capitalize()}"
            actions[action] = _make_action(operation, properties)
            result = _describe_result(get_type_hints(operation.call)["return"])
            results += [] if result in results else [result]
    about = (module.__doc__ or "").partition(" (")[0].strip().rstrip(".") + "."
    return Tool(
        name=name, title=title, about=about, properties={**properties, **PAGING}, result={"anyOf": results}, actions=actions, destroys=True
    )


def _make_action(operation: Operation, properties: dict[str, Schema]) -> Action:
    """Return the action of an operation, and add its parameters."""
    takes: list[str] = []
    shapes: list[type[msgspec.Struct]] = []
    hints = get_type_hints(operation.call, include_extras=True)
    for name, parameter in inspect.signature(operation.call).parameters.items():
        parts = get_args(hints[name])
        request = next((part for part in (hints[name], *parts) if isinstance(part, type) and issubclass(part, msgspec.Struct)), None)
        if hints[name] in (Hub, Caller):
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            takes += PAGING
            properties |= {word: properties.get(word, schema) for word, schema in PAGING.items()}
            continue
        if request is not None:
            shapes.append(request)
            takes += [f"{to_camel(field.name)}!" if field.required else to_camel(field.name) for field in msgspec.structs.fields(request)]
            properties |= describe_fields(request) | properties
        else:
            takes.append(f"{to_camel(name)}!" if parameter.default is parameter.empty else to_camel(name))
            properties.setdefault(to_camel(name), describe_parameter(name, hints[name]))

    async def call(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
        if operation.person and desk.caller.key_id is None:
            raise Refusal("FORBIDDEN", "over MCP this requires the organization key of a person", hint="a person does it on the pages")
        values: list[Any] = [arguments.pop("id")] if operation.ids else []
        options: dict[str, Json] = arguments
        if shapes:
            values.append(arguments if operation.method == "PATCH" else shapes[0](**arguments))
            options = {}
        result = await operation.call(desk.hub, desk.caller, *values, **options)
        return cast(dict[str, Json], result) if result is not None else {"id": values[0], "deleted": True}

    does = (operation.call.__doc__ or "").partition("\n")[0].rstrip(".")
    return Action(call=call, does=does, takes=tuple(takes), reads=operation.method == "GET")


def _describe_result(kind: Any) -> Schema:
    if kind is type(None):
        return DELETED
    if get_origin(kind) is Page:
        return page_of(_describe_result(get_args(kind)[0]))
    return shape({to_camel(name): {} for name in list_fields(kind)})


DECLARED = (make_declared_tool(schedules, "schedules", "Schedules"), make_declared_tool(proposals, "proposals", "Proposed cases"))
"""The tools that only a service has."""
