"""AutoGen: messages and events of agents (`TextMessage`, `ToolCallRequestEvent`, ...), and messages of its models (`UserMessage`, ...).

What an agent whose name is not `user` says is the answer. A `ToolCallSummaryMessage` repeats calls of events before it. Thoughts, queries
of memory and pieces of a stream are no messages. Read are lists of messages, a `TaskResult` and the state of an agent.

Tried with autogen-agentchat 0.7: messages of a `TaskResult`, `save_state()` of an `AssistantAgent`.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, Opened, list_with_paths, without
from proctor.evidence.shared.blocks import Draft, read_counts
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.fields import CONTENT_PARTS
from proctor.evidence.unknowns.unrecognised import check_fields, mark_kind
from proctor.evidence.values.access import dict_or_empty, split_words
from proctor.evidence.values.text import as_text
from proctor.model.evidence import Json
from proctor.model.show import kind_of, show

_USERS = ("user", "user_proxy", "human")
_SPOKEN = split_words("TextMessage StopMessage HandoffMessage MultiModalMessage ToolCallSummaryMessage UserMessage AssistantMessage")
_SILENT = split_words(
    "ThoughtEvent UserInputRequestedEvent MemoryQueryEvent ModelClientStreamingChunkEvent SelectSpeakerEvent SelectorEvent SystemMessage"
)
_RESULTS = ("ToolCallExecutionEvent", "FunctionExecutionResultMessage")
_TYPES = _SPOKEN | _SILENT | {"ToolCallRequestEvent", *_RESULTS}
_KNOWN = frozenset(("type", "source", "content", "tool_calls", "results", "models_usage", "context", "target", "thought", "id"))


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be AutoGen's."""
    return _is_type(message.get("type")) and "role" not in message


def _is_type(kind: Json) -> bool:
    return isinstance(kind, str) and (kind in _TYPES or kind.startswith("StructuredMessage"))


def open_state(document: Json) -> Opened | None:
    """Find the messages in the result of a task, or in the state of an agent."""
    if isinstance(document, list):
        return _open_results(document)
    if not isinstance(document, dict):
        return None
    context = dict_or_empty(document.get("llm_context")).get("messages")
    if isinstance(context, list) and any(is_own_message(dict_or_empty(entry)) for entry in context):
        return Opened(entries=list_with_paths(context, "$.llm_context.messages"), rest=without(document, "llm_context", "type", "version"))
    listed = document.get("messages")
    if isinstance(listed, list) and any(is_own_message(dict_or_empty(entry)) for entry in listed):
        # Which condition ended a team is a sentence, and `stop_reason` no word for how a model ended.
        return Opened(entries=list_with_paths(listed, "$.messages"), rest=without(document, "messages", "stop_reason"))
    return None


def _open_results(results: list[Json]) -> Opened | None:
    if not results or not all(isinstance(result, dict) and result.keys() == {"messages", "stop_reason"} for result in results):
        return None
    if any(open_state(result) is None for result in results):
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
        kind = entry.get("type")
        if not _is_type(kind):
            mark_kind(entry, str(kind), at, unknowns)
            if not isinstance(kind, str) or entry.get("models_usage") is not None:
                unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {show(kind, 60)}")
        elif kind not in _SILENT:
            message = _read_message(entry, at, unknowns, made)
            found.append(message)
            made.update(call.id for call in message.calls if call.id is not None)
    return found


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns, made: set[str]) -> Message:
    kind, source, content = entry["type"], entry.get("source"), entry.get("content")
    # An `AssistantMessage` is a model's, whatever its source is called; other messages differ by their source alone.
    from_user = kind == "UserMessage" or (source in _USERS and kind in _SPOKEN and kind != "AssistantMessage")
    role: Role = "tool" if kind in _RESULTS else "user" if from_user else "assistant"
    draft = Draft(role, at, unknowns)
    if not isinstance(source, str) and kind in _SPOKEN:
        draft.mark(f"{at}.source", "the message does not name its source")
    if kind == "ToolCallRequestEvent" or (kind == "AssistantMessage" and isinstance(content, list)):
        draft.add_calls(content, f"{at}.content")
    elif kind in _RESULTS and isinstance(content, list):
        for index, result in enumerate(content):
            draft.add_result(result, f"{at}.content[{index}]")
    elif kind.startswith("StructuredMessage"):
        draft.add_text(as_text(content), f"{at}.content")
    elif kind in _RESULTS or content is None:
        draft.mark(f"{at}.content", f"expected content, found {kind_of(content)}")
    else:
        for index, part in enumerate(content if isinstance(content, list) else [content]):
            # Pictures are objects with their data.
            if not (isinstance(part, dict) and ("data" in part or "url" in part)):
                draft.add_content(part, f"{at}.content[{index}]")
    if kind == "ToolCallSummaryMessage":
        # With the ids of earlier calls known they are not added again.
        draft.ids.update(made)
        draft.add_calls(entry.get("tool_calls"), f"{at}.tool_calls")
    draft.usage = read_counts(entry.get("models_usage"), f"{at}.models_usage", unknowns)
    check_fields(entry, _KNOWN, at, unknowns, has_answer=bool(draft.texts))
    return draft.build()
