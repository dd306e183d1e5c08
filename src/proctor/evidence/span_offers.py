"""The tools a model was offered, and which of them its provider runs itself."""

from __future__ import annotations

from proctor.evidence import vocabulary as names
from proctor.evidence.json_bytes import container_in
from proctor.evidence.shape import dict_of, first_of
from proctor.evidence.span_json import attribute_value, unflattened
from proctor.evidence.spans import Span
from proctor.model.evidence import Json


def offered_tools(span: Span) -> list[Json]:
    """Return the tools a model was offered, as far as a span tells."""
    attributes = span.attributes
    for key in names.OFFERED:
        value = attribute_value(attributes, key)
        if isinstance(value, dict):
            value = value.get("tools")
        elif key not in names.OFFERED_LISTS:
            continue
        if isinstance(value, list) and value:
            return value
    return [container_in(dict_of(dict_of(entry).get("tool")).get("json_schema")) for entry in unflattened(attributes, "llm.tools")]


def is_hosted(tool: Json) -> bool:
    """Whether the provider runs a tool itself: it is of a type of its own, or nothing names it."""
    if isinstance(tool, list):
        return True  # Nobody knows what this is.
    entry = dict_of(tool)
    kind = entry.get("type")
    if isinstance(kind, str) and kind not in ("function", "object", "tool", "FunctionTool"):
        return True
    named = first_of(entry, "name", "function", "functionDeclarations", "function_declarations", "toolSpec", "tool")
    return bool(entry) and named is None and ("name" in entry or not {"parameters", "input_schema", "properties"} & set(entry))


def has_schema(tool: Json) -> bool:
    """Whether a tool that was offered tells what may be passed to it, as one of the application does."""
    return any(isinstance(dict_of(tool).get(key), dict) for key in ("input_schema", "parameters"))
