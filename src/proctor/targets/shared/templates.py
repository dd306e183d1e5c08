"""Messages with placeholders: `{"prompt": "{user_message}", "user": "{USER_ID}"}`.

Rules: `{user_message}` (older `{input}`) is the message, `{request_id}` (older `{external_id}`) and `{session_id}` identify the attempt and
its conversation, `{messages}` is the conversation so far, as `[{"role": ..., "content": ...}]`; every other name is a variable
of the case's `context` or leads to one of its simulated systems. A placeholder that is a whole text keeps the JSON type of its value;
inside a longer text the value is written as text. `{{` and `}}` are literal braces; a lone brace is refused. Keys of objects are sent
as written. A template may be written as JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proctor.evidence.values.json_bytes import decode_container
from proctor.expressions.text_form import Part, compile_braces, find_whole_name, find_whole_text, join_parts, split_braces, write_text_form
from proctor.model.case import Case, list_variables
from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.model.show import nearest

MESSAGE_NAMES = ("user_message", "input")
REQUEST_NAMES = ("request_id", "external_id")
SESSION_NAME = "session_id"
CONVERSATION_NAME = "messages"
BUILT_IN = frozenset((*MESSAGE_NAMES, *REQUEST_NAMES, SESSION_NAME, CONVERSATION_NAME))
"""Placeholders that every case has."""

_BRACES = compile_braces(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Template:
    """A JSON value with placeholders inside its texts."""

    def __init__(self, value: Json, *, field: str = "template") -> None:
        """`value` may be JSON text. Raises `SpecError` for a brace that is neither a placeholder nor doubled."""
        self._names: set[str] = set()
        # Compiled once per target: a run fills it for every message of every attempt.
        self._fill = self._compile(decode_container(value), field)
        self.placeholders = frozenset(self._names)

    def fill(self, values: Mapping[str, Json]) -> Json:
        """Return the value with every placeholder replaced; `values` has all of them."""
        return self._fill(values)

    def _compile(self, value: Json, field: str) -> Callable[[Mapping[str, Json]], Json]:
        if isinstance(value, dict):
            members = [(key, self._compile(member, f"{field}.{key}")) for key, member in value.items()]
            return lambda values: {key: fill(values) for key, fill in members}
        if isinstance(value, (list, tuple)):
            items = [self._compile(item, f"{field}.{index}") for index, item in enumerate(value)]
            return lambda values: [fill(values) for fill in items]
        if isinstance(value, str):
            parts = _split_parts(value, field)
            self._names.update(part[0] for part in parts if isinstance(part, tuple))
            if (name := find_whole_name(parts)) is not None:
                return lambda values: values[name]
            if (only_part := find_whole_text(parts)) is not None:
                return lambda values: only_part
            return lambda values: join_parts(parts, values)
        return lambda values: value


class TextTemplate:
    """A text with placeholders; `written` converts their values (percent-encoded in addresses, for example)."""

    def __init__(self, text: str, *, field: str, written: Callable[[str], str] = str) -> None:
        """Raises `SpecError` for a brace that is neither a placeholder nor doubled."""
        self._parts = _split_parts(text, field)
        self._written = written
        self.placeholders = frozenset(part[0] for part in self._parts if isinstance(part, tuple))

    def fill(self, values: Mapping[str, Json]) -> str:
        """Return the text with every placeholder replaced."""
        return "".join(part if isinstance(part, str) else self._written(write_text_form(values[part[0]])) for part in self._parts)


def values_for(context: Mapping[str, Json], *, message: Json, request_id: str, session_id: str, messages: Json = None) -> dict[str, Any]:
    """Return the value of each placeholder in one message; built-in names except `messages` win over variables of the same name."""
    return {
        # The newest of the names: older suites may have a variable with this name.
        CONVERSATION_NAME: messages,
        **context,
        **dict.fromkeys(MESSAGE_NAMES, message),
        **dict.fromkeys(REQUEST_NAMES, request_id),
        SESSION_NAME: session_id,
    }


def unknown_placeholders(placeholders: Iterable[str], cases: Iterable[Case], target: str) -> list[Problem]:
    """Return a problem for every case that lacks a variable of `target`'s template, unless the case has its own body."""
    wanted = sorted(set(placeholders) - BUILT_IN)
    problems: list[Problem] = []
    for case in cases:
        if case.custom_body is not None or case.skip is not None:
            continue
        known = {*case.context, *list_variables(case.systems)}
        for name in wanted:
            if name not in known:
                problems.append(
                    Problem(
                        message=f"target {target!r} sends {{{name}}}, but case {case.id!r} has no variable of that name in its context",
                        origin=case.origin,
                        nearest=nearest(name, (*known, *BUILT_IN)),
                        hint="add it to `context`; a literal brace in a template is doubled: {{ and }}",
                        code="unknown_placeholder",
                    )
                )
    return problems


def _split_parts(text: str, field: str) -> list[Part]:
    return split_braces(text, _BRACES, example="{name}", field=field)
