"""The tokens a span reports, in whatever names its convention has for them."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.usage import find_count, find_usage, read_count, read_usage
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces.attribute_values import decode_attribute
from proctor.evidence.values.access import dict_or_empty, find_first, list_of
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Usage

_WORDED_COUNT = re.compile(r"\b(\w{1,40})=(\d{1,12})\b")
# Most spans carry few of the names that are looked for. Whether they have any at all is asked first: that is many times as fast.
_TOKENS = frozenset((*names.INPUT_TOKENS, *names.OUTPUT_TOKENS, *names.TOTAL_TOKENS))
_CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "llm.token_count.prompt_details.cache_read",
    "ai.usage.cachedInputTokens",
)
_CACHE_WRITTEN = (
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "llm.token_count.prompt_details.cache_write",
)
_CACHE = frozenset((*_CACHED, *_CACHE_WRITTEN))
_USAGE_OBJECTS = frozenset(names.USAGE_OBJECTS)


def read_span_usage(span: Span) -> Usage | None:
    """Return the tokens a span itself reports."""
    attributes = span.attributes
    if not _TOKENS.isdisjoint(attributes):
        counts = [find_count(attributes, table) for table in (names.INPUT_TOKENS, names.OUTPUT_TOKENS, names.TOTAL_TOKENS)]
        # A name without a usable number tells nothing; the tokens may still stand in another form.
        if counts != [None, None, None]:
            # By the convention cached tokens are among the input.
            found = Usage(input_tokens=counts[0], output_tokens=counts[1], total_tokens=counts[2])
            if _CACHE.isdisjoint(attributes):
                return found
            cached, written = find_count(attributes, _CACHED), find_count(attributes, _CACHE_WRITTEN)
            return msgspec.structs.replace(found, cached_input_tokens=cached or None, cache_write_tokens=written or None)
    if isinstance(words := attributes.get(names.USAGE_WORDS), str):
        return read_usage({key: int(count) for key, count in _WORDED_COUNT.findall(words)})
    if _USAGE_OBJECTS.isdisjoint(attributes):
        return _sum_usage_of_messages(span)
    for key in names.USAGE_OBJECTS:
        value = dict_or_empty(decode_attribute(attributes, key))
        found = read_usage(value) or _read_usage_by_kind(value)
        if found is not None:
            return found
    return None


def _read_usage_by_kind(value: dict[str, Any]) -> Usage | None:
    """Read tokens that Langfuse splits by kind: `input`, `input_cached_tokens`, `output`, `output_reasoning_tokens`, ..."""
    inputs = {key: read_count(count) or 0 for key, count in value.items() if key.startswith("input")}
    outputs = [read_count(count) or 0 for key, count in value.items() if key.startswith("output")]
    if not inputs and not outputs:
        return None
    cached = sum(count for key, count in inputs.items() if "cached" in key or "cache_read" in key)
    written = sum(count for key, count in inputs.items() if "cache_creation" in key or "cache_write" in key)
    return Usage(
        input_tokens=sum(inputs.values()) if inputs else None,
        output_tokens=sum(outputs) if outputs else None,
        total_tokens=read_count(value.get("total")),
        cached_input_tokens=cached or None,
        cache_write_tokens=written or None,
    )


def _sum_usage_of_messages(span: Span) -> Usage | None:
    """Sum the tokens that Haystack keeps in the replies themselves."""
    held = find_first(span.attributes, "haystack.agent.step.llm.output", "haystack.component.output", "genkit:output")
    if held is None:
        return None
    raw = dict_or_empty(decode_container(held))
    replies = list_of(raw.get("replies"))
    return read_usage(dict_or_empty(dict_or_empty(replies[0]).get("meta")).get("usage")) if replies else find_usage(raw)
