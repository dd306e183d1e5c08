"""Pydantic AI: requests and responses with parts, as `all_messages_json()` writes them.

A `retry-prompt` that names a tool is the failed result of its call; one without tells the model to answer otherwise. Of a `tool-return`,
every `outcome` but `success` is a failure. A call of `final_result` whose return says that it was processed is the answer, and no call.

Tried with pydantic-ai 1 and 2, the messages of OpenAI's, Anthropic's and Google's models.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.envelope import Entries, Opened, fold_outputs, list_parts, list_with_paths, without
from proctor.evidence.shared.blocks import RAISES, Draft, read_counts
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import mark_end
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.fields import CONTENT_PARTS
from proctor.evidence.unknowns.unrecognised import check_fields, mark_kind
from proctor.evidence.values.access import text_or_none
from proctor.model.show import kind_of

_OUTPUT = "final_result"
"""The name of an output tool; where there are several, it goes on with `_` and the name of the form."""
_PROCESSED = "Final result processed."
_NOT_USED = ("Output tool ", "Output not used ")
"""What is returned for an output tool that did not end the run."""
_KNOWN = frozenset(("kind", "parts", "state", "usage", "model_name", "finish_reason", "failed_attempts", "instructions"))


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Pydantic AI's."""
    return message.get("kind") in ("request", "response") and any("part_kind" in part for part in list_parts(message, "parts"))


def open_result(document: dict[str, Any]) -> Opened | None:
    """Find the messages in a dumped result of a run."""
    for key in ("all_messages", "message_history", "messages", "_all_messages"):
        listed = document.get(key)
        if isinstance(listed, list) and any(is_own_message(entry) for entry in listed if isinstance(entry, dict)):
            rest = without(document, key, "output", "new_messages", "usage")
            return Opened(entries=list_with_paths(listed, f"$.{key}"), rest=rest, usage=find_usage(document))
    return None


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read requests and responses."""
    found: list[Message] = []
    for at, entry in entries:
        if entry.get("kind") in ("request", "response"):
            found.extend(_read_messages(entry, at, unknowns))
        else:
            unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {entry.get('kind')!r}")
            mark_kind(entry, str(entry.get("kind")), at, unknowns)
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
    is_response = entry["kind"] == "response"
    draft = Draft("assistant" if is_response else "tool", at, unknowns, RAISES)
    asked = Draft("user", at, unknowns, RAISES)
    parts = entry.get("parts")
    if not isinstance(parts, list):
        draft.mark(f"{at}.parts", f"expected a list of parts, found {kind_of(parts)}")
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        _add_part(draft, asked, part, f"{at}.parts[{index}]")
    state = entry.get("state")
    if state == "interrupted":
        unknowns.mark("answer", f"{at}.state: the answer was cut off")
    elif state not in (None, "complete"):
        mark_end(unknowns, f"{at}.state", state)
    if entry.get("failed_attempts"):
        unknowns.mark("usage", f"{at}.failed_attempts: attempts at other models spent tokens of their own")
    if is_response:
        draft.usage = read_counts(entry.get("usage"), f"{at}.usage", unknowns)
        draft.model = text_or_none(entry.get("model_name"))
        draft.end_with(entry.get("finish_reason"))
    check_fields(entry, _KNOWN, at, unknowns, has_answer=bool(draft.texts))
    # Results before words: a request first answers the calls of the response before it.
    built = [draft.build()] if is_response or draft.results else []
    return [*built, asked.build()] if asked.texts else built


def _add_part(draft: Draft, asked: Draft, part: Any, at: str) -> None:
    kind = part.get("part_kind") if isinstance(part, dict) else None
    if kind == "user-prompt":
        # A prompt of pictures alone is a turn, too; an empty text makes it one.
        asked.texts.append("")
        asked.add_block({**part, "content": part.get("content")}, at)
    elif kind == "system-prompt" or (kind == "retry-prompt" and part.get("tool_name") is None):
        return
    else:
        draft.add_block(part, at)
