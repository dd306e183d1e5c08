"""MCPLab `trace.jsonl`: one `scenario_run` per line, after a `trace_meta` line that is no evidence.

The final text is that of the last assistant message without a tool call. A run that ended in an error is recorded without messages.
MCPLab cuts an answer after 4,000 characters and a tool's result after 12,000; `results.json` of the same run has the whole answer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.shared.calls import CONTENT_ERROR, PROTOCOL_ERROR, mcp_error, read_known_arguments
from proctor.evidence.shared.usage import add_usage, read_usage
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.endings import find_failure
from proctor.evidence.unknowns.markers import check_markers
from proctor.evidence.unknowns.unrecognised import check_object, list_unrecognised, mark_kind
from proctor.evidence.values.access import SHOWN, dict_or_empty, list_at, list_of, read_object, text_or_none, wrong_kind_error
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text, parse_json
from proctor.evidence.values.times import measure_ms_between
from proctor.model.account import CALL_PARTS, MCPLAB_TRACE, UNSEEN_IN_A_PAGE, Part
from proctor.model.cuts import ANSWER_LIMIT, RESULT_LIMIT, find_kept_part
from proctor.model.evidence import Evidence, Json, ToolCall, Usage
from proctor.model.numbers import is_number
from proctor.model.show import kind_of, show

_READ_FROM_OUTSIDE = "external"
"""The model of a browser agent."""
_METADATA = ("agent", "provider", "model", "run_index", "request_id", "pass", "outcome", "trace_version")
_ALL: tuple[Part, ...] = (*CALL_PARTS, "answer", "usage", "turns")
_LINE: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys((*_METADATA, "type", "scenario_id", "metrics", "extracted", "failures", "error", "ts_start", "ts_end"), None),
    "messages": _ALL,
    "final_text": "answer",
}
_MESSAGE: dict[str, Part | tuple[Part, ...] | None] = {"role": _ALL, "content": _ALL, "usage": "usage", "ts": None}
_ROLES = ("user", "assistant", "tool", "system")
_BLOCKS: dict[str, dict[str, Part | tuple[Part, ...] | None]] = {
    "text": {"type": None, "text": "answer"},
    **dict.fromkeys(("image", "document"), dict.fromkeys(("type", "media_type", "data", "url", "name"))),
    "tool_use": {"type": None, "name": "tool_calls", "id": "tool_results", "server": None, "input": "tool_arguments"},
    "tool_result": {
        **dict.fromkeys(("type", "name", "server", "duration_ms", "ts_start", "ts_end"), None),
        **dict.fromkeys(("tool_use_id", "content", "is_error"), "tool_results"),
    },
}
"""The blocks of a message and their fields."""
_NEEDED: dict[str, tuple[str, type | tuple[type, ...], Part]] = {
    "text": ("text", str, "answer"),
    "tool_use": ("name", str, "tool_calls"),
    "tool_result": ("is_error", (bool, type(None)), "tool_results"),
}
"""The field of a block that must be of a type, and the part it carries."""
_CUT = "the recording was cut at 4,000 characters"


def sniff(document: Json) -> bool:
    """Return whether this is a line of a trace."""
    entry = dict_or_empty(document)
    return entry.get("type") in ("trace_meta", "scenario_run") or ("scenario_id" in entry and "messages" in entry)


def read(document: Json) -> list[Evidence]:
    """Return the evidence of one line; empty for a `trace_meta` line."""
    entry = read_object(document, "$")
    if entry.get("type") == "trace_meta":
        return []
    if entry.get("type") != "scenario_run":
        raise wrong_kind_error("$.type", "scenario_run or trace_meta", entry.get("type"))
    if not isinstance(entry.get("scenario_id"), str):
        raise wrong_kind_error("$.scenario_id", "text", entry.get("scenario_id"))
    unknowns = Unknowns()
    listed = list_at(entry["messages"], "$.messages") if entry.get("messages") is not None else []
    messages = [read_object(message, f"$.messages[{index}]") for index, message in enumerate(listed)]
    error = as_text(entry.get("error")) or None
    _check_line(entry, messages, error, unknowns)
    text = _find_final_text(messages)
    text = text_or_none(entry.get("final_text")) if text is None else text
    kept = None if text is None else find_kept_part(text, ANSWER_LIMIT)
    if kept is not None:
        # The dots after the recorded part are no part of the answer.
        text = kept
        unknowns.mark("answer", _CUT)
    calls = _read_calls(messages, unknowns)
    counted = dict_or_empty(entry.get("metrics")).get("tool_call_count")
    if is_number(counted) and counted > len(calls):
        unknowns.mark("tool_calls", f"the run counts {counted:g} tool calls (metrics.tool_call_count), its messages show {len(calls)}")
    rest = list_unrecognised(entry, _LINE)
    check_markers(entry, rest, calls, "$", unknowns)
    # A chat page in a browser is read from outside: its tools are unknown.
    unseen = entry.get("model") == _READ_FROM_OUTSIDE
    if unseen and not calls:
        unknowns.mark("tool_calls", UNSEEN_IN_A_PAGE)
    # Every message of the assistant calls a tool: the run reached its turn limit, for which MCPLab itself has the final text "".
    if text is None and error is None and messages:
        text = ""
    error = error or find_failure({key: entry[key] for key in rest})
    return [
        Evidence(
            case=entry["scenario_id"],
            input=next((_join_text(message) for message in messages if message.get("role") == "user"), None),
            text=text,
            # The beginning of a number is a number too, and another one.
            body=None if kept is not None else parse_json(text),
            # `None` is "not recorded", an empty tuple "none were made": only a whole run that was seen from inside has the second.
            tool_calls=calls if calls or (error is None and messages and not unseen) else None,
            duration_ms=measure_ms_between(entry.get("ts_start"), entry.get("ts_end")),
            usage=_sum_usage(messages, unknowns),
            now=text_or_none(entry.get("ts_start")),
            error=error,
            model=text_or_none(entry.get("model")),
            account=unknowns.close_account(MCPLAB_TRACE),
            metadata={key: entry[key] for key in _METADATA if entry.get(key) is not None},
        )
    ]


def _check_line(entry: dict[str, Any], messages: list[dict[str, Any]], error: str | None, unknowns: Unknowns) -> None:
    check_object(entry, _LINE, "$", unknowns, has_answer=bool(messages))
    if not messages and error is None:
        unknowns.mark_parts(_ALL, "the line has no messages")
    for index, message in enumerate(messages):
        _check_message(message, f"$.messages[{index}]", unknowns)
    spoken = [message.get("role") for message in messages if message.get("role") in ("user", "assistant")]
    # A run that reached its turn limit has calls, and so a message of the assistant.
    if spoken and spoken[-1] == "user" and error is None:
        unknowns.mark_parts(_ALL, "the messages end before the assistant answered")


def _check_message(message: dict[str, Any], path: str, unknowns: Unknowns) -> None:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        unknowns.mark_parts(_ALL, f"{path}.role: expected text, found {kind_of(role)}")
    elif role not in _ROLES:
        mark_kind(message, role, path, unknowns)
        if message.get("usage") is not None:
            unknowns.mark_unrecognised(("usage",), f"{path}: unrecognised role {show(role, SHOWN)}, which reports tokens")
    check_object(message, _MESSAGE, path, unknowns)
    if not isinstance(content, list) and not (isinstance(content, str) and isinstance(decode_container(content), str)):
        unknowns.mark_parts(_ALL, f"{path}.content: expected text or a list of blocks, found {kind_of(decode_container(content))}")
    for index, block in enumerate(list_of(content)):
        at, kind = f"{path}.content[{index}]", dict_or_empty(block).get("type")
        if not isinstance(kind, str):
            unknowns.mark_parts(_ALL, f"{at}.type: expected text, found {kind_of(kind)}")
        elif kind not in _BLOCKS:
            mark_kind(block, kind, at, unknowns)
        else:
            check_object(block, _BLOCKS[kind], at, unknowns)
            key, expected, part = _NEEDED.get(kind, ("type", str, "answer"))
            if not isinstance(block.get(key), expected):
                unknowns.mark(part, f"{at}.{key} cannot be read: it is {kind_of(block.get(key))}")


def _sum_usage(messages: list[dict[str, Any]], unknowns: Unknowns) -> Usage | None:
    """Sum the tokens of all answers, and mark the sum if an answer reports none."""
    answers = [read_usage(message.get("usage"), unknowns) for message in messages if message.get("role") == "assistant"]
    if any(usage is None for usage in answers) and any(answers):
        unknowns.mark("usage", "one of the answers reports no tokens, and others do")
    return add_usage(answers)


def _list_blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for block in list_of(message.get("content")) if isinstance(block, dict) and block.get("type") == kind]


def _join_text(message: dict[str, Any]) -> str:
    if isinstance(message.get("content"), str):
        return message["content"]
    return "".join(block["text"] for block in _list_blocks(message, "text") if isinstance(block.get("text"), str))


def _find_final_text(messages: list[dict[str, Any]]) -> str | None:
    spoken = (message for message in reversed(messages) if message.get("role") == "assistant" and not _list_blocks(message, "tool_use"))
    return next(map(_join_text, spoken), None)


def _read_calls(messages: list[dict[str, Any]], unknowns: Unknowns) -> tuple[ToolCall, ...]:
    results = {text_or_none(block.get("tool_use_id")): block for message in messages for block in _list_blocks(message, "tool_result")}
    used = [block for message in messages for block in _list_blocks(message, "tool_use")]
    # A result whose call is missing shows that the trace is incomplete.
    if not results.keys() <= {block["id"] for block in used if isinstance(block.get("id"), str)}:
        unknowns.mark("tool_results", "a result belongs to no recorded call")
    return tuple(_read_call(block, results.get(text_or_none(block.get("id"))), unknowns) for block in used)


def _read_call(block: dict[str, Any], result: dict[str, Any] | None, unknowns: Unknowns) -> ToolCall:
    name = as_text(block.get("name")) or ""
    if block.get("input") is None:
        unknowns.mark("tool_arguments", f"the call of {show(name, SHOWN)} has no input")
    if result is None:
        unknowns.mark("tool_results", f"the call of {show(name, SHOWN)} has no result")
    value = None if result is None else _read_result(name, result, unknowns)
    error, kind = mcp_error(value), CONTENT_ERROR
    if result is not None and result.get("is_error") is True:
        error, kind = as_text(dict_or_empty(value).get("error")) or as_text(value) or "the call failed", PROTOCOL_ERROR
    duration = dict_or_empty(result).get("duration_ms")
    return ToolCall(
        name=name,
        arguments=None if block.get("input") is None else read_known_arguments(block["input"], "a call", unknowns),
        result=value,
        error=error,
        error_kind=kind if error is not None else None,
        duration_ms=duration if is_number(duration) else None,
        server=text_or_none(block.get("server")),
        id=text_or_none(block.get("id")),
    )


def _read_result(name: str, result: dict[str, Any], unknowns: Unknowns) -> Json:
    """Read the result of a tool from its text: compact JSON of the whole MCP result or `{"error": ...}`, no longer JSON if it was cut."""
    texts = [part["text"] for part in list_of(result.get("content")) if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not texts:
        return result.get("content")
    text = "".join(texts)
    kept = find_kept_part(text, RESULT_LIMIT)
    value = decode_container(text) if kept is None else kept
    # MCPLab writes a result as JSON, so a text that begins as JSON and cannot be decoded has lost its end.
    if kept is not None or (isinstance(value, str) and value.lstrip()[:1] in ("{", "[")):
        unknowns.mark("tool_results", f"only the beginning is recorded of the result of {show(name, SHOWN)}")
    return value


def is_results(document: Json) -> bool:
    """Return whether this is the `results.json` of a run: no evidence itself, but the whole answers that `trace.jsonl` has cut."""
    return isinstance(document, dict) and {"metadata", "summary", "scenarios"} <= document.keys()


def add_results(evidence: Evidence, results: Json) -> Evidence:
    """Return the evidence with the whole answer from the results of the same run, its calls unknown if those name another tool."""
    account, run = evidence.account, _find_run(evidence, results)
    if account is None:
        return evidence
    whole, begun = text_or_none(run.get("final_text")), evidence.text
    # Only an answer that goes on where the trace stops is the same answer.
    if account.unknown.get("answer") == _CUT and whole and begun is not None and whole.startswith(begun) and whole != begun:
        unknown: dict[Part, str] = {part: why for part, why in account.unknown.items() if part != "answer"}
        account = msgspec.structs.replace(account, unknown=unknown, notes=(*account.notes, "the answer is that of results.json"))
        evidence = msgspec.structs.replace(evidence, text=whole, body=parse_json(whole), account=account)
    # Results may name a tool with or without its server.
    calls = evidence.tool_calls or ()
    shown = {name for call in calls for name in (call.name, f"{call.server}__{call.name}", f"{call.server}:{call.name}")}
    named = [name for key in ("tool_calls", "tool_sequence") for name in list_of(run.get(key)) if isinstance(name, str)]
    missing = next((name for name in named if name not in shown), None)
    if missing is None or evidence.tool_calls is None or "tool_calls" in account.unknown:
        return evidence
    why = f"results.json lists a call of {show(missing, SHOWN)}, the trace does not"
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown={**account.unknown, "tool_calls": why}))


def _find_run(evidence: Evidence, results: Json) -> dict[str, Json]:
    """Return the run in the results that a line of the trace belongs to; empty if it is not there."""
    wanted = (evidence.case, evidence.metadata.get("agent"), evidence.metadata.get("run_index"))
    for scenario in map(dict_or_empty, list_of(dict_or_empty(results).get("scenarios"))):
        for run in map(dict_or_empty, list_of(scenario.get("runs"))):
            if (scenario.get("scenario_id"), scenario.get("agent"), run.get("run_index")) == wanted:
                return run
    return {}
