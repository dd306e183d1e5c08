"""What went into a span and what came out, as a person would read it: the question and the answer in whatever a framework wraps them."""

from __future__ import annotations

from proctor.evidence.otlp.spans import Span
from proctor.evidence.shared.conversation import Role
from proctor.evidence.traces import vocabulary as names
from proctor.evidence.traces.attribute_values import decode_attribute
from proctor.evidence.traces.message_reader import MessageCache, ParsedMessages
from proctor.evidence.traces.model_span import find_last_spoken
from proctor.evidence.values.access import dict_or_empty, find_first, list_of
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json

_ANSWER_KEYS = ("text", "output", "message", "content", "response", "answer", "raw", "final_output", "final_answer", "result")
_QUESTION_KEYS = ("question", "input", "query", "prompt", "message", "text", "user_message", "user_msg", "task", "content", "description")
_MESSAGE_KEYS = frozenset(("messages", "contents", "replies", "generations", "choices", "candidates", "lc", "role", "llm_request"))
_ENVELOPES = ("input_args", "kwargs", "inputs", "args", "input_str")
_DEEPEST = 6
"""Levels that the question or the answer is looked for in: frameworks wrap a few times, not more."""


def decode_input(span: Span) -> Json:
    """Return what went into a span, decoded."""
    return None if _INPUT_NAMES.isdisjoint(span.attributes) else _find_first_value(span, names.INPUT_VALUE)[0]


def decode_output(span: Span) -> Json:
    """Return what came out of a span, decoded."""
    return _find_output(span)[0]


def _find_output(span: Span) -> tuple[Json, Json]:
    if _OUTPUT_NAMES.isdisjoint(span.attributes):
        return None, None
    value, written = _find_first_value(span, names.OUTPUT_VALUE)
    if isinstance(value, dict) and "kwargs" in value and {"outputs", "output", "kwargs"}.issuperset(value):
        value = written = find_first(value, "outputs", "output")  # Traceloop
    return value, written


# Most spans have neither, and that is found out in one step.
_INPUT_NAMES, _OUTPUT_NAMES = frozenset(names.INPUT_VALUE), frozenset(names.OUTPUT_VALUE)


def _find_first_value(span: Span, keys: tuple[str, ...]) -> tuple[Json, Json]:
    """Return the first of these attributes that says something, decoded, and as it is written."""
    for key in keys:
        if key not in span.attributes:
            continue
        value = decode_attribute(span.attributes, key)
        if value is not None and value != "":
            return value, span.attributes[key]
    return None, None


def find_input_text(span: Span, hearings: MessageCache) -> str | None:
    """Return what was asked, where a span says it in words: the last thing a user said in it."""
    heard = _read_event_messages(span, said=False) if span.events else None
    if heard is None:
        if _INPUT_NAMES.isdisjoint(span.attributes):
            return None
        value, written = _find_first_value(span, names.INPUT_VALUE)
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


def read_output(span: Span, hearings: MessageCache) -> tuple[str | None, bool]:
    """Return the answer a span carries, in words, and whether words or messages are all that it gave back."""
    value, written = _find_output(span)
    messages = _read_messages(value, written, "assistant", hearings)
    in_words = value is None or isinstance(value, str) or messages is not None
    text = find_first(span.attributes, *names.SAID_TEXT)
    if isinstance(text, str) and text:
        return text, in_words
    heard = (_read_event_messages(span, said=True) if span.events else None) or messages
    if heard is not None:
        return find_last_spoken(heard.messages), in_words
    return (value if value is None or isinstance(value, str) else _find_answer(value, 0)), in_words


def find_handed_on_text(span: Span, hearings: MessageCache) -> str | None:
    """Return the last thing a user said in messages that a step gives to the next one."""
    value = decode_output(span)
    held = find_first(value, "input", "messages") if isinstance(value, dict) else value
    heard = _read_messages(held, held, "user", hearings)
    asked = [message.text for message in heard.messages if message.role == "user" and message.text] if heard is not None else []
    return asked[-1] if asked else None


def _read_event_messages(span: Span, *, said: bool) -> ParsedMessages | None:
    heard = ParsedMessages()
    for event in span.events:
        if said and event.name in names.EVENT_SAID:
            content = decode_container(find_first(event.attributes, "message", "body", "content", "gen_ai.completion"))
            heard.read({"role": "assistant", "content": content} if isinstance(content, (str, list)) else content, "assistant")
        elif not said and event.name == "gen_ai.user.message":
            content = decode_container(find_first(event.attributes, "content", "body", "message"))
            heard.read({"role": "user", "content": content} if isinstance(content, (str, list)) else content, "user")
    return heard if heard.messages else None


def _read_messages(value: Json, written: Json, role: Role, hearings: MessageCache) -> ParsedMessages | None:
    """Return the messages that a value holds, which may be written as text, or None if it is something else."""
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
    # Of a text in quotes only what stands in them is a structure.
    heard = hearings.read(value if isinstance(inner, str) and inner[:1] == '"' else inner, role)
    return heard if heard.messages and any(message.text or message.calls for message in heard.messages) else None


def _find_question(value: Json, depth: int) -> str | None:
    """Return the one text in what a function was given: `{"question": "..."}`, `{"args": ["..."], "kwargs": {}}`."""
    if isinstance(value, str):
        return value
    if depth > _DEEPEST:
        return None
    if isinstance(value, list):
        return _find_question(value[0], depth + 1) if len(value) == 1 or (value and "description" in dict_or_empty(value[0])) else None
    members = dict_or_empty(value)
    for key in (*_QUESTION_KEYS, *_ENVELOPES):
        inner = decode_container(members.get(key))
        if inner not in (None, "", [], {}) and (found := _find_question(inner, depth + 1)) is not None:
            return found
    # A function of one argument: its only text is the question, whatever the argument is called.
    return next((inner for inner in members.values() if isinstance(inner, str)), None) if len(members) == 1 else None


def _find_answer(value: Json, depth: int) -> str | None:
    """Return the answer in what a function gave back, by the names that frameworks use for it."""
    if isinstance(value, str):
        return value
    if depth > _DEEPEST:
        return None
    if isinstance(value, list):
        return _find_answer(value[-1], depth + 1) if value else None
    members = dict_or_empty(value)
    if list_of(members.get("blocks")):
        heard = ParsedMessages()
        heard.read(members, "assistant")
        return find_last_spoken(heard.messages)
    for key in _ANSWER_KEYS:
        if members.get(key) is not None and (found := _find_answer(decode_container(members[key]), depth + 1)) is not None:
            return found
    return None
