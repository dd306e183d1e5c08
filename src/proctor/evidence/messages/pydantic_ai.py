"""Pydantic AI: requests and responses with parts, as `all_messages_json()` writes them.

A `retry-prompt` that names a tool is the failed result of its call; one without tells the model to answer otherwise. Of a `tool-return`,
every `outcome` but `success` is a failure. A call of `final_result` whose return says that it was processed is the answer, and no call.
Tools that the provider runs itself (`builtin-tool-call`) are calls too.

Tried with pydantic-ai 1 and 2, the messages of OpenAI's, Anthropic's and Google's models.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import (
    Draft,
    Entries,
    Fields,
    Opened,
    list_parts,
    list_with_paths,
    not_a_message_error,
    open_fields,
    require_key,
)
from proctor.evidence.messages.outputs import fold_outputs
from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import mark_earlier, mark_end
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import list_of, text_or_none
from proctor.model.evidence import Json

_MESSAGE_KEYS = frozenset(
    (
        *(
            "timestamp",
            "instructions",
            "kind",
            "run_id",
            "conversation_id",
            "metadata",
            "model_id",
            "provider_name",
            "provider_url",
        ),
        *("provider_details", "vendor_details", "vendor_id", "canonical_system", "provider_response_id", "workspace_ref", "history_digest"),
    )
)
_PART_KEYS = frozenset(
    ("timestamp", "id", "provider_name", "provider_details", "citations", "metadata", "name", "dynamic_ref", "tool_kind", "retry")
)
_SILENT = (
    *("system-prompt", "thinking", "file", "instruction", "instruction-delta", "instruction-baseline", "tool-availability-delta"),
    *("capability-load-delta", "model-settings-delta", "retry-feedback"),
)
_OUTPUT = "final_result"
"""What an output tool is called; where there are several, it goes on with `_` and the name of the form."""
_PROCESSED = "Final result processed."
_NOT_USED = ("Output tool ", "Output not used ")
"""What is returned for an output tool that did not end the run."""
_OUTCOMES = ("success", "failed", "denied", "retried", "interrupted")
_SILENT_CONTENT = ("image-url", "audio-url", "video-url", "document-url", "binary", "cache-point", "uploaded-file")


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Pydantic AI's."""
    return message.get("kind") in ("request", "response") and any("part_kind" in part for part in list_parts(message, "parts"))


def open_result(document: dict[str, Any]) -> Opened | None:
    """Find the messages in a dumped result of a run."""
    for key in ("all_messages", "message_history", "messages", "_all_messages"):
        listed = document.get(key)
        if isinstance(listed, list) and any(is_own_message(entry) for entry in listed if isinstance(entry, dict)):
            beside = {name: value for name, value in document.items() if name not in (key, "output", "new_messages", "run_id", "usage")}
            return Opened(entries=list_with_paths(listed, f"$.{key}"), beside=beside, usage=find_usage(document))
    return None


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read requests and responses."""
    found: list[Message] = []
    for at, entry in entries:
        if entry.get("kind") not in ("request", "response"):
            raise not_a_message_error(at, "pydantic-ai messages", f"its kind is {entry.get('kind')!r}, neither request nor response")
        found.extend(_read_messages(entry, at, unknowns))
    return _fold_outputs(found, unknowns)


def _fold_outputs(messages: list[Message], unknowns: Unknowns) -> list[Message]:
    names: set[str] = set()
    taken: set[str | None] = set()
    for result in (result for message in messages for result in message.results if _is_output(result.name)):
        if result.value == _PROCESSED and result.error is None:
            taken.add(result.id)
        # An output tool that did not end the run is no call of a tool either, and its arguments are no answer.
        if result.value == _PROCESSED or (isinstance(result.value, str) and result.value.startswith(_NOT_USED)):
            names.add(result.name or "")
    for call in (call for message in messages for call in message.calls if _is_output(call.name) and call.name not in names):
        unknowns.mark("answer", f"a call of {call.name} may be the answer, and nothing says that it was taken")
    return fold_outputs(messages, names, taken)


def _is_output(name: str | None) -> bool:
    return name is not None and (name == _OUTPUT or name.startswith(f"{_OUTPUT}_"))


def _read_messages(entry: dict[str, Any], at: str, unknowns: Unknowns) -> list[Message]:
    require_key(entry, at, "pydantic-ai messages", "parts")
    fields = Fields(entry, at, unknowns)
    is_response = entry["kind"] == "response"
    draft = Draft("assistant" if is_response else "tool", at, unknowns)
    asked = Draft("user", at, unknowns)
    for part in fields.take_objects("parts"):
        _add_part(draft if is_response else asked, draft, part)
    state = fields.take("state")
    if state == "interrupted":
        fields.mark(("answer",), ".state: the answer was cut off")
    elif state not in (None, "complete"):
        mark_end(unknowns, f"{at}.state", state)
    if fields.take_list("failed_attempts"):
        unknowns.mark("usage", f"{at}.failed_attempts: attempts at other models spent tokens of their own")
    if is_response:
        draft.usage = fields.take_usage("usage")
        draft.model = text_or_none(fields.take("model_name"))
        draft.end_with(fields.take("finish_reason"))
    fields.close(_MESSAGE_KEYS, role="assistant" if is_response else "user")
    # Results before words: a request first answers the calls of the response before it.
    built = [draft.build()] if is_response or draft.results else []
    return [*built, asked.build()] if asked.texts else built


def _add_part(said: Draft, draft: Draft, part: Fields) -> None:
    kind: Json = part.take("part_kind")
    if kind in _SILENT:
        return
    if kind == "compaction":
        mark_earlier(draft.unknowns, f"{part.at}: a compaction stands for what was before it")
        return
    role = draft.role
    if kind == "text":
        said.add_text(part.take("content"), part.at)
    elif kind == "user-prompt":
        _add_prompt(said, part)
    elif isinstance(kind, str) and kind.endswith("tool-call"):
        draft.add_call(part.take("tool_name"), part.take("args"), part.at, id=part.take("tool_call_id"))
    elif isinstance(kind, str) and kind.endswith("tool-return"):
        role = "tool"
        outcome = part.take_word("outcome", _OUTCOMES)
        _add_result(draft, part, failed=outcome not in (None, "success"))
    elif kind == "retry-prompt":
        role = "tool"
        if part.left.get("tool_name") is not None:
            _add_result(draft, part, failed=True)
        else:
            part.take("content", "tool_name")
            part.take("tool_call_id")
    else:
        draft.mark_everything(part.at, f"a part of kind {kind!r} is not understood")
        return
    part.close(_PART_KEYS, role=role)


def _add_result(draft: Draft, part: Fields, *, failed: bool) -> None:
    draft.add_result(
        part.take("content"), part.at, id=part.take("tool_call_id"), name=part.take("tool_name"), failed=failed, kind=PROTOCOL_ERROR
    )


def _add_prompt(said: Draft, part: Fields) -> None:
    content = part.take("content")
    if not isinstance(content, list):
        said.add_text(content, part.at)
        return
    # A prompt of pictures alone is a turn, too; an empty text makes it one.
    said.texts.append("")
    for index, value in enumerate(list_of(content)):
        if isinstance(value, str):
            said.add_text(value, part.at)
            continue
        piece = open_fields(value, f"{part.at}.content[{index}]", said.unknowns)
        if piece is None or piece.left.get("kind") in _SILENT_CONTENT:
            continue
        if piece.left.get("kind") in ("text", "text-content"):
            said.add_text(piece.take("content", "text"), piece.at)
        else:
            said.mark_everything(piece.at, f"content of kind {piece.left.get('kind')!r} is not understood")
