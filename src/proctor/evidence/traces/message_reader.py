"""Messages as spans carry them: of any provider, as a structure, as JSON text, or flattened into attributes.

A span does not say whose messages it holds, and one trace may mix them, so every message and every part of one is read by its own
shape. Nothing is passed over in silence: a role, a part or a member that is not understood and could carry an action is named in
`Heard.strange`, and whoever asked must not conclude that nothing was said.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.conversation import Message, Role, ToolResult
from proctor.evidence.traces.message_parts import Parts, carries_result, decode_parts, describe_members, is_part, list_calls, read_call
from proctor.evidence.traces.message_vocabulary import (
    ALONE,
    CALL_LISTS,
    EVENT_ROLES,
    HOSTED_SUFFIXES,
    MESSAGE_KEYS,
    PARTS,
    ROLES,
    WITHHELD,
    WORDS,
)
from proctor.evidence.traces.python_reprs import PRINTED
from proctor.evidence.traces.results import read_tool_message
from proctor.evidence.values.access import dict_or_empty, find_first, list_of
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json
from proctor.model.show import shorten


class Heard:
    """The messages in one place of a trace, and what was not understood of them."""

    __slots__ = ("_only_messages", "ends", "has_bare_text", "messages", "strange")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.strange: list[str] = []
        self.ends: list[str] = []
        """Why the messages of a model ended, in lower case, as far as they say; an empty word where they broke off."""
        self.has_bare_text = False
        """Whether a text may stand where a message should."""
        self._only_messages = False

    def read(self, value: Json, role: Role) -> None:
        """Read messages in any known form; `role` is the speaker if they do not name one."""
        value = decode_container(value)
        if isinstance(value, str):
            self.has_bare_text = True
            if value:
                self.messages.append(Message(role=role, text=value))
        elif isinstance(value, list):
            self._read_list(value, role)
        elif isinstance(value, dict):
            self._read_object(value, role)
        elif value is not None:
            self.strange.append(f"messages that are {as_text(value)}")

    def read_messages(self, value: Json, role: Role) -> None:
        """Read a place where only messages stand, so that a bare text is not a message."""
        self._only_messages = True
        self.read(value, role)
        held = decode_container(value)
        if isinstance(held, str) or (isinstance(held, list) and any(isinstance(entry, str) for entry in held)):
            self.strange.append("a text in place of a message")

    def _read_list(self, entries: list[Any], role: Role) -> None:
        texts = sum(isinstance(entry, str) for entry in entries)
        self.has_bare_text = self.has_bare_text or texts > 0
        # LangChain's short form of a message: `["human", "..."]`.
        if len(entries) == texts == 2 and entries[0].lower() in ROLES:
            self.messages.append(Message(role=ROLES[entries[0].lower()], text=entries[1]))
            return
        # A list that begins with a message is neither of the next two, and nearly all lists do.
        other = bool(entries) and not _begins_with_message(entries)
        if other and all(is_part(entry) for entry in entries):
            self._read_message({"role": role, "parts": entries}, role)
            return
        if other and all(isinstance(entry, list) for entry in entries) and not _is_pair(entries[0]):
            self._read_list(entries[0], role)  # A batch: the first of its conversations.
            return
        if 0 < texts < len(entries):
            self.strange.append("a list of texts and other things")
        for entry in entries:
            entry = decode_container(entry)
            if isinstance(entry, dict):
                self._read_object(entry, role)
            elif isinstance(entry, list):
                self._read_list(entry, role)
            elif isinstance(entry, str):
                self.messages.append(Message(role=role, text=entry))
            elif entry is not None:
                self.strange.append(f"a message that is {as_text(entry)}")

    def _read_object(self, value: dict[str, Any], role: Role) -> None:
        if self._read_plain_message(value):
            return
        inner = _read_constructor(value)
        if inner is not None:
            self._read_message(inner, role)
        elif value.get("kind") in ("request", "response") and isinstance(value.get("parts"), list):
            self._read_pydantic(value["parts"], "user" if value["kind"] == "request" else "assistant")
        elif isinstance(value.get("choices"), list):
            # The first choice is read as the answer; that there are others is counted in `Step.choices`, and doubted.
            for choice in map(dict_or_empty, value["choices"][:1]):
                self.read(find_first(choice, "message", "delta"), "assistant")
        elif isinstance(value.get("candidates"), list):
            for candidate in map(dict_or_empty, value["candidates"][:1]):
                self.read(candidate.get("content"), "assistant")
        elif isinstance(value.get("generations"), list):
            self._read_generations(value["generations"])
        elif isinstance(value.get("response"), dict) and ("blocks" in value["response"] or "role" in value["response"]):
            self._read_object(value["response"], "assistant")
        elif _is_message(value):
            self._read_message(value, role)
        elif not self._read_holder(value, role):
            self.strange.append(f"an object with {describe_members(value)}")

    def _read_plain_message(self, value: dict[str, Any]) -> bool:
        """Read a message of texts alone, which most are, in a fifth of the time; return False and read nothing if it is any other."""
        if not _PLAIN_MEMBERS.issuperset(value):
            return False
        word, parts = value.get("role"), value.get("parts")
        role = ROLES.get(word) if type(word) is str else None
        # Whoever speaks right after a call may tell its result.
        if role is None or role == "tool" or type(parts) is not list or (self.messages and self.messages[-1].calls):
            return False
        texts: list[str] = []
        for part in parts:
            if type(part) is not dict or len(part) != 2 or part.get("type") != "text":
                return False
            text = part.get("content")
            if type(text) is not str or text.startswith(_MORE_THAN_WORDS):
                return False
            texts.append(text)
        if "finish_reason" in value:
            self.ends.append(str(value["finish_reason"] or "").lower())
        text = "".join(texts) if texts else None
        self.messages.append(Message(role=role, text=None if text in WITHHELD else text))
        return True

    def _read_holder(self, value: dict[str, Any], role: Role) -> bool:
        """Read an object that holds messages under a name."""
        for key in ("messages", "contents", "replies", "all_messages"):
            if isinstance(decode_container(value.get(key)), list):
                self.read(value[key], role)
                return True
        for key in ("llm_request", "request", "kwargs") if role != "assistant" else ():
            if isinstance(value.get(key), dict) and not _read_constructor(value):
                return self._read_holder(value[key], role)
        if isinstance(value.get("output"), list) and any("type" in dict_or_empty(entry) for entry in value["output"]):
            self._read_list(value["output"], "assistant")
            return True
        if role != "assistant" and isinstance(value.get("input"), (str, list)):
            self.read(value["input"], role)
            return True
        if isinstance(value.get("content"), dict):
            self._read_object(value["content"], role)
            return True
        if isinstance(value.get("message"), (dict, str)):
            if isinstance(value["message"], str):
                self.has_bare_text = True
                if self._only_messages:
                    self.strange.append("a text in place of a message")
            self.read(value["message"], role)
            return True
        if isinstance(value.get("prompt"), str):
            self.messages.append(Message(role=role, text=value["prompt"]))
            return True
        if any(isinstance(value.get(key), list) for key in (*CALL_LISTS, "content")) or any(
            isinstance(value.get(key), str) for key in WORDS
        ):
            self._read_message(value, role)
            return True
        return False

    def _read_pydantic(self, parts: list[Any], role: Role) -> None:
        """Read a message of Pydantic AI, whose parts have roles of their own."""
        built = Parts(self.strange)
        for part in map(dict_or_empty, parts):
            kind = part.get("part_kind")
            if kind in ("user-prompt", "system-prompt"):
                inner = Parts(self.strange)
                inner.add_all(part.get("content"))
                self.messages.append(inner.build_message("user" if kind == "user-prompt" else "system"))
            else:
                built.add(part)
        if built.text_parts or built.calls or built.results:
            # Pydantic AI puts the results of tools into the request beside the words of the user; what is left are these.
            self.messages.append(built.build_message("tool" if role == "user" else "assistant"))

    def _read_generations(self, generations: list[Any]) -> None:
        first = generations[0] if generations else None
        for generation in map(dict_or_empty, (first if isinstance(first, list) else [first])[:1]):
            if isinstance(generation.get("message"), dict):
                self._read_object(generation["message"], "assistant")
            elif isinstance(generation.get("text"), str):
                self.messages.append(Message(role="assistant", text=generation["text"]))
            else:
                self.strange.append(f"a generation with {describe_members(generation)}")

    def _read_message(self, message: dict[str, Any], default: Role) -> None:
        """Read one message of any provider."""
        message = dict_or_empty(message.get("message")) or message if "role" not in message else message
        kind = str(message.get("type", "")).lower()
        if kind in ALONE or kind.endswith(HOSTED_SUFFIXES):
            built = Parts(self.strange)
            built.add(message)
            self.messages.append(built.build_message("tool" if built.results and not built.calls else "assistant"))
            return
        role = self._find_role(message, default)
        if "finish_reason" in message:
            self.ends.append(str(message["finish_reason"] or "").lower())
        built = Parts(self.strange)
        if role == "tool" and not any(carries_result(part) for part in list_of(decode_container(find_first(message, "parts", "content")))):
            built.results.append(read_tool_message(message))
        else:
            built.add_all(decode_parts(find_first(message, *PARTS)))
            if "parts" in message and (
                isinstance(message["parts"], str) or any(isinstance(part, str) for part in list_of(message["parts"]))
            ):
                self.strange.append("a part that is a bare text")
            if role == "user" and self._read_conversation_in(built):
                return
            self._add_listed_calls(message, built)
        self._look_for_more(message, built, role)
        said = built.build_message(role)
        before = self.messages[-1] if self.messages else None
        if role == "user" and said.text is not None and not said.results and before is not None and before.calls and not before.results:
            # Nobody can speak between a call and its result: this is the result, written as if the user had said it.
            said = Message(role="tool", results=(ToolResult(value=decode_container(said.text)),))
        self.messages.append(said)

    def _read_conversation_in(self, built: Parts) -> bool:
        """Read a whole conversation that an instrumentation wrote as the text of one message."""
        text = built.text_parts[0] if len(built.text_parts) == 1 and not built.calls and not built.results else ""
        entries = decode_container(text) if text.startswith("[{") else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) and _is_message(entry) for entry in entries):
            return False
        self._read_list(entries, "user")
        return True

    def _find_role(self, message: dict[str, Any], default: Role) -> Role:
        word = message.get("role")
        if isinstance(word, dict):
            word = word.get("value") or word.get("label")
        if not isinstance(word, str):
            word = EVENT_ROLES.get(str(message.get("event.name"))) or message.get("type")
        if word is None or str(word).lower() in ("message", ""):
            return "tool" if "tool_call_id" in message else default
        # The member of an enumeration may be printed with its class: `MessageRole.USER`.
        known = ROLES.get(str(word).lower().rpartition(".")[2])
        if known is not None:
            return known
        if "tool_call_id" in message:
            return "tool"
        if any(message.get(key) for key in CALL_LISTS):
            return "assistant"  # Traceloop writes `unknown` for the pieces of a stream; nobody else calls tools.
        # Langfuse names the tool in place of the role. Calls of a message are read whatever its role is.
        if not any(call.name == word for before in self.messages for call in before.calls):
            self.strange.append(f"the role {shorten(str(word), 60)!r}")
        return "tool" if default == "user" else default

    def _add_listed_calls(self, message: dict[str, Any], built: Parts) -> None:
        found = [call for key in CALL_LISTS if key in message for call in list_calls(message[key], self.strange)]
        if not found:
            # LangChain keeps the provider's own spelling of the same calls there.
            found = list_calls(dict_or_empty(message.get("additional_kwargs")).get("tool_calls"), self.strange)
        # Instrumentations tell a call among the parts and once more in the list of calls.
        known = {call.id for call in built.calls if call.id is not None}
        for entry in found:
            call = read_call(entry, self.strange)
            if call is not None and (call.id is None or call.id not in known):
                built.calls.append(call)
                if call.id is not None:
                    known.add(call.id)
        # OpenAI's form before there were `tool_calls`; OpenInference flattens it into two attributes.
        legacy = dict_or_empty(message.get("function_call"))
        if not legacy and isinstance(message.get("function_call_name"), str):
            legacy = {"name": message["function_call_name"], "arguments": message.get("function_call_arguments_json")}
        if legacy and not built.calls:
            call = read_call(legacy, self.strange)
            if call is not None:
                built.calls.append(call)

    def _look_for_more(self, message: dict[str, Any], built: Parts, role: Role) -> None:
        """Note members that are not understood and could carry what an agent did."""
        if built.bare > len(built.calls):
            self.strange.append("a call of which nothing else is told")
        for key, value in message.items():
            if key in MESSAGE_KEYS:
                continue
            empty = not built.text_parts and not built.calls and not built.results
            if (isinstance(value, (dict, list)) and value) or (role in ("assistant", "tool") and empty and value not in (None, "", False)):
                self.strange.append(f"{shorten(key, 60)!r} of a message")


class Hearings:
    """Reads the messages of one trace, each text once: the spans around a request repeat what it was given and what it said.

    What is returned is shared, so nobody may change it.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, Role], Heard] = {}

    def read(self, value: Json, role: Role) -> Heard:
        """Return the messages in any known form; `role` is the speaker if they do not name one."""
        # Only texts of structures: anything else has nothing to compare by, or is read at once.
        text = value if isinstance(value, str) and value[:1] in _OPENING else None
        heard = self._known.get((text, role)) if text is not None else None
        if heard is None:
            heard = Heard()
            heard.read(value, role)
            if text is not None:
                self._known[text, role] = heard
        return heard

    def read_messages(self, value: Json, role: Role) -> Heard:
        """Return the messages of a place where only messages stand, so that a bare text is not a message."""
        heard = self.read(value, role)
        # Only a bare text is read differently here, so that nothing else is read twice.
        if heard.has_bare_text:
            heard = Heard()
            heard.read_messages(value, role)
        return heard


_OPENING = ("[", "{")
_PLAIN_MEMBERS = frozenset(("role", "parts", "finish_reason"))
"""The members of a message by the convention of OpenTelemetry."""
_MORE_THAN_WORDS = (*PRINTED, "[{")
"""How a text begins that may hold an object or a conversation."""


def _begins_with_message(entries: list[Any]) -> bool:
    return isinstance(entries[0], dict) and "role" in entries[0]


def _is_pair(entry: Json) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(isinstance(half, str) for half in entry)


def _is_message(value: dict[str, Any]) -> bool:
    if "role" in value or str(value.get("event.name")) in EVENT_ROLES:
        return True
    kind = str(value.get("type", "")).lower()
    if kind in ROLES or kind == "message":
        return "content" in value or "tool_calls" in value
    return kind in ALONE or (bool(kind) and kind.endswith(HOSTED_SUFFIXES))


def _read_constructor(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields and the role of a message that LangChain wrote as a constructor, or as type and data."""
    name = value.get("id")
    if value.get("lc") is not None and isinstance(name, list) and name and isinstance(value.get("kwargs"), dict):
        return {**value["kwargs"], "role": str(name[-1])}
    if isinstance(value.get("data"), dict) and str(value.get("type")).lower() in ROLES:
        return {**value["data"], "role": value["type"]}
    return None
