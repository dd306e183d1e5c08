"""Bedrock's Converse, and Strands Agents, which keeps messages in its form: blocks known by their one key, `toolUse` and `toolResult`.

Results stand in user messages; such a message is a turn only if it also has text. A result of status `error` is a `content-error`.
Strands' structured output, a tool that ends the run, is the answer and no call. Strands adds `metadata` with the tokens, and wraps each
message of a stored session (`{"message": {...}, "message_id": 0}`). Its summary of a history is a message of the user before another one.

Tried with boto3 1.4x (`converse`), strands-agents 1 (Python) and @strands-agents/sdk 0.1 (TypeScript).
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
    list_parts,
    list_with_paths,
    read_role,
    require_key,
)
from proctor.evidence.messages.outputs import fold_outputs
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.truncated_conversations import mark_earlier
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty
from proctor.model.evidence import Json

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_SILENT = ("image", "document", "video", "audio", "guardContent", "cachePoint", "reasoningContent", "searchResult")
_BLOCKS = ("text", "toolUse", "toolResult", "citationsContent", *_SILENT)
_ENVELOPE = frozenset(
    ("metrics", "ResponseMetadata", "additionalModelResponseFields", "trace", "performanceConfig", "serviceTier", "$metadata")
)
_NO_ANSWER_BETWEEN = (
    "two messages of the user without an answer between them: the first may be a summary of messages that were taken away, "
    "or an answer is missing"
)
_STORED_KEYS = frozenset(("message_id", "redact_message", "created_at", "updated_at"))


def is_own_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be of this form."""
    if isinstance(message.get("message"), dict) and "message_id" in message:
        return is_own_message(message["message"])
    parts = list_parts(message, "content")
    # Haystack's blocks have one key each as well; its messages are told by `meta` and `name`.
    if message.get("role") not in tuple(_ROLES) or not parts or {"meta", "name"} & message.keys():
        return False
    tools = any("toolUse" in part or "toolResult" in part for part in parts)
    return tools or (message["role"] == "assistant" and all(len(part) == 1 and next(iter(part)) in _BLOCKS for part in parts))


def open_answer(document: dict[str, Any]) -> Opened | None:
    """Find the message in an answer of Converse, and what was sent, if that stands beside."""
    output = document.get("output")
    if not isinstance(output, dict) or not isinstance(output.get("message"), dict) or "stopReason" not in document:
        return None
    sent = document.get("messages", [])
    if len(output) > 1 or not isinstance(sent, list):
        raise EvidenceError("$.output: expected nothing but a message")
    answer = {**output["message"], "stopReason": document["stopReason"]}
    taken = ("output", "stopReason", "messages", "usage")
    return Opened(
        entries=[*list_with_paths(sent, "$.messages"), ("$.output.message", answer)],
        beside={key: value for key, value in document.items() if key not in taken and key not in _ENVELOPE},
        usage=find_usage(document),
    )


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages with blocks."""
    found: list[Message] = []
    for at, entry in entries:
        if isinstance(entry.get("message"), dict) and "message_id" in entry:
            stored = Fields(entry, at, unknowns)
            found.append(_read_message(stored.take("message"), f"{at}.message", unknowns))
            stored.close(_STORED_KEYS)
        else:
            found.append(_read_message(entry, at, unknowns))
    for (at, _), message, following in zip(entries, found, found[1:], strict=False):
        # Converse takes no two messages of the user in a row: Strands' summary of what it took away stands like that.
        if message.role == following.role == "user":
            mark_earlier(unknowns, f"{at}: {_NO_ANSWER_BETWEEN}")
    return _fold_outputs(found)


def _fold_outputs(messages: list[Message]) -> list[Message]:
    # Strands' structured output is a tool that ends the run and says so under its own name.
    called = {call.id: call.name for message in messages for call in message.calls if call.id is not None}
    taken: dict[str | None, str] = {}
    for index, message in enumerate(messages):
        follows = messages[index + 1].role if index + 1 < len(messages) else None
        # Only a result that nobody answers ended the run; after any other the model went on.
        for result in message.results if follows != "assistant" else ():
            name = called.get(result.id or "")
            if name is not None and result.error is None and result.value == f"Successfully validated {name} structured output":
                taken[result.id] = name
    return fold_outputs(messages, set(taken.values()), taken)


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    require_key(entry, at, "bedrock messages", "content")
    fields = Fields(entry, at, unknowns)
    draft = Draft(read_role(fields.take("role"), at, _ROLES, "bedrock messages"), at, unknowns)
    content = fields.take("content")
    for block in iterate_blocks(draft, content, f"{at}.content"):
        _add_block(draft, block)
    metadata = fields.take_object("metadata")
    if metadata is not None:
        draft.usage = metadata.take_usage("usage")
        metadata.close(("metrics", "custom"), role=draft.role)
    draft.end_with(fields.take("stopReason", "stop_reason"))
    fields.close(("trackingId", "type"), role=draft.role)
    return draft.build()


def _add_block(draft: Draft, block: Fields) -> None:
    if not any(key in block.left for key in _BLOCKS):
        draft.mark_everything(block.at, f"a block with the keys {', '.join(list(block.left)[:4])} is not understood")
        return
    draft.add_text(block.take("text"), block.at)
    use = block.take_object("toolUse")
    if use is not None:
        draft.add_call(use.take("name"), use.take("input"), use.at, id=use.take("toolUseId"))
        use.take_word("type", ("server_tool_use", "tool_use"), ("tool_calls",))
        use.close(("reasoningSignature",))
    result = block.take_object("toolResult")
    if result is not None:
        failed = result.take_word("status", ("success", "error")) == "error"
        draft.add_result(_read_value(result.take("content")), result.at, id=result.take("toolUseId"), failed=failed)
        result.close(("type",), role="tool")
    cited = block.take_object("citationsContent")
    if cited is not None:
        draft.add_text(join_text_parts(cited.take("content")), cited.at)
        cited.close(("citations",), role=draft.role)
    block.close((*_SILENT, "type"), role=draft.role)


def _read_value(content: Json) -> Json:
    # One block of JSON is what the tool answered.
    if isinstance(content, list) and len(content) == 1 and "json" in dict_or_empty(content[0]):
        return content[0]["json"]
    return join_text_parts(content)
