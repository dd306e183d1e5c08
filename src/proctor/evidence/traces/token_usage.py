"""The tokens that a span reports."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.usage import find_count, find_usage, read_count, read_usage
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.shape import Shape, decode_attribute
from proctor.evidence.values.access import dict_or_empty, find_first, list_of
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Usage

_WORDED_COUNT = re.compile(r"\b(\w{1,40})=(\d{1,12})\b")


def read_span_usage(span: Span, shape: Shape) -> Usage | None:
    """Return the tokens that a span itself reports."""
    attributes, names = span.attributes, shape.names
    if shape.counts:
        inputs = find_count(attributes, names["input_tokens"])
        outputs = find_count(attributes, names["output_tokens"])
        total = find_count(attributes, names["total_tokens"]) if names["total_tokens"] else None
        # A name without a usable number reports nothing; the tokens may be there in another form.
        if inputs is not None or outputs is not None or total is not None:
            found = Usage(input_tokens=inputs, output_tokens=outputs, total_tokens=total)
            if not names["cached_tokens"] and not names["cache_write_tokens"]:
                return found
            cached = find_count(attributes, names["cached_tokens"])
            written = find_count(attributes, names["cache_write_tokens"])
            return msgspec.structs.replace(found, cached_input_tokens=cached or None, cache_write_tokens=written or None)
    for key in names["usage_objects"]:
        if key == vocabulary.USAGE_TEXT and isinstance(attributes[key], str):
            return read_usage({word: int(count) for word, count in _WORDED_COUNT.findall(attributes[key])})
        value = dict_or_empty(decode_attribute(attributes, key))
        found = read_usage(value) or _read_usage_by_kind(value)
        if found is not None:
            return found
    return _read_reply_usage(span) if names["output_value"] or names["output_messages"] else None


def _read_usage_by_kind(value: dict[str, Any]) -> Usage | None:
    """Return tokens that Langfuse splits by kind: `input`, `input_cached_tokens`, `output`, `output_reasoning_tokens`, ..."""
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


def _read_reply_usage(span: Span) -> Usage | None:
    """Return the tokens that Haystack and Genkit keep in the replies themselves."""
    held = find_first(span.attributes, "haystack.agent.step.llm.output", "haystack.component.output", "genkit:output")
    if held is None:
        return None
    raw = dict_or_empty(decode_container(held))
    replies = list_of(raw.get("replies"))
    return read_usage(dict_or_empty(dict_or_empty(replies[0]).get("meta")).get("usage")) if replies else find_usage(raw)
