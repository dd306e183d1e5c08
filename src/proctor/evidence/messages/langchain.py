"""LangChain and LangGraph: messages with a `type` of `human`, `ai`, `tool`, `system`, in each way LangChain writes them.

`structured_response` of a state is the answer's body. A tool that LangChain reports to have returned it is no call. A state with an
`__interrupt__` waits for a human. Tried with langchain-core 1 (`model_dump`, `message_to_dict`, `dumpd`) and @langchain/core 1.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.envelope import Entries, MessageFormat, check_edits, fold_outputs, with_answer
from proctor.evidence.shared.blocks import RAISES
from proctor.evidence.shared.conversation import Message, mark_earlier
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_fields
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.evidence.values.text import parse_json
from proctor.model.evidence import Json, ToolCall

_TYPES = split_words(
    """
    human ai tool function system HumanMessage HumanMessageChunk AIMessage AIMessageChunk ToolMessage ToolMessageChunk FunctionMessage
    SystemMessage SystemMessageChunk
    """
)
_STRUCTURED = ("structured_response", "structuredResponse")
FINISHED = (*_STRUCTURED, "__interrupt__", "summary")
"""Fields of a state that `finish` reads."""


def _is_langchain_message(message: dict[str, Any]) -> bool:
    if message.get("lc") is not None and isinstance(message.get("kwargs"), dict):
        return True
    if text_or_none(message.get("type")) in _TYPES and "role" not in message and ("content" in message or "data" in message):
        return True
    calls = [dict_or_empty(call) for call in list_of(message.get("tool_calls"))]
    return isinstance(message.get("role"), str) and any("args" in call and "name" in call for call in calls)


def _read_langchain(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found: list[Message] = []
    calls = 0
    for at, entry in entries:
        message = _read_message(entry, at, unknowns, calls)
        if message is not None:
            found.append(message)
            calls += len(message.calls)
    return found


def _read_message(entry: dict[str, Any], at: str, unknowns: Unknowns, calls: int) -> Message | None:
    kind: Json = entry.get("role", entry.get("type"))
    inner = entry
    if isinstance(entry.get("kwargs"), dict) and entry.get("lc") is not None:
        kind = next(iter(list_of(entry.get("id"))[-1:]), None)
        inner, at = entry["kwargs"], f"{at}.kwargs"
        check_fields(entry, ("lc", "type", "id", "kwargs", "name", "graph"), at, unknowns)
    elif isinstance(entry.get("data"), dict):
        inner, at = entry["data"], f"{at}.data"
        check_fields(entry, ("type", "data"), at, unknowns)
    source = dict_or_empty(inner.get("additional_kwargs")).get("lc_source")
    if isinstance(source, str) and "summar" in source:
        mark_earlier(unknowns, f"{at}.additional_kwargs.lc_source: a summary of messages that are not in the list")
    metadata = dict_or_empty(inner.get("response_metadata"))
    if metadata.get("context_editing"):
        why = f"{at}.response_metadata.context_editing: what a tool was given or returned was cleared"
        unknowns.mark_parts(("tool_arguments", "tool_results"), why)
    check_edits(metadata.get("context_management"), f"{at}.response_metadata", calls, unknowns)
    return read_message({**inner, "role": kind}, at, unknowns, RAISES)


def finish(messages: list[Message], rest: dict[str, Json], unknowns: Unknowns) -> list[Message]:
    """Add the answer in a given form that a state has next to its messages, and mark whether the run waits or was summarised."""
    if rest.get("__interrupt__"):
        unknowns.mark_parts(("answer", "tool_calls", "tool_results"), "$.__interrupt__: the run waits for a person")
    if rest.get("summary"):
        mark_earlier(unknowns, "$.summary: a summary of messages that are not in the list")
    answer = find_first(rest, *_STRUCTURED)
    if answer is None:
        return messages
    # `dumpd` writes no more than the repr of a value of the user's own class.
    is_written = dict_or_empty(answer).get("type") != "not_implemented" or "lc" not in dict_or_empty(answer)
    outputs = [call for call in _list_returned_calls(messages) if _is_output(call, answer, is_written)]
    messages = fold_outputs(messages, {call.name for call in outputs}, {call.id for call in outputs})
    last = next((index for index in reversed(range(len(messages))) if messages[index].role == "assistant"), None)
    if last is None:
        unknowns.mark("answer", f"$.{_STRUCTURED[0]}: an answer that no message gives")
    elif is_written:
        messages[last] = with_answer(messages[last], answer)
    elif not outputs and parse_json(messages[last].text) is None:
        unknowns.mark("answer", f"$.{_STRUCTURED[0]}: only its repr is recorded")
    return messages


def _list_returned_calls(messages: list[Message]) -> list[ToolCall]:
    results = [result for message in messages for result in message.results if result.error is None and result.id is not None]
    returned = {result.id for result in results if str(result.value).startswith("Returning structured response: ")}
    return [call for message in messages for call in message.calls if call.id in returned]


def _is_output(call: ToolCall, answer: Json, is_written: bool) -> bool:
    if not is_written:
        return list_of(dict_or_empty(answer).get("id"))[-1:] == [call.name]
    # The answer may hold more than was given: the defaults of its form.
    given = call.arguments
    return isinstance(given, dict) and bool(given) and isinstance(answer, dict) and given.items() <= answer.items()


FORMATS = (MessageFormat("langchain", "LangChain messages", _is_langchain_message, _read_langchain),)
