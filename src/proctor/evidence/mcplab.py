"""MCPLab `trace.jsonl`: one `scenario_run` per line, after a `trace_meta` line that is no evidence.

The final text is that of the last assistant message without a tool call: text beside tool calls never counts. A run that reached
its turn limit has the final text "", which our own traces say with `final_text`. A run that ended in an error is recorded without
messages: its text and calls are not known, so nothing about them can pass. `is_error` means that the call raised, a `protocol-error`; a
result that itself says `isError` is a `content-error` (MCPLab counts it as a success, and has no check that looks). Lines of other types
are skipped.

MCPLab cuts long texts when it writes a trace. What lies behind the first 4,000 characters of an answer, and behind the first 12,000 of a
tool's result, is not known. `results.json` of the same run has the whole answer: `with_whole_answer` takes it from there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.account import Doubts
from proctor.evidence.calls import CONTENT_ERROR, PROTOCOL_ERROR, mcp_error, read_arguments
from proctor.evidence.json_bytes import container_in
from proctor.evidence.shape import dict_of, list_at, list_of, object_at, text_at, text_or_none
from proctor.evidence.text import as_text, json_in
from proctor.evidence.times import iso_ms_between
from proctor.evidence.usage import add_usage, read_usage
from proctor.model.account import UNSEEN_IN_A_PAGE, Part
from proctor.model.cuts import ANSWER_LIMIT, RESULT_LIMIT, kept_part
from proctor.model.evidence import Evidence, Json, ToolCall

READER = "mcplab"
CUT = "the recording was cut at 4,000 characters"
_READ_FROM_OUTSIDE = "external"
"""What MCPLab writes for the model of a browser agent."""
_KEPT = ("agent", "provider", "model", "run_index", "request_id", "pass", "outcome", "trace_version")


def sniff(document: Json) -> bool:
    """Whether this is a line of a trace."""
    if not isinstance(document, dict):
        return False
    return document.get("type") == "trace_meta" or (document.get("type") == "scenario_run" and "scenario_id" in document)


def read(document: Json) -> list[Evidence]:
    """The run of one line; nothing for a `trace_meta` line."""
    entry = object_at(document, "$")
    if entry.get("type") == "trace_meta":
        return []
    messages = [
        object_at(message, f"$.messages[{index}]") for index, message in enumerate(list_at(entry.get("messages", []), "$.messages"))
    ]
    error = as_text(entry.get("error")) or None
    doubts = Doubts()
    text = _final_text(messages, doubts)
    if text is None:
        text = text_or_none(entry.get("final_text"))
    calls = _calls(messages, doubts)
    # A chat page in a browser is read from outside: of its tools nothing is known.
    unseen = entry.get("model") == _READ_FROM_OUTSIDE
    if unseen and not calls:
        doubts.doubt("tool_calls", UNSEEN_IN_A_PAGE)
    if text is None and error is None:
        text = ""
    return [
        Evidence(
            case=text_at(entry.get("scenario_id"), "$.scenario_id"),
            input=next((_text(message) for message in messages if message.get("role") == "user"), None),
            text=text,
            # The beginning of a number is a number too, and another one.
            body=None if CUT in doubts.unknown.values() else json_in(text),
            tool_calls=calls if calls or (error is None and not unseen) else None,
            duration_ms=iso_ms_between(entry.get("ts_start"), entry.get("ts_end")),
            usage=add_usage(read_usage(message.get("usage")) for message in messages),
            now=text_or_none(entry.get("ts_start")),
            error=error,
            account=doubts.account(READER) if doubts.unknown else None,
            metadata={key: entry[key] for key in _KEPT if entry.get(key) is not None},
        )
    ]


def _blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for block in list_of(message.get("content")) if isinstance(block, dict) and block.get("type") == kind]


def _text(message: dict[str, Any]) -> str:
    if isinstance(message.get("content"), str):
        return message["content"]
    return "".join(block["text"] for block in _blocks(message, "text") if isinstance(block.get("text"), str))


def _final_text(messages: list[dict[str, Any]], doubts: Doubts) -> str | None:
    for message in reversed(messages):
        if message.get("role") == "assistant" and not _blocks(message, "tool_use"):
            text = _text(message)
            kept = kept_part(text, ANSWER_LIMIT)
            if kept is None:
                return text
            doubts.doubt("answer", CUT)
            return kept
    return None


def with_whole_answer(evidence: Evidence, results: Json) -> Evidence:
    """The evidence with the answer that `results.json` of the same run has, where the trace has cut it."""
    account = evidence.account
    if account is None or account.unknown.get("answer") != CUT or evidence.text is None:
        return evidence
    whole = _whole_answer(evidence, results)
    if whole is None or not whole.startswith(evidence.text) or len(whole) < len(evidence.text) + 1:
        return evidence
    unknown: dict[Part, str] = {part: why for part, why in account.unknown.items() if part != "answer"}
    known = msgspec.structs.replace(account, unknown=unknown, notes=(*account.notes, "the answer is that of results.json"))
    return msgspec.structs.replace(evidence, text=whole, body=json_in(whole), account=known)


def is_cut(evidence: Evidence) -> bool:
    """Whether the answer was cut when the trace was written."""
    return evidence.account is not None and evidence.account.unknown.get("answer") == CUT


def is_results(document: Json) -> bool:
    """Whether this is the `results.json` of a run."""
    return isinstance(document, dict) and {"metadata", "summary", "scenarios"} <= document.keys()


def _whole_answer(evidence: Evidence, results: Json) -> str | None:
    told = evidence.metadata
    wanted = (evidence.case, told.get("agent"), told.get("run_index"))
    for scenario in map(dict_of, list_of(dict_of(results).get("scenarios"))):
        for run in map(dict_of, list_of(scenario.get("runs"))):
            if (scenario.get("scenario_id"), scenario.get("agent"), run.get("run_index")) == wanted:
                return text_or_none(run.get("final_text"))
    return None


def _calls(messages: list[dict[str, Any]], doubts: Doubts) -> tuple[ToolCall, ...]:
    results = {text_or_none(block.get("tool_use_id")): block for message in messages for block in _blocks(message, "tool_result")}
    used = [block for message in messages for block in _blocks(message, "tool_use")]
    return tuple(_call(block, results.get(text_or_none(block.get("id"))), doubts) for block in used)


def _result_value(block: dict[str, Any], result: dict[str, Any], doubts: Doubts) -> Json:
    """The text is the compact JSON of the whole MCP result, or `{"error": ...}`; a long one is cut and no longer JSON."""
    texts = [part["text"] for part in list_of(result.get("content")) if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not texts:
        return result.get("content")
    text = "".join(texts)
    kept = kept_part(text, RESULT_LIMIT)
    value = container_in(text) if kept is None else kept
    if kept is not None or (isinstance(value, str) and value.lstrip()[:1] in ("{", "[")):
        doubts.doubt("tool_results", f"the recording keeps only the beginning of the result of {as_text(block.get('name'))!r}")
    return value


def _call(block: dict[str, Any], result: dict[str, Any] | None, doubts: Doubts) -> ToolCall:
    call = ToolCall(
        name=as_text(block.get("name")) or "",
        arguments=read_arguments(block.get("input")),
        server=text_or_none(block.get("server")),
        id=text_or_none(block.get("id")),
    )
    if result is None:
        return call
    value = _result_value(block, result, doubts)
    error, kind = mcp_error(value), CONTENT_ERROR
    if result.get("is_error") is True:
        error, kind = as_text(dict_of(value).get("error")) or as_text(value) or "the call failed", PROTOCOL_ERROR
    duration = result.get("duration_ms")
    return msgspec.structs.replace(
        call,
        result=value,
        error=error,
        error_kind=kind if error is not None else None,
        duration_ms=duration if isinstance(duration, (int, float)) and not isinstance(duration, bool) else None,
    )
