"""The tools a model was offered, and which of them its provider runs itself."""

from __future__ import annotations

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces.attribute_values import decode_attribute, unflatten
from proctor.evidence.values.access import dict_or_empty, find_first
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json


def list_offered_tools(span: Span) -> list[Json]:
    """Return the tools a model was offered, as far as a span tells."""
    attributes = span.attributes
    for key in names.OFFERED:
        if key not in attributes:
            continue
        value = decode_attribute(attributes, key)
        if isinstance(value, dict):
            value = value.get("tools")
        elif key not in names.OFFERED_LISTS:
            continue
        if isinstance(value, list) and value:
            return value
    # OpenInference lists each tool in attributes of its own, `llm.tools.0.tool.json_schema` and so on.
    return [
        decode_container(dict_or_empty(dict_or_empty(entry).get("tool")).get("json_schema")) for entry in unflatten(attributes, "llm.tools")
    ]


def is_hosted(tool: Json) -> bool:
    """Return whether the provider runs a tool itself: the tool is of a type of its own, or nothing names it."""
    if isinstance(tool, list):
        return True  # Nobody knows what this is.
    entry = dict_or_empty(tool)
    kind = entry.get("type")
    if isinstance(kind, str) and kind not in ("function", "object", "tool", "FunctionTool"):
        return True
    named = find_first(entry, "name", "function", "functionDeclarations", "function_declarations", "toolSpec", "tool")
    return bool(entry) and named is None and ("name" in entry or not {"parameters", "input_schema", "properties"} & set(entry))


def has_schema(tool: Json) -> bool:
    """Return whether an offered tool describes its arguments, as a tool of the application does."""
    return any(isinstance(dict_or_empty(tool).get(key), dict) for key in ("input_schema", "parameters"))
