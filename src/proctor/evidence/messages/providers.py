"""Bedrock and Strands, Cohere, Mistral and Genkit: how their messages are recognised, and the envelopes of their answers.

Bedrock has results in messages of the user, which are turns only if they also have text. The structured output of Strands is a tool that
ends the run: an answer, and no call. Tried with boto3 1.4x, strands-agents 1, cohere 5, mistralai 1, genkit 1.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.envelope import Entries, MessageFormat, Opened, fold_outputs, list_parts, open_answer, without
from proctor.evidence.shared.blocks import KEYED_SILENT, OMITS_ARGUMENTS, Draft
from proctor.evidence.shared.conversation import Message, mark_earlier
from proctor.evidence.shared.message_reader import find_role, read_message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_fields
from proctor.evidence.values.access import dict_or_empty, find_first

# Bedrock and Strands

_NO_ANSWER_BETWEEN = "two messages of the user without an answer between them: a summary of removed messages, or an answer is missing"
_BEDROCK_BLOCKS = KEYED_SILENT | {"text", "toolUse", "toolResult", "citationsContent"}


def _is_bedrock_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Bedrock's; Strands' storage wraps each."""
    if isinstance(message.get("message"), dict) and "message_id" in message:
        return _is_bedrock_message(message["message"])
    parts = list_parts(message)
    # Haystack's blocks have one key each as well; its messages have `meta` and `name`.
    if message.get("role") not in ("user", "assistant", "system") or not parts or {"meta", "name"} & message.keys():
        return False
    tools = any("toolUse" in part or "toolResult" in part for part in parts)
    return tools or (message["role"] == "assistant" and all("type" not in part and not _BEDROCK_BLOCKS.isdisjoint(part) for part in parts))


def _open_bedrock(document: dict[str, Any]) -> Opened | None:
    output, unknowns = dict_or_empty(document.get("output")), Unknowns()
    if not isinstance(output.get("message"), dict) or "stopReason" not in document:
        return None
    check_fields(output, ("message",), "$.output", unknowns)
    answer = {**output["message"], "stopReason": document["stopReason"]}
    return open_answer(document, "$.output.message", answer, unknowns, "output", "stopReason")


def _read_bedrock(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found: list[Message] = []
    is_read = True
    for at, entry in entries:
        if isinstance(entry.get("message"), dict) and "message_id" in entry:
            check_fields(entry, ("message", "message_id"), at, unknowns)
            at, entry = f"{at}.message", entry["message"]
        message = read_message(entry, at, unknowns)
        if message is None:
            is_read = False
            continue
        # Converse takes no two messages of the user in a row: this is how Strands' summary of what it removed looks.
        if found and found[-1].role == message.role == "user":
            mark_earlier(unknowns, f"{at}: {_NO_ANSWER_BETWEEN}")
        found.append(message)
    return _fold_strands(found) if is_read else found


def _fold_strands(messages: list[Message]) -> list[Message]:
    called = {call.id: call.name for message in messages for call in message.calls if call.id is not None}
    taken: dict[str | None, str] = {}
    for index, message in enumerate(messages):
        follows = messages[index + 1].role if index + 1 < len(messages) else None
        # Only a result that nothing follows ended the run; after any other the model went on.
        for result in message.results if follows != "assistant" else ():
            name = called.get(result.id or "")
            if name is not None and result.error is None and result.value == f"Successfully validated {name} structured output":
                taken[result.id] = name
    return fold_outputs(messages, set(taken.values()), taken)


# Cohere


def _is_cohere_message(message: dict[str, Any]) -> bool:
    if message.get("role") in ("USER", "CHATBOT", "TOOL", "SYSTEM") and ("message" in message or "tool_results" in message):
        return True
    parts = list_parts(message)
    return "tool_plan" in message or (
        message.get("role") == "tool" and any(part.get("type") == "document" and "document" in part for part in parts)
    )


def _open_cohere(document: dict[str, Any]) -> Opened | None:
    message = document.get("message")
    if not isinstance(message, dict) or "finish_reason" not in document:
        return None
    # Next to `tokens` are `billed_units`, which leave out what Cohere does not charge for.
    tokens = dict_or_empty(document.get("usage")).get("tokens")
    answer = {**message, "finish_reason": document["finish_reason"]}
    return open_answer({**document, "usage": tokens}, "$.message", answer, Unknowns(), "message", "finish_reason")


# Mistral

_ENTRY_TYPES = ("message.input", "message.output", "function.call", "function.result", "tool.execution", "agent.handoff")


def _is_mistral_message(message: dict[str, Any]) -> bool:
    return message.get("type") in _ENTRY_TYPES or ("role" in message and ("prefix" in message or "toolCalls" in message))


def _read_mistral(entries: Entries, unknowns: Unknowns) -> list[Message]:
    read = [_read_mistral_entry(entry, at, unknowns) for at, entry in entries]
    return [message for message in read if message is not None]


def _read_mistral_entry(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    kind, word, fields = entry.get("type"), entry.get("role"), without(entry, "type")
    if kind not in _ENTRY_TYPES:
        return read_message(entry, at, unknowns)
    if kind in ("message.input", "message.output"):
        return read_message(fields, at, unknowns, default="user" if kind == "message.input" else "assistant")
    if kind == "agent.handoff":
        check_fields(fields, ("role", *(key for key in entry if "gent" in key)), at, unknowns)
        return None
    draft = Draft("tool" if kind == "function.result" else "assistant", at, unknowns)
    if kind == "function.result":
        draft.add_result(fields, at)
    elif kind == "function.call":
        draft.add_call(fields, at, "tool_call")
    else:
        # One entry records the call and its result, and its own id joins the two.
        name = find_first(entry, "name", "function")
        draft.add_call({**without(fields, "function", "info"), "name": name}, at, "tool_call")
        draft.append_result(entry.get("info"), at, id=entry.get("id"), name=name)
    if word is not None and find_role(str(word)) is None:
        draft.mark(f"{at}.role", f"unrecognised role {word!r}")
    return draft.build()


# Genkit


def _is_genkit_message(message: dict[str, Any]) -> bool:
    parts = list_parts(message)
    return any("toolRequest" in part or "toolResponse" in part for part in parts) or (
        message.get("role") == "model" and bool(parts) and all("type" not in part for part in parts)
    )


FORMATS = (
    MessageFormat("bedrock", "messages of Bedrock's Converse and of Strands", _is_bedrock_message, _read_bedrock, _open_bedrock),
    MessageFormat("cohere", "Cohere messages or an answer", _is_cohere_message, None, _open_cohere, extends=("openai",)),
    MessageFormat("mistral", "Mistral messages", _is_mistral_message, _read_mistral, extends=("openai",)),
    MessageFormat("genkit", "Genkit messages", _is_genkit_message, extends=("bedrock",), dialect=OMITS_ARGUMENTS),
)
