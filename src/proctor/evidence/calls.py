"""Tool calls as people and platforms spell them.

    name        name, toolName, tool_name, tool, function.name
    arguments   arguments, args, input, toolInput, function.arguments; JSON text of an object or list is parsed, other text is
                kept as text; absent, null and empty text are {}
    result      result, output, toolOutput
    error       error; else is_error or isError true; else status "error"; else an MCP result that says `isError: true`

A failed MCP result is a `content-error`: the tool answered, and its answer is that it failed.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.json_bytes import container_in
from proctor.evidence.shape import dict_of, first_of, list_at, number_at, object_at, text_at, wrong
from proctor.evidence.text import as_text
from proctor.model.evidence import Json, ToolCall, mcp_error

CONTENT_ERROR = "content-error"
PROTOCOL_ERROR = "protocol-error"


def read_calls(value: Json, path: str) -> tuple[ToolCall, ...]:
    """A list of tool calls."""
    return tuple(read_call(entry, f"{path}[{index}]") for index, entry in enumerate(list_at(value, path)))


def read_call(value: Json, path: str) -> ToolCall:
    """One tool call in any of the known spellings."""
    entry = object_at(value, path)
    function = dict_of(entry.get("function"))
    name, result = _name(entry, function, path), first_of(entry, "result", "output", "toolOutput")
    given = first_of(entry, "arguments", "args", "input", "toolInput")
    error, kind = _error(entry, result)
    return ToolCall(
        name=name,
        arguments=read_arguments(function.get("arguments") if given is None else given),
        result=result,
        error=error,
        error_kind=text_at(entry.get("error_kind"), f"{path}.error_kind") or kind,
        duration_ms=number_at(first_of(entry, "duration_ms", "durationMs"), f"{path}.duration_ms"),
        node=text_at(entry.get("node"), f"{path}.node"),
        server=text_at(first_of(entry, "server", "serverId"), f"{path}.server"),
        id=text_at(first_of(entry, "id", "toolCallId", "tool_call_id", "call_id"), f"{path}.id"),
        aliases=_aliases(entry.get("aliases"), f"{path}.aliases"),
    )


def read_arguments(value: Json) -> Json:
    """Arguments as an object wherever they are one, also when written as JSON text."""
    if value is None or value == "":
        return {}
    return container_in(value)


def says_error(value: Json) -> bool:
    """Whether an `error` member means that something failed; null, false and blank text do not."""
    return value is not None and value is not False and not (isinstance(value, str) and not value.strip())


def _name(entry: dict[str, Any], function: dict[str, Any], path: str) -> str:
    for key in ("name", "toolName", "tool_name", "tool"):
        value = entry.get(key)
        if value is not None:
            return text_at(value, f"{path}.{key}") or ""
    if function.get("name") is not None:
        return text_at(function["name"], f"{path}.function.name") or ""
    raise wrong(f"{path}.name", "text", None)


def _error(entry: dict[str, Any], result: Json) -> tuple[Json, str | None]:
    error = entry.get("error")
    if says_error(error):
        return error, None
    if entry.get("is_error") is True or entry.get("isError") is True:
        return as_text(result) or "the tool reported an error", CONTENT_ERROR
    if entry.get("status") == "error":
        return as_text(result) or "the call ended in an error", None
    told = mcp_error(result)
    return (told, CONTENT_ERROR) if told is not None else (None, None)


def _aliases(value: Json, path: str) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(text_at(alias, f"{path}[{index}]") or "" for index, alias in enumerate(list_at(value, path)))
