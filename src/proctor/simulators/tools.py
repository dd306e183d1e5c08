"""The tools of simulated systems for models: declared by a kind, validated by its schema, and answered as MCP results.

A tool only turns its arguments into a request, which the system handles like any other. Arguments that do not match the schema are
rejected. Frequent mistakes of models are accepted: null for an omitted argument, JSON as text instead of an object, a number instead of a
text.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from proctor.codecs.http import encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, decode_embedded, write_as_text
from proctor.model.show import kind_of, nearest, show
from proctor.simulators.exchange import Request, Response
from proctor.simulators.ports import Tool

_PLAIN = "text/plain"
_WORDS = {"string": "text", "object": "an object", "array": "a list", "integer": "a whole number", "boolean": "true or false"}
_TYPES: dict[str, type] = {"string": str, "object": dict, "array": list, "integer": int, "boolean": bool}


def make_tool_request(tool: Tool, arguments: Mapping[str, Json]) -> Request:
    """Return the request for a call. Raises `SpecError` for invalid arguments."""
    properties: dict[str, dict[str, Json]] = tool.schema["properties"]
    for name in arguments:
        if name not in properties:
            known = ", ".join(properties) or "none"
            raise SpecError(
                f"{tool.name} has no argument {show(name, 80)}; there are: {known}", field=name, nearest=nearest(name, properties)
            )
    read_arguments = {name: _read_argument(value, properties[name], name) for name, value in arguments.items() if value is not None}
    for name in tool.schema.get("required", ()):
        if name not in read_arguments:
            raise SpecError(f"{tool.name} needs {name}", field=name)
    try:
        return tool.make_request(read_arguments)
    except UnicodeEncodeError:
        raise SpecError(f"the arguments of {tool.name} contain a lone surrogate, which cannot be sent") from None


def _read_argument(value: Json, schema: Mapping[str, Json], name: str) -> Json:
    if "enum" in schema:
        if value not in schema["enum"]:
            raise SpecError(f"{name}: expected one of {', '.join(map(str, schema['enum']))}, found {show(value, 80)}", field=name)
        return value
    kind = schema.get("type")
    if not isinstance(kind, str):
        return value
    if kind == "string" and isinstance(value, (int, float)):
        return write_as_text(value)
    if kind in ("object", "array") and isinstance(value, str):
        inner = decode_embedded(value)
        value = value if inner is MISSING else inner
    if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        raise SpecError(f"{name}: expected {_WORDS[kind]}, found {kind_of(value)}", field=name)
    return value


def make_tool(name: str, description: str, properties: dict[str, Json], required: Sequence[str] = (), *, request: str) -> Tool:
    """Return a tool; `request` is its method and path, such as `POST /calls/{id}/turns`.

    Arguments that the path does not name are the query of a GET, else members of the JSON body.
    """
    method, _, path = request.partition(" ")

    def make_request(arguments: dict[str, Json]) -> Request:
        address, rest = path, dict(arguments)
        for argument in properties:
            if f"{{{argument}}}" in path:
                address = address.replace(f"{{{argument}}}", encode_percent(str(rest.pop(argument, ""))))
        if method == "GET":
            return Request(method=method, path=address, query=make_query(rest))
        return Request(method=method, path=address, body=msgspec.json.encode(rest))

    schema: dict[str, Json] = {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}
    return Tool(name=name, description=description, schema=schema, make_request=make_request)


def make_query(arguments: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    """Return the names and values of a query; a list repeats the name, null omits it."""
    pairs: list[tuple[str, str]] = []
    for name, value in arguments.items():
        several = cast("list[Json]", value) if isinstance(value, list) else [value]
        pairs += [(name, write_as_text(item)) for item in several if item is not None]
    return tuple(pairs)


def write_tool_result(response: Response) -> dict[str, Json]:
    """Return a response as an MCP result: its body as text if possible; a refusal is an error."""
    failed = response.status >= 400
    kind = response.headers.get("content-type", _PLAIN)
    try:
        part: dict[str, Json] = {"type": "text", "text": response.body.decode()}
    except UnicodeDecodeError:
        blob = base64.b64encode(response.body).decode()
        part = {"type": "resource", "resource": {"uri": "system:answer", "mimeType": kind.partition(";")[0], "blob": blob}}
    if not response.body:
        part = {"type": "text", "text": f"refused ({response.status})" if failed else f"done ({response.status})"}
    return {"content": [part], **({"isError": True} if failed else {})}


def write_tool_refusal(message: str) -> dict[str, Json]:
    """Return the MCP result for a call that was not sent as a request."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def describe_wrong_call(error: SpecError) -> str:
    """Return the error in a call, with the nearest valid name."""
    return error.message + (f"; nearest: {', '.join(error.nearest)}" if error.nearest else "")
