"""The input and the output of a span as text, without what frameworks wrap around the question and the answer."""

from __future__ import annotations

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.conversation import Role
from proctor.evidence.traces import vocabulary
from proctor.evidence.traces.message_reader import MessageCache, ParsedMessages
from proctor.evidence.traces.model_span import join_last_text
from proctor.evidence.traces.shape import Shape, find_decoded, find_value
from proctor.evidence.values.access import dict_or_empty, find_first, list_of
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json

_ANSWER_KEYS = ("text", "output", "message", "content", "response", "answer", "raw", "final_output", "final_answer", "result")
_QUESTION_KEYS = ("question", "input", "query", "prompt", "message", "text", "user_message", "user_msg", "task", "content", "description")
_MESSAGE_KEYS = frozenset(("messages", "contents", "replies", "generations", "choices", "candidates", "lc", "role", "llm_request"))
_ENVELOPES = ("input_args", "kwargs", "inputs", "args", "input_str")
_MAX_DEPTH = 6
"""Levels that the question or the answer is searched in: frameworks wrap a few times, not more."""


def decode_output(attributes: dict[str, Json], shape: Shape) -> tuple[Json, Json]:
    """Return the output of a span, decoded and as it is written."""
    if not shape.names["output_value"]:
        return None, None
    value, written = find_decoded(attributes, shape.names["output_value"])
    if isinstance(value, dict) and "kwargs" in value and {"outputs", "output", "kwargs"}.issuperset(value):
        value = written = find_first(value, "outputs", "output")  # Traceloop
    return value, written


def find_input_text(span: Span, shape: Shape, hearings: MessageCache) -> str | None:
    """Return the input of a span as text: the last text of a user in it."""
    heard = _read_event_messages(span, is_output=False) if span.events else None
    if heard is None:
        heard = _read_only_messages(span, shape.names["input_value"], "user", hearings)
    if heard is None:
        value, written = find_decoded(span.attributes, shape.names["input_value"])
        if value is None:
            return None
        if isinstance(value, str):
            return value
        messages = _read_messages(value, written, "user", hearings)
        if messages is None:
            return _find_question(value, 0)
        heard = messages
    asked = [message.text for message in heard.messages if message.role == "user" and message.text]
    return asked[-1] if asked else None


def read_output(span: Span, shape: Shape, hearings: MessageCache) -> tuple[str | None, bool]:
    """Return the output of a span as text, and whether text or messages are all that it returned."""
    messages = _read_only_messages(span, shape.names["output_value"], "assistant", hearings)
    value, written = decode_output(span.attributes, shape) if messages is None else (messages, None)
    if messages is None and value is not None:
        messages = _read_messages(value, written, "assistant", hearings)
    is_text = value is None or isinstance(value, str) or messages is not None
    text = find_value(span.attributes, shape.names["output_text"])
    if isinstance(text, str) and text:
        return text, is_text
    heard = (_read_event_messages(span, is_output=True) if span.events else None) or messages
    if heard is not None:
        return join_last_text(heard.messages), is_text
    return (value if value is None or isinstance(value, str) else _find_answer(value, 0)), is_text


def find_forwarded_text(span: Span, shape: Shape, hearings: MessageCache) -> str | None:
    """Return the last text of a user in messages that a step passes to the next one."""
    value, _ = decode_output(span.attributes, shape)
    held = find_first(value, "input", "messages") if isinstance(value, dict) else value
    heard = _read_messages(held, held, "user", hearings)
    asked = [message.text for message in heard.messages if message.role == "user" and message.text] if heard is not None else []
    return asked[-1] if asked else None


def _read_event_messages(span: Span, *, is_output: bool) -> ParsedMessages | None:
    heard = ParsedMessages()
    for event in span.events:
        if is_output and event.name in vocabulary.OUTPUT_EVENTS:
            content = decode_container(find_first(event.attributes, "message", "body", "content", "gen_ai.completion"))
            heard.read({"role": "assistant", "content": content} if isinstance(content, (str, list)) else content, "assistant")
        elif not is_output and event.name == "gen_ai.user.message":
            content = decode_container(find_first(event.attributes, "content", "body", "message"))
            heard.read({"role": "user", "content": content} if isinstance(content, (str, list)) else content, "user")
    return heard if heard.messages else None


def _read_only_messages(span: Span, keys: tuple[str, ...], role: Role, hearings: MessageCache) -> ParsedMessages | None:
    """Return the messages of the first attribute if it contains nothing else, without decoding it twice."""
    written = span.attributes[keys[0]] if keys and keys[0] in vocabulary.ONLY_MESSAGES else None
    if not isinstance(written, str) or written[:1] != "[":
        return None
    heard = hearings.read(written, role)
    return heard if any(message.text or message.calls for message in heard.messages) else None


def _read_messages(value: Json, written: Json, role: Role, hearings: MessageCache) -> ParsedMessages | None:
    """Return the messages in a value, which may be written as text, or None if it is something else."""
    inner = written
    if isinstance(value, dict):
        if _MESSAGE_KEYS.isdisjoint(value):
            nested = next(
                (value[key] for key in ("output", "response", "result", "input", "update") if isinstance(value.get(key), dict)), None
            )
            if nested is None or (_MESSAGE_KEYS | {"blocks"}).isdisjoint(nested):
                return None
            inner = nested
    elif not (isinstance(value, list) and value and all(isinstance(entry, (dict, list)) for entry in value)):
        return None
    # Only what is inside the quotes of a text is a structure.
    heard = hearings.read(value if isinstance(inner, str) and inner[:1] == '"' else inner, role)
    return heard if heard.messages and any(message.text or message.calls for message in heard.messages) else None


def _find_question(value: Json, depth: int) -> str | None:
    """Return the one text in the input of a function: `{"question": "..."}`, `{"args": ["..."], "kwargs": {}}`."""
    if isinstance(value, str):
        return value
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, list):
        return _find_question(value[0], depth + 1) if len(value) == 1 or (value and "description" in dict_or_empty(value[0])) else None
    members = dict_or_empty(value)
    for key in (*_QUESTION_KEYS, *_ENVELOPES):
        inner = decode_container(members.get(key))
        if inner not in (None, "", [], {}) and (found := _find_question(inner, depth + 1)) is not None:
            return found
    # A function of one argument: its only text is the question, whatever its name.
    return next((inner for inner in members.values() if isinstance(inner, str)), None) if len(members) == 1 else None


def _find_answer(value: Json, depth: int) -> str | None:
    """Return the answer in the output of a function, by the names that frameworks use for it."""
    if isinstance(value, str):
        return value
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, list):
        return _find_answer(value[-1], depth + 1) if value else None
    members = dict_or_empty(value)
    if list_of(members.get("blocks")):
        heard = ParsedMessages()
        heard.read(members, "assistant")
        return join_last_text(heard.messages)
    for key in _ANSWER_KEYS:
        if members.get(key) is not None and (found := _find_answer(decode_container(members[key]), depth + 1)) is not None:
            return found
    return None
