"""Rows of Arize Phoenix's data frame of spans: `context.trace_id`, `context.span_id`, `parent_id`, and a column for each attribute.

Phoenix gathers what OpenInference numbers (`llm.input_messages.0.message.role`) into lists, and decodes a few attributes that were sent as
JSON text. Both are undone here, so that a row is read as the span that was sent. The same rows come with `context` as an object from
Phoenix's REST API. Phoenix keeps neither the resource nor the name of the instrumentation.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span, fold_id
from proctor.evidence.tables.cell_values import flatten_members, open_object, read_events, read_time_ns
from proctor.evidence.unknowns.endings import read_status
from proctor.evidence.values.access import dict_or_empty, find_first, text_or_none
from proctor.model.evidence import Json

_PREFIX = "attributes."
_KIND = "openinference.span.kind"
AS_TEXT = ("metadata", "llm.prompt_template.variables", "tool.parameters")
"""What Phoenix decodes on arrival, by the last names."""


def is_row(row: dict[str, Any]) -> bool:
    """Return whether this is one span of Phoenix."""
    if "context.trace_id" in row:
        return "context.span_id" in row
    return {"trace_id", "span_id"} <= dict_or_empty(row.get("context")).keys() and ("span_kind" in row or "attributes" in row)


def read_row(row: dict[str, Any]) -> list[Span]:
    """Return the span of a row; raises `EvidenceError` where it belongs to no trace."""
    context = dict_or_empty(row.get("context"))
    trace = find_first({"own": row.get("context.trace_id"), "inner": context.get("trace_id")}, "own", "inner")
    id = find_first({"own": row.get("context.span_id"), "inner": context.get("span_id")}, "own", "inner")
    if not isinstance(trace, str) or not trace or not isinstance(id, str) or not id:
        raise EvidenceError("$.context: expected trace_id and span_id, both texts; a span without them belongs to no trace")
    attributes: dict[str, Json] = {}
    flatten_members("", open_object(row.get("attributes"), "attributes", attributes), attributes, AS_TEXT)
    for name, value in row.items():
        if name.startswith(_PREFIX) and value is not None:
            flatten_members(name[len(_PREFIX) :], value, attributes, AS_TEXT)
    kind = text_or_none(row.get("span_kind"))
    if kind and kind != "UNKNOWN":
        attributes.setdefault(_KIND, kind)
    return [
        Span(
            trace_id=fold_id(trace),
            id=id,
            parent_id=text_or_none(row.get("parent_id")) or None,
            name=text_or_none(row.get("name")) or "",
            start_ns=read_time_ns(row.get("start_time")),
            end_ns=read_time_ns(row.get("end_time")),
            attributes=attributes,
            failed=read_status(row.get("status_code")) == "failed",
            message=text_or_none(row.get("status_message")) or None,
            events=read_events(row.get("events")),
        )
    ]
