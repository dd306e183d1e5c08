"""Messages of frameworks, from LangChain to AutoGen: how they are recognised, and fields that are specific to one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import (
    Entries,
    MessageFormat,
    Opened,
    fold_outputs,
    list_parts,
    list_with_paths,
    open_list,
    read_all,
    with_answer,
    without,
)
from proctor.evidence.shared.blocks import IN_BLOCKS, RAISES, RAISES_IN_BLOCKS, Draft, read_counts
from proctor.evidence.shared.calls import PROTOCOL_ERROR, is_error
from proctor.evidence.shared.conversation import mark_earlier, mark_end, mark_later
from proctor.evidence.shared.message import Message
from proctor.evidence.shared.message_reader import fill, find_role, mark_role
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.statuses import read_status
from proctor.evidence.unknowns.unrecognised import CONTENT_PARTS, check_object, list_calls, mark_kind
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text, parse_json
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json
from proctor.model.show import kind_of, shorten, show

# --- microsoft Agent Framework (Python and .NET), Semantic Kernel, AutoGen and AG2. Tried with agent-framework 1, semantic-kernel 1

# Agent Framework

_STORES = ("state.in_memory.messages", "chat_message_store_state.messages", "storeState.messages", "message_store_state.messages")
_RESPONSES = ("agent_response", "agent_run_response", "chat_response")


def _is_framework_message(message: dict[str, Any]) -> bool:
    typed = all("type" in part or "$type" in part for part in list_parts(message, "contents"))
    return isinstance(message.get("contents"), list) and "role" in message and typed


def _open_session(document: dict[str, Any]) -> Opened | None:
    kind = document.get("type")
    if kind == "session" and "session_id" in document and not dict_or_empty(document.get("state")).get("in_memory"):
        stored = document.get("service_session_id")
        storage = f": the service stores them under {show(stored, 60)[1:-1]}" if isinstance(stored, str) else ""
        raise EvidenceError(f"$: a session of Agent Framework without messages{storage}; write the response's to_dict() instead")
    opened = open_list(document, _is_framework_message, *_STORES, drop=("type",))
    if opened is not None or (kind not in _RESPONSES and "responseId" not in document):
        return opened
    opened = open_list(document, _is_framework_message, "messages", drop=("usage_details", "usage", "type", "text"))
    if opened is None:
        return None
    usage = read_counts(find_first(document, "usage_details", "usage"), "$.usage_details", opened.unknowns)
    # The response of an agent has every message of its run except the question; the response of a model has one step.
    return msgspec.structs.replace(opened, usage=usage, is_whole=kind != "chat_response")


def _read_framework(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Agent Framework; summarised messages stay in the list and are marked as such."""
    added = [dict_or_empty(entry.get("additional_properties")) for _, entry in entries]
    notes = [{**noted, **dict_or_empty(noted.get("_group"))} for noted in added]
    summarised = {note["_summarized_by_summary_id"] for note in notes if isinstance(note.get("_summarized_by_summary_id"), str)}
    for (at, entry), note in zip(entries, notes, strict=True):
        is_summary = find_first(note, "_summary_of_message_ids", "_summary_of_group_ids")
        if is_summary and text_or_none(entry.get("message_id")) not in summarised:
            mark_earlier(unknowns, f"{at}: a summary of messages that are not in the list")
    return read_all(entries, unknowns, RAISES_IN_BLOCKS)


# AutoGen: messages and events of agents, and messages of its models.

_USERS = ("user", "user_proxy", "human")
_AUTOGEN_SPOKEN = split_words(
    "TextMessage StopMessage HandoffMessage MultiModalMessage ToolCallSummaryMessage UserMessage AssistantMessage"
)
_AUTOGEN_SILENT = split_words(
    "ThoughtEvent UserInputRequestedEvent MemoryQueryEvent ModelClientStreamingChunkEvent SelectSpeakerEvent SelectorEvent SystemMessage"
)
_RESULTS = ("ToolCallExecutionEvent", "FunctionExecutionResultMessage")
_TYPES = _AUTOGEN_SPOKEN | _AUTOGEN_SILENT | {"ToolCallRequestEvent", *_RESULTS}
_AUTOGEN_KNOWN = frozenset(("type", "source", "content", "tool_calls", "results", "models_usage", "context", "target", "thought", "id"))


def _is_autogen_message(message: dict[str, Any]) -> bool:
    return _is_type(message.get("type")) and "role" not in message


def _is_type(kind: Json) -> TypeGuard[str]:
    return isinstance(kind, str) and (kind in _TYPES or kind.startswith("StructuredMessage"))


def _open_results(document: Json) -> Opened | None:
    results = [dict_or_empty(result) for result in list_of(document)]
    if not results or any(result.keys() != {"messages", "stop_reason"} for result in results):
        return None
    if not all(any(map(_is_autogen_message, list_parts(result, "messages"))) for result in results):
        return None
    if len(results) > 1:
        raise EvidenceError("$: several results of AutoGen in one list may be several runs; give one at a time, or as JSON Lines")
    return Opened(entries=list_with_paths(results[0]["messages"], "$[0].messages"))


def _read_autogen(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found: list[Message] = []
    call_ids: set[str] = set()
    for at, entry in entries:
        kind, source, content = entry.get("type"), entry.get("source"), entry.get("content")
        if not _is_type(kind):
            mark_kind(entry, str(kind), at, unknowns)
            if not isinstance(kind, str) or entry.get("models_usage") is not None:
                unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {show(kind, 60)}")
        if not _is_type(kind) or kind in _AUTOGEN_SILENT:
            continue
        # An `AssistantMessage` is always a model's; other messages differ only by their source.
        from_user = kind == "UserMessage" or (source in _USERS and kind in _AUTOGEN_SPOKEN and kind != "AssistantMessage")
        draft = Draft("tool" if kind in _RESULTS else "user" if from_user else "assistant", at, unknowns)
        if not isinstance(source, str) and kind in _AUTOGEN_SPOKEN:
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
            draft.ids |= call_ids
            draft.add_calls(entry.get("tool_calls"), f"{at}.tool_calls")
        draft.usage = read_counts(entry.get("models_usage"), f"{at}.models_usage", unknowns)
        check_object(entry, _AUTOGEN_KNOWN, at, unknowns, has_answer=bool(draft.texts))
        found.append(draft.build())
        call_ids |= {call.id for call in draft.calls if call.id is not None}
    return found


# AG2


def is_ag2_history(entries: list[dict[str, Any]]) -> bool:
    """Return whether this is a chat of two agents recorded by one of them, in which `assistant` may be the one who asks."""
    named = [entry for entry in entries if isinstance(entry.get("name"), str)]
    return (
        len(named) == len(entries) > 1
        and entries[0].get("role") == "assistant"
        and entries[-1].get("role") == "user"
        and entries[0]["name"] != entries[-1]["name"]
    )


def _read_ag2(entries: Entries, unknowns: Unknowns) -> list[Message]:
    named = [entry["name"] for _, entry in entries if entry.get("role") != "system" and entry.get("name") is not None]
    names = list(dict.fromkeys(name for name in named if isinstance(name, str)))
    if len(names) != 2 or not all(isinstance(name, str) for name in named):
        raise EvidenceError(f"$: expected a chat of two, each named in their messages; found {len(names)}")
    found: list[Message] = []
    for at, entry in entries:
        role, responses = find_role(str(entry.get("role"))), entry.get("tool_responses")
        if role is None:
            mark_role(entry, entry.get("role"), at, unknowns)
            continue
        if responses:
            role = "tool"
        elif role in ("user", "assistant"):
            role = "user" if entry.get("name") == names[0] and not entry.get("tool_calls") else "assistant"
        draft = Draft(role, at, unknowns)
        # The content of a message with responses repeats them.
        fill(draft, without(entry, "content") if responses else entry)
        if role == "tool" and not responses:
            draft.mark(at, "a message of a tool without its responses")
        found.append(draft.build())
    return found


# LangChain and LangGraph: messages with a `type` of `human`, `ai`, `tool`, `system`, in each way LangChain writes them. A tool that is
# reported to have returned `structured_response`, the body of the answer, is no call.

_LANGCHAIN_TYPES = split_words("""
    human ai tool function system HumanMessage HumanMessageChunk AIMessage AIMessageChunk ToolMessage ToolMessageChunk FunctionMessage
    SystemMessage SystemMessageChunk
    """)
_STRUCTURED = ("structured_response", "structuredResponse")
LANGCHAIN_FINISHED = (*_STRUCTURED, "summary")


def _is_langchain_message(message: dict[str, Any]) -> bool:
    if message.get("lc") is not None and isinstance(message.get("kwargs"), dict):
        return True
    if text_or_none(message.get("type")) in _LANGCHAIN_TYPES and "role" not in message and ("content" in message or "data" in message):
        return True
    calls = [dict_or_empty(call) for call in list_of(message.get("tool_calls"))]
    return isinstance(message.get("role"), str) and any("args" in call and "name" in call for call in calls)


def _unwrap_langchain(at: str, entry: dict[str, Any], unknowns: Unknowns) -> tuple[str, dict[str, Any]]:
    kind, inner = entry.get("role", entry.get("type")), entry
    if isinstance(entry.get("kwargs"), dict) and entry.get("lc") is not None:
        kind = next(iter(list_of(entry.get("id"))[-1:]), None)
        inner, at = entry["kwargs"], f"{at}.kwargs"
        check_object(entry, ("lc", "type", "id", "kwargs", "name", "graph"), at, unknowns)
    elif isinstance(entry.get("data"), dict):
        inner, at = entry["data"], f"{at}.data"
        check_object(entry, ("type", "data"), at, unknowns)
    source = dict_or_empty(inner.get("additional_kwargs")).get("lc_source")
    if isinstance(source, str) and "summar" in source:
        mark_earlier(unknowns, f"{at}.additional_kwargs.lc_source: a summary of messages that are not in the list")
    if dict_or_empty(inner.get("response_metadata")).get("context_editing"):
        why = f"{at}.response_metadata.context_editing: what a tool was given or returned was cleared"
        unknowns.mark_parts(("tool_arguments", "tool_results"), why)
    return at, {**inner, "role": kind}


def finish_langchain(messages: list[Message], rest: dict[str, Json], unknowns: Unknowns) -> list[Message]:
    """Add the structured answer that a state has next to its messages, and mark whether the run waits or was summarised."""
    if rest.get("summary"):
        mark_earlier(unknowns, "$.summary: a summary of messages that are not in the list")
    answer = find_first(rest, *_STRUCTURED)
    if answer is None:
        return messages
    # `dumpd` writes only the repr of a value of the user's own class.
    is_written = dict_or_empty(answer).get("type") != "not_implemented" or "lc" not in dict_or_empty(answer)
    returned = {
        result.id
        for message in messages
        for result in message.results
        if result.error is None and result.id is not None and str(result.value).startswith("Returning structured response: ")
    }
    calls = [call for message in messages for call in message.calls if call.id in returned]
    if is_written:
        # The answer may contain more than the arguments: the defaults of its schema.
        members = dict_or_empty(answer).items()
        outputs = [call for call in calls if isinstance(call.arguments, dict) and call.arguments and call.arguments.items() <= members]
    else:
        outputs = [call for call in calls if list_of(dict_or_empty(answer).get("id"))[-1:] == [call.name]]
    messages = fold_outputs(messages, {call.name for call in outputs}, {call.id for call in outputs})
    last = next((index for index in reversed(range(len(messages))) if messages[index].role == "assistant"), None)
    if last is None:
        unknowns.mark("answer", f"$.{_STRUCTURED[0]}: an answer that no message gives")
    elif is_written:
        messages[last] = with_answer(messages[last], answer)
    elif not outputs and parse_json(messages[last].text) is None:
        unknowns.mark("answer", f"$.{_STRUCTURED[0]}: only its repr is recorded")
    return messages


# Haystack


def _is_haystack_message(message: dict[str, Any]) -> bool:
    if "_role" in message and "_content" in message:
        return True
    if not isinstance(message.get("role"), str):
        return False
    parts = list_parts(message)
    tools = any("tool_call" in part or "tool_call_result" in part for part in parts)
    return (tools and not any("type" in part for part in parts)) or (isinstance(message.get("meta"), dict) and "content" in message)


def _read_haystack(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages of Haystack; before 2.9 calls were in the metadata, which is not read."""
    for at, entry in entries:
        if list_calls(entry.get("meta") or entry.get("_meta")):
            unknowns.mark_unrecognised(CALL_PARTS, f"{at}.meta: calls in metadata are not read")
    return read_all(entries, unknowns, RAISES_IN_BLOCKS)


# LlamaIndex


def _is_llama_message(message: dict[str, Any]) -> bool:
    is_listed = "additional_kwargs" in message and ("blocks" in message or "content" in message)
    return isinstance(message.get("role"), str) and (is_listed or any("block_type" in block for block in list_parts(message, "blocks")))


def _open_store(document: dict[str, Any]) -> Opened | None:
    stored = dict_or_empty(document.get("chat_store", document)).get("store")
    if not isinstance(stored, dict) or not stored or not all(isinstance(listed, list) for listed in stored.values()):
        return None
    if len(stored) > 1:
        raise EvidenceError(f"$.store: {len(stored)} conversations in one chat store; give one at a time")
    key, listed = next(iter(stored.items()))
    return Opened(entries=list_with_paths(listed, f"$.store.{key}"), rest=without(document, "store", "chat_store"))


# BeeAI

_ANSWER = "final_answer"


def _is_beeai_message(message: dict[str, Any]) -> bool:
    parts = list_parts(message)
    return "role" in message and any(part.get("type") in ("tool-call", "tool-result") and "tool_name" in part for part in parts)


def _read_beeai(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found: list[Message] = []
    for message in read_all(entries, unknowns, IN_BLOCKS):
        results = tuple(result for result in message.results if result.name != _ANSWER)
        answers = [call.arguments for call in message.calls if call.name == _ANSWER]
        if message.role == "tool" and not results:
            continue
        if None in answers:
            unknowns.mark("answer", "the arguments of final_answer, which are the answer, are not recorded")
        given = [as_text(dict_or_empty(answer).get("response", answer)) or "" for answer in answers if answer is not None]
        text = "".join([message.text or "", *given]) if given else message.text
        calls = tuple(call for call in message.calls if call.name != _ANSWER)
        found.append(msgspec.structs.replace(message, text=text, calls=calls, results=results))
    return found


# Agno: OpenAI's chat with fields of its own. A run also has the messages of its history (`from_history`).

_AGNO = frozenset(("from_history", "stop_after_tool_call", "tool_call_error"))
_RUN_KNOWN = frozenset(("messages", "tools", "status", "content", "input", "events", "metrics", "session_state", "requirements", "model"))


def _open_runs(document: Json) -> Opened | None:
    """Find the messages of one run, or of the runs of one session; calls that wait for a confirmation were not made."""
    runs = list_with_paths(document, "$") if isinstance(document, list) else [("$", document)]
    if not runs or not all(
        isinstance(run, dict) and {"run_id", "session_id"} <= run.keys() and isinstance(run.get("messages"), list) for _, run in runs
    ):
        return None
    if len({str(run["session_id"]) for _, run in runs}) > 1:
        raise EvidenceError("$: runs of several sessions in one list; give one session at a time")
    unknowns, entries = Unknowns(), list[tuple[str, Json]]()
    tools = [dict_or_empty(tool) for _, run in runs for tool in list_of(run.get("tools"))]
    waiting = {text_or_none(tool.get("tool_call_id")) for tool in tools if is_waiting(tool.get)}
    call_ids: set[str | None] = set()
    for at, run in runs:
        check_object(run, _RUN_KNOWN, at, unknowns)
        for place, entry in list_with_paths(run["messages"], f"{at}.messages"):
            # Only the first run records what it was given as history.
            if run is runs[0][1] or dict_or_empty(entry).get("from_history") is not True:
                calls = [dict_or_empty(call) for call in list_of(dict_or_empty(entry).get("tool_calls"))]
                call_ids.update(text_or_none(call.get("id")) for call in calls)
                made_calls = [call for call in calls if text_or_none(call.get("id")) not in waiting]
                entries.append((place, entry if len(made_calls) == len(calls) else {**entry, "tool_calls": made_calls}))
    if {text_or_none(tool.get("tool_call_id")) for tool in tools} - call_ids - waiting:
        unknowns.mark("tool_calls", "$.tools: a call is listed here that no message makes")
    last_at, last = runs[-1]
    status, content, error = last.get("status"), last.get("content"), None
    ended, tools = read_status(status), map(dict_or_empty, list_of(last.get("tools")))
    if names := dict.fromkeys(str(tool.get("tool_name")) for tool in tools if is_waiting(tool.get)):
        mark_later(unknowns, f"{last_at}.status: {show(status, 40)}: the run waits before it calls {', '.join(names)}")
    elif ended == "failed":
        error = shorten(content, 200) if isinstance(content, str) and content else f"status: {show(status, 40)}"
    elif status is not None and ended != "ok":
        mark_end(unknowns, f"{last_at}.status", status)
    return Opened(entries=entries, model=text_or_none(last.get("model")), unknowns=unknowns, error=error)


def is_waiting(look: Callable[[str], Any]) -> bool:
    """Return whether a call waits for a confirmation, for input or for external execution; `look` gives its fields."""
    asks = (look("requires_confirmation") and look("confirmed") is None) or (look("requires_user_input") and not look("answered"))
    return bool(asks or look("external_execution_required")) and look("result") is None


# smolagents: steps with calls and one text of what was observed. `final_answer` is the answer, and no call.

_STEP_KNOWN = split_words("""
    step_number timing model_input_messages model_output model_output_message tool_calls observations error action_output code_action
    token_usage task is_final_answer observations_images task_images
    """)


def _is_smolagents_step(step: dict[str, Any]) -> bool:
    if "role" in step or "type" in step:
        return False
    return ("step_number" in step and "timing" in step) or ("task" in step and "task_images" in step) or set(step) == {"system_prompt"}


def _read_smolagents(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found: list[Message] = []
    for at, entry in entries:
        draft = Draft("user" if "task" in entry else "assistant", at, unknowns)
        if "task" in entry:
            draft.add_text(entry["task"], f"{at}.task")
            check_object(entry, _STEP_KNOWN, at, unknowns)
        elif "step_number" in entry:
            _fill_step(draft, entry)
        elif set(entry) <= {"output", "final_answer"}:
            draft.add_text(as_text(entry.get("output", entry.get("final_answer"))), at)
        else:
            if "system_prompt" not in entry and "plan" not in entry:
                draft.mark(at, "neither a task nor a step")
                mark_kind(entry, next(iter(entry), "entry"), at, unknowns)
            continue
        found.append(draft.build())
    return found


def _fill_step(draft: Draft, entry: dict[str, Any]) -> None:
    at, unknowns = draft.at, draft.unknowns
    requested, written = Draft("assistant", at, unknowns), entry.get("model_output_message") or {}
    # A failed call is recorded only in the model's text.
    if draft.expect(written, dict, "an object", f"{at}.model_output_message", CALL_PARTS):
        requested.add_calls(written.get("tool_calls"), f"{at}.model_output_message.tool_calls")
        check_object(written, ("role", "content", "tool_calls", "raw", "token_usage"), f"{at}.model_output_message", unknowns)
    requested.add_calls(entry.get("tool_calls"), f"{at}.tool_calls")
    observed, output, error = entry.get("observations"), entry.get("action_output"), entry.get("error")
    if entry.get("code_action") is not None or any(call.name == "python_interpreter" for call in requested.calls):
        unknowns.mark_parts(CALL_PARTS, f"{at}.code_action: this agent calls its tools inside of code, which is not read")
    if dict_or_empty(error).get("type") == "AgentMaxStepsError":
        mark_later(unknowns, f"{at}.error: the run was stopped at max_steps (max_steps_error), so it was not over")
    failure = (dict_or_empty(error).get("message") or as_text(error)) if is_error(error) else None
    for call in requested.calls:
        if call.name == _ANSWER:
            draft.add_text(as_text(dict_or_empty(call.arguments).get("answer", call.arguments)), at)
        else:
            draft.calls.append(call)
            draft.append_result(decode_container(observed), at, id=call.id, name=call.name, error=failure, kind=PROTOCOL_ERROR)
    if draft.calls and observed is None and failure is None:
        draft.mark(at, "what these calls returned is not recorded", ("tool_results",))
    if len(draft.calls) > 1:
        unknowns.note(f"{at}.observations: {len(draft.calls)} calls share what was observed")
    if not requested.calls and failure is None:
        draft.add_text(as_text(output), at)
    draft.usage = read_counts(entry.get("token_usage"), f"{at}.token_usage", unknowns)
    check_object(entry, _STEP_KNOWN, at, unknowns, has_answer=True)


# Pydantic AI: requests and responses with parts. A call of `final_result` that was processed is the answer, and no call.

_OUTPUT = "final_result"
"""The name of an output tool; if there are several, `_` and the name of the form follow."""
_PROCESSED = "Final result processed."
_NOT_USED = ("Output tool ", "Output not used ")
_MESSAGE_KNOWN = frozenset(("kind", "parts", "state", "usage", "model_name", "finish_reason", "failed_attempts", "instructions"))


def _read_pydantic(entries: Entries, unknowns: Unknowns) -> list[Message]:
    messages: list[Message] = []
    for at, entry in entries:
        if entry.get("kind") in ("request", "response"):
            messages.extend(_read_messages(entry, at, unknowns))
        else:
            unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {entry.get('kind')!r}")
            mark_kind(entry, str(entry.get("kind")), at, unknowns)
    last_parts = list_parts(entries[-1][1], "parts") if entries else []
    if last_parts and (kind := last_parts[-1].get("part_kind")) in ("retry-feedback", "retry-prompt"):
        mark_end(unknowns, f"{entries[-1][0]}.parts", kind)
    names: set[str] = set()
    output_ids: set[str | None] = set()
    for result in (result for message in messages for result in message.results if _is_output(result.name)):
        if result.value == _PROCESSED and result.error is None:
            output_ids.add(result.id)
        # An output tool that did not end the run is not a tool call either, and its arguments are not an answer.
        if result.value == _PROCESSED or (isinstance(result.value, str) and result.value.startswith(_NOT_USED)):
            names.add(result.name or "")
    for call in (call for message in messages for call in message.calls if _is_output(call.name) and call.name not in names):
        unknowns.mark("answer", f"a call of {call.name} may be the answer, and no record shows that it was used")
    return fold_outputs(messages, names, output_ids)


def _is_output(name: str | None) -> bool:
    return name is not None and (name == _OUTPUT or name.startswith(f"{_OUTPUT}_"))


def _read_messages(entry: dict[str, Any], at: str, unknowns: Unknowns) -> list[Message]:
    is_response = entry["kind"] == "response"
    draft = Draft("assistant" if is_response else "tool", at, unknowns, RAISES)
    prompt = Draft("user", at, unknowns, RAISES)
    parts = entry.get("parts")
    draft.expect(parts, list, "a list of parts", f"{at}.parts")
    for index, part in enumerate(list_of(parts)):
        place, kind = f"{at}.parts[{index}]", dict_or_empty(part).get("part_kind")
        if kind == "user-prompt":
            # A prompt that contains only pictures is also a turn; an empty text makes it one.
            prompt.texts.append("")
            prompt.add_block({**part, "content": part.get("content")}, place)
        # A retry without a tool asks the model for another answer.
        elif kind != "system-prompt" and not (kind == "retry-prompt" and part.get("tool_name") is None):
            draft.add_block(part, place)
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
    check_object(entry, _MESSAGE_KNOWN, at, unknowns, has_answer=bool(draft.texts))
    # Results before text: a request first answers the calls of the previous response.
    built = [draft.build()] if is_response or draft.results else []
    return [*built, prompt.build()] if prompt.texts else built


FORMATS = (
    MessageFormat("langchain", "LangChain messages", _is_langchain_message, dialect=RAISES, unwrap=_unwrap_langchain),
    MessageFormat(
        "pydantic-ai",
        "Pydantic AI messages",
        lambda message: (
            message.get("kind") in ("request", "response") and any("part_kind" in part for part in list_parts(message, "parts"))
        ),
        _read_pydantic,
        keys=("all_messages",),
        lists=("all_messages", "message_history", "messages", "_all_messages"),
        drop=("output", "new_messages"),
    ),
    MessageFormat("haystack", "Haystack messages", _is_haystack_message, _read_haystack),
    MessageFormat("llama-index", "LlamaIndex messages or a chat store", _is_llama_message, None, _open_store, ("chat_store",)),
    MessageFormat(
        "agno",
        "Agno messages or runs",
        lambda message: "role" in message and not _AGNO.isdisjoint(message),
        open=_open_runs,
        extends=("openai",),
        # `metrics` hold the tokens; `tool_args` of a result repeats the call.
        unwrap=lambda at, entry, unknowns: (at, {**without(entry, "metrics", "tool_args"), "usage": entry.get("metrics")}),
        opens_lists=True,
    ),
    MessageFormat("smolagents", "steps of smolagents' memory", _is_smolagents_step, _read_smolagents),
    MessageFormat("beeai", "BeeAI messages", _is_beeai_message, _read_beeai),
    MessageFormat(
        "agent-framework", "messages or a session of Microsoft Agent Framework", _is_framework_message, _read_framework, _open_session
    ),
    MessageFormat(
        "semantic-kernel",
        "a Semantic Kernel chat history",
        lambda message: (
            (message.get("content_type") == "message" and "items" in message)
            or (isinstance(message.get("Items"), list) and "Role" in message)
        ),
        dialect=IN_BLOCKS,
    ),
    MessageFormat(
        "autogen",
        "AutoGen messages, a task result or an agent's state",
        _is_autogen_message,
        _read_autogen,
        _open_results,
        ("llm_context",),
        opens_lists=True,
        lists=("llm_context.messages", "messages"),
        drop=("type", "version", "stop_reason"),
    ),
    MessageFormat(
        "ag2",
        "the history of a chat of AG2",
        lambda message: isinstance(message.get("role"), str) and isinstance(message.get("tool_responses"), list),
        _read_ag2,
        extends=("openai",),
    ),
)
