"""Lint of what the model reads: names, descriptions, schemas, hints, and their cost in tokens.

Tokens are estimated from characters (four to a token, three for schemas), since every model counts differently.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from proctor.doctor.inspect import Surface
from proctor.doctor.model import Verdicts
from proctor.doctor.poisoning import RULES, find_poison
from proctor.model.show import shorten

MOST_TOKENS: Final = 25_000
MOST_TOOL_TOKENS: Final = 3_000
MOST_ENTITIES: Final = 100
_LENGTH: Final = (15, 2_000)
_NAME: Final = 64
_INSTRUCTIONS: Final = 8_000
_DIALECTS = re.compile(r"https?://json-schema\.org/(?:draft/2020-12|draft/2019-09|draft-0[467])/schema#?")
_CHOICES: Final = frozenset(("action", "mode", "operation", "command_type", "method", "kind"))
_WRITES = re.compile(r"(?:^|[_.-])(?:delete|remove|drop|write|create|update|insert|send|destroy)(?:$|[_.-])", re.IGNORECASE)
_SHOWN: Final = 5
_LONGEST_LIST: Final = 110
"""Characters of places that fit into a line of the report."""


def estimate_tokens(tool: Mapping[str, Any]) -> int:
    """Return about how many tokens a definition takes in the context of a model."""
    text = len(str(tool.get("name", ""))) + len(str(tool.get("description", "")))
    schema = len(msgspec.json.encode(tool.get("inputSchema") or {}))
    return text // 4 + schema // 3 + 8


def lint(surface: Surface, v: Verdicts, others: frozenset[str] = frozenset()) -> None:
    """Note everything that a model or its user would stumble over; `others` are the names of other servers' tools."""
    tools = surface.tools
    if tools:
        _lint_tools(tools, v)
    else:
        checks = [check.id for check in v.profile.checks if check.area == "surface"]
        v.skip("there are no tools", *checks)
    # Clients load all tools and prompts; resources are looked up, and a folder may have thousands.
    v.require(
        "tool-count", len(tools) + len(surface.prompts) <= MOST_ENTITIES, f"there are {len(tools)} tools and {len(surface.prompts)} prompts"
    )
    length = len(surface.instructions)
    v.require("instructions-length", length <= _INSTRUCTIONS, f"they have {length:,} characters")
    own = {str(tool.get("name")) for tool in tools}
    for place, text in list_texts(surface):
        for rule, matches in find_poison(text, others - own):
            v.broken(rule, f"{place}: {matches}")
    v.ok(*RULES)


def _lint_tools(tools: Sequence[Mapping[str, Any]], v: Verdicts) -> None:
    descriptions = {_name(tool): str(tool.get("description") or "").strip() for tool in tools}
    _note(v, "tool-description", "no description", [name for name, text in descriptions.items() if not text])
    low, high = _LENGTH
    odd = [f"{name} ({len(text):,})" for name, text in descriptions.items() if text and not low <= len(text) <= high]
    _note(v, "tool-description-length", f"not {low} to {high:,} characters", odd)
    twice = {text for text, count in Counter(text for text in descriptions.values() if text).items() if count > 1}
    _note(v, "tool-description-unique", "the same description", [name for name, text in descriptions.items() if text in twice])
    _note(v, "tool-name-length", "too long", [name for name in descriptions if len(name) > _NAME])
    parameters = [(_name(tool), name, schema) for tool in tools for name, schema in list_parameters(tool)]
    bare = [f"{tool}.{name}" for tool, name, schema in parameters if not str(schema.get("description") or "").strip()]
    _note(v, "parameter-descriptions", "no description", bare, of=len(parameters))
    kinds = ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref")
    _note(
        v, "parameter-types", "no type", [f"{tool}.{name}" for tool, name, schema in parameters if not any(key in schema for key in kinds)]
    )
    open_choices = [f"{tool}.{name}" for tool, name, schema in parameters if name in _CHOICES and schema.get("type") == "string"]
    values = {f"{tool}.{name}" for tool, name, schema in parameters if "enum" in schema or "pattern" in schema}
    _note(v, "parameter-choice", "any text", [each for each in open_choices if each not in values])
    _note(v, "parameter-required", "no such parameter", list(_find_missing_parameters(tools)))
    _note(v, "tool-hints", "no `readOnlyHint`", [_name(tool) for tool in tools if "readOnlyHint" not in _hints(tool)], of=len(tools))
    _note(v, "tool-hints-agree", "contradiction", [name for tool in tools if (name := _find_contradiction(tool))])
    _note(v, "tool-output-schema", "no output schema", [_name(tool) for tool in tools if "outputSchema" not in tool], of=len(tools))
    costs = {_name(tool): estimate_tokens(tool) for tool in tools}
    v.require("token-cost", sum(costs.values()) <= MOST_TOKENS, f"they take about {sum(costs.values()):,} tokens")
    _note(
        v,
        "tool-token-cost",
        f"more than {MOST_TOOL_TOKENS:,} tokens",
        [f"{name} ({cost:,})" for name, cost in costs.items() if cost > MOST_TOOL_TOKENS],
    )
    dialects = {
        str(schema["$schema"]) for tool in tools for key in ("inputSchema", "outputSchema") if "$schema" in (schema := tool.get(key) or {})
    }
    _note(v, "schema-dialect", "unknown dialect", sorted(each for each in dialects if not _DIALECTS.fullmatch(each)))


def _note(v: Verdicts, check: str, what: str, places: Sequence[str], of: int = 0) -> None:
    count = f"{len(places)} of {of}: " if of else ""
    shown = [shorten(place, 80) for place in places[:_SHOWN]]
    while len(shown) > 1 and len(", ".join(shown)) > _LONGEST_LIST:
        shown.pop()
    rest = f" and {len(places) - len(shown)} more" if len(places) > len(shown) else ""
    v.require(check, not places, f"{what}: {count}{', '.join(shown)}{rest}")


def _name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("name"))


def _hints(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    hints = tool.get("annotations")
    return hints if isinstance(hints, dict) else {}


def _find_contradiction(tool: Mapping[str, Any]) -> str:
    hints, name = _hints(tool), _name(tool)
    if hints.get("readOnlyHint") is True and hints.get("destructiveHint") is True:
        return f"{name} is read-only and destructive"
    if hints.get("readOnlyHint") is True and (match := _WRITES.search(name)):
        return f"{name} is read-only and named {match[0].strip('_.-')}"
    return ""


def list_parameters(tool: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the parameters of a tool with their schemas."""
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return [(name, each) for name, each in properties.items() if isinstance(each, dict)] if isinstance(properties, dict) else []


def _find_missing_parameters(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for tool in tools:
        schema = tool.get("inputSchema")
        required = schema.get("required") if isinstance(schema, dict) else None
        known = {name for name, _ in list_parameters(tool)}
        for name in required if isinstance(required, list) else ():
            if name not in known and "$ref" not in str(schema):
                yield f"{_name(tool)}.{name}"


def list_texts(surface: Surface) -> Iterator[tuple[str, str]]:
    """Yield every text that a model may read, with its place."""
    yield "instructions", surface.instructions
    for kind in ("tool", "resource", "template", "prompt"):
        for item in getattr(surface, f"{kind}s"):
            name = str(item.get("name"))
            yield f"{kind} {shorten(name, 60)}", "\n".join(_list_strings(item, 0))


def _list_strings(value: object, depth: int) -> Iterator[str]:
    """Yield the texts of a definition, except icons and addresses."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and depth < 40:
        for key, item in value.items():
            if key not in ("icons", "uri", "uriTemplate", "_meta", "pattern"):
                yield str(key)
                yield from _list_strings(item, depth + 1)
    elif isinstance(value, list) and depth < 40:
        for item in value:
            yield from _list_strings(item, depth + 1)
