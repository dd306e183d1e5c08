"""The tools of the verification API: one per noun, with the actions, parameters and results that its clients know, in camelCase.

They are generated from the declarations of the nouns, for authors: everything here needs an organization key. Agents under test use REST
with the token of their run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from proctor.mcp_server.arguments import to_camel
from proctor.mcp_server.tool import DELETED, PAGING, Action, Desk, Tool, page_of
from proctor.model.evidence import Json
from proctor.service.schemas import Schema, without_limits
from proctor.service.verification import nouns
from proctor.service.verification.shared.declaration import Operation, Resource
from proctor.service.verification.shared.fields import Field, Shape


def make_tool(noun: Resource) -> Tool:
    """Return the tool of a noun."""
    words = noun.tool
    assert words is not None
    operations = [operation for operation in noun.operations if operation.actions]
    return Tool(
        name=words.name,
        title=words.title,
        about=words.about,
        properties=_describe_parameters(noun, operations),
        result=_describe_results(operations),
        actions={name: _make_action(operation) for operation in operations for name in operation.actions},
        destroys=any(operation.method != "GET" for operation in operations),
    )


def _make_action(operation: Operation) -> Action:
    ids = ["id" if position == 0 else name for position, name in enumerate(operation.ids)]

    async def call(desk: Desk, arguments: dict[str, Json]) -> dict[str, Json]:
        values: list[Json] = [arguments.pop(name) for name in ids]
        options: dict[str, Json] = {}
        if operation.takes is None:
            options = arguments
        else:
            values.append(arguments.popitem()[1] if operation.takes_whole else arguments)
        result = await operation.call(desk.hub, desk.caller, *values, **options)
        return result if operation.gives is not None else {"id": values[-1], "deleted": True}

    takes = [f"{to_camel(name)}!" for name in ids]
    if operation.within is not None:
        # Verial lists the criteria of one task only.
        takes.append(to_camel(operation.within) + ("!" if operation.within == "task_id" else ""))
    fields = _list_written(operation)
    for name, field in fields:
        # A change has only the changed fields; the first name of a field with two names is required.
        required = field.required and name != field.also and operation.method != "PATCH"
        takes.append(f"{to_camel(name)}!" if required else to_camel(name))
    return Action(
        call=call,
        does=operation.about.rstrip("."),
        takes=(*takes, "limit", "cursor") if operation.pages else tuple(takes),
        also={to_camel(field.also): to_camel(name) for name, field in fields if field.also is not None and name != field.also},
        clears=operation.method == "PATCH",
        reads=operation.method == "GET",
    )


def _list_written(operation: Operation) -> list[tuple[str, Field]]:
    fields: list[tuple[str, Field]] = []
    for name, field in operation.takes.fields.items() if operation.takes is not None else ():
        if field.in_tool:
            fields.append((name, field))
            if field.also is not None:
                fields.append((field.also, field))
    return fields


def _describe_parameters(noun: Resource, operations: list[Operation]) -> dict[str, Schema]:
    without_id = [name for operation in operations if not operation.ids for name in operation.actions]
    schemas: dict[str, Schema] = {"id": {"type": "string", "description": f"which one; not for {_join(without_id)}"}}
    for operation in operations:
        if operation.within is not None:
            schemas[to_camel(operation.within)] = _describe_field(noun.fields[operation.within], null=False)
    changed = {name for operation in operations if operation.method == "PATCH" for name, _ in _list_written(operation)}
    for operation in operations:
        for name, field in _list_written(operation):
            # The declared name of a field with two.
            first = next((one for one, other in _list_written(operation) if other is field), name)
            description = f"another name of `{to_camel(first)}`" if name == field.also else ""
            _add_parameter(schemas, to_camel(name), _describe_field(field, null=field.null and name in changed, about=description))
    for name in dict.fromkeys(name for operation in operations for name in operation.ids[1:]):
        if to_camel(name) not in schemas:
            users = [action for operation in operations if name in operation.ids for action in operation.actions]
            noun_name = name.removesuffix("_id").replace("_", " ")
            schemas[to_camel(name)] = {"type": "string", "description": f"which {noun_name}; for {_join(users)}"}
    return {**schemas, **PAGING}


def _add_parameter(schemas: dict[str, Schema], name: str, schema: Schema) -> None:
    """Add a parameter; if two nouns of a tool share it, it has the kinds of the first and the descriptions of both."""
    before = schemas.setdefault(name, schema)
    if before["description"] != schema["description"] and schema["description"] not in before["description"]:
        schemas[name] = {**before, "description": f"{before['description']}; or {schema['description']}"}


def _describe_field(field: Field, *, null: bool, about: str = "") -> Schema:
    # Without limits: model APIs reject some of them, and the service reports invalid values itself.
    schema = _allow_null({**without_limits(field.kind.schema), **(field.tool or {})}, null=null)
    if "array" in schema["type"]:
        schema.setdefault("items", {})
    example = "" if field.example is None else f"; such as {json.dumps(field.example)}"
    return {**schema, "description": f"{about or field.about}{example}"}


def _describe_results(operations: list[Operation]) -> Schema:
    groups: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation.gives is not None:
            groups.setdefault(operation.gives.group or operation.gives.name, []).append(operation)
    schemas: list[Schema] = []
    for group in groups.values():
        record = _describe_record([operation.gives for operation in group if operation.gives is not None])
        if any(not operation.pages for operation in group):
            schemas.append(record)
        if any(operation.pages for operation in group):
            schemas.append(page_of(record))
    if any(operation.gives is None for operation in operations):
        schemas.append(DELETED)
    return {"anyOf": schemas}


def _describe_record(shapes: list[Shape]) -> Schema:
    """Return the schema of a record that some responses contain in full and others in part."""
    fields = {name: field for shape in shapes for name, field in shape.fields.items() if field.in_tool}
    required = [to_camel(name) for name, field in fields.items() if field.always and all(name in shape.fields for shape in shapes)]
    properties: dict[str, Json] = {to_camel(name): _describe_shown(field) for name, field in fields.items()}
    return {"type": "object", "properties": properties, "required": required}


def _describe_shown(field: Field) -> Schema:
    schema = dict(field.shown_as or without_limits(field.kind.schema))
    if field.kind.shape is not None:
        record = _describe_record([field.kind.shape])
        schema = {**schema, "items": record} if schema["type"] == "array" else record
    return _allow_null(schema, null=field.null)


def _allow_null(schema: Schema, *, null: bool) -> Schema:
    if not null:
        return schema
    kinds: Json = schema["type"]
    return {**schema, "type": [*kinds, "null"] if isinstance(kinds, list) else [kinds, "null"]}


def _join(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


_ORDER = ("criteria", "evals", "criterion-runs", "eval-runs", "tasks", "benchmarks", "benchmark_runs", "task-runs")
"""What authors use most comes first; the rest follows."""
_TOOLS = {tool.name: tool for tool in (make_tool(noun) for noun in nouns.NOUNS if noun.tool is not None)}
NOUNS: tuple[Tool, ...] = tuple(_TOOLS[name] for name in dict.fromkeys((*_ORDER, *_TOOLS)))
