"""UI messages of the AI SDK, with `parts` that hold call and result together, and Mastra's stored messages, which keep such parts.

A tool part is of type `tool-NAME` or `dynamic-tool`; its `state` says how far it came. In version 4 it is a `tool-invocation`, and the
same calls stand in `toolInvocations` beside the parts. Mastra's storage wraps content and parts in an object with a `format`.

Tried with ai 4 to 7 (`useChat` messages, `toUIMessageStream`) and @mastra/core 1 (its storage, format 2).
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import Draft, Fields, iterate_objects, read_role
from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.evidence.shared.conversation import Message, Role, describe_failure
from proctor.evidence.shared.truncated_conversations import mark_end
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty, list_of, text_or_none
from proctor.model.evidence import Json

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "data": "system"}
_KEYS = frozenset(
    (
        *(
            "id",
            "createdAt",
            "metadata",
            "annotations",
            "experimental_attachments",
            "data",
            "reasoning",
            "revisionId",
            "status",
            "threadId",
        ),
        *("resourceId", "type", "providerMetadata", "updatedAt", "format"),
    )
)
_SILENT = ("reasoning", "step-start", "source-url", "source-document", "source", "file", "reasoning-file", "image")
_TOOL_KEYS = frozenset(
    (
        *(
            "rawInput",
            "providerExecuted",
            "callProviderMetadata",
            "resultProviderMetadata",
            "title",
            "preliminary",
            "approval",
            "toolMetadata",
        ),
        *("step", "type", "createdAt", "providerMetadata", "dynamic", "isAutomatic"),
    )
)
_DONE = ("output-available", "result")
_STATES = (
    *_DONE,
    "output-error",
    "output-denied",
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "call",
)


def is_ui(message: dict[str, Any]) -> bool:
    """Return whether a message can only be a UI message, or Mastra's."""
    if not isinstance(message.get("role"), str):
        return False
    content = message.get("content")
    if isinstance(content, dict) and isinstance(content.get("parts"), list) and "format" in content:
        return True
    parts = message.get("parts")
    if isinstance(parts, list) and parts and all(isinstance(dict_or_empty(part).get("type"), str) for part in parts):
        return True
    return isinstance(message.get("toolInvocations"), list)


def is_tool(part: dict[str, Any]) -> bool:
    """Return whether a part is a tool of a UI message."""
    kind = part.get("type")
    return isinstance(kind, str) and "toolCallId" in part and (kind.startswith("tool-") or kind == "dynamic-tool")


def read_ui(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    """Read one UI message."""
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, _ROLES, "ai-sdk messages"), at, unknowns)
    inner = fields
    if isinstance(entry.get("content"), dict):
        stored = fields.take_object("content")
        inner = stored if stored is not None else fields
    _add_all(draft, inner)
    if inner is not fields:
        inner.close(_KEYS, role=draft.role)
        draft.model = text_or_none(dict_or_empty(inner.left.get("metadata")).get("modelId"))
    if draft.role != "user" and not "".join(draft.texts).strip():
        draft.texts.clear()
    metadata = dict_or_empty(entry.get("metadata"))
    draft.usage = read_usage(metadata.get("usage")) or read_usage(metadata.get("totalUsage"))
    fields.close(_KEYS, role=draft.role)
    return draft.build()


def _add_all(draft: Draft, fields: Fields) -> None:
    parts = fields.take("parts")
    spoken = fields.take("content")
    for part in iterate_objects(list_of(parts), f"{fields.at}.parts", draft.unknowns):
        _add_part(draft, part)
    if parts is not None and not isinstance(parts, list):
        draft.mark_everything(f"{fields.at}.parts", "expected a list of parts")
    if not draft.texts:
        # Version 4 keeps the text beside its parts too; before there were parts it stood only there.
        draft.add_text(spoken, f"{fields.at}.content")
    for call in fields.take_objects("toolInvocations"):
        if not draft.knows(call.left.get("toolCallId")):
            _add_tool(draft, call, call.take("toolName"))


def _add_part(draft: Draft, part: Fields) -> None:
    kind: Json = part.left.get("type")
    # Stored while it was still being written: whatever follows is not here.
    if part.left.get("state") in ("streaming", "input-streaming"):
        mark_end(draft.unknowns, f"{part.at}.state", part.left["state"])
    if kind == "text":
        draft.add_text(part.take("text"), part.at)
        part.close(("type", "state", "providerMetadata", "createdAt"), role=draft.role)
    elif kind == "tool-invocation":
        inner = part.take_object("toolInvocation")
        if inner is None:
            draft.mark_everything(part.at, "a tool invocation without what was called")
        else:
            _add_tool(draft, inner, inner.take("toolName"))
        part.close(_TOOL_KEYS)
    elif kind == "dynamic-tool":
        _add_tool(draft, part, part.take("toolName"))
    elif isinstance(kind, str) and kind.startswith("tool-"):
        told = part.take("toolName")
        _add_tool(draft, part, told if told is not None else kind.removeprefix("tool-"))
    elif kind not in _SILENT and not (isinstance(kind, str) and kind.startswith("data-")):
        draft.mark_everything(part.at, f"a part of type {kind!r} is not understood")


def _add_tool(draft: Draft, part: Fields, name: Json) -> None:
    id, state = part.take("toolCallId"), part.take_word("state", (*_STATES, "partial-call"))
    if state == "partial-call":
        mark_end(draft.unknowns, f"{part.at}.state", state)
    draft.add_call(name, part.take("input", "args"), part.at, id=id)
    output, error = part.take("output", "result"), part.take("errorText")
    if state in ("output-error", "output-denied"):
        told = describe_failure(error, "the call was denied" if state == "output-denied" else "the call failed")
        draft.add_result(output, part.at, id=id, name=name, error=told, kind=PROTOCOL_ERROR)
    elif state in _DONE:
        draft.add_result(output, part.at, id=id, name=name)
    part.close(_TOOL_KEYS)
