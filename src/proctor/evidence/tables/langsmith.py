"""Runs of LangSmith: rows of its exports and of its API, one for each run, put together by `trace_id` and `parent_run_id`.

Each becomes the span that LangSmith's own SDK sends over OTLP: what went in is `gen_ai.prompt`, what came out `gen_ai.completion`.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span, SpanEvent, fold_id
from proctor.evidence.tables.cell_values import open_object, read_time_ns
from proctor.evidence.unknowns.endings import read_status
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json
from proctor.model.json_values import write_as_text
from proctor.model.numbers import to_whole_number

_SCOPE = "langsmith"
_OPERATIONS = {"llm": "chat", "tool": "execute_tool", "embedding": "embeddings"}
_COUNTS = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"), ("total_tokens", "total_tokens"))


def is_row(row: dict[str, Any]) -> bool:
    """Return whether this is one run of LangSmith."""
    return "run_type" in row and "trace_id" in row and "id" in row


def read_row(row: dict[str, Any]) -> list[Span]:
    """Return the span of a run; raises `EvidenceError` where it belongs to no trace."""
    trace, id = row.get("trace_id"), row.get("id")
    if not isinstance(trace, str) or not trace or not isinstance(id, str) or not id:
        raise EvidenceError("$: expected id and trace_id, both texts; a run without them belongs to no trace")
    error = text_or_none(row.get("error")) or None
    return [
        Span(
            trace_id=fold_id(trace),
            id=id,
            parent_id=_find_parent(row, id),
            name=text_or_none(row.get("name")) or "",
            start_ns=read_time_ns(row.get("start_time")),
            end_ns=read_time_ns(row.get("end_time")),
            attributes=_read_attributes(row),
            failed=error is not None or read_status(row.get("status")) == "failed",
            events=() if error is None else (SpanEvent("exception", {"exception.message": error}),),
            scope=_SCOPE,
        )
    ]


def _find_parent(row: dict[str, Any], id: str) -> str | None:
    """Return the run above: exports that do not name it list all runs above, or have them in the order of the trace."""
    named = text_or_none(row.get("parent_run_id"))
    if named:
        return named
    above = [text for one in list_of(decode_container(row.get("parent_run_ids"))) if (text := text_or_none(one))]
    ordered = [part[-len(id) :] for part in (text_or_none(row.get("dotted_order")) or "").split(".")]
    if not above and len(ordered) > 1 and ordered[-1] == id:
        above = ordered[:-1]
    return above[-1] if above else None


def _read_attributes(row: dict[str, Any]) -> dict[str, Json]:
    kind = (text_or_none(row.get("run_type")) or "chain").lower()
    found: dict[str, Json] = {}
    extra = open_object(row.get("extra"), "extra", found)
    metadata = dict_or_empty(find_first(extra, "metadata"))
    asked = dict_or_empty(find_first(extra, "invocation_params"))
    found |= {"langsmith.span.kind": kind, "gen_ai.operation.name": _OPERATIONS.get(kind, "chain")}
    found["gen_ai.system"] = text_or_none(metadata.get("ls_provider")) or "langchain"
    model = find_first(asked, "model", "model_name") or metadata.get("ls_model_name")
    if kind == "llm" and isinstance(model, str):
        found["gen_ai.request.model"] = model
    if kind == "tool":
        found["gen_ai.tool.name"] = text_or_none(row.get("name")) or ""
    for key, value in metadata.items():
        found[f"langsmith.metadata.{key}"] = value if isinstance(value, (str, bool, int, float)) else write_as_text(value)
    if asked.get("tools"):
        found["gen_ai.tool.definitions"] = write_as_text(asked["tools"])
    for name, column in (("gen_ai.prompt", "inputs"), ("gen_ai.completion", "outputs")):
        value = decode_container(row.get(column))
        if value is not None and value != {}:
            found[name] = write_as_text(value)
    for name, column in _COUNTS:
        count = to_whole_number(row.get(column))
        # A run that asked no model counts those below it, or none.
        if kind == "llm" and isinstance(count, int) and count > 0:
            found[f"gen_ai.usage.{name}"] = count
    answered = dict_or_empty(decode_container(row.get("outputs"))).get("model")
    if kind == "llm" and isinstance(answered, str):
        found["gen_ai.response.model"] = answered
    call = _find_call_id(decode_container(row.get("outputs")))
    if kind == "tool" and call is not None:
        found["gen_ai.tool.call.id"] = call
    return found


def _find_call_id(outputs: Json) -> str | None:
    """Return the id of the call that a tool answered, where its message tells it."""
    told = dict_or_empty(outputs)
    inner = dict_or_empty(told.get("output")) or told
    return text_or_none(inner.get("tool_call_id") or dict_or_empty(inner.get("kwargs")).get("tool_call_id"))
