"""MCPLab `trace.jsonl`: one `scenario_run` per line, after a `trace_meta` line that is no evidence.

The final text is that of the last assistant message without a tool call: text next to tool calls never counts. A run that reached
its turn limit has the final text "", which our own traces write as `final_text`. A run that ended in an error is recorded without
messages: its text and calls are unknown, so nothing about them can pass. `is_error` means that the call raised, a `protocol-error`; a
result with `isError` is a `content-error` (MCPLab counts it as a success, and has no check for it). Lines of other types are skipped.

MCPLab cuts long texts when it writes a trace. The rest after the first 4,000 characters of an answer, and after the first 12,000 of a
tool's result, is unknown. `results.json` of the same run has the whole answer: see `proctor.evidence.platforms.mcplab_results`.
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
"""What MCPLab writes for the model of a browser agent."""
_KEPT = ("agent", "provider", "model", "run_index", "request_id", "pass", "outcome", "trace_version")
_ALL: tuple[Part, ...] = (*CALL_PARTS, "answer", "usage", "turns")
_LINE: dict[str, Part | tuple[Part, ...] | None] = {
    **dict.fromkeys((*_KEPT, "type", "scenario_id", "metrics", "extracted", "failures", "error", "ts_start", "ts_end"), None),
    "messages": _ALL,
    "final_text": "answer",
}
_MESSAGE: dict[str, Part | tuple[Part, ...] | None] = {"role": _ALL, "content": _ALL, "usage": "usage", "ts": None}
_ROLES = ("user", "assistant", "tool", "system")
_BLOCKS: dict[str, dict[str, Part | tuple[Part, ...] | None]] = {
    "text": {"type": None, "text": "answer"},
    **dict.fromkeys(("image", "document"), dict.fromkeys(("type", "media_type", "data", "url", "name"), None)),
    "tool_use": {"type": None, "name": "tool_calls", "id": "tool_results", "server": None, "input": "tool_arguments"},
    "tool_result": {
        **dict.fromkeys(("type", "name", "server", "duration_ms", "ts_start", "ts_end"), None),
        **dict.fromkeys(("tool_use_id", "content", "is_error"), "tool_results"),
    },
}
"""The blocks of a message and their fields."""
CUT = "the recording was cut at 4,000 characters"
"""Why the rest of an answer is unknown."""


def sniff(document: Json) -> bool:
    """Return whether this is a line of a trace."""
    if not isinstance(document, dict):
        return False
    return document.get("type") in ("trace_meta", "scenario_run") or ("scenario_id" in document and "messages" in document)


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
    text, cut = _read_answer(entry, messages, unknowns)
    calls = _read_calls(messages, unknowns)
    _check_count(entry.get("metrics"), len(calls), unknowns)
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
            body=None if cut else parse_json(text),
            # `None` is "not recorded", an empty tuple "none were made": only a whole run that was seen from inside has the second.
            tool_calls=calls if calls or (error is None and messages and not unseen) else None,
            duration_ms=measure_ms_between(entry.get("ts_start"), entry.get("ts_end")),
            usage=_sum_usage(messages, unknowns),
            now=text_or_none(entry.get("ts_start")),
            error=error,
            model=text_or_none(entry.get("model")),
            account=unknowns.close_account(MCPLAB_TRACE),
            metadata={key: entry[key] for key in _KEPT if entry.get(key) is not None},
        )
    ]


def _read_answer(entry: dict[str, Any], messages: list[dict[str, Any]], unknowns: Unknowns) -> tuple[str | None, bool]:
    """Return the answer as far as it is recorded, and whether it was cut."""
    text = _find_final_text(messages)
    if text is None:
        text = text_or_none(entry.get("final_text"))
    kept = None if text is None else find_kept_part(text, ANSWER_LIMIT)
    if kept is None:
        return text, False
    # The dots after the recorded part are no part of the answer.
    unknowns.mark("answer", CUT)
    return kept, True


def _check_line(entry: dict[str, Any], messages: list[dict[str, Any]], error: str | None, unknowns: Unknowns) -> None:
    """Mark what a line leaves unknown: messages that are missing, cannot be read, or end before the agent answered."""
    check_object(entry, _LINE, "$", unknowns, has_answer=bool(messages))
    if not messages and error is None:
        unknowns.mark_parts(_ALL, "the line has no messages")
    for index, message in enumerate(messages):
        _check_message(message, f"$.messages[{index}]", unknowns)
    spoken = [message.get("role") for message in messages if message.get("role") in ("user", "assistant")]
    # A run that reached its turn limit has calls, and so a message of the assistant.
    if spoken and spoken[-1] == "user" and error is None:
        unknowns.mark_parts(_ALL, "the messages end before the assistant answered")


def _check_count(metrics: Json, seen: int, unknowns: Unknowns) -> None:
    """Mark the calls of a run that counts more calls than its messages show."""
    counted = dict_or_empty(metrics).get("tool_call_count")
    if isinstance(counted, (int, float)) and counted > seen:
        unknowns.mark("tool_calls", f"the run counts {counted:g} tool calls (metrics.tool_call_count), its messages show {seen}")


def _check_message(message: dict[str, Any], path: str, unknowns: Unknowns) -> None:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        unknowns.mark_parts(_ALL, f"{path}.role: expected text, found {kind_of(role)}")
    elif role not in _ROLES:
        mark_kind(message, role, path, unknowns)
        if message.get("usage") is not None:
            unknowns.mark_unrecognised(("usage",), f"{path}: unrecognised role {show(role, SHOWN)}, which reports tokens")
    check_object(message, _MESSAGE, path, unknowns)
    if not isinstance(content, (list, str)):
        unknowns.mark_parts(_ALL, f"{path}.content: expected a list of blocks, found {kind_of(content)}")
    if isinstance(content, str) and isinstance(decode_container(content), (list, dict)):
        unknowns.mark_parts(_ALL, f"{path}.content: expected a list of blocks, found JSON text")
    for index, block in enumerate(list_of(content)):
        _check_block(block, f"{path}.content[{index}]", unknowns)


def _check_block(block: Json, path: str, unknowns: Unknowns) -> None:
    kind = dict_or_empty(block).get("type")
    if not isinstance(kind, str):
        unknowns.mark_parts(_ALL, f"{path}.type: expected text, found {kind_of(kind)}")
        return
    if kind not in _BLOCKS:
        mark_kind(block, kind, path, unknowns)
        return
    check_object(block, _BLOCKS[kind], path, unknowns)
    if kind == "text" and not isinstance(block.get("text"), str):
        unknowns.mark("answer", f"{path}.text: expected text, found {kind_of(block.get('text'))}")
    if kind == "tool_use" and not isinstance(block.get("name"), str):
        unknowns.mark("tool_calls", f"{path}.name: expected text, found {kind_of(block.get('name'))}")
    if kind == "tool_use" and block.get("input") is None:
        unknowns.mark("tool_arguments", f"{path} has no input")
    if kind == "tool_result" and block.get("is_error") is not None and not isinstance(block["is_error"], bool):
        unknowns.mark("tool_results", f"{path}.is_error: expected true or false, found {kind_of(block['is_error'])}")


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
    for message in reversed(messages):
        if message.get("role") == "assistant" and not _list_blocks(message, "tool_use"):
            return _join_text(message)
    return None


def _read_calls(messages: list[dict[str, Any]], unknowns: Unknowns) -> tuple[ToolCall, ...]:
    results = {text_or_none(block.get("tool_use_id")): block for message in messages for block in _list_blocks(message, "tool_result")}
    used = [block for message in messages for block in _list_blocks(message, "tool_use")]
    # A result whose call is missing shows that the trace is incomplete.
    if not results.keys() <= {block["id"] for block in used if isinstance(block.get("id"), str)}:
        unknowns.mark("tool_results", "a result belongs to no recorded call")
    return tuple(_call(block, results.get(text_or_none(block.get("id"))), unknowns) for block in used)


def _read_result_value(block: dict[str, Any], result: dict[str, Any], unknowns: Unknowns) -> Json:
    """Read the result of a tool from its text: compact JSON of the whole MCP result or `{"error": ...}`, no longer JSON if it was cut."""
    texts = [part["text"] for part in list_of(result.get("content")) if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not texts:
        return result.get("content")
    text = "".join(texts)
    kept = find_kept_part(text, RESULT_LIMIT)
    value = decode_container(text) if kept is None else kept
    # MCPLab writes a result as JSON, so a text that begins as JSON and cannot be decoded has lost its end.
    if kept is not None or (isinstance(value, str) and value.lstrip()[:1] in ("{", "[")):
        unknowns.mark("tool_results", f"only the beginning is recorded of the result of {show(block.get('name'), SHOWN)}")
    return value


def _call(block: dict[str, Any], result: dict[str, Any] | None, unknowns: Unknowns) -> ToolCall:
    call = ToolCall(
        name=as_text(block.get("name")) or "",
        arguments=None if block.get("input") is None else read_known_arguments(block["input"], "a call", unknowns),
        server=text_or_none(block.get("server")),
        id=text_or_none(block.get("id")),
    )
    if result is None:
        unknowns.mark("tool_results", f"the call of {show(call.name, SHOWN)} has no result")
        return call
    value = _read_result_value(block, result, unknowns)
    error, kind = mcp_error(value), CONTENT_ERROR
    if result.get("is_error") is True:
        error, kind = as_text(dict_or_empty(value).get("error")) or as_text(value) or "the call failed", PROTOCOL_ERROR
    duration = result.get("duration_ms")
    return msgspec.structs.replace(
        call,
        result=value,
        error=error,
        error_kind=kind if error is not None else None,
        duration_ms=duration if is_number(duration) else None,
    )
