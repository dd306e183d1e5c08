"""Messages as spans carry them: of any provider, as a structure, as JSON text, or flattened into attributes.

A span does not say whose messages it holds, and one trace may mix them, so every message and every part of one is read by its own
shape. Nothing is passed over in silence: a role, a part or a member that is not understood and could carry an action is named in
`Heard.strange`, and whoever asked must not conclude that nothing was said.
"""

from __future__ import annotations

from typing import Any, cast

from proctor.evidence.calls import CONTENT_ERROR, read_arguments, says_error
from proctor.evidence.conversation import Message, Result, Role
from proctor.evidence.json_bytes import container_in, embedded
from proctor.evidence.shape import dict_of, first_of, list_of, text_or_none
from proctor.evidence.text import as_text
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import shorten

_ROLES: dict[str, Role] = {
    **dict.fromkeys(("user", "human", "humanmessage", "humanmessagechunk", "input"), cast(Role, "user")),
    **dict.fromkeys(
        ("assistant", "ai", "model", "aimessage", "aimessagechunk", "agent", "chatbot", "bot", "tool-call"), cast(Role, "assistant")
    ),
    **dict.fromkeys(("system", "developer", "systemmessage", "systemmessagechunk", "instructions"), cast(Role, "system")),
    **dict.fromkeys(("tool", "function", "toolmessage", "toolmessagechunk", "functionmessage", "tool-response"), cast(Role, "tool")),
}
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}

_TEXTS = frozenset(("text", "output_text", "input_text", "refusal", "summary_text"))
_CALLS = frozenset(
    (
        "tooluse",
        *(
            "tool_call",
            "tool_use",
            "toolcall",
            "tool-call",
            "function_call",
            "function",
            "server_tool_use",
            "mcp_tool_use",
            "server_tool_call",
        ),
        *("custom_tool_call", "mcp_call", "builtin-tool-call", "builtin_tool_call"),
    )
)
_RESULTS = frozenset(
    (
        *("tool_call_response", "tool_result", "tool-result", "function_call_output", "function_result", "tool_response", "tool-return"),
        *(
            "server_tool_call_response",
            "server_tool_result",
            "custom_tool_call_output",
            "toolresult",
            "tool_call_result",
            "function_response",
        ),
        *("builtin-tool-return", "mcp_tool_result", "retry-prompt"),
    )
)
_SILENT = frozenset(
    (
        *("reasoning", "thinking", "redacted_thinking", "image", "image_url", "image-url", "file", "blob", "uri", "audio", "input_audio"),
        *("document", "media", "input_image", "input_file", "cache_point", "step-start", "source", "video", "item_reference", "binary"),
        *("compaction", "mcp_list_tools", "document-url", "audio-url", "video-url"),
    )
)
_HOSTED_SUFFIXES = ("_call", "_tool_result", "_call_output")

_KEYED_CALLS = (
    "functionCall",
    "function_call",
    "toolUse",
    "tool_use",
    "tool_call",
    "toolCall",
    "executableCode",
    "executable_code",
    "toolRequest",
)
_KEYED_RESULTS = (
    "functionResponse",
    "function_response",
    "toolResult",
    "tool_result",
    "tool_call_result",
    "codeExecutionResult",
    "toolResponse",
)
_KEYED_SILENT = frozenset(
    (
        *(
            "inlineData",
            "inline_data",
            "fileData",
            "file_data",
            "image",
            "image_url",
            "reasoningContent",
            "reasoning",
            "cachePoint",
            "document",
        ),
        *(
            "thought_signature",
            "thoughtSignature",
            "video",
            "audio",
            "guardContent",
            "citationsContent",
            "media_resolution",
            "mediaResolution",
        ),
    )
)

_NAME = ("name", "tool_name", "toolName", "function_name")
_ARGUMENTS = ("arguments", "args", "input", "tool_kwargs", "toolInput", "tool_input", "kwargs", "parameters", "partial_args")
_ID = ("call_id", "callId", "ref", "tool_call_id", "toolCallId", "toolUseId", "tool_use_id", "tool_id", "id")
_CALL_KEYS = frozenset(
    (
        *(*_NAME, *_ARGUMENTS, *_ID, "type", "block_type", "part_kind", "index", "status", "error", "function", "custom", "tool_call"),
        *("server_name", "server_label", "description", "namespace", "caller", "approval_request_id", "output", "extra", "provider_name"),
        *("provider_details", "provider_executed", "providerExecuted", "thought_signature", "metadata", "dynamic", "server_tool_call"),
    )
)
"""Members of calls that are understood, or are known not to be arguments."""
_VALUE = ("response", "result", "output", "content", "tool_output", "value", "text")
_PARTS = ("parts", "content", "blocks", "contents", "items", "text")
_WORDS = ("text", "content")
_BESIDE_TEXT = frozenset(
    (
        *("text", "content", "refusal", "annotations", "citations", "logprobs", "metadata", "meta", "cache_control", "extras", "index"),
        *(
            "provider_details",
            "providerOptions",
            "providerMetadata",
            "provider_metadata",
            "additional_kwargs",
            "_meta",
            "additional_properties",
        ),
    )
)
"""Members of text parts that tell nothing an agent did."""
_MESSAGE_CONTENT = frozenset(("content", "parts", "tool_calls"))
_CALL_LISTS = ("tool_calls", "toolCalls", "invalid_tool_calls", "tool_call_chunks")

_MESSAGE_KEYS = frozenset(
    (
        *(
            "role",
            "content",
            "parts",
            "blocks",
            "contents",
            "text",
            "type",
            "name",
            "id",
            "index",
            "finish_reason",
            "finishReason",
            "refusal",
        ),
        *("tool_calls", "toolCalls", "invalid_tool_calls", "tool_call_chunks", "function_call", "tool_call_id", "toolCallId", "status"),
        *("additional_kwargs", "response_metadata", "usage_metadata", "usage", "metadata", "meta", "example", "annotations", "audio", "lc"),
        *(
            "gen_ai.message.index",
            "event.name",
            "gen_ai.system",
            "created_at",
            "reasoning",
            "reasoning_content",
            "model",
            "artifact",
            "message",
        ),
        *("logprobs", "stop_reason", "stop_sequence", "container", "provider_details", "providerMetadata", "providerOptions", "tool_call"),
        *(
            "message_index",
            "function_call_name",
            "function_call_arguments_json",
            "tool_name",
            "tool_plan",
            "citations",
            "is_error",
            "error",
        ),
        *("source", "object", "phase", "service_tier", "provider_specific_fields", "stop_details", "context_management", "summary"),
        *(
            "provider_data",
            "async_",
            "content_type",
            "ai_model_id",
            "inner_content",
            "encoding",
            "items",
            "prefix",
            "tool_call_error",
            "images",
            "videos",
            "files",
        ),
        *("chunk_position", "reasoning_details", "tool_arguments", "encrypted_content", "kind", "timestamp", "instructions", "partial"),
        *(
            "tool_args",
            "call_id",
            "output",
            "arguments",
            "action",
            "results",
            "queries",
            "code",
            "outputs",
            "result",
            "caller",
            "namespace",
        ),
    )
)
"""Members of messages that are understood, or are known to carry nothing an agent did."""
_NOT_CALLS = frozenset(("mcp_list_tools",))
"""What a provider tells like a call and is none: it asked a server which tools it has."""
_GOOD = frozenset(("", "success", "ok", "completed", "complete", "done", "none", "in_progress", "incomplete", "succeeded", "finished"))
"""Words for a call that did not fail."""
_WITHHELD = frozenset(("<elided>", "__REDACTED__", "[REDACTED]", "[redacted]", "***", "REDACTED"))
"""What instrumentations write in place of a text that must not be recorded."""


class Heard:
    """What was heard in one place of a trace: messages, and what was not understood of them."""

    __slots__ = ("_only_messages", "messages", "strange")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.strange: list[str] = []
        self._only_messages = False

    def read(self, value: Json, role: Role) -> None:
        """Read messages in any of the known forms; `role` is whose they are where they do not say."""
        value = container_in(value)
        if isinstance(value, str):
            if value:
                self.messages.append(Message(role=role, text=value))
        elif isinstance(value, list):
            self._read_list(value, role)
        elif isinstance(value, dict):
            self._read_object(value, role)
        elif value is not None:
            self.strange.append(f"messages that are {as_text(value)}")

    def read_messages(self, value: Json, role: Role) -> None:
        """Read a place where nothing but messages stands: a text there is none."""
        self._only_messages = True
        self.read(value, role)
        held = container_in(value)
        if isinstance(held, str) or (isinstance(held, list) and any(isinstance(entry, str) for entry in held)):
            self.strange.append("a text in place of a message")

    def _read_list(self, entries: list[Any], role: Role) -> None:
        if len(entries) == 2 and all(isinstance(entry, str) for entry in entries) and entries[0].lower() in _ROLES:
            self.messages.append(Message(role=_ROLES[entries[0].lower()], text=entries[1]))
            return
        if entries and all(_is_part(entry) for entry in entries):
            self._read_message({"role": role, "parts": entries}, role)
            return
        if entries and all(isinstance(entry, list) for entry in entries) and not _is_pair(entries[0]):
            self._read_list(entries[0], role)  # A batch: the first of its conversations.
            return
        if any(isinstance(entry, str) for entry in entries) and not all(isinstance(entry, str) for entry in entries):
            self.strange.append("a list of texts and other things")
        for entry in entries:
            entry = container_in(entry)
            if isinstance(entry, dict):
                self._read_object(entry, role)
            elif isinstance(entry, list):
                self._read_list(entry, role)
            elif isinstance(entry, str):
                self.messages.append(Message(role=role, text=entry))
            elif entry is not None:
                self.strange.append(f"a message that is {as_text(entry)}")

    def _read_object(self, value: dict[str, Any], role: Role) -> None:
        inner = _constructed(value)
        if inner is not None:
            self._read_message(inner, role)
        elif value.get("kind") in ("request", "response") and isinstance(value.get("parts"), list):
            self._read_pydantic(value["parts"], "user" if value["kind"] == "request" else "assistant")
        elif isinstance(value.get("choices"), list):
            for choice in map(dict_of, value["choices"][:1]):
                self.read(first_of(choice, "message", "delta"), "assistant")
        elif isinstance(value.get("candidates"), list):
            for candidate in map(dict_of, value["candidates"][:1]):
                self.read(candidate.get("content"), "assistant")
        elif isinstance(value.get("generations"), list):
            self._read_generations(value["generations"])
        elif isinstance(value.get("response"), dict) and ("blocks" in value["response"] or "role" in value["response"]):
            self._read_object(value["response"], "assistant")
        elif _is_message(value):
            self._read_message(value, role)
        elif not self._read_holder(value, role):
            self.strange.append(f"an object with {_listed(value)}")

    def _read_holder(self, value: dict[str, Any], role: Role) -> bool:
        """Read an object that holds messages under a name."""
        for key in ("messages", "contents", "replies", "all_messages"):
            if isinstance(container_in(value.get(key)), list):
                self.read(value[key], role)
                return True
        for key in ("llm_request", "request", "kwargs") if role != "assistant" else ():
            if isinstance(value.get(key), dict) and not _constructed(value):
                return self._read_holder(value[key], role)
        if isinstance(value.get("output"), list) and any("type" in dict_of(entry) for entry in value["output"]):
            self._read_list(value["output"], "assistant")
            return True
        if role != "assistant" and isinstance(value.get("input"), (str, list)):
            self.read(value["input"], role)
            return True
        if isinstance(value.get("content"), dict):
            self._read_object(value["content"], role)
            return True
        if isinstance(value.get("message"), (dict, str)):
            if self._only_messages and isinstance(value["message"], str):
                self.strange.append("a text in place of a message")
            self.read(value["message"], role)
            return True
        if isinstance(value.get("prompt"), str):
            self.messages.append(Message(role=role, text=value["prompt"]))
            return True
        if any(isinstance(value.get(key), list) for key in (*_CALL_LISTS, "content")) or any(
            isinstance(value.get(key), str) for key in _WORDS
        ):
            self._read_message(value, role)
            return True
        return False

    def _read_pydantic(self, parts: list[Any], role: Role) -> None:
        """Read a message of Pydantic AI, whose parts have roles of their own."""
        built = _Parts(self.strange)
        for part in map(dict_of, parts):
            kind = part.get("part_kind")
            if kind in ("user-prompt", "system-prompt"):
                inner = _Parts(self.strange)
                inner.add_all(part.get("content"))
                self.messages.append(inner.message("user" if kind == "user-prompt" else "system"))
            else:
                built.add(part)
        if built.text_parts or built.calls or built.results:
            self.messages.append(built.message("tool" if role == "user" else "assistant"))

    def _read_generations(self, generations: list[Any]) -> None:
        first = generations[0] if generations else None
        for generation in map(dict_of, (first if isinstance(first, list) else [first])[:1]):
            if isinstance(generation.get("message"), dict):
                self._read_object(generation["message"], "assistant")
            elif isinstance(generation.get("text"), str):
                self.messages.append(Message(role="assistant", text=generation["text"]))
            else:
                self.strange.append(f"a generation with {_listed(generation)}")

    def _read_message(self, message: dict[str, Any], default: Role) -> None:
        """Read one message of any provider."""
        message = dict_of(message.get("message")) or message if "role" not in message else message
        kind = str(message.get("type", "")).lower()
        if kind in _CALLS | _RESULTS | _SILENT or kind.endswith(_HOSTED_SUFFIXES):
            built = _Parts(self.strange)
            built.add(message)
            self.messages.append(built.message("tool" if built.results and not built.calls else "assistant"))
            return
        role = self._role(message, default)
        built = _Parts(self.strange)
        if role == "tool" and not any(_carries_result(part) for part in list_of(container_in(first_of(message, "parts", "content")))):
            built.results.append(_tool_message(message))
        else:
            built.add_all(_parts_in(first_of(message, *_PARTS)))
            if "parts" in message and (
                isinstance(message["parts"], str) or any(isinstance(part, str) for part in list_of(message["parts"]))
            ):
                self.strange.append("a part that is a bare text")
            if role == "user" and self._read_conversation_in(built):
                return
            self._add_listed_calls(message, built)
        self._look_for_more(message, built, role)
        said = built.message(role)
        before = self.messages[-1] if self.messages else None
        if role == "user" and said.text is not None and not said.results and before is not None and before.calls and not before.results:
            # Nobody can speak between a call and its result: this is the result, written as if the user had said it.
            said = Message(role="tool", results=(Result(value=container_in(said.text)),))
        self.messages.append(said)

    def _read_conversation_in(self, built: _Parts) -> bool:
        """Read a whole conversation that an instrumentation wrote as the text of one message."""
        text = built.text_parts[0] if len(built.text_parts) == 1 and not built.calls and not built.results else ""
        entries = container_in(text) if text.startswith("[{") else None
        if not isinstance(entries, list) or not all(isinstance(entry, dict) and _is_message(entry) for entry in entries):
            return False
        self._read_list(entries, "user")
        return True

    def _role(self, message: dict[str, Any], default: Role) -> Role:
        word = message.get("role")
        if isinstance(word, dict):
            word = word.get("value") or word.get("label")
        if not isinstance(word, str):
            word = _EVENT_ROLES.get(str(message.get("event.name"))) or message.get("type")
        if word is None or str(word).lower() in ("message", ""):
            return "tool" if "tool_call_id" in message else default
        known = _ROLES.get(str(word).lower().rpartition(".")[2])
        if known is not None:
            return known
        if "tool_call_id" in message:
            return "tool"
        # Langfuse names the tool in place of the role. Calls of a message are read whatever its role is.
        if not any(call.name == word for before in self.messages for call in before.calls):
            self.strange.append(f"the role {shorten(str(word), 60)!r}")
        return "tool" if default == "user" else default

    def _add_listed_calls(self, message: dict[str, Any], built: _Parts) -> None:
        listed = [call for key in _CALL_LISTS for call in _listed_calls(message.get(key), self.strange)]
        if not listed:
            listed = _listed_calls(dict_of(message.get("additional_kwargs")).get("tool_calls"), self.strange)
        known = {call.id for call in built.calls if call.id is not None}
        for entry in listed:
            call = read_call(entry, self.strange)
            if call is not None and (call.id is None or call.id not in known):
                built.calls.append(call)
                if call.id is not None:
                    known.add(call.id)
        legacy = dict_of(message.get("function_call"))
        if not legacy and isinstance(message.get("function_call_name"), str):
            legacy = {"name": message["function_call_name"], "arguments": message.get("function_call_arguments_json")}
        if legacy and not built.calls:
            call = read_call(legacy, self.strange)
            if call is not None:
                built.calls.append(call)

    def _look_for_more(self, message: dict[str, Any], built: _Parts, role: Role) -> None:
        """Name members that are not understood and could carry what an agent did."""
        if built.bare > len(built.calls):
            self.strange.append("a call of which nothing else is told")
        for key, value in message.items():
            if key in _MESSAGE_KEYS:
                continue
            empty = not built.text_parts and not built.calls and not built.results
            if (isinstance(value, (dict, list)) and value) or (role in ("assistant", "tool") and empty and value not in (None, "", False)):
                self.strange.append(f"{shorten(key, 60)!r} of a message")


class _Parts:
    """The parts of one message, put together."""

    def __init__(self, strange: list[str]) -> None:
        self.bare = 0
        """Parts that only say that a call stood here; OpenInference lists the calls themselves beside them."""
        self.text_parts: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[Result] = []
        self.strange = strange

    def message(self, role: Role) -> Message:
        text = "".join(self.text_parts) if self.text_parts else None
        if text is not None and text in _WITHHELD:
            text = None
        return Message(role=role, text=text, calls=tuple(self.calls), results=tuple(self.results))

    def add_all(self, content: Json) -> None:
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
        part = dict_of(part.get("message_content")) or part
        kind = part.get("type", part.get("block_type", part.get("part_kind", part.get("content_type"))))
        word = str(kind).lower() if kind is not None else ""
        if word in _TEXTS:
            self._add_text(part)
        elif word in _CALLS or (word.endswith("_call") and word not in _SILENT):
            if word not in _CALLS and first_of(part, *_NAME) is not None:
                self.strange.append(f"a part of type {shorten(word, 60)!r}")  # What a provider runs itself is named by its type.
            self._add_call(part, word)
        elif word in _RESULTS or word.endswith(("_tool_result", "_call_output")):
            self.results.append(read_result(part))
        elif word in _SILENT:
            return
        elif word:
            self.strange.append(f"a part of type {shorten(word, 60)!r}")
        else:
            self._add_keyed(part)

    def _add_words(self, text: str) -> None:
        """Add a bare text; one that is a whole message in JSON is not what was said."""
        self.text_parts.append(text)
        if text.startswith("{"):
            inner = dict_of(container_in(text))
            named = str(inner.get("role")).lower() in _ROLES and not _MESSAGE_CONTENT.isdisjoint(inner)
            if named or "tool_calls" in inner or isinstance(inner.get("message"), dict):
                self.strange.append("a message inside the text of a message")

    def _add_text(self, part: dict[str, Any]) -> None:
        text = first_of(part, "content", "text", "refusal")
        if isinstance(text, dict):
            text = text.get("value")
        self._look_beside(part)
        if isinstance(text, str):
            self.text_parts.append(text)
        elif text is not None or not _empty(part):
            self.strange.append("a text part without text")

    def _look_beside(self, part: dict[str, Any]) -> None:
        """Name what stands beside a text and could carry what an agent did."""
        for key, value in part.items():
            if value and isinstance(value, (dict, list)) and key not in _BESIDE_TEXT:
                self.strange.append(f"{shorten(key, 60)!r} beside a text")

    def _add_call(self, part: dict[str, Any], word: str) -> None:
        if set(part) <= {"type"}:
            self.bare += 1
            return
        hosted = word.endswith("_call") and word not in _CALLS
        call = ToolCall(name=word.removesuffix("_call"), arguments=_hosted_arguments(part)) if hosted else read_call(part, self.strange)
        if call is None:
            return
        self.calls.append(call)
        if hosted or word in ("mcp_call", "server_tool_call", "builtin-tool-call"):
            value = first_of(part, "output", "results", "outputs", "result")
            error = part.get("error")
            if value is not None or says_error(error):
                self.results.append(
                    Result(id=call.id, name=call.name, value=container_in(value), error=error if says_error(error) else None)
                )

    def _add_keyed(self, part: dict[str, Any]) -> None:
        for key in _KEYED_CALLS:
            inner = part.get(key)
            if isinstance(inner, dict):
                if "ode" in key:
                    self.calls.append(ToolCall(name="code_execution", arguments=inner))
                    return
                call = read_call(inner, self.strange)
                if call is not None:
                    self.calls.append(call)
                return
        for key in _KEYED_RESULTS:
            inner = part.get(key)
            if isinstance(inner, dict):
                self.results.append(read_result(inner))
                return
        text = first_of(part, "text", "content")
        if isinstance(text, str):
            self._look_beside(part)
            if part.get("thought") is not True:
                self.text_parts.append(text)
            return
        if part and not _KEYED_SILENT.isdisjoint(part):
            return
        if not _empty(part):
            self.strange.append(f"a part with {_listed(part)}")


def read_call(call: dict[str, Any], strange: list[str]) -> ToolCall | None:
    """Read one call a model asked for; nothing, with a word in `strange`, where it has no name."""
    call = dict_of(call.get("tool_call")) or call
    function = dict_of(call.get("function")) or dict_of(call.get("custom")) or call
    name = first_of(function, *_NAME)
    if not isinstance(name, str) or not name:
        strange.append(f"a call with {_listed(call)}")
        return None
    if name in _NOT_CALLS:
        return None
    given = next((key for key in _ARGUMENTS if key in function), None)
    arguments = read_arguments(_unquoted(function[given])) if given is not None else None
    if given is None and (odd := next((key for key, value in function.items() if value is not None and key not in _CALL_KEYS), None)):
        strange.append(f"{shorten(odd, 60)!r} of a call")
    return ToolCall(
        name=name,
        arguments=arguments,
        id=text_or_none(first_of(call, *_ID)) or text_or_none(first_of(function, *_ID)),
        server=text_or_none(first_of(call, "server_name", "server_label")),
    )


def read_result(part: dict[str, Any]) -> Result:
    """Read what a tool gave back, in any provider's words."""
    value = first_of(part, *_VALUE)
    whole = dict_of(container_in(value))
    if str(whole.get("type")).endswith("tool_result") and "content" in whole:
        return read_result(whole)  # The whole part, written where its text should be.
    origin = dict_of(part.get("origin"))
    failed = bool(part.get("is_error")) or bool(part.get("isError")) or _is_bad(part.get("status")) or part.get("error") is True
    told = part.get("error")
    error: Json = None
    if says_error(told) and told is not True:
        error = told
    elif isinstance(value, dict) and set(value) == {"error"} and isinstance(value["error"], str) and value["error"]:
        error = value["error"]
    elif failed or part.get("type") == "retry-prompt" or part.get("part_kind") == "retry-prompt":
        error = as_text(_plain_text(value)) or "the tool reported an error"
    return Result(
        id=text_or_none(
            first_of(part, "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "call_id", "ref", "id") or origin.get("id")
        ),
        name=text_or_none(first_of(part, *_NAME) or origin.get("tool_name")),
        value=_result_value(value),
        error=error,
        kind=CONTENT_ERROR if error is not None else None,
    )


def _tool_message(message: dict[str, Any]) -> Result:
    value = container_in(first_of(message, "content", "parts", "text", "blocks", "response", "result", "output"))
    failed = _is_bad(message.get("status")) or bool(message.get("is_error")) or bool(message.get("tool_call_error"))
    error = as_text(_plain_text(value)) or "the tool reported an error" if failed else None
    if error is None and isinstance(value, dict) and set(value) == {"error"} and isinstance(value["error"], str):
        error = value["error"]
    extra = dict_of(message.get("additional_kwargs"))
    return Result(
        id=text_or_none(first_of(message, "tool_call_id", "toolCallId", "call_id") or extra.get("tool_call_id") or message.get("id")),
        name=text_or_none(first_of(message, "name", "tool_name") or extra.get("name")),
        value=_result_value(value),
        error=error,
        kind=CONTENT_ERROR if error is not None else None,
    )


def _is_bad(status: Json) -> bool:
    """Whether a status tells a failure; a word nobody knows is none of success."""
    return status is not None and str(status).lower() not in _GOOD


def _result_value(value: Json) -> Json:
    value = container_in(value)
    if isinstance(value, list) and value and all(_is_text_part(entry) for entry in value):
        return container_in(_plain_text(value))
    if isinstance(value, dict) and value.get("type") == "document":
        return container_in(dict_of(value.get("document")).get("data"))  # Cohere
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        if set(value[0]) == {"json"}:
            return value[0]["json"]  # Bedrock
        if value[0].get("type") == "document":
            return container_in(dict_of(value[0].get("document")).get("data"))  # Cohere
    if isinstance(value, dict) and value.get("type") in ("json", "text", "content") and "value" in value:
        return value["value"]
    return value


def _plain_text(value: Json) -> Json:
    if isinstance(value, list) and all(_is_text_part(entry) for entry in value):
        return "".join(
            str(first_of(dict_of(dict_of(entry).get("message_content")) or dict_of(entry), "text", "content")) for entry in value
        )
    return value


def _is_text_part(entry: Json) -> bool:
    part = dict_of(dict_of(entry).get("message_content")) or dict_of(entry)
    return isinstance(first_of(part, "text", "content"), str) and set(part) <= {"text", "content", "type", "block_type", "annotations"}


def _parts_in(content: Json) -> Json:
    """Decode content that is the JSON text of parts; an answer that happens to be JSON stays the text it is."""
    decoded = container_in(content)
    return decoded if isinstance(decoded, list) and decoded and all(_is_part(part) for part in decoded) else content


def _carries_result(part: Json) -> bool:
    entry = dict_of(dict_of(part).get("message_content")) or dict_of(part)
    word = str(entry.get("type", entry.get("block_type", ""))).lower()
    return word in _RESULTS or any(isinstance(entry.get(key), dict) for key in _KEYED_RESULTS)


def _is_part(entry: Json) -> bool:
    """Whether a bare entry of a list is a part of one message rather than a message."""
    part = dict_of(entry)
    if not part or "role" in part or "message" in part:
        return False
    word = part.get("type", part.get("block_type"))
    if word is not None:
        return str(word).lower() in _TEXTS | {"tool_call", "tool_use", "tool_result", "tool_call_response"} and "kwargs" not in part
    keys = (*_KEYED_CALLS, *_KEYED_RESULTS)
    return any(isinstance(part.get(key), dict) for key in keys) or set(part) <= {"text", "annotations"}


def _is_pair(entry: Json) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and all(isinstance(half, str) for half in entry)


def _is_message(value: dict[str, Any]) -> bool:
    if "role" in value or str(value.get("event.name")) in _EVENT_ROLES:
        return True
    kind = str(value.get("type", "")).lower()
    if kind in _ROLES or kind == "message":
        return "content" in value or "tool_calls" in value
    return kind in _CALLS | _RESULTS | _SILENT or (bool(kind) and kind.endswith(_HOSTED_SUFFIXES))


def _constructed(value: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of a message that LangChain wrote down as a constructor, or as type and data, with its role."""
    name = value.get("id")
    if value.get("lc") is not None and isinstance(name, list) and name and isinstance(value.get("kwargs"), dict):
        return {**value["kwargs"], "role": str(name[-1])}
    if isinstance(value.get("data"), dict) and str(value.get("type")).lower() in _ROLES:
        return {**value["data"], "role": value["type"]}
    return None


def _listed_calls(value: Json, strange: list[str]) -> list[dict[str, Any]]:
    value = container_in(value)
    if value is None or value == "":
        return []
    if not isinstance(value, list):
        strange.append("tool calls that are no list")
        return []
    for entry in value:
        if not isinstance(entry, dict):
            strange.append(f"a call that is {as_text(entry)}")
    return [entry for entry in value if isinstance(entry, dict)]


def _unquoted(value: Json) -> Json:
    # Written as JSON twice over: a text of a text.
    if isinstance(value, str) and value[:1] == '"':
        inner = embedded(value)
        return inner if isinstance(inner, str) else value
    return value


def _hosted_arguments(part: dict[str, Any]) -> Json:
    action = part.get("action")
    return action if isinstance(action, dict) else {key: part[key] for key in ("queries", "code", "operation") if part.get(key) is not None}


def _empty(part: dict[str, Any]) -> bool:
    return all(value in (None, "", [], {}) for key, value in part.items() if key not in ("type", "block_type", "index", "annotations"))


def _listed(value: dict[str, Any]) -> str:
    return "the members " + ", ".join(shorten(repr(key), 40) for key in list(value)[:6]) if value else "no members"
