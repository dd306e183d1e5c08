"""Blocks of messages of every provider and framework: one table for message lists and for spans."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from proctor.evidence.shared.calls import CONTENT_ERROR, PROTOCOL_ERROR, is_error, open_payload, read_arguments
from proctor.evidence.shared.conversation import ENDS_EMPTY, ENDS_WITH_REASONING, mark_earlier, mark_end
from proctor.evidence.shared.message import Message, Role, ToolResult
from proctor.evidence.shared.spoken_calls import call_in_words
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import find_marker, is_redacted, mark_call
from proctor.evidence.unknowns.statuses import find_stop, read_status, to_snake_case
from proctor.evidence.unknowns.unrecognised import (
    CONTENT_PARTS,
    FieldTable,
    check_object,
    holds_text,
    is_call,
    list_unrecognised,
    mark_kind,
    mark_near_miss,
)
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json, ToolCall, Usage, find_result_error
from proctor.model.json_values import decode_embedded
from proctor.model.show import kind_of, show

Action = Literal["text", "call", "hosted", "new_call", "result", "silent", "gap", "tool", "usage", "error", "asks", "answers"]

KIND_KEYS = ("type", "$type", "part_kind", "block_type", "content_type", "kind")
CALLS = split_words("""
    tool_call tool_use tooluse toolcall function_call function custom custom_tool_call mcp_call hosted_tool_call builtin_tool_call
    server_tool_call server_tool_use mcp_tool_use invalid_tool_call tool_call_chunk server_tool_call_chunk mcp_server_tool_call
    tool_invocation dynamic_tool input_json_delta null
    """)
RESULTS = split_words("""
    tool_call_response tool_result toolresult function_call_output function_result function_call_result tool_response tool_return tool_error
    server_tool_call_response server_tool_result custom_tool_call_output tool_call_result function_response builtin_tool_return
    mcp_tool_result retry_prompt tool_search_output
    """)
HOSTED = split_words("""
    web_search_call file_search_call code_interpreter_call computer_call image_generation_call local_shell_call shell_call apply_patch_call
    tool_search_call web_search_tool_call file_search_tool_call code_interpreter_tool_call computer_tool_call image_generation_tool_call
    shell_tool_call search_tool_call
    """)
ENDS_ITSELF = split_words("web_search_call file_search_call code_interpreter_call image_generation_call mcp_call hosted_tool_call")
"""Calls whose block reports the outcome; other calls have a separate result."""
SILENT = split_words("""
    reasoning_file image image_url image_file file blob uri audio input_audio video video_url document document_url audio_url media
    input_image input_file cache_point step_start source source_url source_document binary binary_image uploaded_file mcp_list_tools
    data search_result container_upload citation cite citable cache hosted_file hosted_vector_store text_plain reference
    computer_screenshot file_reference annotation streaming_annotation instruction retry_feedback tool_availability_delta
    capability_load_delta model_settings_delta instruction_delta instruction_baseline
    """)
REASONING = split_words("""
    reasoning thinking redacted_thinking redacted_reasoning text_reasoning reasoning_text reasoningContent reasoning_content
    reasoning_details
    """)
REQUESTS = split_words("mcp_approval_request tool_approval_request function_approval_request user_input_request oauth_consent_request")
"""Blocks in which a run waits for a person; a block that ends in `_response` answers them."""
GAPS = split_words("compaction context_compaction compaction_trigger item_reference")
HOSTED_SUFFIXES = ("_call", "_tool_result", "_call_output")
_ACTIONS: dict[str, Action] = {
    **dict.fromkeys(split_words("text output_text input_text refusal summary_text user_prompt system_prompt"), "text"),
    **dict.fromkeys(CALLS, "call"),
    **dict.fromkeys(RESULTS, "result"),
    **dict.fromkeys(HOSTED, "hosted"),
    **dict.fromkeys(SILENT | REASONING, "silent"),
    **dict.fromkeys(GAPS, "gap"),
    **dict.fromkeys(REQUESTS, "asks"),
    **dict.fromkeys((kind.replace("_request", "_response") for kind in REQUESTS), "answers"),
    "usage": "usage",
    "error": "error",
}
KEYED_CALLS = split_words("functionCall function_call toolUse tool_use tool_call toolCall toolRequest")
KEYED_RESULTS = split_words("functionResponse function_response toolResult tool_result tool_call_result toolResponse tool_response")
_KEYED_CODE = ("executableCode", "executable_code")
_KEYED_OUTPUT = ("codeExecutionResult", "code_execution_result")
KEYED_SILENT = split_words("""
    inlineData inline_data fileData file_data image image_url reasoningContent reasoning cachePoint document video audio guardContent
    searchResult media file data resource audioTranscription audio_transcription
    """)
KEYED = KEYED_CALLS | KEYED_RESULTS | KEYED_SILENT | {*_KEYED_CODE, *_KEYED_OUTPUT, "text", "citationsContent"}
_KEYED_KNOWN = KEYED | split_words("thought thoughtSignature thought_signature metadata")
NAME = ("name", "tool_name", "toolName", "function_name", "FunctionName", "toolType", "tool_type")
ARGUMENTS = (
    *("arguments", "args", "input", "tool_kwargs", "toolInput", "tool_input", "kwargs", "parameters", "Arguments", "inputs", "commands"),
    "actions",
)
ID = ("call_id", "callId", "ref", "tool_call_id", "toolCallId", "toolUseId", "tool_use_id", "tool_id", "id", "Id")
VALUE = ("response", "server_tool_call_response", "result", "output", "content", "tool_output", "value", "outputs", "Result", "info")
RESULT_ID = ("tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "call_id", "callId", "CallId", "ref", "id")
_TEXT = ("text", "Text", "content", "refusal")
_OWN_RESULT = ("output", "results", "outputs", "result", "screenshot")
_HOSTED_ARGUMENTS = ("queries", "code", "operation", "arguments")
_WRAPPERS = ("function", "custom", "tool_call", "toolInvocation")
_SERVER = ("server_name", "server_label", "serverName")
_TEXT_KNOWN = frozenset((*KIND_KEYS, *_TEXT, "state", "id"))
_CALL_KNOWN = frozenset((*KIND_KEYS, *NAME, *ARGUMENTS, *ID, *_SERVER, *_WRAPPERS, *_OWN_RESULT, *_HOSTED_ARGUMENTS)) | split_words(
    "status state error errorText exception plugin_name PluginName action server_tool_call rawInput parsed_arguments partial_json"
    " partialArgs partial_args"
)
_FLAGS = ("is_error", "isError", "tool_call_error")
_ENDINGS = (*_FLAGS, "error", "exception", "status", "outcome", "errorText", "state")
_ENDING_FIELDS: FieldTable = dict.fromkeys(_ENDINGS, "tool_results")
_RESULT_KNOWN = frozenset((*KIND_KEYS, *NAME, *VALUE, *RESULT_ID, *_ENDINGS, "origin", "call", "screenshot", "input", "args", "text"))
_OUTPUT_TYPES = ("text", "json", "content", "error-text", "error-json", "execution-denied")
_SPOKEN: dict[Role, tuple[Part, ...]] = {"assistant": ("answer",), "user": ("input", "turns"), "tool": ("tool_results",), "system": ()}
_ACTING_FIELD = re.compile(r"tool|function|call|action|command|computer|code|quer|result|output|input|argument|param", re.IGNORECASE)
_WRITTEN = ("text", "call", "result", "tool", "hosted", "new_call")
_WRITTEN_CALL = re.compile(r'"\w*(?:tool|function)[_-]?(?:call|use)"', re.IGNORECASE)


class Dialect(NamedTuple):
    """How a format differs from the others in its blocks."""

    error_kind: str = CONTENT_ERROR
    """The error kind to use if a flag or a status of a result reports failure."""
    omits_arguments: bool = False
    results_in_blocks: bool = False
    is_span: bool = False
    """Whether these are the messages of a span, which may contain only a part of the conversation."""


PLAIN = Dialect()
RAISES = Dialect(PROTOCOL_ERROR)
RAISES_IN_BLOCKS = Dialect(PROTOCOL_ERROR, results_in_blocks=True)
IN_BLOCKS = Dialect(results_in_blocks=True)
OMITS_ARGUMENTS = Dialect(omits_arguments=True, results_in_blocks=True)


@functools.lru_cache(maxsize=4096)
def find_action(kind: str) -> Action | None:
    """Return the action of a block of this kind, or None if the kind is not recognised."""
    word = to_word(kind)
    if word in _ACTIONS:
        return _ACTIONS[word]
    if word.endswith("_tool_use"):
        return "call"
    if word.endswith(("_tool_result", "_call_output", "_call_result", "_tool_return")):
        return "result"
    if kind.startswith(("data-", "tool-")):
        return "silent" if kind.startswith("data-") else "tool"
    return "new_call" if word.endswith("_call") else None


@functools.lru_cache(maxsize=4096)
def to_word(kind: str) -> str:
    """Return a kind as the table spells it: `FunctionCallContent` is `function_call`."""
    return to_snake_case(kind).removesuffix("_content")


def read_kind(block: dict[str, Any]) -> Json:
    """Return the kind of a block, or None if it has none."""
    for key in KIND_KEYS:
        if key in block:
            return block[key]
    return None


def list_written_blocks(text: str, *, is_block: bool = False) -> list[Any] | None:
    """Return the blocks encoded as JSON in a text, or None; with `is_block`, the text replaces a block.

    An answer may be JSON as well: a list of anything, or an object without the kind of a block.
    """
    if text[:1] not in ("[", "{"):
        return None
    value = decode_container(text)
    blocks: list[Any] = value if isinstance(value, list) else [value]
    if not blocks or not all(isinstance(block, dict) for block in blocks):
        return None
    kinds = [read_kind(block) for block in blocks]
    texts = [isinstance(find_first(block, "text", "content"), str) for block in blocks]
    if all(isinstance(kind, str) and find_action(kind) is not None for kind in kinds):
        is_content = isinstance(value, list) or is_block or texts[0]
        return blocks if is_content and any(find_action(str(kind)) in _WRITTEN for kind in kinds) else None
    if isinstance(value, dict) and not is_block:
        return None
    has_text = any(kind == "text" and text for kind, text in zip(kinds, texts, strict=True))
    keyed = KEYED_CALLS | KEYED_RESULTS
    return blocks if has_text or all(block.keys() == {"text"} or not keyed.isdisjoint(block) for block in blocks) else None


def carries_result(block: Json) -> bool:
    """Return whether a block is the result of a tool."""
    entry = dict_or_empty(block)
    kind = read_kind(entry)
    return (isinstance(kind, str) and find_action(kind) == "result") or any(isinstance(entry.get(key), dict) for key in KEYED_RESULTS)


@dataclass(slots=True, eq=False)
class Draft:
    """One message while its blocks are read."""

    role: Role
    at: str
    unknowns: Unknowns
    dialect: Dialect = PLAIN
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    usage: Usage | None = None
    model: str | None = None
    ids: set[str] = field(default_factory=set)
    waits: bool | None = None
    thinks: bool = False
    is_empty: bool = False

    def mark(self, at: str, why: str, parts: Iterable[Part] = CONTENT_PARTS) -> None:
        """Mark parts as unknown because a recognised field is unreadable."""
        self.unknowns.mark_parts(parts, f"{at}: {why}")

    def expect(self, value: Json, kind: type, what: str, at: str, parts: Iterable[Part] = CONTENT_PARTS) -> bool:
        """Return whether a recognised field has its type; if not, the parts that it carries are unknown."""
        if isinstance(value, kind):
            return True
        self.mark(at, f"expected {what}, found {kind_of(value)}", parts)
        return False

    def add_content(self, content: Json, at: str) -> None:
        """Add the content of a message: a text, a block, or a list of both."""
        if isinstance(content, str):
            blocks = list_written_blocks(content)
            # A user may write JSON that looks like a call.
            if blocks is None or (self.role == "user" and not self.dialect.is_span and _WRITTEN_CALL.search(content)):
                self.add_text(content, at)
                return
            content = blocks
        if isinstance(content, list):
            for index, block in enumerate(content):
                self.add_block(block, f"{at}[{index}]")
        else:
            self.add_block(content, at)

    def add_text(self, value: Json, at: str) -> None:
        """Add text of the speaker."""
        if value is None or not self.expect(value, str, "text", at):
            return
        self.texts.append(value)
        # Users and systems may write about calls; only calls in the text of a model are executed.
        if self.role == "assistant" and not self.dialect.is_span and (spoken := call_in_words(value)) is not None:
            self.unknowns.mark_unrecognised(("tool_calls",), f"{at}: {spoken}")

    def add_block(self, block: Json, at: str) -> None:
        """Add one block of content."""
        if isinstance(block, str):
            written = list_written_blocks(block, is_block=True)
            if written is None:
                self.add_text(block, at)
            for inner in written or ():
                self.add_block(inner, at)
            return
        if block is None or not self.expect(block, dict, "a block", at):
            return
        kind = read_kind(block)
        if kind is None:
            self._add_keyed(block, at)
            return
        if not self.expect(kind, str, "text as the kind of a block", at):
            return
        match find_action(kind):
            case "text":
                self._add_text_block(block, at)
            case "call" | "hosted" | "new_call":
                self.add_call(block, at, to_word(kind))
            case "result":
                self.add_result(block, at, to_word(kind))
            case "silent":
                self.thinks = self.thinks or to_word(kind) in REASONING
            case "asks" | "answers" as action:
                self.waits = action == "asks"
            case "gap":
                if not self.dialect.is_span:
                    mark_earlier(self.unknowns, f"{at}: {show(kind, 40)} replaces messages that are not in the list")
            case "tool":
                self.add_call(block, at, "tool", text_or_none(block.get("toolName")) or kind.removeprefix("tool-"))
            case "usage":
                self.usage = read_counts(find_first(block, "usage_details", "details", "usageDetails"), at, self.unknowns)
            case "error":
                self.mark(at, "the answer ended with an error", ("answer", "tool_calls"))
            case _:
                self._mark_unrecognised(block, kind, at)

    def _mark_unrecognised(self, block: Json, kind: str, at: str) -> None:
        """Apply the rule for unrecognised kinds to a block; nested blocks and fields that only calls have indicate that it may act."""
        parts, reason = _SPOKEN[self.role], f"{at}: unrecognised kind {show(kind, 60)}"
        mark_kind(block, kind, at, self.unknowns, speaks=parts[0] if parts else None)
        fields = block.keys() - _TEXT_KNOWN if isinstance(block, dict) else ()
        nested = Draft("assistant", at, Unknowns(), self.dialect)
        for inner in block.values() if isinstance(block, dict) else block:
            if isinstance(inner, (dict, list)):
                nested.add_content(inner, at)
        if nested.calls or nested.results or any(_ACTING_FIELD.search(key) for key in fields):
            self.unknowns.mark_unrecognised(CALL_PARTS, f"{reason}, which may be a tool call")
        if nested.texts or holds_text(block):
            self.unknowns.mark_unrecognised(parts, f"{reason}, which contains text")

    def _add_text_block(self, block: dict[str, Any], at: str) -> None:
        text = find_first(block, *_TEXT)
        if isinstance(text, dict) and "value" in text:
            text = text["value"]
        # Instrumentations that may not record content leave the text out.
        if not self.dialect.is_span and (isinstance(text, dict) or (text is None and not any(key in block for key in _TEXT))):
            self.mark(at, "a text without its text", CONTENT_PARTS if text else _SPOKEN[self.role] or ("answer",))
        if block.get("state") == "streaming":
            mark_end(self.unknowns, f"{at}.state", "streaming")
        self.add_content(text, at)
        self._check_text(block, _TEXT_KNOWN, at, has_answer=text is not None)

    def _check_text(self, block: dict[str, Any], known: frozenset[str], at: str, *, has_answer: bool) -> None:
        check_object(block, known, at, self.unknowns, has_answer=has_answer)
        for key in () if known.issuperset(block) else list_unrecognised(block, known):
            if isinstance(block[key], bool) and (marker := find_marker(key, block[key], ())) is not None:
                self.mark(f"{at}.{key}", marker.why, _SPOKEN[self.role])

    def _add_keyed(self, block: dict[str, Any], at: str) -> None:
        if is_call(block):
            self.unknowns.mark_unrecognised(CALL_PARTS, f"{at}: a block without a type that has the shape of a tool call")
        if KEYED.isdisjoint(block):
            # The one key of such a block is its kind.
            for key in list_unrecognised(block, _KEYED_KNOWN):
                self._mark_unrecognised(block[key] if isinstance(block[key], (dict, list)) else {"text": block[key]}, key, at)
            return
        # Gemini marks its reasoning as a thought, which is not part of the answer.
        if block.get("thought") is True:
            self.thinks = True
        else:
            self.add_text(block.get("text"), at)
        self.thinks = self.thinks or not REASONING.isdisjoint(block)
        for key, inner in block.items():
            place = f"{at}.{key}"
            if inner is None or key == "text":
                continue
            if key in KEYED_CALLS:
                self.add_call(inner, place, "tool_call")
            elif key in KEYED_RESULTS:
                self.add_result(inner, place)
            elif key in KEYED_SILENT or key not in KEYED or not self.expect(inner, dict, "an object", place):
                continue
            elif key in _KEYED_CODE:
                code = {key: inner[key] for key in ("code", "language") if key in inner}
                self.append_call("code_execution", code, place, id=inner.get("id"), known=len(code) == 2)
            elif key in _KEYED_OUTPUT:
                self.add_result({**inner, "name": "code_execution", "outcome": inner.get("outcome") or "not recorded"}, place)
            else:
                self.add_text(join_text_parts(inner.get("content")), place)
        self._check_text(block, _KEYED_KNOWN, at, has_answer=True)

    def add_calls(self, value: Json, at: str, *, only_new: bool = False) -> None:
        """Add the entries of a list of calls; with `only_new`, only those whose ids are new to the message."""
        value = decode_container(value) if self.dialect.is_span else value
        if value is None or value == "" or not self.expect(value, list, "a list of calls", at, CALL_PARTS):
            return
        only_new = only_new and bool(self.calls)
        for index, entry in enumerate(value):
            if not (only_new and text_or_none(dict_or_empty(entry).get("id")) in self.ids):
                self.add_call(entry, f"{at}[{index}]", "tool_call")

    def add_call(self, value: Json, at: str, word: str, name: Json = None) -> None:
        """Add a call in any spelling, and its result if the object has one; `word` is the kind of the object."""
        if not self.expect(value, dict, "a call", at, CALL_PARTS):
            return
        value = open_payload(value)
        inner = next((value[key] for key in _WRAPPERS if isinstance(value.get(key), dict)), value)
        kind, alias, action = value.get("type"), None, find_action(word)
        if kind is not None and not (isinstance(kind, str) and find_action(kind) is not None):
            self.mark(at, f"unrecognised kind {show(kind, 40)} of a call", CALL_PARTS)
        function, plugin = find_first(inner, "function_name", "FunctionName"), find_first(inner, "plugin_name", "PluginName")
        if plugin is not None:
            self.expect(plugin, str, "text as the name of a plugin", at, ("tool_calls",))
        if name is None and isinstance(function, str) and isinstance(plugin, str) and plugin:
            # Semantic Kernel: the function belongs to a plugin.
            name, alias = inner.get("name") or f"{plugin}-{function}", function
        name = find_first(inner, *NAME) if name is None else name
        name = value.get("function") if name is None and "arguments" in value else name  # Inspect
        hosted = action in ("hosted", "new_call") and name is None
        if hosted:
            name = word.removesuffix("_call").removesuffix("_tool")
        elif isinstance(name, str) and name in HOSTED:
            name, alias = name.removesuffix("_call"), name  # OpenInference names hosted tools by the kind of the item.
        id = find_first(value, *ID) or find_first(inner, *ID)
        if action == "new_call":
            self.unknowns.mark_unrecognised(CALL_PARTS, f"{at}: unrecognised kind {show(word, 60)}, which may be a tool call")
        if name == "mcp_list_tools" or (self.dialect.is_span and value.keys() == {"type"}):
            return
        given, known = self._read_given(value, inner, at, hosted)
        server = find_first(value, *_SERVER) or inner.get("serverName")
        if self.append_call(name, given, at, id=id, server=server, alias=alias, known=known):
            self._add_own_result(inner if "state" in inner else value, at, word, id, name)
        for part in (value,) if inner is value else (value, inner):
            for key in self._check(part, _CALL_KNOWN, at):
                mark_near_miss(key, part[key], {"PluginName": "tool_calls", "plugin_name": "tool_calls"}, at, self.unknowns)

    def _check(self, part: dict[str, Any], known: frozenset[str], at: str) -> list[str]:
        """Apply the rule for unrecognised fields, and return those fields; a near miss of a failure field may report failure."""
        if known.issuperset(part):
            return []
        check_object(part, known, at, self.unknowns, has_answer=True)
        unread = list_unrecognised(part, known)
        for key in unread:
            if part[key] not in (False, ""):
                mark_near_miss(key, part[key], _ENDING_FIELDS, at, self.unknowns)
        return unread

    def _read_given(self, value: dict[str, Any], inner: dict[str, Any], at: str, hosted: bool) -> tuple[Json, bool]:
        unread = [key for key in list_unrecognised(inner, _CALL_KNOWN) if inner[key] is not None]
        if hosted:
            given = value.get("action")
            if not isinstance(given, dict):
                given = {key: value[key] for key in _HOSTED_ARGUMENTS if value.get(key) is not None} or find_first(value, *ARGUMENTS)
            return given, given is not None or not any(isinstance(value[key], (str, list, dict)) for key in unread)
        key = next((key for key in ARGUMENTS if key in inner), None)
        if key is not None:
            given = inner[key]
            if self.dialect.is_span and isinstance(given, str) and given[:1] == '"':
                text = decode_embedded(given)
                given = text if isinstance(text, str) else given
            return given, not is_redacted(given) and (given is not None or self.dialect.is_span or self.dialect.omits_arguments)
        if self.dialect.is_span and unread:
            self.unknowns.mark_unrecognised(CALL_PARTS, f"{at}: {show(unread[0], 60)} of a call without arguments is not read")
        # An unrecognised object may be the arguments.
        return None, self.dialect.omits_arguments and not any(isinstance(inner[key], dict) and inner[key] for key in unread)

    def append_call(
        self, name: Json, given: Json, at: str, *, id: Json = None, server: Json = None, alias: str | None = None, known: bool = True
    ) -> bool:
        """Add a call unless its id was added before, which is a duplicate record; return whether it was added."""
        if not isinstance(name, str) or not name:
            self.mark(at, "a tool call without a name", CALL_PARTS)
            return False
        id = self._read_id(id, at)
        if id is not None and id in self.ids:
            return False
        if id is not None:
            self.ids.add(id)
        if not known and not self.dialect.is_span:
            self.mark(at, "the arguments of this call are not recorded", ("tool_arguments",))
        arguments, aliases = read_arguments(given) if known else None, (alias,) if alias and alias != name else ()
        mark_call(name, None if self.dialect.is_span else arguments, None, at, self.unknowns)
        if isinstance(arguments, str) and arguments[:1] == "{" and not self.dialect.is_span:
            self.mark(at, "the arguments of this call are no whole JSON", ("tool_arguments",))
        self.calls.append(ToolCall(name=name, arguments=arguments, id=id, server=text_or_none(server), aliases=aliases))
        return True

    def _read_id(self, id: Json, at: str) -> str | None:
        return id if id is not None and self.expect(id, str, "text as the id of a call", at, ("tool_results",)) else None

    def _add_own_result(self, value: dict[str, Any], at: str, word: str, id: Json, name: Json) -> None:
        state, status, result = value.get("state"), value.get("status"), find_first(value, *_OWN_RESULT)
        if state is not None:
            self._add_state(value, at, state, id, name, result)
            return
        ended = read_status(status)
        if status == "incomplete":
            self.mark(f"{at}.status", "the call was cut before its arguments were complete", ("tool_arguments",))
        elif ended == "running" and not self.dialect.is_span:
            mark_end(self.unknowns, f"{at}.status", status)
        elif status is not None and ended is None:
            self.mark(f"{at}.status", f"{show(status, 40)} is not recognised", ("tool_results",))
        error = value.get("error") if word in ENDS_ITSELF or result is not None else None
        error = error if is_error(error) else "the call failed" if ended == "failed" else None
        if result is not None or error is not None or (word in ENDS_ITSELF and not self.dialect.is_span):
            self.append_result(decode_container(result), at, id=id, name=name, error=error, kind=PROTOCOL_ERROR)

    def _add_state(self, value: dict[str, Any], at: str, state: Json, id: Json, name: Json, result: Json) -> None:
        """Add the result of a tool part of the AI SDK, whose state reports its progress."""
        if state in ("output-error", "output-denied"):
            error = as_text(value.get("errorText")) or ("the call was denied" if state == "output-denied" else "the call failed")
            self.append_result(result, at, id=id, name=name, error=error, kind=PROTOCOL_ERROR)
        elif state in ("output-available", "result", "completed"):
            self.append_result(result, at, id=id, name=name)
        elif state in ("input-streaming", "partial-call", "streaming"):
            mark_end(self.unknowns, f"{at}.state", state)
        elif state not in ("input-available", "approval-requested", "approval-responded", "call"):
            self.mark(f"{at}.state", f"{show(state, 40)} is not recognised", ("tool_results",))

    def add_result(self, part: Json, at: str, word: str = "tool_result") -> None:
        """Add what a tool returned, in any spelling."""
        if not self.expect(part, dict, "a result", at, ("tool_results",)):
            return
        part = open_payload(part)
        value = find_first(part, *VALUE, "text")
        written_block = dict_or_empty(decode_container(value)) if self.dialect.is_span else {}
        if str(written_block.get("type")).endswith("tool_result") and "content" in written_block:
            self.add_result(written_block, at)  # the whole block, written instead of its text
            return
        if self._check(part, _RESULT_KNOWN, at) and not any(name in part for name in VALUE):
            self.mark(at, "a result without its content", ("tool_results",))
        value, error, kind = self._read_ending(part, value, at, word)
        origin = dict_or_empty(part.get("origin")) or dict_or_empty(part.get("call"))
        id = find_first(part, *RESULT_ID) or find_first(origin, "id")
        name = find_first(part, *NAME) or find_first(origin, "tool_name", "name")
        has_ending = any(part.get(key) is not None for key in _ENDINGS)
        self.append_result(value, at, id=id, name=name, error=error, kind=kind, has_ended=has_ending)

    def _read_ending(self, part: dict[str, Any], value: Json, at: str, word: str) -> tuple[Json, Json, str]:
        """Return the value of a result, its error or None, and the kind of the error."""
        is_span = self.dialect.is_span
        reported = find_first(part, "error", "exception")
        reported = dict_or_empty(reported).get("message", reported)
        status, outcome = part.get("status"), part.get("outcome")
        failed = reported is True or word in ("tool_error", "retry_prompt") or outcome not in (None, "success", "OUTCOME_OK")
        for key in _FLAGS:
            if part.get(key) is not None and self.expect(part[key], bool, "true or false", f"{at}.{key}", ("tool_results",)):
                failed = failed or part[key]
        ended = read_status(status)
        if status not in (None, "") and ended is None:
            self.mark(f"{at}.status", f"{show(status, 40)} is not recognised", ("tool_results",))
            failed = failed or is_span
        failed = failed or ended == "failed"
        value = decode_container(value) if is_span else value
        kind = PROTOCOL_ERROR if "outcome" in part and word != "tool_result" else self.dialect.error_kind
        if isinstance(value, dict) and value.get("type") in _OUTPUT_TYPES and ("value" in value or "reason" in value):
            # The AI SDK wraps what a tool returned.
            wrapped, value = value, find_first(value, "value", "reason")
            if wrapped["type"] in ("error-text", "error-json", "execution-denied"):
                return value, as_text(value) or "the call failed", PROTOCOL_ERROR
            failed = failed or wrapped.get("isError") is True
        elif ("toolCallId" in part or "toolName" in part) and part.get("output") is not None and not is_span:
            self.mark(f"{at}.output", "not recognised as the output of a tool", ("tool_results",))
        elif word.endswith("_tool_result") and "tool_use_id" in part and word != "mcp_tool_result":
            # Tools that the provider runs itself have kinds of their own: {"type": "web_search_tool_result_error", "error_code": ...}.
            kinds = [str(dict_or_empty(entry).get("type")) for entry in (value if isinstance(value, list) else [value])]
            if not is_span and not all(kind.endswith(("result", "result_error")) for kind in kinds):
                self.mark(f"{at}.content", "the result of this tool is not recognised", ("tool_results",))
            failed = failed or any(kind.endswith("error") for kind in kinds)
            reported = reported or (dict_or_empty(value).get("error_code") if failed else None)
            kind = CONTENT_ERROR
        else:
            value = read_result_value(value)
        if word == "tool_error" or (is_error(reported) and reported is not True):
            error = reported if is_error(reported) and reported not in (True, {}) else as_text(value) or "the call failed"
            return value, error, CONTENT_ERROR if is_span or word.endswith("_tool_result") else PROTOCOL_ERROR
        if failed:
            return value, find_result_error(value) or as_text(value) or "the tool reported an error", kind
        # Gemini reserves `error` in what a function returned.
        inner = dict_or_empty(value).get("error")
        if is_error(inner) and ("response" in part or (is_span and isinstance(inner, str) and len(value) == 1)):
            return value, inner, CONTENT_ERROR
        return value, None, kind

    def append_result(
        self, value: Json, at: str, *, id: Json = None, name: Json = None, error: Json = None, kind: str | None = CONTENT_ERROR,
        has_ended: bool = False,
    ) -> None:  # fmt: skip
        """Add what a tool returned."""
        kind, has_ended = kind if error is not None else None, has_ended or error is not None
        id, name = self._read_id(id, at), text_or_none(name)
        if error is None and is_redacted(value):
            self.mark(at, f"what the tool returned was removed: {show(value, 40)}", ("tool_results",))
        self.results.append(ToolResult(id=id, name=name, value=value, error=error, kind=kind, has_ended=has_ended))

    def end_with(self, reason: Json) -> None:
        """Check the finish reason: a model that stopped to call tools must have called some."""
        if find_stop(reason) == "tools" and not self.calls:
            self.unknowns.mark("tool_calls", f"{self.at}: the model stopped to call tools ({reason}), and no call is recorded")

    def build(self) -> Message:
        """Return the message."""
        text = "".join(self.texts) if self.texts else None
        end = None if text or self.calls else ENDS_WITH_REASONING if self.thinks else ENDS_EMPTY if self.is_empty else None
        return Message(role=self.role, text=text, calls=tuple(self.calls), results=tuple(self.results), usage=self.usage, model=self.model,
                       waits=self.waits, end=end)  # fmt: skip


def read_counts(value: Json, at: str, unknowns: Unknowns) -> Usage | None:
    """Read the tokens spent, and mark their number as unknown if it cannot be read."""
    if value is None or value == {}:
        return None
    found = read_usage(value)
    if found is None or (found.total_tokens is None and (found.input_tokens is None or found.output_tokens is None)):
        unknowns.mark("usage", f"{at}: not recognised as a number of tokens")
    return found


def read_result_value(value: Json) -> Json:
    """Return the result of a tool: the text of its text parts, the data of its documents (Cohere), its JSON (Bedrock), else unchanged."""
    single = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(single, dict):
        if single.keys() == {"json"}:
            return single["json"]
        if single.get("type") == "document" and isinstance(single.get("document"), dict):
            return decode_container(single["document"].get("data"))
        if value is single and isinstance(single.get("text"), str) and single.get("type") in ("text", "output_text", "input_text"):
            return decode_container(single["text"])
    return join_text_parts(value)


def join_text_parts(value: Json) -> Json:
    """Return the joined text of a result that consists of text parts, parsed if it is JSON; any other result unchanged."""
    if isinstance(value, str):
        return decode_container(value)
    texts = [_read_only_text(dict_or_empty(part)) for part in list_of(value)]
    return decode_container("".join(map(str, texts))) if texts and None not in texts else value


_TEXT_PART = frozenset((*KIND_KEYS, "text", "content", "annotations", "cache_control", "citations", "logprobs", "extras", "id", "document"))


def _read_only_text(part: dict[str, Any]) -> str | None:
    """Return the text of a part without other content, or of a document (Cohere)."""
    part = dict_or_empty(part.get("message_content")) or part
    kind, document = read_kind(part), part.get("document")
    if not _TEXT_PART.issuperset(part) and not (isinstance(kind, str) and find_action(kind) == "text"):
        return None
    return text_or_none(document.get("data") if isinstance(document, dict) else find_first(part, "text", "content"))
