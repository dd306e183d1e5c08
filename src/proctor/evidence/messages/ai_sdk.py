"""AI SDK and Mastra: model messages, UI messages, and the result of `generateText` with its steps. Tried with ai 4 to 7, @mastra/core 1."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.messages.envelope import Entries, MessageFormat, Opened, list_parts, list_with_paths, read_all, without
from proctor.evidence.shared.blocks import OMITS_ARGUMENTS
from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.evidence.shared.conversation import mark_earlier
from proctor.evidence.shared.message import Message
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import find_stop_marker
from proctor.evidence.unknowns.statuses import find_stop
from proctor.evidence.unknowns.unrecognised import CONTENT_PARTS, check_object
from proctor.evidence.values.access import dict_or_empty, list_of, split_words, text_or_none
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json, ToolCall

LAST_STEP = "toolCalls of the AI SDK are those of its last step: print the steps too, as {text, steps}, or all messages of the run"
_STEP_KNOWN = split_words("""
    content text toolCalls toolResults staticToolCalls dynamicToolCalls staticToolResults dynamicToolResults finishReason usage response
    request reasoning files sources stepNumber stepType model warnings
    """)
_RESULT_KNOWN = _STEP_KNOWN | split_words("steps totalUsage output _output resolvedOutput experimental_output finalStep responseMessages")
_PICKED = _RESULT_KNOWN | split_words("rawFinishReason reasoningText providerMetadata")


def is_result(document: Json) -> bool:
    """Return whether a document is a result of the AI SDK, or the list of its steps."""
    if isinstance(document, list):
        return bool(document) and all(_is_step(step) and "finishReason" in step for step in document)
    entry = dict_or_empty(document)
    steps = list_of(entry.get("steps"))
    if any(_is_step(step) for step in steps):
        return True
    has_calls = isinstance(entry.get("toolCalls"), list) and isinstance(entry.get("toolResults"), list)
    return has_calls or ("text" in entry and bool(_find_messages(entry)))


def complete_last_step(answer: Json) -> Json:
    """Return an answer with text and calls as a last step: an empty list of calls does not cover the earlier steps."""
    entry = dict_or_empty(answer)
    is_picked = isinstance(entry.get("text"), str) and isinstance(entry.get("toolCalls"), list) and entry.keys() <= _PICKED
    if not is_picked or is_result(answer) or not all({"toolName", "payload"} & dict_or_empty(call).keys() for call in entry["toolCalls"]):
        return answer
    return {**entry, "toolResults": []}


def _find_messages(result: dict[str, Any]) -> list[Any]:
    """Return the messages that a run, or its last step, added."""
    messages = list_of(result.get("responseMessages")) or list_of(dict_or_empty(result.get("response")).get("messages"))
    return messages if all(isinstance(message, dict) and "role" in message for message in messages) else []


def _is_step(value: Json) -> bool:
    step = dict_or_empty(value)
    if "role" in step or "type" in step:
        return False
    return isinstance(step.get("toolCalls"), list) or (isinstance(step.get("content"), list) and "finishReason" in step)


def _open_result(document: Json) -> Opened | None:
    """Find the steps of a run, or its last step if the result has no steps."""
    if not is_result(document):
        return None
    unknowns, result = Unknowns(), dict_or_empty(document)
    at, listed = ("$", document) if isinstance(document, list) else ("$.steps", list_of(result.get("steps")))
    steps = [(place, dict_or_empty(step)) for place, step in list_with_paths(listed, at)]
    messages = _find_messages(result) if not steps else []
    last_at, last = steps[-1] if steps else ("$", result)
    entries = list_with_paths(messages, "$.responseMessages" if result.get("responseMessages") else "$.response.messages")
    entries = entries or [(place, _write_message(step, place, unknowns)) for place, step in steps or [("$", result)]]
    if not steps and not messages:
        unknowns.mark_parts((*CALL_PARTS, "usage"), LAST_STEP)
        if result.get("toolCalls") and isinstance(result.get("text"), str):
            # The text of a result is its answer, even if the last step called tools.
            calls = [part for part in entries[0][1]["content"] if dict_or_empty(part).get("type") != "text"]
            entries = [("$", {**entries[0][1], "content": calls}), ("$.text", {"role": "assistant", "content": result["text"]})]
    numbers = [step["stepNumber"] for _, step in steps if "stepNumber" in step]
    if (numbers and numbers != list(range(len(steps)))) or (steps and steps[0][1].get("stepType", "initial") != "initial"):
        mark_earlier(unknowns, f"{at}: the steps are not numbered from the initial one on, so some are missing")
    reason = last.get("finishReason")
    has_calls = last.get("toolCalls") or any(part.get("type") == "tool-call" for part in list_parts(last))
    marker = find_stop_marker(reason) if not (has_calls and find_stop(reason) == "tools") else None
    if marker is not None:
        unknowns.mark_parts(marker.parts, f"{last_at}.finishReason: {marker.why}")
    text, content = result.get("text"), dict_or_empty(entries[-1][1]).get("content")
    parts = (text_or_none(dict_or_empty(part).get("text")) or "" for part in list_of(content))
    if isinstance(text, str) and text.strip() and text.strip() != (content if isinstance(content, str) else "".join(parts)).strip():
        unknowns.mark("answer", "$.text: differs from the text of the last step")
    models = (dict_or_empty(last.get(key)).get("modelId") for key in ("response", "model"))
    return Opened(
        entries=entries,
        rest=without(result, *_RESULT_KNOWN),
        usage=read_usage(result.get("totalUsage")),
        model=next((model for model in models if isinstance(model, str)), None),
        unknowns=unknowns,
        is_whole=bool(steps or result.get("responseMessages")),
    )


def _write_message(step: dict[str, Any], at: str, unknowns: Unknowns) -> dict[str, Json]:
    """Return a step as a message of the assistant that has its calls and their results."""
    parts = list_of(step.get("content"))
    if not isinstance(step.get("content"), list):
        parts = [{"type": "text", "text": step["text"]}] if isinstance(step.get("text"), str) else []
        parts += [{**dict_or_empty(call), "type": "tool-call"} for call in list_of(step.get("toolCalls"))]
        parts += [{**dict_or_empty(result), "type": "tool-result"} for result in list_of(step.get("toolResults"))]
    # A step has the bare output of a tool, while messages wrap it with its type.
    bare = [isinstance(part, dict) and part.get("type") == "tool-result" and "output" in part for part in parts]
    content = [
        {**without(part, "output"), "result": part["output"]} if is_bare else part for part, is_bare in zip(parts, bare, strict=True)
    ]
    message: dict[str, Json] = {"role": "assistant", "content": content or ""}
    if at == "$":
        return message
    if not _is_step(step):
        unknowns.mark_parts(CONTENT_PARTS, f"{at}: not recognised as a step")
    check_object(step, _RESULT_KNOWN, at, unknowns, has_answer=True)
    return {**message, "usage": step.get("usage")}


# Messages

_CALLING = ("tool-call", "tool-result", "tool-error", "tool-approval-request", "tool-approval-response")


def _is_message(message: dict[str, Any]) -> bool:
    if not isinstance(message.get("role"), str):
        return False
    content, parts = message.get("content"), message.get("parts")
    if isinstance(content, dict) and isinstance(content.get("parts"), list) and "format" in content:
        return True
    if isinstance(parts, list) and parts and all(isinstance(dict_or_empty(part).get("type"), str) for part in parts):
        return True
    if isinstance(message.get("toolInvocations"), list) or "providerOptions" in message:
        return True
    # BeeAI's blocks have the same types, with names in snake case.
    for part, kind in ((part, str(part.get("type"))) for part in list_parts(message)):
        if (kind in _CALLING and "tool_name" not in part) or ("providerOptions" in part and "type" in part):
            return True
        if "toolCallId" in part and (kind.startswith("tool-") or kind == "dynamic-tool"):
            return True
    return False


def _read_ai_sdk(entries: Entries, unknowns: Unknowns) -> list[Message]:
    # JavaScript leaves out undefined fields; text of white space counts as empty.
    found = ((message, message.role == "user" or (message.text or "").strip()) for message in read_all(entries, unknowns, OMITS_ARGUMENTS))
    return [message if has_text else msgspec.structs.replace(message, text=None) for message, has_text in found]


def mark_failed_calls(calls: tuple[ToolCall, ...], spans: Json) -> tuple[ToolCall, ...]:
    """Mark calls that MCPJam's `tool` spans report as failed and the messages do not."""
    marked = list(calls)
    for span in map(dict_or_empty, list_of(spans)):
        if span.get("category") != "tool" or span.get("status") != "error":
            continue
        id, name = span.get("toolCallId"), span.get("toolName")
        for index, call in enumerate(marked):
            # If calls have no id, each failed span marks a different one.
            if not call.failed() and (call.id == id if id is not None else call.name == name):
                marked[index] = msgspec.structs.replace(call, error="the call failed", error_kind=PROTOCOL_ERROR)
                break
    return tuple(marked)


FORMATS = (
    MessageFormat(
        "ai-sdk", "AI SDK messages, or the steps of a result", _is_message, _read_ai_sdk, _open_result, ("steps",), opens_lists=True
    ),
)
