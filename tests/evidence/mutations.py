"""Small changes to a document that make something in it unknown: a key renamed, a value retyped or wrapped, a word replaced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

PAYLOAD = frozenset(
    (
        *("arguments", "args", "input", "tool_kwargs", "tool_args", "parsed_arguments", "parameters", "rawInput", "code"),
        *("result", "output_text", "response", "observations", "action_output", "document", "value", "json", "errorText"),
        *(
            "structured_response",
            "raw",
            "model_input_messages",
            "lc_kwargs",
            "error",
            "exception",
            "items_shown",
            "used_arguments",
            "tool_responses",
        ),
    )
)
"""Keys whose values belong to the agent and its tools; they have no fixed format."""

WORDS = frozenset(("type", "role", "kind", "part_kind", "block_type", "content_type", "$type", "status", "state", "outcome", "object"))

OPTIONAL = frozenset(("is_error", "isError", "status", "outcome", "tool_call_error", "error", "exception", "PluginName"))
"""Optional fields whose flag, number or word may be left out.

A rename to an unrelated word equals leaving the field out and adding a harmless one, which changes nothing (rule 2 of evidence coverage).
"""

Path = tuple[str | int, ...]
Mutation = tuple[str, Path]


def mutations(document: Any) -> Iterator[Mutation]:
    """Every change that can be made to a document, by its name and place."""
    yield from _inside(document, ())


def _inside(value: Any, path: Path) -> Iterator[Mutation]:
    if isinstance(value, dict):
        for key, member in value.items():
            place = (*path, key)
            if key not in OPTIONAL or isinstance(member, (dict, list)):
                yield "rename", place
            if (key in PAYLOAD and key != "tool_responses") or place[-2:] == ("toolResponse", "output"):
                continue
            if member is not None:
                yield "wrap", place
                yield "list", place
                yield "number", place
            if isinstance(member, (list, dict)) and member:
                yield "text", place
            if key in WORDS and isinstance(member, str):
                yield "word", place
            yield from _inside(member, place)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield "wrap", (*path, index)
            yield from _inside(member, (*path, index))


def mutate(document: Any, mutation: Mutation) -> Any:
    """A copy of the document with one change."""
    how, path = mutation
    return _changed(document, path, how)


def _changed(value: Any, path: Path, how: str) -> Any:
    step, *rest = path
    if rest:
        if isinstance(value, list):
            return [_changed(member, tuple(rest), how) if index == step else member for index, member in enumerate(value)]
        return {key: _changed(member, tuple(rest), how) if key == step else member for key, member in value.items()}
    if isinstance(value, list):
        return [_replaced(member, how) if index == step else member for index, member in enumerate(value)]
    if how == "rename":
        return {f"{key}Zq" if key == step else key: member for key, member in value.items()}
    return {key: _replaced(member, how) if key == step else member for key, member in value.items()}


def _replaced(value: Any, how: str) -> Any:
    match how:
        case "wrap":
            return {"zq": value}
        case "list":
            return [value]
        case "number":
            return "zq" if isinstance(value, (int, float)) and not isinstance(value, bool) else 5
        case "text":
            return msgspec.json.encode(value).decode()
        case _:
            return "zq"
