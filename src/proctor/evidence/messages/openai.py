"""OpenAI's Chat Completions, Responses and Assistants APIs, and the Agents SDK. Tried with openai 2 and 6, openai-agents 0.6."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.messages.envelope import Entries, MessageFormat, Opened, join_answers, list_with_paths, open_answer, without
from proctor.evidence.shared.blocks import RAISES, Draft, find_action
from proctor.evidence.shared.conversation import compare_choices, mark_earlier, mark_end
from proctor.evidence.shared.message import Message
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.shared.usage import read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.statuses import read_status
from proctor.evidence.unknowns.unrecognised import CONTENT_PARTS, check_object, mark_kind
from proctor.evidence.values.access import dict_or_empty, find_first, list_at, list_of, split_words, text_or_none
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS
from proctor.model.evidence import Json
from proctor.model.json_values import is_number

# Chat Completions


def _is_chat_message(message: dict[str, Any]) -> bool:
    if not isinstance(message.get("role"), str):
        return False
    calls = list_of(message.get("tool_calls"))
    return any("function" in dict_or_empty(call) for call in calls) or "function_call" in message or message["role"] == "developer"


def _open_completion(document: dict[str, Any]) -> Opened | None:
    choices = list_of(document.get("choices"))
    if document.get("object") != "chat.completion" and not any("message" in dict_or_empty(choice) for choice in choices):
        return None
    unknowns, answers = Unknowns(), Entries()
    for index, choice in enumerate(map(dict_or_empty, choices or [{}])):
        at, message = f"$.choices[{index}].message", choice.get("message")
        if not isinstance(message, dict):
            raise EvidenceError(f"{at}: a chat completion without an answer")
        answers.append((at, {**without(choice, "message", "index", "logprobs"), **message}))
    if len(answers) > 1:
        read = [read_message(answer, at, unknowns, default="assistant") for at, answer in answers]
        compare_choices([message for message in read if message is not None], "$.choices", unknowns)
    return open_answer(document, *answers[0], "choices", "object", unknowns=unknowns)


# Responses: items in a row, each a message, a call or an output.

_ITEMS = split_words("""
    function_call custom_tool_call mcp_call hosted_tool_call function_call_output custom_tool_call_output function_call_result
    tool_search_output computer_call_result reasoning mcp_list_tools mcp_approval_request mcp_approval_response
    """)
_ELSEWHERE = ("previous_response_id", "conversation")


def _is_item(item: dict[str, Any]) -> bool:
    kind = item.get("type")
    # `contents` marks a message of Agent Framework, which has a `type` as well.
    if not isinstance(kind, str) or isinstance(item.get("contents"), list):
        return False
    if kind in _ITEMS or find_action(kind) in ("hosted", "new_call", "gap") or kind.endswith("_call_output"):
        return "role" not in item
    parts = list_of(item.get("content"))
    texts = ("output_text", "input_text", "refusal")
    return kind == "message" and "role" in item and (not parts or any(dict_or_empty(part).get("type") in texts for part in parts))


def _open_response(document: dict[str, Any]) -> Opened | None:
    output, given = document.get("output"), document.get("input")
    if document.get("object") != "response" and not any(_is_item(dict_or_empty(entry)) for entry in list_of(output)):
        return None
    question: list[tuple[str, Json]] = [("$.input", {"type": "message", "role": "user", "content": given})]
    before = question if isinstance(given, str) else list_with_paths(given, "$.input")
    unknowns, status = Unknowns(), document.get("status")
    failed = read_status(status) == "failed"
    if status not in (None, "completed", "incomplete") and not failed:
        mark_end(unknowns, "$.status", status)
    for key in _ELSEWHERE:
        if document.get(key):
            mark_earlier(unknowns, f"$.{key}: the provider stores what came before; it is not recorded here")
    read_keys = ("output", "input", "messages", *_ELSEWHERE, "text", "object", *(() if failed else ("status",)))
    entries = [*list_with_paths(document.get("messages"), "$.messages"), *before, *list_with_paths(list_at(output, "$.output"), "$.output")]
    return Opened(entries=entries, rest=without(document, *read_keys), unknowns=unknowns)


def _read_item(item: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    kind = item.get("type")
    _check_running(item, at, unknowns)
    if "role" in item or kind in ("message", None):
        if kind not in ("message", None):
            unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {kind!r} of a message")
        return read_message(item, at, unknowns, RAISES)
    draft = Draft("assistant", at, unknowns, RAISES)
    draft.add_block(item, at)
    if draft.results and not draft.calls:
        draft.role = "tool"
    # The Agents SDK records the model of each item of other providers.
    draft.model = text_or_none(dict_or_empty(item.get("provider_data")).get("model"))
    return draft.build() if draft.calls or draft.results or draft.texts or draft.waits is not None or draft.thinks else None


def _check_running(entry: dict[str, Any], at: str, unknowns: Unknowns) -> None:
    status = entry.get("status")
    if status != "incomplete" and read_status(status) == "running":
        mark_end(unknowns, f"{at}.status", status)


# Assistants: messages of a thread, which never record tools, and steps of its runs, which do. The API lists the newest first.

_STEP_KNOWN = frozenset(("object", "type", "status", "step_details", "usage", "role", "content", "created_at", "run_id", "id"))


def is_thread_entry(entry: dict[str, Any]) -> bool:
    """Return whether an entry is a message of a thread or a step of a run."""
    return entry.get("object") in ("thread.message", "thread.run.step")


def _open_threads(document: dict[str, Any]) -> Opened | None:
    unknowns, entries = Unknowns(), list[tuple[str, Json]]()
    lists: dict[str, Json] = {"data": document} if document.get("object") == "list" else {}
    lists |= {key: document[key] for key in ("messages", "run_steps", "steps") if key in document}
    for key, holder in lists.items():
        listed = holder.get("data") if isinstance(holder, dict) else holder
        if not isinstance(listed, list):
            return None
        entries.extend(list_with_paths(listed, f"$.{key}"))
        # Pages may be in either order, so the other pages may contain anything.
        if dict_or_empty(holder).get("has_more") not in (None, False):
            unknowns.mark_parts(CONTENT_PARTS, f"$.{key}: the list continues on another page")
    if not any(is_thread_entry(dict_or_empty(entry)) for _, entry in entries):
        return None
    drop = ("object", "has_more", "first_id", "last_id") if "data" in lists else ()
    return Opened(entries=entries, rest=without(document, *lists, *drop), unknowns=unknowns)


def _read_threads(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read messages and steps in the order in which they were made; calls are known if the steps of every run are here."""
    messages, steps = Entries(), Entries()
    for at, entry in entries:
        if not is_thread_entry(entry):
            unknowns.mark_unrecognised(CONTENT_PARTS, f"{at}: unrecognised kind {entry.get('object')!r}")
            mark_kind(entry, str(entry.get("object")), at, unknowns)
            continue
        if not is_number(entry.get("created_at")):
            raise EvidenceError(f"{at}.created_at: expected a number")
        _check_running(entry, at, unknowns)
        (messages if entry["object"] == "thread.message" else steps).append((at, entry))
    runs = {run for _, step in steps if (run := text_or_none(step.get("run_id"))) is not None}
    answers = [(at, entry) for at, entry in messages if entry.get("role") == "assistant"]
    # The last step of a run wrote its message: if it is missing, earlier steps may be missing as well.
    written = {_find_written(step) for _, step in steps}
    missing = [at for at, entry in answers if text_or_none(entry.get("run_id")) not in runs or text_or_none(entry.get("id")) not in written]
    if missing or not runs:
        why = "messages of a thread do not record tools, and the steps of its run are missing"
        unknowns.mark_parts(CALL_PARTS, f"{missing[0] if missing else '$'}: {why}")
    spent = {_find_written(step): step["usage"] for _, step in steps if step.get("usage") is not None}
    # In the order in which they were written, each message after the steps of the run that wrote it.
    by_run: dict[str | None, Entries] = {}
    for at, step in _sort_oldest_first(steps):
        by_run.setdefault(text_or_none(step.get("run_id")), []).append((at, step))
    ordered: Entries = []
    for at, entry in _sort_oldest_first(messages):
        run = text_or_none(entry.get("run_id"))
        ordered += [*(by_run.pop(run, []) if run is not None else ()), (at, entry)]
    found: list[Message] = []
    for at, entry in [*ordered, *(step for left in by_run.values() for step in left)]:
        is_message = entry["object"] == "thread.message"
        message = read_message(without(entry, "object"), at, unknowns) if is_message else _read_step(entry, at, unknowns)
        if message is not None:
            usage = read_usage(spent.pop(text_or_none(entry.get("id")), None)) if message.role == "assistant" else None
            found.append(message if usage is None else msgspec.structs.replace(message, usage=usage))
    if any(message_id is not None for message_id in spent):
        unknowns.mark("usage", "$: a step reports tokens of a message that is missing")
    if runs and not any(message.role == "assistant" and message.text is not None for message in found):
        unknowns.mark("answer", "$: steps of a run do not record messages, and the messages of the thread are missing")
    return found


def _find_written(step: dict[str, Any]) -> str | None:
    return text_or_none(dict_or_empty(dict_or_empty(step.get("step_details")).get("message_creation")).get("message_id"))


def _sort_oldest_first(entries: Entries) -> Entries:
    # Times are whole seconds and sorting is stable: after reversing, entries of one second stay in their order of creation.
    if entries and entries[0][1]["created_at"] > entries[-1][1]["created_at"]:
        entries = entries[::-1]
    return sorted(entries, key=lambda placed: placed[1]["created_at"])


def _read_step(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message | None:
    draft, details, status = Draft("assistant", at, unknowns), dict_or_empty(entry.get("step_details")), read_status(entry.get("status"))
    kind, calls = details.get("type"), details.get("tool_calls")
    check_object(entry, _STEP_KNOWN, at, unknowns)
    check_object(details, ("type", "tool_calls", "message_creation"), f"{at}.step_details", unknowns)
    if entry.get("status") is not None and status is None:
        draft.mark(f"{at}.status", f"{entry['status']!r} is not recognised", ("tool_results",))
    if kind == "message_creation":
        return None  # the message itself is in the thread
    if kind != "tool_calls" or not isinstance(calls, list):
        draft.mark(at, f"unrecognised kind {kind!r} of a step")
        return None
    for index, call in enumerate(map(dict_or_empty, calls)):
        place, tool = f"{at}.step_details.tool_calls[{index}]", str(call.get("type"))
        inner = call.get(tool)
        if not isinstance(inner, dict):
            draft.mark(place, f"unrecognised kind {call.get('type')!r} of a call", CALL_PARTS)
            continue
        check_object(call, ("id", "type", tool), place, unknowns)
        output = find_first(inner, "output", "outputs", "results")
        hosted = {} if tool == "function" else {"name": tool, "arguments": inner.get("input"), "output": [] if output is None else output}
        if status == "failed" and output is not None:
            hosted["error"] = as_text(output) or "the tool reported an error"
        draft.add_call({**inner, **hosted, "id": call.get("id")}, place, "tool_call")
    draft.usage = read_usage(entry.get("usage"))
    return draft.build()


# fmt: off
FORMATS = (
    MessageFormat("openai", "OpenAI chat messages or a chat completion", _is_chat_message, None, _open_completion, ("messages", "choices")),
    MessageFormat("responses", "items or an answer of OpenAI's Responses API", _is_item,
                  lambda entries, unknowns: join_answers(_read_item(item, at, unknowns) for at, item in entries),
                  _open_response, ("output",)),
    MessageFormat("assistants", "thread messages and run steps of OpenAI's Assistants API", is_thread_entry, _read_threads, _open_threads,
                  ("run_steps",)),
)
