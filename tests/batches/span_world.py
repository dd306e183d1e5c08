"""Tables of spans for the tests of batches: recordings of real agents, written as each system exports them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces.read_otlp import read_request

RECORDINGS = Path(__file__).parents[1] / "evidence" / "frameworks"
SPAN_SUITE = """\
proctor: 1
name: Spans
cases:
  - id: looked-up
    expect:
      - tool_called: lookup_order
      - response_not_empty: {}
  - id: refunded
    expect:
      - tool_called: {name: refund, arguments: {id: 17}}
      - no_tool_errors: {}
"""


def read_recording(name: str) -> list[Span]:
    """Every span of a recording, in the order of its requests."""
    document = json.loads((RECORDINGS / f"{name}.json").read_text())
    requests = document if isinstance(document, list) else [document]
    return [span for request in requests for span in read_request(request)]


def write_requests(name: str) -> list[dict[str, Any]]:
    """A request of OTLP for every span of a recording, as a collector that batches nothing writes them."""
    document = json.loads((RECORDINGS / f"{name}.json").read_text())
    found: list[dict[str, Any]] = []
    for request in document if isinstance(document, list) else [document]:
        for group in request.get("resourceSpans", []):
            for scope in group["scopeSpans"]:
                for span in scope["spans"]:
                    found.append({"resourceSpans": [{**group, "scopeSpans": [{**scope, "spans": [span]}]}]})
    return found


def write_span_row(span: Span) -> dict[str, Any]:
    """A span in the words of OpenTelemetry."""
    kind = "SPAN_KIND_CLIENT" if span.is_remote else "SPAN_KIND_SERVER" if span.is_entry else "SPAN_KIND_INTERNAL"
    return {
        "trace_id": span.trace_id,
        "span_id": span.id,
        "parent_span_id": span.parent_id,
        "name": span.name,
        "kind": kind,
        "start_time_unix_nano": span.start_ns,
        "end_time_unix_nano": span.end_ns,
        "attributes": json.dumps(span.attributes),
        "status_code": "ERROR" if span.failed else "OK",
        "status_message": span.message,
        "events": json.dumps([{"name": event.name, "attributes": event.attributes} for event in span.events]),
        "resource": json.dumps(span.resource),
        "scope": span.scope,
        "dropped_attributes_count": span.dropped,
    }


def write_phoenix_row(span: Span) -> dict[str, Any]:
    """A span as a row of Phoenix's data frame: numbered attributes gathered into lists, times without their nanoseconds."""
    row: dict[str, Any] = {
        "context.trace_id": span.trace_id,
        "context.span_id": span.id,
        "parent_id": span.parent_id,
        "name": span.name,
        "span_kind": span.attributes.get("openinference.span.kind", "UNKNOWN"),
        "start_time": _write_time(span.start_ns),
        "end_time": _write_time(span.end_ns),
        "status_code": "ERROR" if span.failed else "OK",
        "status_message": span.message or "",
        "events": [{"name": event.name, "attributes": event.attributes} for event in span.events],
    }
    return row | {f"attributes.{name}": value for name, value in gather_numbers(span.attributes).items()}


def gather_numbers(attributes: dict[str, Any]) -> dict[str, Any]:
    """Names with numbers in them as lists, at every level."""
    found: dict[str, Any] = {}
    lists: dict[str, dict[int, dict[str, Any]]] = {}
    for name, value in attributes.items():
        match = re.match(r"(.+?)\.(\d+)\.(.+)", name)
        if match is None:
            found[name] = json.loads(value) if name in ("metadata", "llm.prompt_template.variables") else value
        else:
            lists.setdefault(match[1], {}).setdefault(int(match[2]), {})[match[3]] = value
    return found | {name: [gather_numbers(entries[number]) for number in sorted(entries)] for name, entries in lists.items()}


def write_langfuse_row(span: Span) -> dict[str, Any]:
    """A span of Langfuse's SDK as an observation of its API."""
    attributes = {name.removeprefix("langfuse.observation."): value for name, value in span.attributes.items()}
    others = {name: value for name, value in span.attributes.items() if not name.startswith("langfuse.observation.")}
    return {
        "id": span.id,
        "traceId": span.trace_id,
        "parentObservationId": span.parent_id,
        "type": str(attributes.get("type", "span")).upper(),
        "name": span.name,
        "startTime": _write_time(span.start_ns).isoformat(),
        "endTime": _write_time(span.end_ns).isoformat(),
        "input": _decode(attributes.get("input")),
        "output": _decode(attributes.get("output")),
        "model": attributes.get("model.name"),
        "modelParameters": _decode(attributes.get("model.parameters")),
        "usageDetails": _decode(attributes.get("usage_details")),
        "level": attributes.get("level", "ERROR" if span.failed else "DEFAULT"),
        "statusMessage": attributes.get("status_message"),
        "metadata": {"attributes": others, "scope": {"name": span.scope}},
    }


def write_langsmith_row(span: Span) -> dict[str, Any]:
    """A span of LangSmith's SDK as a run of its API."""
    own = span.attributes
    metadata = {name.removeprefix("langsmith.metadata."): value for name, value in own.items() if name.startswith("langsmith.metadata.")}
    parameters = {"model": own.get("gen_ai.request.model"), "tools": _decode(own.get("gen_ai.tool.definitions"))}
    return {
        "id": span.id,
        "trace_id": span.trace_id,
        "parent_run_id": span.parent_id,
        "run_type": own.get("langsmith.span.kind", "chain"),
        "name": span.name,
        "start_time": _write_time(span.start_ns).isoformat(),
        "end_time": _write_time(span.end_ns).isoformat(),
        "inputs": _decode(own.get("gen_ai.prompt")),
        "outputs": _decode(own.get("gen_ai.completion")),
        "error": next((event.attributes["exception.message"] for event in span.events if event.name == "exception"), None),
        "prompt_tokens": own.get("gen_ai.usage.input_tokens"),
        "completion_tokens": own.get("gen_ai.usage.output_tokens"),
        "total_tokens": own.get("gen_ai.usage.total_tokens"),
        "extra": {"metadata": metadata, "invocation_params": {key: value for key, value in parameters.items() if value is not None}},
    }


def write_mlflow_rows(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Traces of MLflow as `search_traces` gives them, one in every row."""
    traces: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        row = {
            "trace_id": f"tr-{span.trace_id}",
            "otel_trace_id": span.trace_id,
            "span_id": span.id,
            "parent_span_id": span.parent_id,
            "name": span.name,
            "start_time_unix_nano": span.start_ns,
            "end_time_unix_nano": span.end_ns,
            "events": [{"name": event.name, "time_unix_nano": 0, "attributes": event.attributes} for event in span.events],
            "status": {"code": "ERROR" if span.failed else "OK", "message": span.message or ""},
            "attributes": span.attributes,
            "_mlflow_span_dict_version": 4,
        }
        traces.setdefault(span.trace_id, []).append(row)
    return [{"trace_id": f"tr-{id}", "state": "OK", "execution_duration": 5, "spans": spans} for id, spans in traces.items()]


def drop_nothing(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without null values, as read from a Parquet file."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _write_time(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds // 10**9, UTC).replace(microsecond=nanoseconds // 1000 % 10**6)


def _decode(value: Any) -> Any:
    try:
        found = json.loads(value)
    except (TypeError, ValueError):
        return value
    return found if isinstance(found, (dict, list)) else value
