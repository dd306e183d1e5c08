"""Reads one JSON value that an agent returned, over HTTP, from a function or on standard output, as evidence. In this order:

    messages       a list of messages, the result of an SDK, one response of a provider: by the readers of messages
    a trace        spans, OTLP, an n8n execution, a Flowise prediction, nodes: by the readers of traces and platforms
    a record       plain evidence, if a function or a program returned it: by its reader
    any object     the answer in one of the usual fields, else the whole object; calls in one of the usual lists

Of an object, a list of calls is complete. The fields of the answer belong to the agent. A failure that the object reports is the error of
the run. Every other field goes by the rule of evidence coverage (`proctor.evidence.unknowns`): most are ignored and listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence import mibo
from proctor.evidence.messages.ai_sdk import complete_last_step, is_result
from proctor.evidence.messages.formats import recognise_formats
from proctor.evidence.plain.record import CALLS, CARRYING, lists_calls, read_plain
from proctor.evidence.platforms import flowise, n8n
from proctor.evidence.reading import read_document
from proctor.evidence.shared.call_identity import unite_calls
from proctor.evidence.shared.calls import read_calls
from proctor.evidence.shared.usage import HOLDERS, find_usage
from proctor.evidence.traces import read_otlp as otlp
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import find_marker, mark_removed
from proctor.evidence.unknowns.statuses import STATUS_FIELDS, STOP_FIELDS, find_failure, is_error, to_snake_case
from proctor.evidence.unknowns.unrecognised import ANSWERS, DEFINING, check_field, find_answers, list_unrecognised
from proctor.evidence.values.access import dict_or_empty, list_of
from proctor.evidence.values.text import HTTP_KEYS, as_text, find_text
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import shorten, show
from proctor.targets.answers.account import AGENT_FAILED, BEFORE, is_empty, mark_messages, mark_unknown, trust_end

_CALL_FIELDS = (*CALLS, "actions", "steps", *DEFINING)
_ERROR_FIELDS = ("error", "errors", "exception", "traceback")
_ERRORS = frozenset(_ERROR_FIELDS)
_RECOGNISED = frozenset((*ANSWERS, *_CALL_FIELDS, *HOLDERS, *_ERROR_FIELDS, "success", "ok", "model", "choices"))
_RECORD = CARRYING - frozenset(_CALL_FIELDS)
"""Fields that make an object with an answer a record of plain evidence; `tool_calls` next to `answer` does not."""
_NESTED_COUNTS = 4
"""Levels of the usage that are searched for counts of calls."""
_ANSWERING = ("assistant", "ai", "model")
_DIFFERS = "the returned text and the last answer of the returned run differ"
_MISSING_CALLS: tuple[Part, ...] = (*CALL_PARTS, "nodes")
_NO_LIST_OF_TOOLS = (
    'fields with an "output" are read as steps of the agent, and no list of tool calls shows that all of them are recorded: '
    'answer with "tool_calls", or set answer_format: mibo'
)
_NO_TOOLS_OF_FLOW = "the answer looks like one of Flowise and lists no tools: use a target of type flowise, or answer_format: flowise"


def read_json_answer(value: Json) -> Evidence | None:
    """Return the evidence in a JSON value that a function or a program returned; None for several runs. Raises `EvidenceError`."""
    value = complete_last_step(value)
    entry = dict_or_empty(value)
    found = read_messages(value)
    if found is not None:
        return found
    is_answer = find_answer_field(entry) is not None and _RECORD.isdisjoint(entry)
    if not CARRYING.isdisjoint(entry) and not is_answer:
        return read_plain(value)
    if isinstance(value, list) or isinstance(entry.get("messages"), list):
        runs = read_document(value)
        return mark_messages(runs[0]) if len(runs) == 1 else None
    return read_trace(value) or read_object(entry)


# --- messages -----------------------------------------------------------------------------------------------------------


def read_messages(value: Json, before: Sequence[Part] = BEFORE) -> Evidence | None:
    """Return the evidence of messages, of an SDK result or of a provider's response; None for anything else.

    `before` are the parts that steps before the first message may have added to. Raises `EvidenceError`.
    """
    entry = dict_or_empty(value)
    if isinstance(entry.get("text"), str) and isinstance(entry.get("messages"), list) and (CARRYING - {"text"}).isdisjoint(entry):
        run = read_messages({key: member for key, member in entry.items() if key != "text"}, before)
        return None if run is None else replace_answer(run, read_plain({"text": entry["text"]}))
    last_step = _find_last_step(entry)
    if last_step is not None:
        try:
            found = read_document(last_step[0], format=last_step[1])
        except EvidenceError:
            return None  # the agent's own object, which only resembles a message
        return mark_messages(found[0], before, is_last_step=True) if len(found) == 1 else None
    formats = ("ai-sdk",) if is_result(value) else ()
    if not formats and CARRYING.isdisjoint(entry) and (isinstance(value, list) or isinstance(entry.get("messages"), list)):
        formats = recognise_formats(value)
    found = read_document(value, format=formats[0]) if len(formats) == 1 else []
    return mark_messages(found[0], before) if len(found) == 1 else None


def _find_last_step(entry: dict[str, Json]) -> tuple[Json, str | None] | None:
    """Return the document and the format of one message or one response of a provider, which is the last step of a run."""
    is_message = entry.get("role") in _ANSWERING and ("content" in entry or "parts" in entry)
    # A message may have calls in the field in which plain evidence has them.
    if not (CARRYING - {"tool_calls"} if is_message else CARRYING).isdisjoint(entry):
        return None
    if entry.get("type") == "agent_result" and dict_or_empty(entry.get("message")):
        return [entry["message"]], "bedrock"  # `AgentResult.to_dict()` of Strands
    if _lists_objects_with(entry.get("choices"), "message"):
        return entry, "openai"
    if entry.get("object") == "response" and isinstance(entry.get("output"), list):
        return entry, "responses"
    if entry.get("type") == "message" and entry.get("role") == "assistant" and isinstance(entry.get("content"), list):
        return entry, "anthropic"
    if _lists_objects_with(entry.get("candidates"), "content"):
        return entry, "gemini"
    if "message" in dict_or_empty(entry.get("output")) and "stopReason" in entry:
        return entry, "bedrock"
    return ([entry], None) if is_message else None


def _lists_objects_with(value: Json, key: str) -> bool:
    listed = list_of(value)
    return bool(listed) and all(key in dict_or_empty(member) for member in listed)


def replace_answer(run: Evidence, answer: Evidence) -> Evidence:
    """Return a run with the text that was returned with it as its answer; the answer is unknown if the run ends with another."""
    # The JSON of a document is not comparable with the answer.
    ending = run.text if run.body is None or run.text != as_text(run.body) else None
    if ending is None and run.account is not None:
        # It no longer matters that the messages do not contain the answer.
        unknown = {part: why for part, why in run.account.unknown.items() if part != "answer"}
        run = trust_end(msgspec.structs.replace(run, account=msgspec.structs.replace(run.account, unknown=unknown)))
    turns = run.turns
    if turns:
        turns = (*turns[:-1], msgspec.structs.replace(turns[-1], text=answer.text, body=answer.body))
    run = msgspec.structs.replace(run, text=answer.text, body=answer.body, turns=turns)
    # An agent may extract its answer from the text, or add words to it.
    one, other = " ".join((answer.text or "").split()), " ".join((ending or "").split())
    return run if ending is None or one in other or other in one else mark_unknown(run, ("answer",), _DIFFERS)


# --- traces -------------------------------------------------------------------------------------------------------------


def read_trace(body: Json) -> Evidence | None:
    """Return the trace in an answer; None if there is none. Raises `EvidenceError` for an invalid trace, and for several.

    Spans, OTLP and n8n executions record every call. An object whose fields have an `output`, or a text with the id of a chat, may be
    anybody's answer: there the absence of calls is known only if a list of calls is in it.
    """
    if not isinstance(body, dict):
        return None
    # `data` is a field of many answers: in Mibo's form it is a trace only if it contains nodes.
    if n8n.has_run_data(body) or otlp.sniff(body) or (mibo.sniff(body) and "spans" in body):
        return _take_only(read_document(body))
    if flowise.sniff(body):
        found = _take_only(read_document(body))
        lists_tools = any(isinstance(body.get(key), list) for key in flowise.LISTS)
        return found if lists_tools else mark_unknown(found, _MISSING_CALLS, _NO_TOOLS_OF_FLOW)
    document = body if mibo.sniff(body) and _find_nodes(body) else {"data": body}
    if not _find_nodes(document):
        return None
    found = _take_only(mibo.read(document, declared=True))
    # The calls are recorded in a list of calls, or by the types of the nodes.
    if isinstance(dict_or_empty(document.get("data")).get("tool_calls"), list) or any(
        "nodeName" in node or "n8n-nodes" in str(node.get("type")) or any(isinstance(node.get(key), list) for key in CALLS)
        for node in _find_nodes(document)
    ):
        return found
    return mark_unknown(found, _MISSING_CALLS, _NO_LIST_OF_TOOLS)


def _take_only(runs: list[Evidence]) -> Evidence:
    if len(runs) != 1:
        raise EvidenceError(f"it contains {len(runs)} runs, expected one")
    return runs[0]


def _find_nodes(document: dict[str, Any]) -> list[dict[str, Any]]:
    data = dict_or_empty(document.get("data"))
    listed, inner = list_of(data.get("nodes")), dict_or_empty(data.get("data")).values()
    # A usage may count the tokens of an `output`.
    members = listed or [member for key, member in data.items() if key not in HOLDERS]
    return [node for node in (*members, *inner) if isinstance(node, dict) and ("output" in node or "nodeName" in node)]


# --- any other object ---------------------------------------------------------------------------------------------------


def read_object(body: dict[str, Json], *, has_path: bool = False, is_checked: bool = True) -> Evidence:
    """Return an object as evidence, by the rule; with `has_path` the answer is not in one of the usual fields.

    Without `is_checked` its other fields are not examined: the response as a whole is a refusal that the case claims.
    """
    unknowns = Unknowns()
    field = find_answer_field(body)
    is_document = field is None and not has_path
    if field is not None and not has_path:
        texts = find_answers(body)
        if len(set(map(str.strip, texts.values()))) > 1:
            names = " and ".join(f'"{key}"' for key in texts)
            unknowns.mark("answer", f'{names} differ, and each may be the answer: set response_path, or use only "text"')
    if is_document and isinstance(body.get("choices"), list):
        unknowns.mark("answer", "the answer is a chat completion without a message: set response_path or answer_format")
    calls = _read_calls(body, unknowns)
    usage = find_usage(body, unknowns)
    if is_checked:
        _check_fields(body, calls, is_document, unknowns)
    failure = find_reported_failure(body, has_answer=not is_document) if is_checked else None
    # A `message` next to an error belongs to the error.
    is_unanswered = failure is not None and field in (None, "message")
    text = find_text({field: body[field]}, (field,)) if field is not None else as_text(body)
    mark_removed(text, "answer", "the answer", unknowns)
    model = body.get("model")
    return Evidence(
        text=None if is_unanswered else text,
        body=body,
        tool_calls=calls,
        usage=usage,
        model=model if isinstance(model, str) else None,
        error=failure,
        account=unknowns.close_account(""),
        metadata={} if failure is None else {"code": AGENT_FAILED},
    )


def find_answer_field(body: dict[str, Json]) -> str | None:
    """Return the name of the field with the answer, or None if the whole object is the answer."""
    texts = find_answers(body)
    if texts and any(map(str.strip, texts.values())):
        return next(iter(texts))
    return next((field for field in ANSWERS if body.get(field) is not None and (field in HTTP_KEYS or field in texts)), None)


def _read_calls(body: dict[str, Json], unknowns: Unknowns) -> tuple[ToolCall, ...] | None:
    calls: tuple[ToolCall, ...] | None = None
    first = ""
    listed_elsewhere = any(isinstance(body.get(key), list) for key in CALLS)
    for key in _CALL_FIELDS:
        listed = body.get(key)
        if not isinstance(listed, list) or not (key in CALLS or lists_calls(key, listed, listed_elsewhere=listed_elsewhere)):
            if isinstance(listed, dict) and key in CALLS:
                unknowns.mark_parts(CALL_PARTS, f"$.{key}: expected a list of calls, found an object")
            continue
        try:
            read = read_calls(listed, f"$.{key}", unknowns)
        except EvidenceError as error:
            unknowns.mark_parts(CALL_PARTS, f"the list of tool calls cannot be read: {error.message}")
            continue
        calls = read if calls is None else unite_calls(calls, read, (f"$.{first}", f"$.{key}"), unknowns, both_complete=True)
        first = first or key
    return calls


def _check_fields(body: dict[str, Json], calls: tuple[ToolCall, ...] | None, is_document: bool, unknowns: Unknowns) -> None:
    """Check the remaining fields, and mark parts unknown that one of them reports as lost or unfinished, or as calls in an unread form."""
    known_tools = None if calls is None else {name for call in calls for name in (call.name, *call.aliases)}
    fields = Unknowns()
    for key in list_unrecognised(body, _RECOGNISED):
        name = to_snake_case(key)
        # The fields of a document are the agent's output: `status` may be the status of an order, not of the run.
        marker = find_marker(key, body[key], calls or ()) if not is_document or name in STOP_FIELDS else None
        if marker is not None:
            _mark(key, marker.parts, marker.why, calls, unknowns)
        elif name not in STOP_FIELDS and name not in STATUS_FIELDS:
            check_field(key, body[key], "$", fields, listed=known_tools, has_answer=not is_document)
    if is_document:
        fields.ignored.clear()
    unknowns.add(fields)
    for key, value in _list_counts(body):
        marker = find_marker(key, value, calls) if calls is not None else None
        if marker is not None:
            _mark(key, marker.parts, marker.why, calls, unknowns)


def _mark(key: str, parts: Sequence[Part], why: str, calls: tuple[ToolCall, ...] | None, unknowns: Unknowns) -> None:
    for part in parts:
        # Unrecorded calls are unknown anyway.
        if calls is not None or part not in CALL_PARTS:
            unknowns.mark(part, f"{show(shorten(key, 60))}: {why}")


def _list_counts(body: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """Yield the fields of the usage, some of which count calls (`web_search_requests`)."""
    waiting: list[tuple[dict[str, Json], int]] = [(body[key], _NESTED_COUNTS) for key in HOLDERS if isinstance(body.get(key), dict)]
    while waiting:
        current, depth = waiting.pop()
        for key, value in current.items():
            if not isinstance(value, dict):
                yield key, value
            elif depth:
                waiting.append((value, depth - 1))


def find_reported_failure(body: Json, *, has_answer: bool) -> str | None:
    """Return the failure that an object reports: its error, or, if it has an answer, a field such as `success: false`.

    An object without an answer is a document written by the agent, in which `success: false` may describe an order, for example.
    """
    if not isinstance(body, dict):
        return None
    has_error = not _ERRORS.isdisjoint(body)
    key = next((key for key in _ERROR_FIELDS if is_error(body.get(key)) and not is_empty(body[key])), None) if has_error else None
    if key is not None:
        value = body[key][0] if isinstance(body[key], list) else body[key]
        holder = value if isinstance(value, dict) else body
        message = value if isinstance(value, str) else holder.get("message")
        return message if isinstance(message, str) and message.strip() else show(value)
    other_fields = {key: value for key, value in body.items() if key not in _ERROR_FIELDS and key not in ANSWERS}
    return find_failure(other_fields, status=False, own=True) if has_answer else None
