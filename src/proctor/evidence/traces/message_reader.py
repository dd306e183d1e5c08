"""Messages of spans: of any provider, as a structure or as JSON text.

One trace may mix the formats of several providers, so every message is read by its own shape with the reader that message lists use.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from proctor.evidence.otlp.spans import SpanEvent
from proctor.evidence.shared.blocks import CALLS, GAPS, HOSTED_SUFFIXES, KEYED_CALLS, KEYED_RESULTS, RESULTS, SILENT, Dialect, Draft
from proctor.evidence.shared.message import Message, Role, ToolResult
from proctor.evidence.shared.message_reader import CALL_LISTS, ROLES, fill, find_role, read_role
from proctor.evidence.traces import vocabulary
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import LAST_LETTERS, is_redacted
from proctor.evidence.values.access import dict_or_empty, find_first, split_words
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json
from proctor.model.show import shorten, show

_EVENT_ROLES = {**vocabulary.INPUT_EVENTS, "gen_ai.choice": "assistant"}
SPAN = Dialect(is_span=True)
PRINTED = ("McpCall(", *(f"Response{kind}" for kind in ("Function", "CustomTool", "Output", "Computer", "Code", "File")))
"""Prefixes of OpenAI's Responses items that Python printed."""
_LONGEST = 20_000
"""Maximum characters of a printed object; Python's parser is slow."""
_CALLS_AND_ANSWER = (*CALL_PARTS, "answer")
_ALONE = CALLS | RESULTS | SILENT | GAPS
"""Kinds of a block that may replace a message."""
_OF_ONE_MESSAGE = split_words("text output_text input_text refusal summary_text tool_call tool_use tool_result tool_call_response")
"""Kinds of blocks that belong to one message if they are listed without roles."""
_CALL_LISTS = (*CALL_LISTS, "tool_call_chunks")
_HOLDERS: tuple[tuple[str, type | tuple[type, ...]], ...] = (("content", dict), ("message", (dict, str)), ("prompt", str))
_PLAIN_FIELDS = frozenset(("role", "parts", "finish_reason"))
_MORE_THAN_WORDS = (*PRINTED, "[", "{")
"""Prefixes of a text that may contain an object or a conversation."""


class SpanDraft(Draft):
    """One message of a span while its blocks are read."""

    __slots__ = ("bare",)

    def __init__(self, role: Role, at: str, unknowns: Unknowns) -> None:
        super().__init__(role, at, unknowns, SPAN)
        self.bare = 0
        """Blocks that contain only the kind of a call; OpenInference lists the calls in another field."""

    def add_text(self, value: Json, at: str) -> None:
        """Add a text, unless it is an object printed by Python."""
        if isinstance(value, str) and value.startswith(PRINTED):
            part = parse_printed_object(value)
            if part is None or not isinstance(part.get("type"), str):
                self.mark_unrecognised("an object as Python prints it")
            else:
                self.add_block(part, at)
            return
        super().add_text(value, at)
        # An answer may be JSON. But a message inside a message may be an unread call.
        if isinstance(value, str) and value.startswith("{"):
            inner = dict_or_empty(decode_container(value))
            if inner and (_is_message(inner) or "tool_calls" in inner or isinstance(inner.get("message"), dict)):
                self.mark_unrecognised("a message inside the text of a message")

    def add_block(self, block: Json, at: str) -> None:
        """Add one block; OpenInference puts each under its own name."""
        if isinstance(block, dict):
            block = dict_or_empty(block.get("message_content")) or block
            if block.keys() == {"type"} and block["type"] in ("tool_use", "tool_call", "function"):
                self.bare += 1
                return
        super().add_block(block, at)

    def mark_unrecognised(self, what: str) -> None:
        """Mark calls and answer as unknown because an item is unrecognised."""
        self.unknowns.mark_unrecognised((*CALL_PARTS, "answer"), f"{self.at}: {what}")

    def build(self) -> Message:
        """Return the message, without placeholder text."""
        if self.bare > len(self.calls):
            self.mark_unrecognised("a call of which nothing else is recorded")
        if is_redacted("".join(self.texts)):
            self.texts.clear()
        return super().build()


class ParsedMessages:
    """The messages in one place of a trace, and the unrecognised parts."""

    __slots__ = ("ends", "has_bare_text", "messages", "unknowns")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.unknowns = Unknowns()
        self.ends: list[str] = []
        """Why the messages of a model ended, in lower case, if recorded; an empty word if they were cut."""
        self.has_bare_text = False
        """Whether a text replaces a message."""

    @property
    def unrecognised(self) -> list[str]:
        """The unrecognised items that may act or speak."""
        return list(dict.fromkeys(why for part, why in self.unknowns.unknown.items() if part in _CALLS_AND_ANSWER))

    def list_unrecognised(self) -> list[str]:
        """Return the unrecognised items of a place that only contains messages, where a bare text is not a message."""
        return self.unrecognised or (["a text in place of a message"] if self.has_bare_text else [])

    def has_content(self) -> bool:
        """Return whether a message has a text or calls."""
        return bool([message for message in self.messages if message.text or message.calls])

    def find_last_question(self) -> str | None:
        """Return the last text of a user."""
        return next((message.text for message in reversed(self.messages) if message.role == "user" and message.text), None)

    def _mark(self, what: str) -> None:
        self.unknowns.mark_unrecognised((*CALL_PARTS, "answer"), what)

    def read(self, value: Json, role: Role) -> None:
        """Read messages in any known form; `role` is the speaker if they do not name one."""
        value = decode_container(value)
        if isinstance(value, str):
            self.has_bare_text = True
            if value and not is_redacted(value):
                self.messages.append(Message(role=role, text=value))
        elif isinstance(value, list):
            self._read_list(value, role)
        elif isinstance(value, dict):
            self._read_object(value, role)
        elif value is not None:
            self._mark(f"messages that are {as_text(value)}")

    def _read_list(self, entries: list[Any], role: Role) -> None:
        # Nearly all lists begin with a message, which excludes the other forms.
        if entries and "role" not in dict_or_empty(entries[0]):
            first = entries[0]
            # LangChain's short form of a message: `["human", "..."]`.
            if _is_pair(entries) and first.lower() in ROLES:
                self.messages.append(Message(role=ROLES[first.lower()], text=entries[1]))
                return
            if all(_is_part(entry) for entry in entries):
                self._read_message({"role": role, "parts": entries}, role)
                return
            if all(isinstance(entry, list) for entry in entries) and not _is_pair(first):
                self._read_list(first, role)  # A batch: the first of its conversations.
                return
        texts = [entry for entry in entries if isinstance(entry, str)]
        self.has_bare_text = self.has_bare_text or bool(texts)
        if 0 < len(texts) < len(entries):
            self._mark("a list of texts and other things")
        for entry in entries:
            self.read(entry, role)

    def _read_object(self, value: dict[str, Any], role: Role) -> None:
        if self._read_plain_message(value):
            return
        inner = _read_constructor(value)
        if inner is not None:
            self._read_message(inner, role)
        elif value.get("kind") in ("request", "response") and isinstance(value.get("parts"), list):
            self._read_pydantic(value["parts"], "user" if value["kind"] == "request" else "assistant")
        elif isinstance(value.get("choices"), list):
            # The first choice is read as the answer; the others are counted in `Step.choices`.
            self.read(find_first(_find_first_object(value["choices"]), "message", "delta"), "assistant")
        elif isinstance(value.get("candidates"), list):
            self.read(_find_first_object(value["candidates"]).get("content"), "assistant")
        elif isinstance(value.get("generations"), list):
            generation = _find_first_object(value["generations"])
            if isinstance(generation.get("message"), dict):
                self._read_object(generation["message"], "assistant")
            elif isinstance(generation.get("text"), str):
                self.messages.append(Message(role="assistant", text=generation["text"]))
            else:
                self._mark(f"a generation with {_describe_fields(generation)}")
        elif isinstance(value.get("response"), dict) and ("blocks" in value["response"] or "role" in value["response"]):
            self._read_object(value["response"], "assistant")
        elif _is_message(value):
            self._read_message(value, role)
        elif value:
            held = _find_held(value, role)
            lists = any(isinstance(value.get(key), list) for key in (*_CALL_LISTS, "content"))
            if held is not None:
                self.read(*held)
            elif lists or isinstance(value.get("text"), str) or isinstance(value.get("content"), str):
                self._read_message(value, role)
            else:
                self._mark(f"an object with {_describe_fields(value)}")

    def _read_plain_message(self, value: dict[str, Any]) -> bool:
        """Read a message of only texts in a fifth of the time; return False and read nothing for any other."""
        word, parts, finish = value.get("role"), value.get("parts"), value.get("finish_reason")
        role = ROLES.get(word) if type(word) is str else None
        if role is None or role == "tool" or type(parts) is not list or not _PLAIN_FIELDS.issuperset(value):
            return False
        # A message right after a call may be its result.
        if (finish is not None and type(finish) is not str) or (self.messages and self.messages[-1].calls):
            return False
        texts: list[str] = []
        for part in parts:
            text = part.get("content") if type(part) is dict and len(part) == 2 and part.get("type") == "text" else None
            if type(text) is not str or text.startswith(_MORE_THAN_WORDS):
                return False
            texts.append(text)
        spoken = "".join(texts) if texts else None
        is_removed = spoken and spoken[-1] in LAST_LETTERS and is_redacted(spoken)
        self.messages.append(Message(role=role, text=None if is_removed else spoken))
        if "finish_reason" in value:
            self.ends.append((finish or "").lower())
        return True

    def _read_pydantic(self, parts: list[Any], role: Role) -> None:
        """Read a message of Pydantic AI, whose parts have roles of their own."""
        draft = self._draft("tool" if role == "user" else "assistant")
        for part in map(dict_or_empty, parts):
            kind = part.get("part_kind")
            if kind in ("user-prompt", "system-prompt"):
                inner = self._draft("user" if kind == "user-prompt" else "system")
                inner.add_content(part.get("content"), inner.at)
                self.messages.append(inner.build())
            else:
                draft.add_block(part, draft.at)
        if draft.texts or draft.calls or draft.results:
            # Pydantic AI puts the results of tools into the request next to the text of the user.
            self.messages.append(draft.build())

    def _draft(self, role: Role) -> SpanDraft:
        return SpanDraft(role, f"message {len(self.messages)}", self.unknowns)

    def _read_message(self, message: dict[str, Any], default: Role) -> None:
        message = dict_or_empty(message.get("message")) or message if "role" not in message else message
        kind = str(message.get("type", "")).lower()
        if kind in _ALONE or kind.endswith(HOSTED_SUFFIXES):
            draft = self._draft("assistant")
            draft.add_block(message, draft.at)
            draft.role = "tool" if draft.results and not draft.calls else "assistant"
            self.messages.append(draft.build())
            return
        draft = self._draft(self._find_role(message, default))
        if "finish_reason" in message:
            self.ends.append(str(message["finish_reason"] or "").lower())
        if isinstance(message.get("function_call_name"), str) and not message.get("function_call"):
            # OpenInference flattens OpenAI's oldest form into two attributes.
            old = {"name": message["function_call_name"], "arguments": message.get("function_call_arguments_json")}
            message = {**message, "function_call": old}
        fill(draft, message)
        parts = message.get("parts")
        if isinstance(parts, str) or (isinstance(parts, list) and any(isinstance(part, str) for part in parts)):
            draft.mark_unrecognised("a part that is a bare text")
        # An instrumentation may write a whole conversation as the text of one message.
        text = draft.texts[0] if draft.role == "user" and len(draft.texts) == 1 and not draft.calls and not draft.results else ""
        entries = decode_container(text) if text.startswith("[{") else None
        if isinstance(entries, list) and all(isinstance(entry, dict) and _is_message(entry) for entry in entries):
            self._read_list(entries, "user")
            return
        built, previous = draft.build(), self.messages[-1] if self.messages else None
        waits = previous is not None and previous.calls and not previous.results
        if waits and built.role == "user" and built.text is not None and not built.results:
            # A user cannot write between a call and its result: this is the result, in a user message.
            built = Message(role="tool", results=(ToolResult(value=decode_container(built.text)),))
        self.messages.append(built)

    def _find_role(self, message: dict[str, Any], default: Role) -> Role:
        word = read_role(message)
        if not isinstance(word, str):
            word = _EVENT_ROLES.get(str(message.get("event.name"))) or message.get("type")
        if word is None or str(word).lower() in ("message", ""):
            return "tool" if "tool_call_id" in message else default
        known = find_role(str(word))
        if known is not None:
            return known
        if "tool_call_id" in message:
            return "tool"
        if any(message.get(key) for key in _CALL_LISTS):
            return "assistant"  # Traceloop writes `unknown` for the pieces of a stream; only a model calls tools.
        # Langfuse names the tool in place of the role. Calls of a message are read whatever its role is.
        if not any(call.name == word for before in self.messages for call in before.calls):
            self._mark(f"unrecognised role {show(shorten(str(word), 60))}")
        return "tool" if default == "user" else default


class MessageCache:
    """Reads the messages of one trace, each text once; callers must not change them."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Role], ParsedMessages] = {}

    def read(self, value: Json, role: Role) -> ParsedMessages:
        """Return the messages in any known form; `role` is the speaker if they do not name one."""
        parsed = self._known.get((value, role)) if isinstance(value, str) else None
        if parsed is None:
            parsed = ParsedMessages()
            parsed.read(value, role)
            if isinstance(value, str):
                self._known[value, role] = parsed
        return parsed


def read_event_message(event: SpanEvent) -> Json:
    """Return the message of an event, or None if it has none or its content was not captured."""
    role = vocabulary.INPUT_EVENTS.get(event.name) or ("assistant" if event.name in vocabulary.OUTPUT_EVENTS else None)
    if role is None:
        return None
    content = decode_container(find_first(event.attributes, *vocabulary.EVENT_CONTENT))
    if isinstance(content, dict) and not {"role", "tool_calls", "content", "message"}.isdisjoint(content):
        inner = decode_container(content.get("message")) if "message" in content else content
        if inner is not None and not isinstance(inner, (dict, str)):
            return {"role": role, "content": inner}
        if isinstance(inner, dict) and isinstance(inner.get("content"), dict) and "parts" in inner["content"]:
            inner = inner["content"]  # Gemini
        return {"role": role, **dict_or_empty(inner)} if inner else None
    if isinstance(content, list) and content and "role" in dict_or_empty(content[0]):
        return content
    calls, id = event.attributes.get("tool_calls"), find_first(event.attributes, "id", "tool_call_id")
    if content is None and calls is None:
        return None
    given = {"tool_calls": calls, "tool_call_id": id or None}
    return {"role": role, "content": content, **{key: value for key, value in given.items() if value is not None}}


def join_last_text(messages: Sequence[Message]) -> str | None:
    """Return the last text of the assistant, joined if it came in pieces."""
    texts: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant" and message.text:
            texts.append(message.text)
        # Pieces of one answer are consecutive: a call or a result between two texts separates them. Text before the last user message
        # does not answer it.
        if (message.role != "assistant" or message.calls or message.results) and (texts or message.role == "user"):
            break
    return "".join(reversed(texts)) if texts else None


def read_result(part: dict[str, Any]) -> ToolResult:
    """Read the result of a tool, in any spelling."""
    draft = SpanDraft("tool", "result", Unknowns())
    draft.add_result(part, "result")
    return draft.results[0]


def _find_first_object(entries: list[Any]) -> dict[str, Any]:
    """Return the first object of a list, or of the first list in it."""
    first = entries[0] if entries else None
    return _find_first_object(first) if isinstance(first, list) else dict_or_empty(first)


def _find_held(value: dict[str, Any], role: Role) -> tuple[Json, Role] | None:
    """Return the messages inside an object, and the role of their speaker."""
    for key in ("messages", "contents", "replies", "all_messages"):
        if isinstance(decode_container(value.get(key)), list):
            return value[key], role
    for key in ("llm_request", "request", "kwargs") if role != "assistant" else ():
        if isinstance(value.get(key), dict):
            return _find_held(value[key], role)
    if isinstance(value.get("output"), list) and any("type" in dict_or_empty(entry) for entry in value["output"]):
        return value["output"], "assistant"
    if role != "assistant" and isinstance(value.get("input"), (str, list)):
        return value["input"], role
    for key, kinds in _HOLDERS:
        if isinstance(value.get(key), kinds):
            return value[key], role
    return None


def _is_part(entry: Json) -> bool:
    """Return whether a bare entry of a list is a block of one message rather than a message."""
    part = dict_or_empty(entry)
    if not part or "role" in part or "message" in part:
        return False
    word = part.get("type", part.get("block_type"))
    if word is not None:
        return str(word).lower() in _OF_ONE_MESSAGE and "kwargs" not in part
    keys = (*KEYED_CALLS, *KEYED_RESULTS)
    return any(isinstance(part.get(key), dict) for key in keys) or set(part) <= {"text", "annotations"}


def _is_pair(entry: Json) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(isinstance(half, str) for half in entry)


def _is_message(value: dict[str, Any]) -> bool:
    if "role" in value or str(value.get("event.name")) in _EVENT_ROLES:
        return True
    kind = str(value.get("type", "")).lower()
    if kind in ROLES or kind == "message":
        return "content" in value or "tool_calls" in value
    return kind in _ALONE or (bool(kind) and kind.endswith(HOSTED_SUFFIXES))


def _read_constructor(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields and the role of a message that LangChain wrote as a constructor, or as type and data."""
    name = value.get("id")
    if value.get("lc") is not None and isinstance(name, list) and name and isinstance(value.get("kwargs"), dict):
        return {**value["kwargs"], "role": str(name[-1])}
    if isinstance(value.get("data"), dict) and str(value.get("type")).lower() in ROLES:
        return {**value["data"], "role": value["type"]}
    return None


def _describe_fields(value: dict[str, Any]) -> str:
    return "the fields " + ", ".join(shorten(repr(key), 40) for key in list(value)[:6]) if value else "no fields"


def parse_printed_object(text: str) -> dict[str, Any] | None:
    """Return the fields of an object printed by Python (None for nested objects), or None if it cannot be parsed."""
    if len(text) > _LONGEST:
        return None
    # Parsed, never executed: the text is untrusted. Python's parser raises a `MemoryError` if it nests too deep.
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(call, ast.Call) or call.args:
        return None
    return {word.arg: word.value.value if isinstance(word.value, ast.Constant) else None for word in call.keywords if word.arg is not None}
