"""OpenAI's Responses API and Agents SDK: items in a row, each a message, a call or an output.

`function_call` and `function_call_output` stand beside `message` items; what the assistant does without anyone answering in between is
one message. Tools the provider offers itself (`web_search_call`) are calls too, named without `_call`; one that is new to us is a call
whose arguments and result are unknown. An `item_reference` points at something that is not here, a compaction stands for something that
is not here any more; so does a response that goes on from another, or that is part of a stored conversation.

Tried with openai 2 (Python) and 6 (JavaScript), openai-agents 0.6 (`to_input_list()`) and @openai/agents 0.3 (`result.history`, which
writes `callId` and `function_call_result`).
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.builder import (
    Draft,
    Entries,
    Fields,
    Opened,
    iterate_blocks,
    join_text_parts,
    list_with_paths,
    not_a_message_error,
    read_role,
    require_key,
)
from proctor.evidence.messages.openai import ROLES
from proctor.evidence.shared.calls import PROTOCOL_ERROR, says_error
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import is_running, mark_earlier, mark_end
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json

_CALLS = ("function_call", "custom_tool_call", "mcp_call", "hosted_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "function_call_result")
_HOSTED = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call", "local_shell_call"),
    *("shell_call", "apply_patch_call", "tool_search_call"),
)
"""Tools the provider offers itself. Their arguments are an `action`, or stand in the item under the names of `_HOSTED_ARGUMENTS`."""
_HOSTED_ARGUMENTS = ("queries", "code", "operation", "arguments")
_HOSTED_OUTPUTS = (
    *("computer_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output", "tool_search_output"),
    *("computer_call_result",),
)
_ENDS_ITSELF = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call")
"""Calls whose item says how they ended; the others have an output of their own."""
_SILENT = (
    "reasoning",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
)
_COMPACTIONS = ("compaction", "context_compaction", "compaction_trigger")
_KEPT_ELSEWHERE = ("previous_response_id", "conversation")
_HARMLESS_PARTS = (
    "input_image",
    "input_file",
    "input_audio",
    "image",
    "audio",
    "file",
    "summary_text",
    "reasoning_text",
    "computer_screenshot",
)
_TEXT_PARTS = ("output_text", "input_text", "refusal", "text")
_ITEM_KEYS = frozenset(
    ("id", "status", "providerData", "provider_data", "phase", "annotations", "namespace", "created_by", "agent", "caller", "execution")
)
_CALL_KEYS = _ITEM_KEYS | {"approval_request_id", "title"}
_HOSTED_KEYS = _ITEM_KEYS | {
    *("container_id", "pending_safety_checks", "environment", "background", "output_format", "quality", "revised_prompt", "size", "tools"),
    *("max_output_length", "acknowledged_safety_checks"),
}
_STATUS = ("completed", "in_progress", "incomplete", "failed", "searching", "interpreting", "generating", "calling")
_ENVELOPE = frozenset(
    (
        *(
            "object",
            "created_at",
            "completed_at",
            "background",
            "incomplete_details",
            "instructions",
            "max_output_tokens",
            "text",
            "store",
        ),
        *(
            "max_tool_calls",
            "parallel_tool_calls",
            "prompt",
            "prompt_cache_key",
            "prompt_cache_retention",
            "reasoning",
        ),
        *("service_tier", "temperature", "tool_choice", "top_logprobs", "top_p", "truncation", "user", "output_text", "safety_identifier"),
        *(
            "billing",
            "frequency_penalty",
            "presence_penalty",
            "include",
            "stream",
            "moderation",
            "_request_id",
            "context_management",
        ),
    )
)


def is_item(entry: Json) -> bool:
    """Return whether an entry can only be an item of the Responses API."""
    item = dict_or_empty(entry)
    kind = item.get("type")
    # `contents` marks a message of Agent Framework, which has a `type` as well.
    if not isinstance(kind, str) or isinstance(item.get("contents"), list):
        return False
    if kind in (*_CALLS, *_OUTPUTS, *_HOSTED, *_HOSTED_OUTPUTS, *_SILENT, *_COMPACTIONS, "item_reference") or _is_new_call(kind):
        return "role" not in item
    parts = list_of(item.get("content"))
    return kind == "message" and "role" in item and (not parts or any(dict_or_empty(part).get("type") in _TEXT_PARTS[:3] for part in parts))


def is_response(document: dict[str, Any]) -> bool:
    """Return whether this is the answer of the Responses endpoint."""
    return document.get("object") == "response" or (
        isinstance(document.get("output"), list) and any(is_item(entry) for entry in document["output"])
    )


def open_response(document: dict[str, Any]) -> Opened | None:
    """Find input and output of a response, in order."""
    if not is_response(document):
        return None
    output, given, sent = document.get("output"), document.get("input"), document.get("messages", [])
    if not isinstance(output, list):
        raise EvidenceError("$.output: a response without its items")
    if not isinstance(sent, list) or not (given is None or isinstance(given, (str, list))):
        raise EvidenceError(f"$.{'input' if isinstance(sent, list) else 'messages'}: expected text or a list of items")
    before = (
        [("$.input", {"type": "message", "role": "user", "content": given})]
        if isinstance(given, str)
        else list_with_paths(given or [], "$.input")
    )
    taken = ("output", "input", "messages", "status", *_KEPT_ELSEWHERE)
    return Opened(
        entries=[*list_with_paths(sent, "$.messages"), *before, *list_with_paths(output, "$.output")],
        beside={key: value for key, value in document.items() if key not in taken and key not in _ENVELOPE},
        usage=find_usage(document),
        model=text_or_none(document.get("model")),
        unknowns=tuple(_find_gaps(document).unknown.items()),
    )


def _find_gaps(document: dict[str, Any]) -> Unknowns:
    """Return what a response says itself about not being whole."""
    unknowns, status = Unknowns(), document.get("status")
    if status not in (None, "completed", "incomplete"):
        mark_end(unknowns, "$.status", status)
    for key in _KEPT_ELSEWHERE:
        if document.get(key):
            mark_earlier(unknowns, f"$.{key}: what was before is kept by the provider, not here")
    return unknowns


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read items; what the assistant does in a row is one message."""
    found: list[Message] = []
    for at, item in entries:
        message = _read_item(item, at, unknowns)
        if message is None:
            continue
        if message.role == "assistant" and found and found[-1].role == "assistant":
            found[-1] = _join(found[-1], message)
        else:
            found.append(message)
    return found


def _read_item(item: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    fields = Fields(item, at, unknowns)
    kind = fields.take("type")
    if is_running(item.get("status")):
        mark_end(unknowns, f"{at}.status", item["status"])
    if kind in ("message", None) and "role" in item:
        return _read_message(fields)
    if not isinstance(kind, str):
        raise not_a_message_error(at, "responses items", "it has neither a type nor a role")
    if kind in _COMPACTIONS:
        mark_earlier(unknowns, f"{at}: a compaction stands for what was before it")
        return None
    if kind in _SILENT:
        return None
    if kind in _CALLS:
        return _call(fields, kind)
    if kind in _HOSTED or _is_new_call(kind):
        return _read_hosted_call(fields, kind)
    if kind in (*_OUTPUTS, *_HOSTED_OUTPUTS) or kind.endswith(("_call_output", "_call_result")):
        return _read_output(fields)
    Draft("assistant", at, unknowns).mark_everything(at, f"an item of type {kind!r} is not understood")
    return None


def _is_new_call(kind: str) -> bool:
    return kind.endswith("_call") and kind not in _CALLS


def _read_message(fields: Fields) -> Message:
    require_key(fields.left, fields.at, "responses items", "content")
    draft = Draft(read_role(fields.take("role"), fields.at, ROLES, "responses items"), fields.at, fields.unknowns)
    content = fields.take("content")
    if draft.role == "tool":
        raise not_a_message_error(fields.at, "responses items", "results are items of type function_call_output")
    for part in iterate_blocks(draft, content, f"{fields.at}.content"):
        kind = part.take("type")
        if kind in _TEXT_PARTS:
            draft.add_text(part.take("text", "refusal"), part.at)
            part.close(("annotations", "logprobs", "parsed", "providerData", "id"), role=draft.role)
        elif kind not in _HARMLESS_PARTS:
            draft.mark_everything(part.at, f"a part of type {kind!r} is not understood")
    _take_model(draft, fields)
    fields.close(_ITEM_KEYS | {"name"}, role=draft.role)
    return draft.build()


def _take_model(draft: Draft, fields: Fields) -> None:
    # The Agents SDK tells the model of each item, where it speaks to others than the Responses API.
    draft.model = text_or_none(dict_or_empty(fields.left.get("provider_data")).get("model"))


def _call(fields: Fields, kind: str) -> Message:
    draft = Draft("assistant", fields.at, fields.unknowns)
    # `id` is that of the item, `call_id` that of the call, and results name the latter.
    own = fields.take("id")
    id = fields.take("call_id", "callId") or own
    name = fields.take("name")
    status = fields.take_word("status", _STATUS)
    if status == "incomplete":
        fields.mark(("tool_arguments",), ".status: the call was cut before its arguments were whole")
    draft.add_call(name, fields.take("arguments", "input"), fields.at, id=id, server=fields.take("server_label"))
    # A call that the provider made itself carries what came of it.
    if kind in ("mcp_call", "hosted_tool_call"):
        error = fields.take("error")
        failed = says_error(error) or status == "failed"
        told = (error if says_error(error) else "the call failed") if failed else None
        draft.add_result(decode_container(fields.take("output")), fields.at, id=id, name=name, error=told, kind=PROTOCOL_ERROR)
    _take_model(draft, fields)
    fields.close(_CALL_KEYS)
    return draft.build()


def _read_hosted_call(fields: Fields, kind: str) -> Message:
    draft = Draft("assistant", fields.at, fields.unknowns)
    item = dict(fields.left)
    status = fields.take_word("status", _STATUS)
    action = fields.take("action")
    given = {key: item[key] for key in _HOSTED_ARGUMENTS if item.get(key) is not None}
    for key in _HOSTED_ARGUMENTS:
        fields.take(key)
    id = fields.take("call_id", "callId") or item.get("id")
    draft.add_call(kind.removesuffix("_call"), action if isinstance(action, dict) else given, fields.at, id=id)
    result = fields.take("results", "outputs", "result")
    if kind in _ENDS_ITSELF or status == "failed":
        error = "the call failed" if status == "failed" else None
        draft.add_result(result, fields.at, id=id, name=kind.removesuffix("_call"), error=error, kind=PROTOCOL_ERROR)
    if kind not in _HOSTED:
        fields.mark(("tool_arguments", "tool_results"), f": an item of type {kind!r} is not wholly understood")
    fields.close(_HOSTED_KEYS)
    return draft.build()


def _read_output(fields: Fields) -> Message:
    draft = Draft("tool", fields.at, fields.unknowns)
    output = fields.take("output")
    value = join_text_parts([output] if isinstance(dict_or_empty(output).get("text"), str) else output)
    status = fields.take_word("status", _STATUS)
    id, name = fields.take("call_id", "callId"), fields.take("name")
    draft.add_result(value, fields.at, id=id, name=name, failed=status == "failed", kind=PROTOCOL_ERROR)
    fields.close(_HOSTED_KEYS, role="tool")
    return draft.build()


def _join(before: Message, after: Message) -> Message:
    texts = [text for text in (before.text, after.text) if text is not None]
    return Message(
        role="assistant",
        text="".join(texts) if texts else None,
        calls=before.calls + after.calls,
        results=before.results + after.results,
        usage=find_first({"before": before.usage, "after": after.usage}, "before", "after"),
        model=after.model or before.model,
    )
