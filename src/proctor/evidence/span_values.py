"""What went into a span and what came out, as a person would read it: the question and the answer in whatever a framework wraps them."""

from __future__ import annotations

from proctor.evidence import vocabulary as names
from proctor.evidence.json_bytes import decode_container
from proctor.evidence.shape import dict_or_empty, find_first, list_of
from proctor.evidence.span_json import decode_attribute
from proctor.evidence.span_messages import Heard
from proctor.evidence.span_step import find_last_spoken
from proctor.evidence.spans import Span
from proctor.model.evidence import Json

_ANSWER_KEYS = ("text", "output", "message", "content", "response", "answer", "raw", "final_output", "final_answer", "result")
_QUESTION_KEYS = ("question", "input", "query", "prompt", "message", "text", "user_message", "user_msg", "task", "content", "description")
_MESSAGE_KEYS = frozenset(("messages", "contents", "replies", "generations", "choices", "candidates", "lc", "role", "llm_request"))
_ENVELOPES = ("input_args", "kwargs", "inputs", "args", "input_str")
_DEEPEST = 6
"""Levels that the question or the answer is looked for in: frameworks wrap a few times, not more."""


def decode_input(span: Span) -> Json:
    """Return what went into a span, decoded."""
    return _decode_first(span, names.INPUT_VALUE)


def decode_output(span: Span) -> Json:
    """Return what came out of a span, decoded."""
    value = _decode_first(span, names.OUTPUT_VALUE)
    if isinstance(value, dict) and "kwargs" in value and {"outputs", "output", "kwargs"}.issuperset(value):
        return find_first(value, "outputs", "output")  # Traceloop
    return value


def _decode_first(span: Span, keys: tuple[str, ...]) -> Json:
    for key in keys:
        if key not in span.attributes:
            continue
        value = decode_attribute(span.attributes, key)
        if value is not None and value != "":
            return value
    return None


def find_input_text(span: Span) -> str | None:
    """Return what was asked, where a span says it in words: the last thing a user said in it."""
    heard = _read_event_messages(span, said=False)
    if heard is None:
        value = decode_input(span)
        if value is None:
            return None
        if isinstance(value, str):
            return value
        messages = _read_messages(value, "user")
        if messages is None:
            return _find_question(value, 0)
        heard = messages
    asked = [message.text for message in heard.messages if message.role == "user" and message.text]
    return asked[-1] if asked else None


def find_output_text(span: Span) -> str | None:
    """Return the answer a span carries, in words."""
    text = find_first(span.attributes, *names.SAID_TEXT)
    if isinstance(text, str) and text:
        return text
    heard = _read_event_messages(span, said=True)
    if heard is None:
        value = decode_output(span)
        if value is None or isinstance(value, str):
            return value
        messages = _read_messages(value, "assistant")
        if messages is None:
            return _find_answer(value, 0)
        heard = messages
    return find_last_spoken(heard.messages)


def find_handed_on_text(span: Span) -> str | None:
    """Return the last thing a user said in messages that a step gives to the next one."""
    value = decode_output(span)
    heard = _read_messages(find_first(value, "input", "messages") if isinstance(value, dict) else value, "user")
    asked = [message.text for message in heard.messages if message.role == "user" and message.text] if heard is not None else []
    return asked[-1] if asked else None


def _read_event_messages(span: Span, *, said: bool) -> Heard | None:
    heard = Heard()
    for event in span.events:
        if said and event.name in names.EVENT_SAID:
            content = decode_container(find_first(event.attributes, "message", "body", "content", "gen_ai.completion"))
            heard.read({"role": "assistant", "content": content} if isinstance(content, (str, list)) else content, "assistant")
        elif not said and event.name == "gen_ai.user.message":
            content = decode_container(find_first(event.attributes, "content", "body", "message"))
            heard.read({"role": "user", "content": content} if isinstance(content, (str, list)) else content, "user")
    return heard if heard.messages else None


def _read_messages(value: Json, role: str) -> Heard | None:
    """Read messages where a value holds some, or None if it is something else."""
    inner = value
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
    heard = Heard()
    heard.read(inner, "user" if role == "user" else "assistant")
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
        heard = Heard()
        heard.read(members, "assistant")
        return find_last_spoken(heard.messages)
    for key in _ANSWER_KEYS:
        if members.get(key) is not None and (found := _find_answer(decode_container(members[key]), depth + 1)) is not None:
            return found
    return None


def build_node_output(span: Span, kind: str | None, said: str | None) -> Json:
    """Return the output of the node a span is. A bare answer becomes `{"text": ...}`, so that its text can be asked for by name."""
    if said is not None:
        return {"text": said}
    value = decode_output(span)
    if kind in ("model", "agent"):
        in_words = value is None or isinstance(value, str) or _read_messages(value, "assistant") is not None
        text = find_output_text(span) if in_words else None
        return {"text": text} if text is not None else value
    return value
