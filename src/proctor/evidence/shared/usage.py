"""Tokens spent, in every spelling a provider or platform uses.

`read_usage` reads one usage object; `find_usage` finds it inside a response or a node's output:

    OpenAI and compatible     usage.prompt_tokens, completion_tokens, total_tokens
    Anthropic                 usage.input_tokens, output_tokens
    AI SDK                    usage.inputTokens, outputTokens, totalTokens (before version 5: promptTokens, completionTokens)
    Gemini                    usageMetadata.promptTokenCount, candidatesTokenCount, totalTokenCount
    Gemini through LangChain  usageMetadata or usage_metadata.input_tokens, output_tokens, total_tokens
    generic                   meta.tokens: a number, or {total, input, output}
    n8n, LangChain            tokenUsage, token_usage or tokenUsageEstimate.promptTokens, completionTokens, totalTokens

`usage_parts.py` reads what is told of cached tokens and of reasoning.

A count must be a whole number of at least 0; anything else counts as not reported. Where the parts of a usage object are not all
understood and it has no total, what was counted is a lower bound: the usage is then unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proctor.evidence.shared.usage_parts import add_parts
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.members import HARMLESS, has_object_with
from proctor.evidence.values.access import dict_or_empty
from proctor.model.evidence import Json, Usage

_INPUT = ("input_tokens", "prompt_tokens", "inputTokens", "promptTokens", "promptTokenCount", "prompt_token_count")
_OUTPUT = ("output_tokens", "completion_tokens", "outputTokens", "completionTokens", "candidatesTokenCount", "candidates_token_count")
_TOTAL = ("total_tokens", "totalTokens", "totalTokenCount", "total_token_count")

_COUNTS = frozenset((*_INPUT, *_OUTPUT, *_TOTAL))
_DETAILS = (
    "detail",
    "cache",
    "reasoning",
    "thought",
    "audio",
    "image",
    "video",
    "prediction",
    "server_tool",
    "time",
    "cost",
    "tier",
    "geo",
)
"""Words in the names of members that say more about tokens counted elsewhere, or about something else than tokens."""

HOLDERS = ("usage", "usageMetadata", "usage_metadata", "tokenUsage", "token_usage", "tokenUsageEstimate")
"""Keys of a response that hold a usage object."""

_OUTER_HOLDERS = ("responseMetadata", "response_metadata", "llm_output", "llmOutput")


def read_count(value: Json) -> int | None:
    """Return a token count, or None if this is none. An object carries it as `total` (AI SDK 6)."""
    if type(value) is int:
        return value if value >= 0 else None
    if isinstance(value, dict):
        value = value.get("total")
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else None


def read_usage(value: Json, unknowns: Unknowns | None = None) -> Usage | None:
    """Read one usage object in any spelling, or None if it reports no count."""
    if not isinstance(value, dict):
        if value is not None and unknowns is not None:
            unknowns.mark("usage", "the usage is not an object")
        return None
    total = _find_first(value, _TOTAL)
    found = _make_usage(_find_first(value, _INPUT), _find_first(value, _OUTPUT), total)
    # Most usage objects have nothing but the counts.
    if found is not None and (not _COUNTS.issuperset(value) or isinstance(value.get("inputTokens"), dict)):
        found = add_parts(found, value, read_count)
    if unknowns is not None and total is None:
        for key in value:
            if not _is_understood(key, value[key]):
                unknowns.mark("usage", f"{key!r} in the usage is not understood, and there is no total")
    return found


def _is_understood(key: str, value: Json) -> bool:
    """Return whether a member of a usage object is a count we know, or a detail of one."""
    if key in _COUNTS:
        return value is None or read_count(value) is not None
    lowered = key.lower()
    return value is None or isinstance(value, (str, bool)) or key in HARMLESS or any(word in lowered for word in _DETAILS)


def find_usage(value: Json, unknowns: Unknowns | None = None) -> Usage | None:
    """Return the usage that a response or node output reports; over a list of items the sum."""
    if isinstance(value, list):
        return add_usage(find_usage(item, unknowns) for item in value if isinstance(item, dict))
    if not isinstance(value, dict):
        return None
    # The first that counts anything wins: the same usage may stand under two names, and must not be added up.
    for holder in HOLDERS:
        found = read_usage(value.get(holder), unknowns)
        if found is not None:
            return found
    found = _read_generic(dict_or_empty(value.get("meta")).get("tokens"), unknowns)
    if found is not None:
        return found
    for outer in _OUTER_HOLDERS:
        inner = value.get(outer)
        if isinstance(inner, dict):
            for holder in HOLDERS:
                found = read_usage(inner.get(holder), unknowns)
                if found is not None:
                    return found
    return None


def holds_counts(value: Json) -> bool:
    """Return whether token counts stand anywhere inside a value."""
    return isinstance(value, (dict, list)) and has_object_with(value, lambda entry: not _COUNTS.isdisjoint(entry))


def add_usage(parts: Iterable[Usage | None]) -> Usage | None:
    """Add usages; a kind of count that not all of them report stays unreported, and the total is the sum of totals."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if len(known) == 1:
        return known[0]
    inputs = [part.input_tokens for part in known if part.input_tokens is not None]
    outputs = [part.output_tokens for part in known if part.output_tokens is not None]
    uneven = len(inputs) not in (0, len(known)) or len(outputs) not in (0, len(known))
    # Once one part reports a total of its own, the sum needs the totals of all.
    totals = [part.total() or 0 for part in known] if uneven or any(part.total_tokens is not None for part in known) else []
    cached = [part.cached_input_tokens for part in known if part.cached_input_tokens is not None]
    written = [part.cache_write_tokens for part in known if part.cache_write_tokens is not None]
    return Usage(
        input_tokens=sum(inputs) if len(inputs) == len(known) else None,
        output_tokens=sum(outputs) if len(outputs) == len(known) else None,
        total_tokens=sum(totals) if totals else None,
        # What is not told of the others counts as not cached, which is the dearer way.
        cached_input_tokens=sum(cached) if cached else None,
        cache_write_tokens=sum(written) if written else None,
        models=tuple(dict.fromkeys(model for part in known for model in part.models)),
    )


def _read_generic(tokens: Json, unknowns: Unknowns | None) -> Usage | None:
    if isinstance(tokens, dict):
        counts = [read_count(tokens.get(key)) for key in ("input", "output", "total")]
        if unknowns is not None and counts[2] is None and not {"input", "output"}.issuperset(tokens):
            unknowns.mark("usage", "not everything in meta.tokens is understood, and there is no total")
        return _make_usage(*counts)
    return _make_usage(None, None, read_count(tokens))


def _make_usage(input_tokens: int | None, output_tokens: int | None, total_tokens: int | None) -> Usage | None:
    if input_tokens is None and output_tokens is None and total_tokens is None:
        return None
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=total_tokens)


def _find_first(value: dict[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        count = read_count(value.get(key))
        if count is not None:
            return count
    return None
