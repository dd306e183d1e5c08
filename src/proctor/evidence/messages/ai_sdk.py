"""AI SDK and Mastra: model messages, UI messages, and the result of `generateText` with its steps.

`steps`, and `responseMessages` of version 7, show the whole run. `toolCalls` and `toolResults` of a result are those of its last step, and
`response.messages` may be, so earlier calls are unknown without steps. Tried with ai 4 to 7, @mastra/core 1.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.messages.envelope import Entries, Opened, list_parts, without
from proctor.evidence.shared.blocks import OMITS_ARGUMENTS
from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.evidence.shared.conversation import Message, mark_earlier
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.fields import CONTENT_PARTS
from proctor.evidence.unknowns.markers import find_stop_marker
from proctor.evidence.unknowns.unrecognised import check_fields
from proctor.evidence.values.access import dict_or_empty, list_of, split_words, text_or_none
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import shorten

LAST_STEP = "toolCalls of the AI SDK are those of its last step: print the steps too, as {text, steps}, or all messages of the run"
_STEP_KNOWN = split_words(
    """
    content text toolCalls toolResults staticToolCalls dynamicToolCalls staticToolResults dynamicToolResults finishReason usage response
    request reasoning files sources stepNumber stepType model warnings
    """
)
_RESULT_KNOWN = _STEP_KNOWN | split_words("steps totalUsage output _output resolvedOutput experimental_output finalStep responseMessages")
"""Fields of a result; those that repeat its last step are not read."""
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
    """Return the answer of an agent, as a last step where it is text and calls in this spelling, and no call of another form is in it.

    Somebody picked them out of a result: an empty list of calls says nothing of the steps before.
    """
    entry = dict_or_empty(answer)
    is_picked = isinstance(entry.get("text"), str) and isinstance(entry.get("toolCalls"), list) and entry.keys() <= _PICKED
    if not is_picked or is_result(answer) or not all("toolName" in dict_or_empty(call) for call in entry["toolCalls"]):
        return answer
    return {**entry, "toolResults": []}


def _find_messages(result: dict[str, Any]) -> list[Any]:
    """Return the messages that a run added, or its last step did."""
    messages = list_of(result.get("responseMessages")) or list_of(dict_or_empty(result.get("response")).get("messages"))
    return messages if all(isinstance(message, dict) and "role" in message for message in messages) else []


def _is_step(value: Json) -> bool:
    step = dict_or_empty(value)
    if "role" in step or "type" in step:
        return False
    return isinstance(step.get("toolCalls"), list) or (isinstance(step.get("content"), list) and "finishReason" in step)


def open_result(document: Json) -> Opened | None:
    """Find the steps of a run; of a result without them its last step."""
    if not is_result(document):
        return None
    unknowns = Unknowns()
    result = dict_or_empty(document)
    steps = list_of(document) if isinstance(document, list) else list_of(result.get("steps"))
    at = "$" if isinstance(document, list) else "$.steps"
    places: list[tuple[str, Json]] = [(f"{at}[{index}]", step) for index, step in enumerate(steps)] or [("$", result)]
    messages = _find_messages(result) if not steps else []
    if not steps and not messages:
        unknowns.mark_parts((*CALL_PARTS, "usage"), LAST_STEP)
    place = "$.responseMessages" if result.get("responseMessages") else "$.response.messages"
    entries: list[tuple[str, Json]] = [(f"{place}[{index}]", message) for index, message in enumerate(messages)]
    entries = entries or [(place, _write_message(dict_or_empty(step), place, unknowns)) for place, step in places]
    if not steps and not messages and result.get("toolCalls") and isinstance(result.get("text"), str):
        # The text of a result is its answer, whatever its last step called.
        calls = [part for part in entries[0][1]["content"] if dict_or_empty(part).get("type") != "text"]
        entries = [("$", {**entries[0][1], "content": calls}), ("$.text", {"role": "assistant", "content": result["text"]})]
    _mark_order([dict_or_empty(step) for step in steps], at, unknowns)
    last_at, last = places[-1]
    _mark_end(dict_or_empty(last).get("finishReason"), f"{last_at}.finishReason", unknowns)
    _compare_texts(result.get("text"), entries[-1][1], unknowns)
    return Opened(
        entries=entries,
        rest=without(result, *_RESULT_KNOWN),
        usage=read_usage(result.get("totalUsage")),
        model=_find_model(dict_or_empty(last)),
        unknowns=unknowns,
        is_whole=bool(steps or result.get("responseMessages")),
    )


def _write_message(step: dict[str, Any], at: str, unknowns: Unknowns) -> dict[str, Json]:
    """Return a step as a message of the assistant that has its calls and their results."""
    parts: list[Json]
    if at != "$" and not _is_step(step):
        unknowns.mark_parts(CONTENT_PARTS, f"{at}: not recognised as a step")
    if isinstance(step.get("content"), list):
        parts = [_with_plain_output(part) for part in step["content"]]
    else:
        parts = [{"type": "text", "text": step["text"]}] if isinstance(step.get("text"), str) else []
        parts += [{**dict_or_empty(call), "type": "tool-call"} for call in list_of(step.get("toolCalls"))]
        parts += [_with_plain_output({**dict_or_empty(result), "type": "tool-result"}) for result in list_of(step.get("toolResults"))]
    if at != "$":
        check_fields(step, _RESULT_KNOWN, at, unknowns, has_answer=True)
    message: dict[str, Json] = {"role": "assistant", "content": parts}
    return {**message, "usage": step["usage"]} if step.get("usage") is not None and at != "$" else message


def _with_plain_output(value: Json) -> Json:
    """Return a part of a step; the output of a tool stands in it as it is, while messages say of which type it is."""
    part = dict_or_empty(value)
    if part.get("type") != "tool-result" or "output" not in part:
        return value
    return {**{key: member for key, member in part.items() if key != "output"}, "result": part["output"]}


def _mark_order(steps: list[dict[str, Any]], at: str, unknowns: Unknowns) -> None:
    numbers = [step["stepNumber"] for step in steps if "stepNumber" in step]
    if numbers and numbers != list(range(len(steps))):
        mark_earlier(unknowns, f"{at}: the steps are numbered {shorten(str(numbers), 40)}, so some are missing")
    if steps and steps[0].get("stepType", "initial") != "initial":
        mark_earlier(unknowns, f"{at}[0].stepType: the first step is not the initial one, so some are missing")


def _mark_end(reason: Json, at: str, unknowns: Unknowns) -> None:
    # Whether one that stopped to call tools called some is seen by its calls.
    sign = find_stop_marker(reason) if reason not in ("tool-calls", None) else None
    if sign is not None:
        unknowns.mark_parts(sign.parts, f"{at}: {sign.why}")


def _compare_texts(told: Json, message: Json, unknowns: Unknowns) -> None:
    """Doubt an answer that is told twice, in different words."""
    content = dict_or_empty(message).get("content")
    parts = [dict_or_empty(part) for part in list_of(content)]
    said = content if isinstance(content, str) else "".join(text_or_none(part.get("text")) or "" for part in parts)
    if isinstance(told, str) and told.strip() and told.strip() != said.strip():
        unknowns.mark("answer", "$.text: the last step says something else")


def _find_model(step: dict[str, Any]) -> str | None:
    return text_or_none(dict_or_empty(step.get("response")).get("modelId")) or text_or_none(dict_or_empty(step.get("model")).get("modelId"))


# Messages

# JavaScript leaves out what is undefined.

_CALLING = ("tool-call", "tool-result", "tool-error", "tool-approval-request", "tool-approval-response")


def is_ai_sdk_message(message: dict[str, Any]) -> bool:
    """Return whether a message can only be the AI SDK's or Mastra's."""
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
    return any(
        (part.get("type") in _CALLING and "tool_name" not in part) or ("providerOptions" in part and "type" in part) or _is_tool(part)
        for part in list_parts(message)
    )


def _is_tool(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and "toolCallId" in part and (kind.startswith("tool-") or kind == "dynamic-tool")


def read_ai_sdk(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read model messages or UI messages."""
    found: list[Message] = []
    for at, entry in entries:
        message = read_message(entry, at, unknowns, OMITS_ARGUMENTS)
        if message is not None:
            blank = message.role != "user" and message.text is not None and not message.text.strip()
            found.append(msgspec.structs.replace(message, text=None) if blank else message)
    return found


def mark_failed_calls(calls: tuple[ToolCall, ...], spans: Json) -> tuple[ToolCall, ...]:
    """Mark calls that MCPJam's spans of category `tool` report as failed, where the messages do not."""
    marked = list(calls)
    for span in map(dict_or_empty, list_of(spans)):
        if span.get("category") == "tool" and span.get("status") == "error":
            index = _find_call_of_span(marked, span)
            if index is not None and not marked[index].failed():
                marked[index] = msgspec.structs.replace(marked[index], error="the call failed", error_kind=PROTOCOL_ERROR)
    return tuple(marked)


def _find_call_of_span(calls: list[ToolCall], span: dict[str, Any]) -> int | None:
    wanted = span.get("toolCallId")
    if wanted is not None:
        return next((index for index, call in enumerate(calls) if call.id == wanted), None)
    # A call that is marked already is skipped, so that two failed spans of one tool mark two calls.
    return next((index for index, call in enumerate(calls) if call.name == span.get("toolName") and not call.failed()), None)
