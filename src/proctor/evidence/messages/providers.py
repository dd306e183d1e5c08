"""OpenAI chat, Anthropic, Bedrock, Cohere, Mistral and Genkit: how their messages are recognised, and the envelopes of their answers.

OpenAI's form is written by many others with fields of their own (LiteLLM, OpenRouter, vLLM, DeepSeek, Ollama, LangChain's
`convert_to_openai_messages`). Of several choices of a completion the first is read, and what differs in the others is unknown.
Anthropic and Bedrock keep results in messages of the user, which are turns only if they also have text. Bedrock's form is also that of
Strands Agents, whose structured output is a tool that ends the run: an answer, and no call. Cohere's version 1 has roles in capitals and
no ids. Mistral's conversations are entries such as `function.call` and `tool.execution`.

Tried with openai 2 and 6 (JavaScript), anthropic 0.7x, boto3 1.4x, strands-agents 1, cohere 5, mistralai 1, genkit 1, ollama 0.6.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, Opened, fold_outputs, list_parts, list_with_paths, read_all, without
from proctor.evidence.shared.blocks import KEYED_SILENT, Dialect, Draft, read_counts
from proctor.evidence.shared.conversation import Message, Role
from proctor.evidence.shared.message_reader import find_role, read_message
from proctor.evidence.shared.truncated_conversations import check_edits, compare_choices, mark_earlier, mark_end, mark_later
from proctor.evidence.shared.usage import find_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_fields
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.model.evidence import Json

# OpenAI chat


def is_openai_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be of OpenAI's form."""
    if not isinstance(message.get("role"), str):
        return False
    calls = list_of(message.get("tool_calls"))
    return any("function" in dict_or_empty(call) for call in calls) or "function_call" in message or message.get("role") == "developer"


def open_completion(document: dict[str, Any]) -> Opened | None:
    """Find what was sent, if that is in the document, and the first choice of an answer."""
    choices = document.get("choices")
    if document.get("object") != "chat.completion" and not (
        isinstance(choices, list) and any("message" in dict_or_empty(choice) for choice in choices)
    ):
        return None
    sent = document.get("messages")
    if not isinstance(choices, list) or not choices or not isinstance(dict_or_empty(choices[0]).get("message"), dict):
        raise EvidenceError("$.choices[0].message: a chat completion without an answer")
    if sent is not None and not isinstance(sent, list):
        raise EvidenceError("$.messages: expected a list of messages")
    unknowns = Unknowns()
    answers = [_choose_choice(choice, f"$.choices[{index}]", unknowns) for index, choice in enumerate(choices)]
    if len(answers) > 1:
        read = [read_message(answer, at, unknowns, default="assistant") for at, answer in answers]
        compare_choices([message for message in read if message is not None], "$.choices", unknowns)
    return Opened(
        entries=[*list_with_paths(sent or [], "$.messages"), answers[0]],
        rest=without(document, "choices", "messages", "object"),
        usage=find_usage(document),
        model=text_or_none(document.get("model")),
        unknowns=unknowns,
    )


def _choose_choice(value: Json, at: str, unknowns: Unknowns) -> tuple[str, dict[str, Any]]:
    choice = dict_or_empty(value)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise EvidenceError(f"{at}.message: a choice without an answer")
    check_fields(choice, frozenset(("message", "finish_reason", "index", "logprobs")), at, unknowns)
    # Put into the message, which by itself does not report why the model stopped.
    reason = choice.get("finish_reason")
    return f"{at}.message", {**message, "finish_reason": reason} if reason is not None else message


# Anthropic

# Anthropic stops a long turn with `pause_turn` and expects to be asked to go on, so the run is not over.
_PAUSES = ("pause_turn", "compaction")


def is_anthropic_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Anthropic's; LangChain keeps such blocks too, in messages that have a type instead of a role."""
    return "role" in message and any(_is_anthropic_kind(dict_or_empty(block).get("type")) for block in list_of(message.get("content")))


def _is_anthropic_kind(kind: Json) -> bool:
    return isinstance(kind, str) and (kind in ("thinking", "redacted_thinking", "tool_use") or kind.endswith(("_tool_use", "tool_result")))


def open_anthropic(document: dict[str, Any]) -> Opened | None:
    """Find the message that an answer is, and what was sent, if that is in the document."""
    is_answer = document.get("type") == "message" and document.get("role") == "assistant" and "stop_reason" in document
    sent = document.get("messages", [])
    if not is_answer or not isinstance(sent, list):
        return None
    rest = {key: document[key] for key in ("tools", "case", "id", "model") if key in document}
    return Opened(
        entries=[*list_with_paths(sent, "$.messages"), ("$", without(document, "messages", "tools", "case"))],
        rest=rest,
        usage=find_usage(document),
        model=text_or_none(document.get("model")),
    )


def read_anthropic(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages with content blocks."""
    found: list[Message] = []
    calls = 0
    for at, entry in entries:
        message = read_message(entry, at, unknowns)
        # Before this answer's own calls are counted: only earlier ones can have been cleared.
        check_edits(entry.get("context_management"), at, calls, unknowns)
        # A message that is still streaming has the field already, and no reason yet.
        if "stop_reason" in entry and entry["stop_reason"] is None:
            mark_later(unknowns, f"{at}.stop_reason: none yet, so the run was not over")
        if message is not None:
            found.append(message)
            calls += len(message.calls)
    last = entries[-1] if entries else ("$", {})
    if last[1].get("stop_reason") in _PAUSES:
        mark_end(unknowns, f"{last[0]}.stop_reason", last[1]["stop_reason"])
    return found


# Bedrock and Strands

_NO_ANSWER_BETWEEN = (
    "two messages of the user without an answer between them: the first may be a summary of messages that were removed, "
    "or an answer is missing"
)
_BEDROCK_BLOCKS = KEYED_SILENT | {"text", "toolUse", "toolResult", "citationsContent"}


def is_bedrock_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Bedrock's; Strands' storage wraps each."""
    if isinstance(message.get("message"), dict) and "message_id" in message:
        return is_bedrock_message(message["message"])
    parts = list_parts(message, "content")
    # Haystack's blocks have one key each as well; its messages have `meta` and `name`.
    if message.get("role") not in ("user", "assistant", "system") or not parts or {"meta", "name"} & message.keys():
        return False
    tools = any("toolUse" in part or "toolResult" in part for part in parts)
    return tools or (message["role"] == "assistant" and all("type" not in part and not _BEDROCK_BLOCKS.isdisjoint(part) for part in parts))


def open_bedrock(document: dict[str, Any]) -> Opened | None:
    """Find the message in an answer of Converse, and what was sent, if that is in the document."""
    output, sent = document.get("output"), document.get("messages", [])
    if not isinstance(output, dict) or not isinstance(output.get("message"), dict) or "stopReason" not in document:
        return None
    if not isinstance(sent, list):
        raise EvidenceError("$.messages: expected a list of messages")
    unknowns = Unknowns()
    check_fields(output, ("message",), "$.output", unknowns)
    answer = {**output["message"], "stopReason": document["stopReason"]}
    return Opened(
        entries=[*list_with_paths(sent, "$.messages"), ("$.output.message", answer)],
        rest=without(document, "output", "stopReason", "messages", "usage"),
        usage=find_usage(document),
        unknowns=unknowns,
    )


def read_bedrock(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages with blocks."""
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
        # Converse takes no two messages of the user in a row: Strands' summary of what it removed stands like that.
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

_OLD_ROLES = ("USER", "CHATBOT", "TOOL", "SYSTEM")


def is_cohere_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Cohere's."""
    if message.get("role") in _OLD_ROLES and ("message" in message or "tool_results" in message):
        return True
    parts = list_parts(message, "content")
    return "tool_plan" in message or (
        message.get("role") == "tool" and any(part.get("type") == "document" and "document" in part for part in parts)
    )


def open_cohere(document: dict[str, Any]) -> Opened | None:
    """Find the message in an answer of version 2, and what was sent, if that is in the document."""
    message, sent = document.get("message"), document.get("messages", [])
    if not isinstance(message, dict) or "finish_reason" not in document or not isinstance(sent, list):
        return None
    unknowns = Unknowns()
    # Next to `tokens` are `billed_units`, which leave out what Cohere does not charge for.
    usage = read_counts(dict_or_empty(document.get("usage")).get("tokens"), "$.usage.tokens", unknowns)
    answer = ("$.message", {**message, "finish_reason": document["finish_reason"]})
    return Opened(
        entries=[*list_with_paths(sent, "$.messages"), answer],
        rest=without(document, "message", "messages", "finish_reason", "usage"),
        usage=usage,
        unknowns=unknowns,
    )


# Mistral

_ENTRY_TYPES = ("message.input", "message.output", "function.call", "function.result", "tool.execution", "agent.handoff")


def is_mistral_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Mistral's."""
    return message.get("type") in _ENTRY_TYPES or ("role" in message and ("prefix" in message or "toolCalls" in message))


def read_mistral(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages, or entries of a conversation."""
    found: list[Message] = []
    for at, entry in entries:
        kind = entry.get("type")
        message = _read_mistral_entry(entry, at, unknowns) if kind in _ENTRY_TYPES else read_message(entry, at, unknowns)
        if message is not None:
            found.append(message)
    return found


def _read_mistral_entry(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    kind, word = entry["type"], entry.get("role")
    if kind == "message.input" or kind == "message.output":
        role: Role = "user" if kind == "message.input" else "assistant"
        return read_message(without(entry, "type"), at, unknowns, default=role)
    if kind == "agent.handoff":
        check_fields(entry, ("type", "role", *(key for key in entry if "gent" in key)), at, unknowns)
        return None
    call = without(entry, "type")
    draft = Draft("tool" if kind == "function.result" else "assistant", at, unknowns)
    if kind == "function.result":
        draft.add_result(call, at)
    elif kind == "function.call":
        draft.add_call(call, at, "tool_call")
    else:
        # One entry records the call and its result, and its own id joins the two.
        name = find_first(entry, "name", "function")
        draft.add_call({"name": name, "id": entry.get("id"), **without(entry, "type", "function", "info", "name")}, at, "tool_call")
        draft.append_result(entry.get("info"), at, id=entry.get("id"), name=name)
    if word is not None and find_role(str(word)) is None:
        draft.mark(f"{at}.role", f"unrecognised role {word!r}")
    return draft.build()


# Genkit

GENKIT = Dialect(omits_arguments=True, results_in_blocks=True)


def is_genkit_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be Genkit's."""
    parts = list_parts(message, "content")
    return any("toolRequest" in part or "toolResponse" in part for part in parts) or (
        message.get("role") == "model" and bool(parts) and all("type" not in part for part in parts)
    )


def read_genkit(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Genkit."""
    return read_all(entries, unknowns, GENKIT)
