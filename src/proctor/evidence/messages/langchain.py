"""LangChain and LangGraph: messages with a `type` of `human`, `ai`, `tool`, `system`, in each way LangChain writes them down.

Read are the plain form (`{"type": "ai", "content": ...}`), the stored form (`{"type": "ai", "data": {...}}`), the serialized form
(`{"lc": 1, "type": "constructor", "id": [..., "AIMessage"], "kwargs": {...}}`), the fields of a JavaScript object (with `lc_kwargs`),
and messages with a role whose tool calls have `args`. A tool message of status `error` is a `protocol-error`: the tool raised.
Blocks of content are the provider's, or LangChain's standard ones; calls that stand there and in `tool_calls` are one call.

`structured_response` of a state is the answer's body, and its text where the last message has none. A tool that LangChain says returned
it, and that was given it, is no call. A state with an `__interrupt__` waits for a human.

Tried with langchain-core 1 (Python: `model_dump`, `message_to_dict`, `dumpd`) and @langchain/core 1 (JavaScript: `toDict`, stored
messages, `JSON.stringify`), the messages of OpenAI's and Anthropic's models.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.anthropic import add_block, is_tool_block
from proctor.evidence.messages.builder import (
    EVERYTHING,
    MISSING,
    Draft,
    Entries,
    Fields,
    iterate_parts,
    join_text_parts,
    not_a_message_error,
    open_fields,
    require_key,
)
from proctor.evidence.messages.openai import ROLES, add_call, add_spoken, add_untold_calls
from proctor.evidence.messages.outputs import fold_outputs, with_answer
from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.truncated_conversations import find_gap, is_running, mark_end, weigh_edits
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.text import parse_json
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json, ToolCall

_TYPES: dict[str, Role] = {
    "human": "user",
    "HumanMessage": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "tool": "tool",
    "ToolMessage": "tool",
    "ToolMessageChunk": "tool",
    "function": "tool",
    "FunctionMessage": "tool",
    "system": "system",
    "SystemMessage": "system",
    "SystemMessageChunk": "system",
}
_KEYS = frozenset(
    (
        *("id", "name", "example", "type", "role", "artifact", "chunk_position", "lc_serializable", "lc_kwargs"),
        *("lc_namespace", "response_metadata", "metadata", "created_at", "lc_direct_tool_output"),
    )
)
_MORE_KEYS = frozenset(
    (
        *(
            "reasoning_content",
            "reasoning",
            "reasoning_details",
            "parsed",
            "usage",
            "stop_reason",
            "thinking",
            "citations",
            "documents",
        ),
        *("generation_id", "finish_reason", "logprobs", "__gemini_function_call_thought_signatures__", "model", "id", "name"),
        *("__openai_function_call_ids__", "__openai_role__", "role", "is_finished", "token_count", "search_results", "num_citations"),
    )
)
_SILENT = (
    "image_url",
    "image",
    "file",
    "audio",
    "video",
    "text-plain",
    "reasoning",
    "thinking",
    "redacted_thinking",
    "citation",
    "input_image",
)
_CALL_BLOCKS = (
    "tool_call",
    "tool_call_chunk",
    "invalid_tool_call",
    "function_call",
    "server_tool_call",
    "server_tool_call_chunk",
    "input_json_delta",
)


_STRUCTURED = ("structured_response", "structuredResponse")
_RETURNING = "Returning structured response: "
BESIDE = (*_STRUCTURED, "__interrupt__")
"""Keys of a state that `finish` reads."""

_CALL_KEYS = ("type", "id", "index", "extras", "error", "status", "caller", "partial_json", "namespace", "cache_control")
"""Keys of calls that tell nothing more of them."""


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be LangChain's."""
    if message.get("lc") is not None and isinstance(message.get("kwargs"), dict):
        return True
    if text_or_none(message.get("type")) in _TYPES and "role" not in message and ("content" in message or "data" in message):
        return True
    calls = [dict_or_empty(call) for call in list_of(message.get("tool_calls"))]
    return isinstance(message.get("role"), str) and any("args" in call and "name" in call for call in calls)


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read LangChain messages in any of their forms."""
    found: list[Message] = []
    calls = 0
    for at, entry in entries:
        found.append(_read_message(entry, at, unknowns, calls))
        calls += len(found[-1].calls)
    return found


def finish(messages: list[Message], beside: dict[str, Json], unknowns: Unknowns) -> list[Message]:
    """Add the answer in a given form that a state keeps beside its messages, and say where the run waits."""
    if beside.get("__interrupt__"):
        unknowns.mark_parts(("answer", "tool_results"), "$.__interrupt__: the run waits for a human")
    key = next((key for key in _STRUCTURED if beside.get(key) is not None), None)
    if key is None:
        return messages
    answer = beside[key]
    # `dumpd` writes down no more than how a value of the user's own class looks.
    is_written = dict_or_empty(answer).get("type") != "not_implemented" or "lc" not in dict_or_empty(answer)
    outputs = [call for call in _list_returned_calls(messages) if _is_output(call, answer, is_written)]
    messages = fold_outputs(messages, {call.name for call in outputs}, {call.id for call in outputs})
    last = next((index for index in reversed(range(len(messages))) if messages[index].role == "assistant"), None)
    if last is None:
        unknowns.mark("answer", f"$.{key}: an answer that no message gives")
    elif is_written:
        messages[last] = with_answer(messages[last], answer)
    elif not outputs and parse_json(messages[last].text) is None:
        unknowns.mark("answer", f"$.{key}: only its repr was written down")
    return messages


def _list_returned_calls(messages: list[Message]) -> list[ToolCall]:
    """Return calls of which LangChain says that they returned the answer."""
    said = {
        result.id
        for message in messages
        for result in message.results
        if isinstance(result.value, str) and result.value.startswith(_RETURNING) and result.error is None and result.id is not None
    }
    return [call for message in messages for call in message.calls if call.id in said]


def _is_output(call: ToolCall, answer: Json, is_written: bool) -> bool:
    if not is_written:
        return list_of(dict_or_empty(answer).get("id"))[-1:] == [call.name]
    # The answer may hold more than was given: what the form has by default.
    given = call.arguments
    return isinstance(given, dict) and bool(given) and isinstance(answer, dict) and given.items() <= answer.items()


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns, calls: int) -> Message:
    role, inner, place = _unwrap(entry, at, unknowns)
    require_key(inner, place, "langchain messages", "content")
    fields = Fields(inner, place, unknowns)
    draft = Draft(role, place, unknowns)
    if role == "tool":
        _add_result(fields, draft)
    else:
        # Calls before content: blocks of content repeat them, and are then recognised by their ids.
        _add_calls(fields, draft)
        _add_content(fields, draft)
        metadata = dict_or_empty(inner.get("response_metadata"))
        draft.usage = fields.take_usage("usage_metadata") or find_usage(inner)
        draft.model = text_or_none(find_first(metadata, "model_name", "model", "model_id"))
        draft.end_with(find_first(metadata, "finish_reason", "stop_reason", "stopReason"))
    more = fields.take_object("additional_kwargs")
    if more is not None:
        refusal = more.take("refusal")
        if refusal not in draft.texts:
            draft.add_text(refusal, f"{more.at}.refusal")
        add_spoken(draft, more.take_object("audio"))
        more.close(_MORE_KEYS, role=role)
    told = fields.take_object("response_metadata")
    if told is not None:
        _weigh_metadata(told, calls)
    fields.close(_KEYS, role=role)
    return draft.build()


def _weigh_metadata(metadata: Fields, calls: int) -> None:
    """Weigh what the provider and LangChain say about a message: it carries none, but may say that something was taken away."""
    status = metadata.take("status")
    if is_running(status):
        mark_end(metadata.unknowns, f"{metadata.at}.status", status)
    if metadata.take("context_editing"):
        metadata.mark(("tool_arguments", "tool_results"), ".context_editing: what a tool was given or answered was cleared")
    weigh_edits(metadata.take("context_management"), metadata.at, calls, metadata.unknowns)
    told = find_gap("metadata", metadata.left)
    if told is not None:
        metadata.mark(EVERYTHING, f".{told}: {MISSING}")


def _unwrap(entry: dict[str, Any], at: str, unknowns: Unknowns) -> tuple[Role, dict[str, Any], str]:
    kind: Json = entry.get("type")
    if isinstance(entry.get("kwargs"), dict) and entry.get("lc") is not None:
        path = list_of(entry.get("id"))
        kind = path[-1] if path else None
        outer, inner, place = ("lc", "type", "id", "kwargs", "name", "graph"), entry["kwargs"], f"{at}.kwargs"
    elif isinstance(entry.get("data"), dict):
        outer, inner, place = ("type", "data"), entry["data"], f"{at}.data"
    elif "role" in entry:
        role = ROLES.get(entry["role"]) if isinstance(entry["role"], str) else None
        if role is None:
            raise not_a_message_error(at, "langchain messages", f"{entry['role']!r} is no role; known: {', '.join(ROLES)}")
        return role, entry, at
    else:
        outer, inner, place = None, entry, at
    if outer is not None:
        Fields(entry, at, unknowns).close(outer)
    role = _TYPES.get(kind) if isinstance(kind, str) else None
    if role is None:
        raise not_a_message_error(at, "langchain messages", f"{kind!r} is no type of message; known: {', '.join(_TYPES)}")
    return role, inner, place


def _add_result(fields: Fields, draft: Draft) -> None:
    failed = fields.take_word("status", ("success", "error")) == "error"
    draft.add_result(
        join_text_parts(fields.take("content")),
        fields.at,
        id=fields.take("tool_call_id"),
        name=fields.take("name"),
        failed=failed,
        kind=PROTOCOL_ERROR,
    )


def _add_calls(fields: Fields, draft: Draft) -> None:
    # Arguments that were not JSON are in `invalid_tool_calls`; the model did call.
    for key in ("tool_calls", "invalid_tool_calls"):
        for index, value in enumerate(fields.take_list(key)):
            place = f"{fields.at}.{key}[{index}]"
            if "function" in dict_or_empty(value):
                add_call(draft, value, place)
            else:
                _add_call(draft, value, place)
    _weigh_chunks(fields, draft)
    more = fields.left.get("additional_kwargs")
    if not isinstance(more, dict):
        return
    raw = Fields(more, f"{fields.at}.additional_kwargs", draft.unknowns)
    # What is taken here must not be weighed again when the message is closed.
    fields.left["additional_kwargs"] = raw.left
    told = bool(draft.calls)
    add_untold_calls(draft, raw)
    old = raw.take_object("function_call")
    # OpenAI's oldest form, kept beside `tool_calls` for the same call.
    if old is not None and not told:
        draft.add_call(old.take("name"), old.take("arguments"), old.at)
    for index, value in enumerate(raw.take_list("tool_outputs")):
        _add_hosted(draft, value, f"{raw.at}.tool_outputs[{index}]")


def _weigh_chunks(fields: Fields, draft: Draft) -> None:
    """Weigh the pieces of calls that a stream left behind: whole calls stand in `tool_calls`."""
    known = {call.name for call in draft.calls}
    for chunk in fields.take_list("tool_call_chunks"):
        name = dict_or_empty(chunk).get("name")
        if (name is None and not known) or (name is not None and not (isinstance(name, str) and name in (*known, ""))):
            fields.mark(CALL_PARTS, ".tool_call_chunks: a piece of a call that is not in tool_calls")


def _add_call(draft: Draft, value: Json, at: str) -> None:
    call = open_fields(value, at, draft.unknowns)
    if call is None:
        return
    call.take_word("type", ("tool_call", "invalid_tool_call", "function", "tool_use"), ("tool_calls", "tool_arguments"))
    draft.add_call(call.take("name"), call.take("args", "arguments"), at, id=call.take("id"))
    call.close(("error", "index", "extras"))


def _add_content(fields: Fields, draft: Draft) -> None:
    content, at = fields.take("content"), f"{fields.at}.content"
    for place, value in iterate_parts(draft, content, at):
        _add_block(draft, value, place)


def _add_block(draft: Draft, value: Json, at: str) -> None:
    block = open_fields(value, at, draft.unknowns)
    if block is None:
        return
    kind = block.left.get("type")
    if kind in ("text", "output_text", "input_text", "refusal"):
        draft.add_text(block.take("text", "refusal"), at)
        block.close(("type", "annotations", "citations", "index", "id", "extras", "cache_control", "logprobs", "phase"), role=draft.role)
    elif kind in _CALL_BLOCKS:
        id = block.take("call_id") if kind == "function_call" else block.take("id")
        # Pieces of a stream stand whole in `tool_calls`.
        if not (kind in ("input_json_delta", "tool_call_chunk") and draft.calls):
            draft.add_call(block.take("name"), block.take("args", "arguments", "input"), at, id=id)
            block.close(_CALL_KEYS)
    elif kind == "server_tool_result":
        status = block.take_word("status", ("success", "error"))
        draft.add_result(block.take("output"), at, id=block.take("tool_call_id"), failed=status == "error")
        block.close(("type", "id", "index", "extras"), role="tool")
    elif is_tool_block(kind):
        add_block(draft, value, at)
    elif isinstance(kind, str) and kind.endswith("_call"):
        _add_hosted(draft, value, at)
    elif kind not in _SILENT:
        draft.mark_everything(at, f"a block of type {kind!r} is not understood")


def _add_hosted(draft: Draft, value: Json, at: str) -> None:
    """Add a call that the provider made itself, as the Responses API writes it."""
    item = dict_or_empty(value)
    kind = item.get("type")
    if not isinstance(kind, str) or not kind.endswith("_call"):
        draft.mark_everything(at, f"an item of type {kind!r} is not understood")
        return
    failed = item.get("status") == "failed"
    given = find_first(item, "action", "arguments") or {key: item[key] for key in ("queries", "code") if item.get(key) is not None}
    name = find_first(item, "name") or kind.removesuffix("_call")
    draft.add_call(name, given, at, id=find_first(item, "call_id", "id"), server=item.get("server_label"))
    told = "the call failed" if failed else item.get("error")
    result = find_first(item, "output", "results", "outputs", "result")
    draft.add_result(result, at, id=find_first(item, "call_id", "id"), error=told, kind=PROTOCOL_ERROR)
