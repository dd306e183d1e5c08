"""Tables of spans: one row for each span, as observability systems export them. The rows of a trace may lie far apart.

Every shape becomes the same `Span` as OTLP, with the attributes that the same system sends over OTLP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span, read_span
from proctor.evidence.tables import platforms
from proctor.evidence.traces.shape import COUNTS
from proctor.evidence.values.access import dict_or_empty, find_first, split_words, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.times import read_time_ns
from proctor.model.evidence import Json
from proctor.model.json_values import read_digits

_TIMES = (("start_time", "start_time_unix_nano", "startTimeUnixNano"), ("end_time", "end_time_unix_nano", "endTimeUnixNano"))
# A table may have other columns, which are not read.
_COLUMNS = split_words("""
    trace_id traceId span_id spanId parent_span_id parentSpanId name kind attributes events status
    start_time_unix_nano startTimeUnixNano end_time_unix_nano endTimeUnixNano
    dropped_attributes_count droppedAttributesCount dropped_events_count droppedEventsCount
    """)


class SpanTable(msgspec.Struct, frozen=True):
    """One shape of rows."""

    name: str
    summary: str
    is_row: Callable[[dict[str, Any]], bool]
    read_row: Callable[[dict[str, Any]], list[Span]]
    is_whole: Callable[[dict[str, Any]], bool] = lambda row: False
    """Whether a row is a whole trace, which waits for no other."""


def _is_plain_row(row: dict[str, Any]) -> bool:
    return ("trace_id" in row or "traceId" in row) and ("span_id" in row or "spanId" in row)


def _read_plain_row(row: dict[str, Any]) -> list[Span]:
    """Return a span as OTLP writes one, its attributes as an object, a list or JSON text."""
    entry = {name: value for name, value in row.items() if name in _COLUMNS}
    for name in ("attributes", "events", "status"):
        if name in entry:
            entry[name] = decode_container(entry[name])
    entry["attributes"] = _read_attributes(row, entry.get("attributes"))
    if find_first(entry, "parent_span_id", "parentSpanId") is None:
        entry["parent_span_id"] = row.get("parent_id")
    for column, *exact in _TIMES:
        for name in exact:
            if isinstance(entry.get(name), str) and not entry[name].isdigit():
                # A column of moments, whatever its name; what is none stays, and is lost data.
                entry[name] = read_time_ns(entry[name]) or entry[name]
        if row.get(column) is not None and find_first(row, *exact) is None:
            entry[exact[0]] = read_time_ns(row[column])
    status = entry.get("status") or row.get("status_code")
    if isinstance(status, (str, int)):
        entry["status"] = {"code": status, "message": text_or_none(row.get("status_message"))}
    scope = row.get("scope")
    name = text_or_none(dict_or_empty(scope).get("name")) or text_or_none(scope) or ""
    span = read_span(entry, "$", dict_or_empty(decode_container(row.get("resource"))), text_or_none(row.get("case")), name)
    if not span.trace_id:
        raise EvidenceError("$.trace_id: expected text; a span without it belongs to no trace")
    return [span]


def _read_attributes(row: dict[str, Any], value: Json) -> Json:
    """Return the attributes of a plain row: as they are, of texts alone, or each in its own column."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and isinstance(one.get("value", ""), str) for one in value):
        value = {str(one.get("key")): one.get("value") for one in value}
    if isinstance(value, dict) and all(isinstance(one, (str, type(None))) for one in value.values()):
        value = {key: text if key not in COUNTS or (count := read_digits(text, 15)) is None else count for key, text in value.items()}
    apart: dict[str, Json] = {}
    platforms.flatten_columns(row, apart)
    return {**dict_or_empty(value), **apart} if apart else value


_ALL = (
    SpanTable("phoenix", "spans of Arize Phoenix, one in every row", platforms.is_phoenix_row, platforms.read_phoenix_row),
    SpanTable("langsmith", "runs of LangSmith, one in every row", platforms.is_langsmith_row, platforms.read_langsmith_row),
    SpanTable(
        "langfuse",
        "observations of Langfuse, one in every row, or a trace with all of them",
        platforms.is_langfuse_row,
        platforms.read_langfuse_row,
        platforms.is_langfuse_trace,
    ),
    SpanTable("mlflow", "traces of MLflow, each with its spans", platforms.is_mlflow_row, platforms.read_mlflow_row, lambda row: True),
    SpanTable("spans", "spans in the words of OpenTelemetry, one in every row", _is_plain_row, _read_plain_row),
)
SPAN_TABLES: dict[str, SpanTable] = {table.name: table for table in _ALL}


def find_table(row: Json) -> SpanTable | None:
    """Return the shape of a row; None where it is no row of spans."""
    return next((table for table in _ALL if table.is_row(row)), None) if isinstance(row, dict) else None


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
    if "spans" in names and names & {"trace", "trace_metadata", "execution_duration"}:
        return SPAN_TABLES["mlflow"]
    return find_table(dict.fromkeys(names))


_WITHOUT_SPANS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset(("trace_id", "observation_id", "data_type", "value")), "scores of Langfuse"),
    (frozenset(("id", "timestamp", "bookmarked", "user_id", "session_id")), "the heads of traces of Langfuse"),
)


def find_companion_table(names: frozenset[str]) -> str | None:
    """Return which table without spans this is, of those that platforms also export, or None."""
    return next((table for columns, table in _WITHOUT_SPANS if columns <= names and "parent_observation_id" not in names), None)
