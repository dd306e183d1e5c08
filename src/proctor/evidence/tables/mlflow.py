"""Traces of MLflow: rows of `mlflow.search_traces()`, and what `Trace.to_json()` writes. A row is a whole trace with all of its spans.

Spans stand in the column `spans`, or in `trace`, which is the whole trace as JSON. Three generations write them differently: with
`context`, with ids in base 64, and with `otel_trace_id`. The values of attributes are JSON text in all of them, as over OTLP.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span, fold_id, read_nanoseconds
from proctor.evidence.tables.cell_values import open_object, read_events
from proctor.evidence.unknowns.endings import read_status
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json
from proctor.model.json_values import write_as_text

_SCOPE = "mlflow.tracing"
_BESIDE = frozenset(("info", "trace", "trace_id", "request_id", "trace_metadata", "execution_duration"))
"""What stands beside the spans of a trace, one or another in each generation."""
_BYTES = {24: 16, 12: 8}
"""How many bytes an id has that is so long in base 64."""


def is_row(row: dict[str, Any]) -> bool:
    """Return whether this is one trace of MLflow."""
    # Nothing but `spans` would be a body of Mibo.
    return not _BESIDE.isdisjoint(row) and any(_is_span(span) for span in list_spans(row)[:1])


def list_spans(row: dict[str, Any]) -> list[Json]:
    """Return the spans of a row as they stand in it."""
    for holder in (row, dict_or_empty(decode_container(row.get("trace"))), dict_or_empty(row.get("data"))):
        found = list_of(decode_container(holder.get("spans"))) or list_of(dict_or_empty(holder.get("data")).get("spans"))
        if found:
            return [decode_container(span) for span in found]
    return []


def _is_span(span: Json) -> bool:
    entry = dict_or_empty(span)
    attributes = decode_container(entry.get("attributes"))
    return isinstance(attributes, dict) and any(name.startswith("mlflow.") for name in attributes)


def read_row(row: dict[str, Any]) -> list[Span]:
    """Return the spans of a trace; raises `EvidenceError` where there are none, or one has no id."""
    spans = list_spans(row)
    if not spans:
        raise EvidenceError("$: no spans; expected a trace of MLflow, with `spans` or `trace`")
    return [_read_span(dict_or_empty(span), f"$.spans[{index}]") for index, span in enumerate(spans)]


def _read_span(entry: dict[str, Any], path: str) -> Span:
    context, status = dict_or_empty(entry.get("context")), dict_or_empty(entry.get("status"))
    trace = _read_id(find_first(entry, "otel_trace_id", "trace_id") or context.get("trace_id"))
    id = _read_id(entry.get("span_id") or context.get("span_id"))
    if not trace or not id:
        raise EvidenceError(f"{path}: expected trace_id and span_id; a span without them belongs to no trace")
    code = find_first(status, "code") or entry.get("status_code")
    attributes: dict[str, Json] = {}
    attributes |= {key: write_as_text(value) for key, value in open_object(entry.get("attributes"), "attributes", attributes).items()}
    return Span(
        trace_id=fold_id(trace),
        id=id,
        parent_id=_read_id(find_first(entry, "parent_span_id", "parent_id")) or None,
        name=text_or_none(entry.get("name")) or "",
        start_ns=_read_time(entry, "start_time"),
        end_ns=_read_time(entry, "end_time"),
        attributes=attributes,
        failed=read_status(code) == "failed",
        message=text_or_none(status.get("message") or entry.get("status_message")) or None,
        events=read_events(entry.get("events")),
        scope=_SCOPE,
    )


def _read_time(entry: dict[str, Any], name: str) -> int:
    # All generations write nanoseconds, some of them as text.
    return read_nanoseconds(find_first(entry, f"{name}_unix_nano", name))


def _read_id(value: Json) -> str:
    """Return an id as OTLP writes it, in hexadecimal."""
    if not isinstance(value, str):
        return ""
    if len(value) in _BYTES and value.endswith("="):
        try:
            data = base64.b64decode(value, validate=True)
        except (ValueError, binascii.Error):
            return value
        return data.hex() if len(data) == _BYTES[len(value)] else value
    # `tr-` stands before the id of a trace, and 0x before those of the first generation.
    return value.removeprefix("tr-").removeprefix("0x")
