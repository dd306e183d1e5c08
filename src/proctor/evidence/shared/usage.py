"""Tokens spent, in every spelling of a provider or platform; input includes cached tokens, and output reasoning."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgspec

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_object
from proctor.evidence.values.access import dict_or_empty
from proctor.model.account import Part
from proctor.model.evidence import Json, Usage


def _names(text: str) -> tuple[str, ...]:
    """Return names as some providers write them, then the same names as JavaScript writes them."""
    names = text.split()
    return (*names, *(re.sub("_([a-z])", lambda found: found.group(1).upper(), name) for name in names))


# OpenAI, Anthropic, AI SDK 5, AI SDK 4 and LangChain, Gemini.
_INPUT: Final = _names("input_tokens prompt_tokens prompt_token_count input_token_count")
_OUTPUT: Final = _names("output_tokens completion_tokens candidates_token_count output_token_count")
_TOTAL: Final = _names("total_tokens total_token_count")
_COUNTS: Final = frozenset((*_INPUT, *_OUTPUT, *_TOTAL))
# Gemini, DeepSeek, AI SDK, Pydantic AI.
_CACHED_INCLUDED: Final = _names("cached_input_tokens cached_content_token_count prompt_cache_hit_tokens cache_read_tokens")
_WRITTEN_INCLUDED: Final = ("cache_write_tokens",)
# Anthropic and Bedrock.
_CACHED_SEPARATE: Final = _names("cache_read_input_tokens cache_read_input_token_count")
_WRITTEN_SEPARATE: Final = _names("cache_creation_input_tokens cache_write_input_tokens cache_write_input_token_count")
# OpenAI, LangChain, AI SDK, whose `inputTokens` may be an object.
_DETAILS: Final = _names("prompt_tokens_details input_tokens_details input_token_details")
_CACHED_IN_DETAILS: Final = _names("cached_tokens cache_read cache_read_tokens")
_WRITTEN_IN_DETAILS: Final = _names("cache_creation cache_creation_tokens cache_write cache_write_tokens")
_WHOLE_INPUT: Final = _names("prompt_tokens")
"""Names of the input that always include cached tokens."""
_REASONING_SEPARATE: Final = _names("thoughts_token_count")
_REASONING: Final = (*_REASONING_SEPARATE, *_names("reasoning_tokens"))
_TOOL_INPUT: Final = _names("tool_use_prompt_token_count")

_FIELDS: dict[str, Part | None] = {
    **dict.fromkeys(_COUNTS, "usage"),
    **dict.fromkeys((*_CACHED_INCLUDED, *_WRITTEN_INCLUDED, *_CACHED_SEPARATE, *_WRITTEN_SEPARATE, *_DETAILS), None),
    **dict.fromkeys((*_REASONING, *_TOOL_INPUT, "models"), None),
}

HOLDERS = ("usage", "usageMetadata", "usage_metadata", "tokenUsage", "token_usage", "tokenUsageEstimate")
_OUTER_HOLDERS = ("responseMetadata", "response_metadata", "llm_output", "llmOutput")

_get_counts = attrgetter("input_tokens", "output_tokens", "total_tokens", "cached_input_tokens", "cache_write_tokens", "models")


def read_count(value: Json) -> int | None:
    """Return a token count, or None if the value is not one; an object has it as `total` (AI SDK 6)."""
    if type(value) is int:
        return value if value >= 0 else None
    if isinstance(value, dict):
        value = value.get("total")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def find_count(given: dict[str, Any], names: tuple[str, ...]) -> int | None:
    """Return the first count under one of these names."""
    for name in names:
        if name in given and (count := read_count(given[name])) is not None:
            return count
    return None


def read_usage(value: Json, unknowns: Unknowns | None = None) -> Usage | None:
    """Read one usage object in any spelling, or None if it reports no count."""
    if not isinstance(value, dict):
        if value is not None and unknowns is not None:
            unknowns.mark("usage", "the usage is not an object")
        return None
    if isinstance(value.get("tokens"), dict):
        value = value["tokens"]  # Cohere's `billed_units` next to them omit tokens that it does not charge for.
    found = _make_usage(find_count(value, _INPUT), find_count(value, _OUTPUT), find_count(value, _TOTAL)) or _read_short(value)
    # Most usage objects contain only the counts.
    if found is not None and (not _COUNTS.issuperset(value) or isinstance(value.get("inputTokens"), dict)):
        found = _add_reasoning(_add_cached(found, value), value)
    if unknowns is not None:
        check_object(value, _FIELDS, "usage", unknowns)
        for key in _COUNTS.intersection(value):
            if value[key] is not None and read_count(value[key]) is None:
                unknowns.mark("usage", f"{key!r} in the usage is no count")
    return found


def find_usage(value: Json, unknowns: Unknowns | None = None) -> Usage | None:
    """Return the usage that a response or node output reports; over a list of items the sum."""
    if isinstance(value, list):
        return add_usage(find_usage(item, unknowns) for item in value if isinstance(item, dict))
    if not isinstance(value, dict):
        return None
    # The first one with a count wins: the same usage may be recorded under two names, and must not be added up.
    for holder in HOLDERS:
        found = read_usage(value.get(holder), unknowns)
        if found is not None:
            return found
    tokens = dict_or_empty(value.get("meta")).get("tokens")
    found = _read_short(tokens if isinstance(tokens, dict) else {"total": tokens})
    if found is not None:
        return found
    inner = [value[outer] for outer in _OUTER_HOLDERS if isinstance(value.get(outer), dict)]
    usages = (read_usage(entry.get(holder), unknowns) for entry in inner for holder in HOLDERS)
    return next((usage for usage in usages if usage is not None), None)


def add_usage(parts: Iterable[Usage | None]) -> Usage | None:
    """Add usages; a count that some of them lack stays unreported, and the total is the sum of totals."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    inputs, outputs, *others = zip(*map(_get_counts, known), strict=True)
    if None not in inputs and None not in outputs and others == [(None,) * len(known)] * 3 + [((),) * len(known)]:
        return Usage(input_tokens=sum(inputs), output_tokens=sum(outputs))
    totals, cached, written, models = others
    # If one part reports a total, or lacks a count that another has, the sum needs the totals of all.
    needs_total = totals.count(None) < len(known) or any(0 < column.count(None) < len(known) for column in (inputs, outputs))
    return Usage(
        input_tokens=None if None in inputs else sum(inputs),
        output_tokens=None if None in outputs else sum(outputs),
        total_tokens=sum([part.total() or 0 for part in known]) if needs_total else None,
        # Parts without cached tokens count as not cached, which is the more expensive case.
        cached_input_tokens=sum(filter(None, cached)) if cached.count(None) < len(known) else None,
        cache_write_tokens=sum(filter(None, written)) if written.count(None) < len(known) else None,
        models=tuple(dict.fromkeys(chain(*models))),
    )


def _make_usage(input_tokens: int | None, output_tokens: int | None, total_tokens: int | None) -> Usage | None:
    if input_tokens is None and output_tokens is None and total_tokens is None:
        return None
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=total_tokens)


def _read_short(value: dict[str, Any]) -> Usage | None:
    return _make_usage(find_count(value, ("input", "prompt")), find_count(value, ("output", "completion")), find_count(value, ("total",)))


def _add_cached(usage: Usage, given: dict[str, Any]) -> Usage:
    read, written = find_count(given, _CACHED_INCLUDED), find_count(given, _WRITTEN_INCLUDED)
    for name in (*_DETAILS, "inputTokens"):
        inner = given.get(name)
        if isinstance(inner, dict):
            read = read if read is not None else find_count(inner, _CACHED_IN_DETAILS)
            written = written if written is not None else find_count(inner, _WRITTEN_IN_DETAILS)
    read_separate, written_separate = find_count(given, _CACHED_SEPARATE), find_count(given, _WRITTEN_SEPARATE)
    separate, whole = (read_separate or 0) + (written_separate or 0), usage.input_tokens
    if whole is not None and separate and not any(given.get(name) is not None for name in _WHOLE_INPUT):
        # Relays that translate may include the cached tokens despite the name; then the total is the sum of both counts.
        includes_cached = whole >= separate and usage.total_tokens == whole + (usage.output_tokens or 0)
        whole += 0 if includes_cached else separate
    read = read if read is not None else read_separate
    written = written if written is not None else written_separate
    return msgspec.structs.replace(usage, input_tokens=whole, cached_input_tokens=read or None, cache_write_tokens=written or None)


def _add_reasoning(usage: Usage, given: dict[str, Any]) -> Usage:
    if usage.input_tokens is None or usage.output_tokens is None:
        return usage
    reasoning, tools = find_count(given, _REASONING) or 0, find_count(given, _TOOL_INPUT) or 0
    if not reasoning and not tools:
        return usage
    # Without a total, only the name decides; with one, the sum does.
    is_separate = find_count(given, _REASONING_SEPARATE) is not None or bool(tools)
    if usage.total_tokens is not None:
        is_separate = usage.total_tokens - usage.input_tokens - usage.output_tokens == reasoning + tools
    if not is_separate:
        return usage
    return msgspec.structs.replace(usage, input_tokens=usage.input_tokens + tools, output_tokens=usage.output_tokens + reasoning)
