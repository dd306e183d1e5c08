"""AutoGen: messages and events of agents (`TextMessage`, `ToolCallRequestEvent`, ...), and messages of its models (`UserMessage`, ...).

What an agent whose name is not `user` says is the answer. A `ToolCallSummaryMessage` repeats calls that events told before. Thoughts,
queries of memory and pieces of a stream are no messages. Read are lists of messages, a `TaskResult` and the state of an agent.

Tried with autogen-agentchat 0.7: messages of a `TaskResult`, `save_state()` of an `AssistantAgent`.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.builder import (
    Draft,
    Entries,
    Fields,
    Opened,
    iterate_objects,
    iterate_parts,
    list_with_paths,
    not_a_message_error,
    require_key,
)
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json

_USERS = ("user", "user_proxy", "human")
_SPOKEN = ("TextMessage", "StopMessage", "HandoffMessage", "MultiModalMessage", "ToolCallSummaryMessage", "UserMessage", "AssistantMessage")
_SILENT = (
    *(
        "ThoughtEvent",
        "UserInputRequestedEvent",
        "MemoryQueryEvent",
        "ModelClientStreamingChunkEvent",
        "SelectSpeakerEvent",
        "SelectorEvent",
    ),
    *("SystemMessage",),
)
_REQUESTS = ("ToolCallRequestEvent",)
_RESULTS = ("ToolCallExecutionEvent", "FunctionExecutionResultMessage")
_KEYS = frozenset(("id", "metadata", "created_at", "thought", "target", "context", "format_string", "full_message_id"))


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be AutoGen's."""
    return _is_type(message.get("type")) and "role" not in message


def _is_type(kind: Json) -> bool:
    return isinstance(kind, str) and (kind in (*_SPOKEN, *_SILENT, *_REQUESTS, *_RESULTS) or kind.startswith("StructuredMessage"))


def open_state(document: Json) -> Opened | None:
    """Find the messages in the result of a task, or in the state of an agent."""
    if isinstance(document, list):
        return _open_results(document)
    if not isinstance(document, dict):
        return None
    context = dict_or_empty(document.get("llm_context")).get("messages")
    if isinstance(context, list) and any(is_own_message(dict_or_empty(entry)) for entry in context):
        beside = {key: value for key, value in document.items() if key not in ("type", "version", "llm_context")}
        return Opened(entries=list_with_paths(context, "$.llm_context.messages"), beside=beside)
    listed = document.get("messages")
    if isinstance(listed, list) and any(is_own_message(dict_or_empty(entry)) for entry in listed):
        beside = {key: value for key, value in document.items() if key not in ("messages", "stop_reason")}
        return Opened(entries=list_with_paths(listed, "$.messages"), beside=beside)
    return None


def _open_results(results: list[Json]) -> Opened | None:
    keys = {"messages", "stop_reason"}
    if not results or not all(isinstance(result, dict) and result.keys() == keys for result in results):
        return None
    opened = [open_state(result) for result in results]
    if any(one is None for one in opened):
        return None
    if len(results) > 1:
        raise EvidenceError(
            "$: several results of AutoGen in one list are several runs or one conversation; give one at a time, or as JSON Lines"
        )
    return Opened(entries=list_with_paths(results[0]["messages"], "$[0].messages"))


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages and events."""
    found: list[Message] = []
    made: set[str] = set()
    for at, entry in entries:
        message = _read_message(entry, at, unknowns, made)
        if message is not None:
            found.append(message)
            made.update(call.id for call in message.calls if call.id is not None)
    return found


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns, made: set[str]) -> Message | None:
    fields = Fields(entry, at, unknowns)
    kind, source = fields.take("type"), fields.take("source")
    if not _is_type(kind):
        raise not_a_message_error(at, "autogen messages", f"{kind!r} is no type of message that is understood")
    if kind in _SILENT:
        return None
    require_key(entry, at, "autogen messages", "content")
    # An `AssistantMessage` is a model's, whatever its source is called; other messages are told apart by their source alone.
    from_user = kind == "UserMessage" or (source in _USERS and kind in _SPOKEN and kind != "AssistantMessage")
    role: Role = "tool" if kind in _RESULTS else "user" if from_user else "assistant"
    draft = Draft(role, at, unknowns)
    if not isinstance(source, str) and kind in _SPOKEN:
        draft.mark_everything(at, "nobody is named as the source")
    content = fields.take("content")
    if kind in _RESULTS:
        _add_results(draft, content, f"{at}.content")
    elif kind in _REQUESTS or (kind == "AssistantMessage" and isinstance(content, list)):
        _add_calls(draft, content, f"{at}.content")
    elif isinstance(kind, str) and kind.startswith("StructuredMessage"):
        draft.add_text(as_text(content), f"{at}.content")
    else:
        _add_spoken(draft, content, f"{at}.content")
    if kind == "ToolCallSummaryMessage":
        # The summary repeats calls that events told before; with their ids known they are not added again.
        draft.ids.update(made)
        _add_calls(draft, fields.take("tool_calls") or [], f"{at}.tool_calls")
        fields.take("results")
    draft.usage = fields.take_usage("models_usage")
    fields.close(_KEYS, role=role)
    return draft.build()


def _add_spoken(draft: Draft, content: Json, at: str) -> None:
    for place, part in iterate_parts(draft, content, at):
        # Pictures are objects with their data.
        if "data" not in dict_or_empty(part) and "url" not in dict_or_empty(part):
            draft.mark_everything(place, "a part of this kind is not understood")


def _add_calls(draft: Draft, content: Json, at: str) -> None:
    if not isinstance(content, list):
        draft.mark_everything(at, "expected a list of calls")
        return
    for call in iterate_objects(content, at, draft.unknowns):
        draft.add_call(call.take("name"), call.take("arguments"), call.at, id=call.take("id"))
        call.close()


def _add_results(draft: Draft, content: Json, at: str) -> None:
    if not isinstance(content, list):
        draft.mark_everything(at, "expected a list of results")
        return
    for result in iterate_objects(content, at, draft.unknowns):
        failed = result.take_flag("is_error")
        answer = decode_container(result.take("content"))
        draft.add_result(answer, result.at, id=result.take("call_id"), name=result.take("name"), failed=failed)
        result.close(role="tool")
