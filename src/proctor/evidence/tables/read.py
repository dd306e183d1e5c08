"""Tables of spans: one row for each span, as observability systems export them. The rows of a trace may lie far apart.

Every shape becomes the same `Span` as OTLP, with the attributes that the same system sends over OTLP: from there on there is one road.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span, read_span
from proctor.evidence.tables import langfuse as table_langfuse
from proctor.evidence.tables import langsmith as table_langsmith
from proctor.evidence.tables import mlflow as table_mlflow
from proctor.evidence.tables import phoenix as table_phoenix
from proctor.evidence.tables.cell_values import flatten_members, read_time_ns
from proctor.evidence.traces import vocabulary
from proctor.evidence.values.access import dict_or_empty, find_first, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json


class SpanTable(msgspec.Struct, frozen=True, kw_only=True):
    """One shape of rows."""

    name: str
    summary: str
    is_row: Callable[[dict[str, Any]], bool]
    read_row: Callable[[dict[str, Any]], list[Span]]
    is_whole: Callable[[dict[str, Any]], bool] = lambda row: False
    """Whether a row is a whole trace, which waits for no other."""


def _is_plain_row(row: dict[str, Any]) -> bool:
    return any(name in row for name in ("trace_id", "traceId")) and any(name in row for name in ("span_id", "spanId"))


def _read_plain_row(row: dict[str, Any]) -> list[Span]:
    """Return a span as OTLP writes one, its attributes as an object, a list or JSON text."""
    entry = {name: value for name, value in row.items() if name in _PLAIN}
    for name in ("attributes", "events", "status"):
        if isinstance(entry.get(name), str):
            entry[name] = decode_container(entry[name])
    entry["attributes"] = _read_attributes(row, entry.get("attributes"))
    if find_first(entry, "parent_span_id", "parentSpanId") is None:
        entry["parent_span_id"] = row.get("parent_id")
    for exact in ("start_time_unix_nano", "startTimeUnixNano", "end_time_unix_nano", "endTimeUnixNano"):
        if isinstance(entry.get(exact), str) and not entry[exact].isdigit():
            # A column of moments, whatever it is called; what is none stays, and is a doubt.
            entry[exact] = read_time_ns(entry[exact]) or entry[exact]
    for name, exact, other in (
        ("start_time", "start_time_unix_nano", "startTimeUnixNano"),
        ("end_time", "end_time_unix_nano", "endTimeUnixNano"),
    ):
        told = entry.pop(name, None)
        if told is not None and find_first(row, exact, other) is None:
            entry[exact] = read_time_ns(told)
    status = find_first(entry, "status") or row.get("status_code")
    if isinstance(status, (str, int)):
        message = text_or_none(row.get("status_message"))
        entry["status"] = {"code": status, **({"message": message} if message else {})}
    scope = row.get("scope")
    name = text_or_none(dict_or_empty(scope).get("name")) or text_or_none(scope) or ""
    resource = dict_or_empty(decode_container(row.get("resource")))
    span = read_span(entry, "$", resource, text_or_none(row.get("case")), name)
    if not span.trace_id:
        raise EvidenceError("$.trace_id: expected text; a span without it belongs to no trace")
    return [span]


def _read_attributes(row: dict[str, Any], value: Json) -> Json:
    """Return the attributes of a plain row: as they stand, of texts alone, or each in a column of its own."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and isinstance(one.get("value", ""), str) for one in value):
        value = {str(one.get("key")): one.get("value") for one in value}
    if isinstance(value, dict) and all(isinstance(one, (str, type(None))) for one in value.values()):
        value = {key: int(text) if key in _COUNTS and _is_digits(text) else text for key, text in value.items()}
    apart: dict[str, Json] = {}
    for name, told in row.items():
        if name.startswith("attributes.") and told is not None:
            flatten_members(name.removeprefix("attributes."), told, apart, table_phoenix.AS_TEXT)
    return {**dict_or_empty(value), **apart} if apart else value


def _is_digits(value: Json) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16


_COUNTS = frozenset((*vocabulary.INPUT_TOKENS, *vocabulary.OUTPUT_TOKENS, *vocabulary.TOTAL_TOKENS))
_PLAIN = frozenset(
    (
        *("trace_id", "traceId", "span_id", "spanId", "parent_span_id", "parentSpanId", "name", "kind", "attributes", "events", "status"),
        *("start_time_unix_nano", "startTimeUnixNano", "start_time", "end_time_unix_nano", "endTimeUnixNano", "end_time"),
        *("dropped_attributes_count", "droppedAttributesCount", "dropped_events_count", "droppedEventsCount"),
    )
)
"""What is read of a plain row; a table may have columns of its own beside."""

_ALL = (
    SpanTable(
        name="phoenix",
        summary="spans of Arize Phoenix, one in every row",
        is_row=table_phoenix.is_row,
        read_row=table_phoenix.read_row,
    ),
    SpanTable(
        name="langsmith",
        summary="runs of LangSmith, one in every row",
        is_row=table_langsmith.is_row,
        read_row=table_langsmith.read_row,
    ),
    SpanTable(
        name="langfuse",
        summary="observations of Langfuse, one in every row, or a trace with all of them",
        is_row=table_langfuse.is_row,
        is_whole=table_langfuse.is_whole,
        read_row=table_langfuse.read_row,
    ),
    SpanTable(
        name="mlflow",
        summary="traces of MLflow, each with its spans",
        is_row=table_mlflow.is_row,
        read_row=table_mlflow.read_row,
        is_whole=lambda row: True,
    ),
    SpanTable(
        name="spans",
        summary="spans in the words of OpenTelemetry, one in every row",
        is_row=_is_plain_row,
        read_row=_read_plain_row,
    ),
)

SPAN_TABLES: dict[str, SpanTable] = {table.name: table for table in _ALL}
"""Every shape by its name."""


def find_table(row: Json) -> SpanTable | None:
    """Return the shape of a row; None where it is no row of spans."""
    if not isinstance(row, dict):
        return None
    return next((table for table in _ALL if table.is_row(row)), None)


def read_rows(value: Json, table: SpanTable | None = None) -> list[Span] | None:
    """Return the spans of a row or of a list of rows; None where it is none, or a whole trace. Raises `EvidenceError`."""
    found: list[Span] = []
    for row in value if isinstance(value, list) else [value]:
        shape = table or find_table(row)
        if shape is None or (isinstance(row, dict) and shape.is_whole(row)):
            return None
        if not isinstance(row, dict):
            raise EvidenceError(f"a row of {shape.name} is an object")
        found.extend(shape.read_row(row))
    return found or None


def find_columns(names: frozenset[str]) -> SpanTable | None:
    """Return the shape of a table with these columns; None where its rows are no spans."""
    if {"context.trace_id", "context.span_id"} <= names:
        return SPAN_TABLES["phoenix"]
    if {"run_type", "trace_id", "id"} <= names:
        return SPAN_TABLES["langsmith"]
    if "id" in names and names & {"traceId", "trace_id"} and names & {"parentObservationId", "parent_observation_id"}:
        return SPAN_TABLES["langfuse"]
    if "spans" in names and names & {"trace", "trace_metadata", "execution_duration"}:
        return SPAN_TABLES["mlflow"]
    return SPAN_TABLES["spans"] if names & {"traceId", "trace_id"} and names & {"spanId", "span_id"} else None


_BESIDE: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset(("trace_id", "observation_id", "data_type", "value")), "scores of Langfuse"),
    (frozenset(("id", "timestamp", "bookmarked", "user_id", "session_id")), "the heads of traces of Langfuse"),
)
"""What platforms export beside spans, by its columns."""


def find_table_beside(names: frozenset[str]) -> str | None:
    """Return what a table is that platforms export beside the one with spans; None where it is none of these."""
    return next((told for columns, told in _BESIDE if columns <= names and "parent_observation_id" not in names), None)
