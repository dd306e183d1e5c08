"""MCPLab `trace.jsonl`: one `scenario_run` per line, after a `trace_meta` line that is not evidence."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.shared.blocks import RAISES
from proctor.evidence.shared.conversation import build_evidence
from proctor.evidence.shared.message import Message
from proctor.evidence.shared.message_reader import read_message
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import check_markers
from proctor.evidence.unknowns.statuses import find_failure
from proctor.evidence.unknowns.unrecognised import FieldTable, check_object, list_unrecognised
from proctor.evidence.values.access import (
    SHOWN,
    dict_or_empty,
    list_at,
    list_of,
    measure_ms_between,
    read_object,
    text_or_none,
    wrong_kind_error,
)
from proctor.evidence.values.text import as_text, parse_json
from proctor.model.account import CALL_PARTS, MCPLAB_TRACE, UNSEEN_IN_A_PAGE, Part
from proctor.model.cuts import ANSWER_LIMIT, RESULT_LIMIT, text_before_cut
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.json_values import is_number
from proctor.model.show import show

_READ_FROM_OUTSIDE = "external"
_METADATA = ("agent", "provider", "model", "run_index", "request_id", "pass", "outcome", "trace_version")
_ALL: tuple[Part, ...] = (*CALL_PARTS, "answer", "usage", "turns")
_LINE: FieldTable = {
    **dict.fromkeys((*_METADATA, "type", "scenario_id", "metrics", "extracted", "failures", "error", "ts_start", "ts_end"), None),
    "messages": _ALL,
    "final_text": "answer",
}
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
    unknowns, error = Unknowns(), as_text(entry.get("error")) or None
    listed = list_at(entry["messages"], "$.messages") if entry.get("messages") is not None else []
    messages = [read_object(message, f"$.messages[{index}]") for index, message in enumerate(listed)]
    check_object(entry, _LINE, "$", unknowns, has_answer=bool(messages))
    if not messages and error is None:
        unknowns.mark_parts(_ALL, "the line has no messages")
    evidence = _read_messages(messages, unknowns, failed=error is not None) if messages else Evidence()
    text = evidence.text if evidence.text is not None else text_or_none(entry.get("final_text"))
    before_cut = None if text is None else text_before_cut(text, ANSWER_LIMIT)
    if before_cut is not None:
        # The dots after the recorded part do not belong to the answer.
        text = before_cut
        unknowns.mark("answer", _CUT)
    calls = tuple(_finish_call(call, messages, unknowns) for call in evidence.tool_calls or ())
    counted = dict_or_empty(entry.get("metrics")).get("tool_call_count")
    if is_number(counted) and counted > len(calls):
        unknowns.mark("tool_calls", f"the run counts {counted:g} tool calls (metrics.tool_call_count), its messages show {len(calls)}")
    unrecognised = list_unrecognised(entry, _LINE)
    check_markers(entry, unrecognised, calls, "$", unknowns)
    # A chat page in a browser is read from outside: its tools are unknown.
    unseen = entry.get("model") == _READ_FROM_OUTSIDE
    if unseen and not calls:
        unknowns.mark("tool_calls", UNSEEN_IN_A_PAGE)
    error = error or find_failure({key: entry[key] for key in unrecognised})
    return [
        msgspec.structs.replace(
            evidence,
            case=entry["scenario_id"],
            text=text,
            # A prefix of a number is another valid number.
            body=None if before_cut is not None else parse_json(text),
            # `None` means "not recorded", an empty tuple "none were made": only a complete run observed from inside has the second.
            tool_calls=calls if calls or (error is None and messages and not unseen) else None,
            duration_ms=measure_ms_between(entry.get("ts_start"), entry.get("ts_end")),
            turns=None,
            now=text_or_none(entry.get("ts_start")),
            error=error,
            model=text_or_none(entry.get("model")),
            account=unknowns.close_account(MCPLAB_TRACE),
            metadata={key: entry[key] for key in _METADATA if entry.get(key) is not None},
        )
    ]


def _read_messages(messages: list[dict[str, Any]], unknowns: Unknowns, *, failed: bool) -> Evidence:
    found: list[Message] = []
    for index, message in enumerate(messages):
        content = message.get("content")
        renamed = {**message, "content": list(map(_rename_fields, content))} if isinstance(content, list) else message
        read = read_message(renamed, f"$.messages[{index}]", unknowns, RAISES)
        found += [read] if read is not None else []
    answers = [message for message in found if message.role == "assistant"]
    # A run that reached its turn limit ends with a call: MCPLab itself has the final text "" for it.
    if answers and found[-1].role != "user" and (found[-1].role != "assistant" or found[-1].calls):
        spoken = next((message.text for message in reversed(answers) if not message.calls), None if failed else "")
        found.append(Message(role="assistant", text=spoken or ""))
        if spoken is None:
            return msgspec.structs.replace(build_evidence(found, unknowns), text=None, body=None)
    return build_evidence(found, unknowns)


def _rename_fields(block: Json) -> Json:
    """Return a block with the names of other formats; fields that only MCPLab has are read in `_finish_call`."""
    if not isinstance(block, dict):
        return block
    dropped = ("duration_ms", "ts_start", "ts_end", *(("server",) if block.get("type") == "tool_result" else ()))
    return {"server_name" if key == "server" else key: value for key, value in block.items() if key not in dropped}


def _finish_call(call: ToolCall, messages: list[dict[str, Any]], unknowns: Unknowns) -> ToolCall:
    """Return a call with the fields that only MCPLab has: its duration, and results as JSON text, which is invalid if it was cut."""
    blocks = (dict_or_empty(block) for message in messages for block in list_of(message.get("content")))
    block = next((block for block in blocks if call.id is not None and block.get("tool_use_id") == call.id), {})
    result, error, duration = call.result, call.error, block.get("duration_ms")
    if error is not None and block.get("is_error") is True:
        error = as_text(dict_or_empty(result).get("error")) or error
    before_cut = text_before_cut(result, RESULT_LIMIT) if isinstance(result, str) else None
    if before_cut is not None or (isinstance(result, str) and result.lstrip()[:1] in ("{", "[")):
        unknowns.mark("tool_results", f"only the beginning is recorded of the result of {show(call.name, SHOWN)}")
    return msgspec.structs.replace(
        call, result=result if before_cut is None else before_cut, error=error, duration_ms=duration if is_number(duration) else None
    )


def is_results(document: Json) -> bool:
    """Return whether this is the `results.json` of a run: not evidence, but it has the complete answers that `trace.jsonl` cuts."""
    return isinstance(document, dict) and {"metadata", "summary", "scenarios"} <= document.keys()


def add_results(evidence: Evidence, results: Json) -> Evidence:
    """Return the evidence with the complete answer from the results; its calls are unknown if the results name another tool."""
    account, run = evidence.account, _find_run(evidence, results)
    if account is None:
        return evidence
    full, start = text_or_none(run.get("final_text")), evidence.text
    # Only an answer that continues where the trace stops is the same answer.
    if account.unknown.get("answer") == _CUT and full and start is not None and full.startswith(start) and full != start:
        unknown: dict[Part, str] = {part: why for part, why in account.unknown.items() if part != "answer"}
        account = msgspec.structs.replace(account, unknown=unknown, notes=(*account.notes, "the answer is that of results.json"))
        evidence = msgspec.structs.replace(evidence, text=full, body=parse_json(full), account=account)
    # Results may name a tool with or without its server.
    calls = evidence.tool_calls or ()
    known = {name for call in calls for name in (call.name, f"{call.server}__{call.name}", f"{call.server}:{call.name}")}
    named = [name for key in ("tool_calls", "tool_sequence") for name in list_of(run.get(key)) if isinstance(name, str)]
    missing = next((name for name in named if name not in known), None)
    if missing is None or evidence.tool_calls is None or "tool_calls" in account.unknown:
        return evidence
    why = f"results.json lists a call of {show(missing, SHOWN)}, the trace does not"
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown={**account.unknown, "tool_calls": why}))


def _find_run(evidence: Evidence, results: Json) -> dict[str, Json]:
    """Return the run in the results that a line of the trace belongs to, or an empty object if it is missing."""
    run_key = (evidence.case, evidence.metadata.get("agent"), evidence.metadata.get("run_index"))
    for scenario in map(dict_or_empty, list_of(dict_or_empty(results).get("scenarios"))):
        for run in map(dict_or_empty, list_of(scenario.get("runs"))):
            if (scenario.get("scenario_id"), scenario.get("agent"), run.get("run_index")) == run_key:
                return run
    return {}
