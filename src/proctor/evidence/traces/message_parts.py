"""The parts of one message, each read by its own shape: texts, calls that a model asked for, results of tools.

A part or a member that is not understood and could carry an action is named in the list that whoever reads hands over.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.calls import read_arguments, says_error
from proctor.evidence.shared.conversation import Message, Role, ToolResult
from proctor.evidence.traces.message_vocabulary import (
    ALONE,
    ARGUMENTS,
    BESIDE_TEXT,
    CALL_KEYS,
    CALLS,
    HOSTED,
    ID,
    KEYED_CALLS,
    KEYED_RESULTS,
    KEYED_SILENT,
    MESSAGE_CONTENT,
    NAME,
    NOT_CALLS,
    OF_ONE_MESSAGE,
    RESULT_ID,
    RESULT_KEYS,
    RESULTS,
    ROLES,
    SILENT,
    TEXTS,
    WITHHELD,
)
from proctor.evidence.traces.python_reprs import PRINTED, parse_printed_object
from proctor.evidence.traces.results import read_result
from proctor.evidence.values.access import dict_or_empty, find_first, text_or_none
from proctor.evidence.values.json_bytes import decode_container, decode_embedded
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import shorten

_NOTHING = (None, False, "", [], {})
_OF_CALLS = frozenset(
    ("tool_use_id", "toolUseId", "tool_call_id", "toolCallId", "is_error", "isError", "arguments", "tool_name", "toolName")
)
"""Members that a text has none of, and calls and results have."""


class Parts:
    """Collects the parts of one message."""

    def __init__(self, strange: list[str]) -> None:
        self.bare = 0
        """Parts that only say that a call stood here; OpenInference lists the calls themselves beside them."""
        self.text_parts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []
        self.strange = strange

    def build_message(self, role: Role) -> Message:
        """Return the message that the parts make."""
        text = "".join(self.text_parts) if self.text_parts else None
        if text is not None and text in WITHHELD:
            text = None
        return Message(role=role, text=text, calls=tuple(self.calls), results=tuple(self.results))

    def add_all(self, content: Json) -> None:
        """Add the content of a message: a text, a part, or a list of them."""
        if isinstance(content, str):
            self._add_words(content)
        elif isinstance(content, dict):
            self.add(content)
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, str):
                    self._add_words(part)
                elif isinstance(part, dict):
                    self.add(part)
                elif part is not None:
                    self.strange.append(f"a part that is {as_text(part)}")
        elif content is not None:
            self.strange.append(f"content that is {shorten(as_text(content) or '', 60)}")

    def add(self, part: dict[str, Any]) -> None:
        """Add one part of a message, by its type or by the member that tells it."""
        # OpenInference puts every part under this name.
        part = dict_or_empty(part.get("message_content")) or part
        kind = part.get("type", part.get("block_type", part.get("part_kind", part.get("content_type"))))
        word = str(kind).lower() if kind is not None else ""
        if word in TEXTS:
            self._add_text(part)
        elif word in CALLS or (word.endswith("_call") and word not in SILENT):
            if word not in CALLS and find_first(part, *NAME) is not None:
                self.strange.append(f"a part of type {shorten(word, 60)!r}")  # What a provider runs itself is named by its type.
            self._add_call(part, word)
        elif word in RESULTS or word.endswith(("_tool_result", "_call_output")):
            self._add_result(part)
        elif word in SILENT:
            return
        elif word:
            self.strange.append(f"a part of type {shorten(word, 60)!r}")
        else:
            self._add_keyed(part)

    def _add_words(self, text: str) -> None:
        """Add a bare text, unless it is a whole message in JSON or an object as Python prints it."""
        if text.startswith(PRINTED):
            self._add_printed(text)
            return
        self.text_parts.append(text)
        # The text stays, as the answer may well be JSON. But a message inside a message may be a call that nobody reads.
        if text.startswith("{"):
            inner = dict_or_empty(decode_container(text))
            named = str(inner.get("role")).lower() in ROLES and not MESSAGE_CONTENT.isdisjoint(inner)
            if named or "tool_calls" in inner or isinstance(inner.get("message"), dict) or inner.get("type") in ALONE:
                self.strange.append("a message inside the text of a message")

    def _add_text(self, part: dict[str, Any]) -> None:
        text = find_first(part, "content", "text", "refusal")
        if isinstance(text, dict):
            text = text.get("value")
        self._look_beside(part)
        if isinstance(text, str) and text.startswith(PRINTED):
            self._add_printed(text)
        elif isinstance(text, str):
            self.text_parts.append(text)
        elif text is not None or not _is_empty(part):
            self.strange.append("a text part without text")

    def _add_printed(self, text: str) -> None:
        """Add an item of a provider that an instrumentation wrote as Python prints it, by its type."""
        part = parse_printed_object(text)
        if part is None or not isinstance(part.get("type"), str):
            self.strange.append("an object as Python prints it")
        else:
            self.add(part)

    def _look_beside(self, part: dict[str, Any]) -> None:
        """Note members beside a text that could carry what an agent did."""
        for key, value in part.items():
            if value and isinstance(value, (dict, list)) and key not in BESIDE_TEXT:
                self.strange.append(f"{shorten(key, 60)!r} beside a text")

    def _add_call(self, part: dict[str, Any], word: str) -> None:
        if set(part) <= {"type"}:
            self.bare += 1
            return
        hosted = word.endswith("_call") and word not in CALLS and find_first(part, *NAME, "function") is None
        if hosted and word not in HOSTED:
            self.strange.append(f"a part of type {shorten(word, 60)!r}")
        call = (
            ToolCall(name=word.removesuffix("_call"), arguments=_read_hosted_arguments(part)) if hosted else read_call(part, self.strange)
        )
        if call is None:
            return
        self.calls.append(call)
        if hosted or word in ("mcp_call", "server_tool_call", "builtin-tool-call"):
            value = find_first(part, "output", "results", "outputs", "result")
            error = part.get("error")
            if value is not None or says_error(error):
                self.results.append(
                    ToolResult(id=call.id, name=call.name, value=decode_container(value), error=error if says_error(error) else None)
                )

    def _add_result(self, part: dict[str, Any]) -> None:
        self.results.append(read_result(part))
        odd = next((key for key, value in part.items() if key not in RESULT_KEYS and value not in _NOTHING), None)
        if odd is not None:
            self.strange.append(f"{shorten(odd, 60)!r} of a result")
        if not isinstance(find_first(part, *RESULT_ID), (str, type(None))):
            self.strange.append("the id of a result")

    def _add_keyed(self, part: dict[str, Any]) -> None:
        for key in KEYED_CALLS:
            inner = part.get(key)
            if isinstance(inner, dict):
                # `executableCode`: Gemini runs code itself, and gives the call no name.
                if "ode" in key:
                    self.calls.append(ToolCall(name="code_execution", arguments=inner))
                    return
                call = read_call(inner, self.strange)
                if call is not None:
                    self.calls.append(call)
                return
        for key in KEYED_RESULTS:
            inner = part.get(key)
            if isinstance(inner, dict):
                self._add_result(inner)
                return
        text = find_first(part, "text", "content")
        if isinstance(text, str):
            self._look_beside(part)
            if not _OF_CALLS.isdisjoint(part):
                self.strange.append(f"a part with {describe_members(part)}")
            # Gemini marks its reasoning so; it is no part of the answer.
            if part.get("thought") is not True:
                self.text_parts.append(text)
            return
        if part and not KEYED_SILENT.isdisjoint(part):
            return
        if not _is_empty(part):
            self.strange.append(f"a part with {describe_members(part)}")


def read_call(call: dict[str, Any], strange: list[str]) -> ToolCall | None:
    """Read one call a model asked for, or return None and note it in `strange` if it has no name."""
    call = dict_or_empty(call.get("tool_call")) or call
    function = dict_or_empty(call.get("function")) or dict_or_empty(call.get("custom")) or call
    name = find_first(function, *NAME)
    if not isinstance(name, str) or not name:
        strange.append(f"a call with {describe_members(call)}")
        return None
    if name in NOT_CALLS:
        return None
    given = next((key for key in ARGUMENTS if key in function), None)
    arguments = read_arguments(_unquote(function[given])) if given is not None else None
    if given is None and (odd := next((key for key, value in function.items() if value is not None and key not in CALL_KEYS), None)):
        strange.append(f"{shorten(odd, 60)!r} of a call")
    hosted = name if name in HOSTED else None  # OpenInference names what a provider runs by the type of the item.
    return ToolCall(
        name=name if hosted is None else hosted.removesuffix("_call"),
        aliases=() if hosted is None else (hosted,),
        arguments=arguments,
        id=text_or_none(find_first(call, *ID)) or text_or_none(find_first(function, *ID)),
        server=text_or_none(find_first(call, "server_name", "server_label")),
    )


def list_calls(value: Json, strange: list[str]) -> list[dict[str, Any]]:
    """Return the calls in a list, and note in `strange` what is no list and what is no call."""
    value = decode_container(value)
    if value is None or value == "":
        return []
    if not isinstance(value, list):
        strange.append("tool calls that are no list")
        return []
    for entry in value:
        if not isinstance(entry, dict):
            strange.append(f"a call that is {as_text(entry)}")
    return [entry for entry in value if isinstance(entry, dict)]


def _unquote(value: Json) -> Json:
    # Written as JSON twice over: a text of a text.
    if isinstance(value, str) and value[:1] == '"':
        inner = decode_embedded(value)
        return inner if isinstance(inner, str) else value
    return value


def _read_hosted_arguments(part: dict[str, Any]) -> Json:
    action = part.get("action")
    return action if isinstance(action, dict) else {key: part[key] for key in ("queries", "code", "operation") if part.get(key) is not None}


def decode_parts(content: Json) -> Json:
    """Decode content that is the JSON text of parts; an answer that happens to be JSON stays the text it is."""
    decoded = decode_container(content)
    return decoded if isinstance(decoded, list) and decoded and all(is_part(part) for part in decoded) else content


def carries_result(part: Json) -> bool:
    """Return whether a part is the result of a tool."""
    entry = dict_or_empty(dict_or_empty(part).get("message_content")) or dict_or_empty(part)
    word = str(entry.get("type", entry.get("block_type", ""))).lower()
    return word in RESULTS or any(isinstance(entry.get(key), dict) for key in KEYED_RESULTS)


def is_part(entry: Json) -> bool:
    """Return whether a bare entry of a list is a part of one message rather than a message."""
    part = dict_or_empty(entry)
    if not part or "role" in part or "message" in part:
        return False
    word = part.get("type", part.get("block_type"))
    if word is not None:
        return str(word).lower() in OF_ONE_MESSAGE and "kwargs" not in part
    keys = (*KEYED_CALLS, *KEYED_RESULTS)
    return any(isinstance(part.get(key), dict) for key in keys) or set(part) <= {"text", "annotations"}


def _is_empty(part: dict[str, Any]) -> bool:
    return all(value in (None, "", [], {}) for key, value in part.items() if key not in ("type", "block_type", "index", "annotations"))


def describe_members(value: dict[str, Any]) -> str:
    """Return the words for the first few members of an object."""
    return "the members " + ", ".join(shorten(repr(key), 40) for key in list(value)[:6]) if value else "no members"
