"""Observations of Langfuse: rows of its exports and of its API, in either spelling (`traceId`, `trace_id`), or a trace with all of them.

Each becomes the span that Langfuse's own SDK sends over OTLP, with the same attributes. What Langfuse took in over OTLP it keeps below
`metadata`; attributes and the name of the instrumentation are taken from there.
"""

from __future__ import annotations

from typing import Any

from proctor.errors import EvidenceError
from proctor.evidence.otlp.spans import Span, fold_id
from proctor.evidence.tables.cell_values import open_object, read_time_ns
from proctor.evidence.values.access import dict_or_empty, find_first, list_of, text_or_none
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json
from proctor.model.json_values import write_as_text

_SCOPE = "langfuse-sdk"
_PREFIX = "langfuse.observation."
_PARENTS = ("parentObservationId", "parent_observation_id")
_TRACES = ("traceId", "trace_id")
_MEMBERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("input", ("input",)),
    ("output", ("output",)),
    ("model.name", ("model", "provided_model_name", "providedModelName")),
    ("model.parameters", ("modelParameters", "model_parameters")),
    ("usage_details", ("usageDetails", "usage_details", "usage")),
    ("status_message", ("statusMessage", "status_message")),
)
"""What each attribute of the SDK is called in a row."""


def is_whole(row: dict[str, Any]) -> bool:
    """Return whether this is a trace with its observations."""
    return "id" in row and any("id" in entry and "type" in entry for entry in _list_observations(row)[:1])


def is_row(row: dict[str, Any]) -> bool:
    """Return whether this is an observation, or a trace with its observations."""
    if is_whole(row):
        return True
    # Columns that are null in a row are left out, so that a root is told by its type alone.
    told = any(name in row for name in _PARENTS) or text_or_none(row.get("type")) in _TYPES
    return told and "id" in row and any(name in row for name in _TRACES)


_TYPES = frozenset(
    ("SPAN", "GENERATION", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"),
)


def read_row(row: dict[str, Any]) -> list[Span]:
    """Return the spans of a row; raises `EvidenceError` where one belongs to no trace."""
    if is_whole(row):
        return [_read_observation({"traceId": row.get("id"), **entry}) for entry in _list_observations(row)]
    return [_read_observation(row)]


def _list_observations(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict_or_empty(decode_container(entry)) for entry in list_of(decode_container(row.get("observations")))]


def _read_observation(row: dict[str, Any]) -> Span:
    trace, id = find_first(row, *_TRACES), row.get("id")
    if not isinstance(trace, str) or not trace or not isinstance(id, str) or not id:
        raise EvidenceError("$: expected id and traceId, both texts; an observation without them belongs to no trace")
    told = dict_or_empty(decode_container(row.get("metadata")))
    # The export to blob storage has a map of texts here, with JSON in them.
    attributes: dict[str, Json] = {}
    attributes |= open_object(told.get("attributes"), "metadata.attributes", attributes)
    attributes[f"{_PREFIX}type"] = (text_or_none(row.get("type")) or "span").lower()
    for name, spellings in _MEMBERS:
        value = find_first(row, *spellings)
        if value not in (None, "", {}):
            attributes[_PREFIX + name] = write_as_text(value)
    level = text_or_none(row.get("level")) or "DEFAULT"
    if level != "DEFAULT":
        attributes[f"{_PREFIX}level"] = level
    session = find_first(row, "sessionId", "session_id")
    if isinstance(session, str) and session:
        attributes["langfuse.session.id"] = session
    return Span(
        trace_id=fold_id(trace),
        id=id,
        parent_id=text_or_none(find_first(row, *_PARENTS)) or None,
        name=text_or_none(row.get("name")) or "",
        start_ns=read_time_ns(find_first(row, "startTime", "start_time")),
        end_ns=read_time_ns(find_first(row, "endTime", "end_time")),
        attributes=attributes,
        failed=level == "ERROR",
        message=text_or_none(find_first(row, "statusMessage", "status_message")) if level == "ERROR" else None,
        scope=text_or_none(dict_or_empty(decode_container(told.get("scope"))).get("name")) or _SCOPE,
    )
