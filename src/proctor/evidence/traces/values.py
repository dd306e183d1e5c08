"""The input and output of a span as text, without the wrappers of frameworks, and its tokens."""

from __future__ import annotations

import re
from typing import Any

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.message import Role
from proctor.evidence.shared.usage import find_count, find_usage, read_count, read_usage
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.attribute_shapes import Names, Shape, decode_attribute, find_decoded, find_value
from proctor.evidence.traces.message_reader import MessageCache, ParsedMessages, join_last_text
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json, Usage

_ANSWER_KEYS = ("text", "output", "message", "content", "response", "answer", "raw", "final_output", "final_answer", "result")
_QUESTION_KEYS = (
    *("question", "input", "query", "prompt", "message", "text", "user_message", "user_msg", "task", "content", "description"),
    *("input_args", "kwargs", "inputs", "args", "input_str"),
)
_MESSAGE_KEYS = frozenset(("messages", "contents", "replies", "generations", "choices", "candidates", "lc", "role", "llm_request"))
_MAX_DEPTH = 6
"""Levels to search for the question or the answer: frameworks wrap them only a few times."""
_NO_COUNTS = [None, None, None]
_WORDED_COUNT = re.compile(r"\b(\w{1,40})=(\d{1,12})\b")


def decode_output(attributes: dict[str, Json], names: Names) -> tuple[Json, Json]:
    """Return the output of a span, decoded and as it is written."""
    value, written = find_decoded(attributes, names["output_value"])
    if isinstance(value, dict) and "kwargs" in value and {"outputs", "output", "kwargs"}.issuperset(value):
        value = written = find_first(value, "outputs", "output")  # Traceloop
    return value, written


def find_input_text(span: Span, keys: tuple[str, ...], cache: MessageCache) -> str | None:
    """Return the input of a span as text: the last text of a user in it."""
    parsed = (_read_event_messages(span, is_output=False) if span.events else None) or _read_only_messages(span, keys, "user", cache)
    if parsed is None:
        value, written = find_decoded(span.attributes, keys)
        if value is None or isinstance(value, str):
            return value
        parsed = _read_messages(value, written, "user", cache)
        if parsed is None:
            return _find_question(value)
    return parsed.find_last_question()


def read_output(span: Span, names: Names, cache: MessageCache) -> tuple[str | None, bool]:
    """Return the output of a span as text, and whether it returned only text or messages."""
    value: Json = None
    messages = _read_only_messages(span, names["output_value"], "assistant", cache)
    if messages is None:
        value, written = decode_output(span.attributes, names)
        messages = _read_messages(value, written, "assistant", cache) if value is not None else None
    is_text = value is None or isinstance(value, str) or messages is not None
    text = find_value(span.attributes, names["output_text"])
    if isinstance(text, str) and text:
        return text, is_text
    parsed = (_read_event_messages(span, is_output=True) if span.events else None) or messages
    if parsed is not None:
        return join_last_text(parsed.messages), is_text
    return (value if value is None or isinstance(value, str) else _find_answer(value)), is_text


def find_forwarded_text(attributes: dict[str, Json], names: Names, cache: MessageCache) -> str | None:
    """Return the last text of a user in messages that a step passes to the next one."""
    value, _ = decode_output(attributes, names)
    content = find_first(value, "input", "messages") if isinstance(value, dict) else value
    parsed = _read_messages(content, content, "user", cache)
    return parsed.find_last_question() if parsed is not None else None


def _read_event_messages(span: Span, *, is_output: bool) -> ParsedMessages | None:
    parsed = ParsedMessages()
    role: Role = "assistant" if is_output else "user"
    for event in span.events:
        if event.name in vocabulary.OUTPUT_EVENTS if is_output else event.name == "gen_ai.user.message":
            keys = ("message", "body", "content", "gen_ai.completion") if is_output else ("content", "body", "message")
            content = decode_container(find_first(event.attributes, *keys))
            parsed.read({"role": role, "content": content} if isinstance(content, (str, list)) else content, role)
    return parsed if parsed.messages else None


def _read_only_messages(span: Span, keys: tuple[str, ...], role: Role, cache: MessageCache) -> ParsedMessages | None:
    """Return the messages of the first attribute if it contains only messages, without decoding it twice."""
    written = span.attributes[keys[0]] if keys and keys[0] in vocabulary.ONLY_MESSAGES else None
    if not isinstance(written, str) or written[:1] != "[":
        return None
    parsed = cache.read(written, role)
    return parsed if parsed.has_content() else None


def _read_messages(value: Json, written: Json, role: Role, cache: MessageCache) -> ParsedMessages | None:
    """Return the messages in a value, which may be text, or None for any other value."""
    inner = written
    if isinstance(value, dict):
        if _MESSAGE_KEYS.isdisjoint(value):
            nested = [value[key] for key in ("output", "response", "result", "input", "update") if isinstance(value.get(key), dict)]
            if not nested or (_MESSAGE_KEYS | {"blocks"}).isdisjoint(nested[0]):
                return None
            inner = nested[0]
    elif not (isinstance(value, list) and value and all(isinstance(entry, (dict, list)) for entry in value)):
        return None
    # Only the content of a quoted text is a structure.
    parsed = cache.read(value if isinstance(inner, str) and inner[:1] == '"' else inner, role)
    return parsed if parsed.has_content() else None


def _find_question(value: Json, depth: int = 0) -> str | None:
    """Return the only text in the input of a function: `{"question": "..."}`, `{"args": ["..."], "kwargs": {}}`."""
    if isinstance(value, list):
        value = value[0] if len(value) == 1 or (value and "description" in dict_or_empty(value[0])) else None
    if depth > _MAX_DEPTH or not isinstance(value, (dict, list)):
        return text_or_none(value)
    members = dict_or_empty(value)
    inner = (decode_container(members[key]) for key in _QUESTION_KEYS if members.get(key) not in (None, "", [], {}))
    found = (text for entry in inner if (text := _find_question(entry, depth + 1)) is not None)
    # A function of one argument: its only text is the question, whatever its name.
    only = next((entry for entry in members.values() if isinstance(entry, str)), None) if len(members) == 1 else None
    return next(found, only)


def _find_answer(value: Json, depth: int = 0) -> str | None:
    """Return the answer in the output of a function, by the names that frameworks use for it."""
    if isinstance(value, list):
        value = value[-1] if value else None
    if depth > _MAX_DEPTH or not isinstance(value, (dict, list)):
        return text_or_none(value)
    members = dict_or_empty(value)
    if list_of(members.get("blocks")):
        parsed = ParsedMessages()
        parsed.read(members, "assistant")
        return join_last_text(parsed.messages)
    inner = (decode_container(members[key]) for key in _ANSWER_KEYS if members.get(key) is not None)
    return next((text for entry in inner if (text := _find_answer(entry, depth + 1)) is not None), None)


def read_span_usage(attributes: dict[str, Json], shape: Shape) -> Usage | None:
    """Return the tokens that a span itself reports."""
    if shape.usual_counts is not None:
        inputs, outputs = shape.usual_counts(attributes)
        if type(inputs) is int and type(outputs) is int and inputs >= 0 and outputs >= 0:
            return Usage(input_tokens=inputs, output_tokens=outputs)
    if shape.has_counts:
        counts = [find_count(attributes, keys) if keys else None for keys in shape.counts]
        # A name without a usable number reports nothing; the tokens may be there in another form.
        if counts[:3] != _NO_COUNTS:
            inputs, outputs, total, cached, written = counts
            return Usage(
                input_tokens=inputs,
                output_tokens=outputs,
                total_tokens=total,
                cached_input_tokens=cached or None,
                cache_write_tokens=written or None,
            )
    for key in shape.names["usage_objects"]:
        if key == vocabulary.USAGE_TEXT and isinstance(attributes[key], str):
            return read_usage({word: int(count) for word, count in _WORDED_COUNT.findall(attributes[key])})
        value = dict_or_empty(decode_attribute(attributes, key))
        found = read_usage(value) or _read_usage_by_kind(value)
        if found is not None:
            return found
    # Haystack and Genkit have the tokens in the replies themselves.
    output = find_first(attributes, "haystack.agent.step.llm.output", "haystack.component.output", "genkit:output")
    if output is None:
        return None
    raw = dict_or_empty(decode_container(output))
    replies = list_of(raw.get("replies"))
    return read_usage(dict_or_empty(dict_or_empty(replies[0]).get("meta")).get("usage")) if replies else find_usage(raw)


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
