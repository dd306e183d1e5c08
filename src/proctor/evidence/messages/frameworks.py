"""LangChain, Haystack, LlamaIndex, BeeAI, Agno, smolagents and Pydantic AI: how their messages are recognised, and what only they write.

Tried with langchain-core 1 (`model_dump`, `message_to_dict`, `dumpd`), @langchain/core 1, haystack-ai 2, llama-index-core 0.14,
beeai-framework 0.1, agno 2 (`message.to_dict()`, `run.to_dict()`), smolagents 1.2x (`memory.get_full_steps()`), pydantic-ai 1 and 2
(`all_messages_json()`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import (
    Entries,
    MessageFormat,
    Opened,
    check_edits,
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
from proctor.evidence.shared.conversation import Message, mark_earlier, mark_end, mark_later
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import read_status
from proctor.evidence.unknowns.fields import CONTENT_PARTS
from proctor.evidence.unknowns.unrecognised import check_fields, list_calls, mark_kind
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, split_words, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text, parse_json
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json, ToolCall
from proctor.model.show import shorten, show

# LangChain and LangGraph: messages with a `type` of `human`, `ai`, `tool`, `system`, in each way LangChain writes them. A tool that is
# reported to have returned `structured_response`, the body of the answer, is no call.

_LANGCHAIN_TYPES = split_words(
    """
    human ai tool function system HumanMessage HumanMessageChunk AIMessage AIMessageChunk ToolMessage ToolMessageChunk FunctionMessage
    SystemMessage SystemMessageChunk
    """
)
_STRUCTURED = ("structured_response", "structuredResponse")
LANGCHAIN_FINISHED = (*_STRUCTURED, "__interrupt__", "summary")
"""Fields of a state that `finish_langchain` reads."""


def _is_langchain_message(message: dict[str, Any]) -> bool:
    if message.get("lc") is not None and isinstance(message.get("kwargs"), dict):
        return True
    if text_or_none(message.get("type")) in _LANGCHAIN_TYPES and "role" not in message and ("content" in message or "data" in message):
        return True
    calls = [dict_or_empty(call) for call in list_of(message.get("tool_calls"))]
    return isinstance(message.get("role"), str) and any("args" in call and "name" in call for call in calls)


def _read_langchain(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found: list[Message] = []
    calls = 0
    for at, entry in entries:
        message = _read_wrapped(entry, at, unknowns, calls)
        if message is not None:
            found.append(message)
            calls += len(message.calls)
    return found


def _read_wrapped(entry: dict[str, Any], at: str, unknowns: Unknowns, calls: int) -> Message | None:
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


def finish_langchain(messages: list[Message], rest: dict[str, Json], unknowns: Unknowns) -> list[Message]:
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
    outputs = [call for call in _list_returned_calls(messages) if _is_structured(call, answer, is_written)]
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


def _is_structured(call: ToolCall, answer: Json, is_written: bool) -> bool:
    if not is_written:
        return list_of(dict_or_empty(answer).get("id"))[-1:] == [call.name]
    # The answer may hold more than was given: the defaults of its form.
    given = call.arguments
    return isinstance(given, dict) and bool(given) and isinstance(answer, dict) and given.items() <= answer.items()


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
    blocks = list_parts(message, "blocks")
    return isinstance(message.get("role"), str) and (
        any("block_type" in block for block in blocks) or ("additional_kwargs" in message and ("blocks" in message or "content" in message))
    )


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
"""The tool through which agents of BeeAI and smolagents answer."""


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

_RUN_KNOWN = frozenset(("messages", "tools", "status", "content", "input", "events", "metrics", "session_state", "requirements", "model"))


def _is_agno_message(message: dict[str, Any]) -> bool:
    return "role" in message and ("from_history" in message or "stop_after_tool_call" in message or "tool_call_error" in message)


def _open_runs(document: Json) -> Opened | None:
    """Find the messages of one run, or of the runs of one session; calls that wait for a confirmation were not made."""
    runs = list_with_paths(document, "$") if isinstance(document, list) else [("$", document)]
    if not runs or not all(_is_run(run) for _, run in runs):
        return None
    if len({str(run["session_id"]) for _, run in runs}) > 1:
        raise EvidenceError("$: runs of several sessions in one list; give one session at a time")
    unknowns, entries = Unknowns(), list[tuple[str, Json]]()
    tools = [dict_or_empty(tool) for _, run in runs for tool in list_of(run.get("tools"))]
    waiting = {text_or_none(tool.get("tool_call_id")) for tool in tools if is_waiting(tool.get)}
    made: set[str | None] = set()
    for at, run in runs:
        check_fields(run, _RUN_KNOWN, at, unknowns)
        for place, entry in list_with_paths(run["messages"], f"{at}.messages"):
            # Only the first run records what it was given as history.
            if run is runs[0][1] or dict_or_empty(entry).get("from_history") is not True:
                calls = [dict_or_empty(call) for call in list_of(dict_or_empty(entry).get("tool_calls"))]
                made.update(text_or_none(call.get("id")) for call in calls)
                left = [call for call in calls if text_or_none(call.get("id")) not in waiting]
                entries.append((place, entry if len(left) == len(calls) else {**entry, "tool_calls": left}))
    if {text_or_none(tool.get("tool_call_id")) for tool in tools} - made - waiting:
        unknowns.mark("tool_calls", "$.tools: a call is listed here that no message makes")
    error = _check_status(*runs[-1], unknowns)
    return Opened(entries=entries, model=text_or_none(runs[-1][1].get("model")), unknowns=unknowns, error=error)


def _is_run(document: Json) -> bool:
    return isinstance(document, dict) and "run_id" in document and "session_id" in document and isinstance(document.get("messages"), list)


def _check_status(at: str, run: dict[str, Any], unknowns: Unknowns) -> str | None:
    """Mark what a run leaves open that waits or goes on, and return why it failed."""
    status, content = run.get("status"), run.get("content")
    ended = read_status(status)
    waiting = [str(tool.get("tool_name")) for tool in map(dict_or_empty, list_of(run.get("tools"))) if is_waiting(tool.get)]
    if waiting:
        names = ", ".join(dict.fromkeys(waiting))
        mark_later(unknowns, f"{at}.status: {show(status, 40)}: the run waits before it calls {names}")
    elif ended == "failed":
        return shorten(content, 200) if isinstance(content, str) and content else f"status: {show(status, 40)}"
    elif status is not None and ended != "ok":
        mark_end(unknowns, f"{at}.status", status)
    return None


def is_waiting(look: Callable[[str], Any]) -> bool:
    """Return whether a call waits for a confirmation, for input or for another program that makes it; `look` gives its fields."""
    asks = (look("requires_confirmation") and look("confirmed") is None) or (look("requires_user_input") and not look("answered"))
    return bool(asks or look("external_execution_required")) and look("result") is None


def _read_agno(entries: Entries, unknowns: Unknowns) -> list[Message]:
    # `metrics` hold the tokens; `tool_args` of a result repeats the call.
    plain = [(at, {**without(entry, "metrics", "tool_args"), "usage": entry.get("metrics")}) for at, entry in entries]
    return read_all(plain, unknowns)


# smolagents: steps with calls and one text of what was observed. `final_answer` is the answer, and no call.

_STEP_KNOWN = split_words(
    """
    step_number timing model_input_messages model_output model_output_message tool_calls observations error action_output code_action
    token_usage task is_final_answer observations_images task_images
    """
)


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
            check_fields(entry, _STEP_KNOWN, at, unknowns)
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
    # A call that failed is only in what the model wrote.
    if draft.expect(written, dict, "an object", f"{at}.model_output_message", CALL_PARTS):
        requested.add_calls(written.get("tool_calls"), f"{at}.model_output_message.tool_calls")
        check_fields(written, ("role", "content", "tool_calls", "raw", "token_usage"), f"{at}.model_output_message", unknowns)
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
    check_fields(entry, _STEP_KNOWN, at, unknowns, has_answer=True)


# Pydantic AI: requests and responses with parts. A call of `final_result` that was processed is the answer, and no call.

_OUTPUT = "final_result"
"""The name of an output tool; if there are several, `_` and the name of the form follow."""
_PROCESSED = "Final result processed."
_NOT_USED = ("Output tool ", "Output not used ")
"""What is returned for an output tool that did not end the run."""
_MESSAGE_KNOWN = frozenset(("kind", "parts", "state", "usage", "model_name", "finish_reason", "failed_attempts", "instructions"))


def _is_pydantic_message(message: dict[str, Any]) -> bool:
    return message.get("kind") in ("request", "response") and any("part_kind" in part for part in list_parts(message, "parts"))


def _open_result(document: dict[str, Any]) -> Opened | None:
    paths = ("all_messages", "message_history", "messages", "_all_messages")
    return open_list(document, _is_pydantic_message, *paths, drop=("output", "new_messages"))


def _read_pydantic(entries: Entries, unknowns: Unknowns) -> list[Message]:
    found: list[Message] = []
    for at, entry in entries:
        if entry.get("kind") in ("request", "response"):
            found.extend(_read_messages(entry, at, unknowns))
        else:
            unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {entry.get('kind')!r}")
            mark_kind(entry, str(entry.get("kind")), at, unknowns)
    last_parts = [dict_or_empty(part).get("part_kind") for part in list_of(entries[-1][1].get("parts"))] if entries else []
    if last_parts and last_parts[-1] in ("retry-feedback", "retry-prompt"):
        mark_end(unknowns, f"{entries[-1][0]}.parts", last_parts[-1])
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
        unknowns.mark("answer", f"a call of {call.name} may be the answer, and no record shows that it was used")
    return fold_outputs(messages, names, taken)


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
            # A prompt of pictures alone is a turn, too; an empty text makes it one.
            prompt.texts.append("")
            prompt.add_block({**part, "content": part.get("content")}, place)
        # A retry without a tool asks the model to answer in another way.
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
    check_fields(entry, _MESSAGE_KNOWN, at, unknowns, has_answer=bool(draft.texts))
    # Results before text: a request first answers the calls of the response before it.
    built = [draft.build()] if is_response or draft.results else []
    return [*built, prompt.build()] if prompt.texts else built


FORMATS = (
    MessageFormat("langchain", "LangChain messages", _is_langchain_message, _read_langchain),
    MessageFormat("pydantic-ai", "Pydantic AI messages", _is_pydantic_message, _read_pydantic, _open_result, ("all_messages",)),
    MessageFormat("haystack", "Haystack messages", _is_haystack_message, _read_haystack),
    MessageFormat("llama-index", "LlamaIndex messages or a chat store", _is_llama_message, None, _open_store, ("chat_store",)),
    MessageFormat("agno", "Agno messages or runs", _is_agno_message, _read_agno, _open_runs, extends=("openai",), opens_lists=True),
    MessageFormat("smolagents", "steps of smolagents' memory", _is_smolagents_step, _read_smolagents),
    MessageFormat("beeai", "BeeAI messages", _is_beeai_message, _read_beeai),
)
