"""Results as OpenTelemetry events: `gen_ai.evaluation.result` of the GenAI conventions, as OTLP log requests.

One event for every case that was decided (`proctor.result.kind` is `case`) and one for each of its assertions (`assertion`). An event
belongs to the evaluated span if it is known, else to its trace. The names of the convention are used where they exist:

    gen_ai.evaluation.name          the id of the case; for an assertion `CASE/ID`, or `CASE/CHECK` without an id
    gen_ai.evaluation.score.value   the score; missing for `error` and `skip`
    gen_ai.evaluation.score.label   pass, fail, error, skip
    gen_ai.evaluation.explanation   the reason
    gen_ai.response.id              if the trace has it
    error.type                      with `error`: the code

The rest is under `proctor.`. Requests are written as protobuf, which every receiver accepts, or as JSON, one per line, for the Collector's
`otlpjsonfile`; in JSON, ids are hexadecimal, as OTLP requires.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, cast

import msgspec

from proctor.errors import MissingExtra
from proctor.model.evidence import Json
from proctor.model.json_values import decode_any_json, is_finite, is_number
from proctor.model.result import CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.model.show import count_rest
from proctor.report.data.json_text import CaseEncoder

EVENT = "gen_ai.evaluation.result"
LONGEST_TEXT = 4_000
"""Characters of one attribute; a reason may quote a whole answer."""
AT_ONCE = 500
"""Events in one request."""
_MOST_REASONS = 5
"""Reasons of failed assertions that explain a failed case."""
_SEVERITIES = {"fail": (13, "WARN"), "error": (17, "ERROR")}
_INFO = (9, "INFO")

Value = str | int | float | bool
_KINDS = {bool: "bool", int: "int", float: "double", str: "string"}
"""What OTLP calls the type of an attribute."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What was evaluated, and when. Ids that OpenTelemetry does not allow are left out."""

    time_ns: int
    case: str = ""
    """The name of the case if the result lacks it."""
    trace_id: str = ""
    span_id: str = ""
    response_id: str | None = None
    attributes: Mapping[str, Value | None] = {}
    """Additional attributes of every event; None is left out."""


class EvaluationEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event, ready to be written."""

    time_ns: int
    trace_id: str
    span_id: str
    outcome: str
    attributes: dict[str, Value]

    @property
    def severity(self) -> tuple[int, str]:
        """The severity as number and name."""
        return _SEVERITIES.get(self.outcome, _INFO)


def iterate_events(result: Mapping[str, Json], about: About) -> Iterator[EvaluationEvent]:
    """Yield the events of one result in its JSON form."""
    trace_id = _read_id(about.trace_id, 32)
    # A span id needs its trace.
    span_id = _read_id(about.span_id, 16) if trace_id else ""
    case: str = result.get("id") or about.case or "case"
    assertions: Sequence[Mapping[str, Json]] = result.get("assertions") or ()
    shared: dict[str, Json] = {"gen_ai.response.id": about.response_id, "proctor.case.id": case, **about.attributes}

    def event(kind: str, name: str, decided: Mapping[str, Json], explanation: Json, more: Mapping[str, Json]) -> EvaluationEvent:
        outcome = str(decided.get("outcome"))
        attributes: dict[str, Json] = {
            "gen_ai.evaluation.name": name,
            "gen_ai.evaluation.score.value": _read_score(decided, outcome),
            "gen_ai.evaluation.score.label": outcome,
            "gen_ai.evaluation.explanation": explanation,
            # `_OTHER` is OpenTelemetry's value for an error without a name.
            "error.type": (decided.get("code") or "_OTHER") if outcome == "error" else None,
            **shared,
            "proctor.result.kind": kind,
            "proctor.code": decided.get("code"),
            **more,
        }
        return EvaluationEvent(
            time_ns=about.time_ns, trace_id=trace_id, span_id=span_id, outcome=outcome, attributes=dict(_list_usable(attributes))
        )

    verdict = {"proctor.verdict": result.get("verdict"), "proctor.case.name": result.get("name")}
    yield event("case", case, result, result.get("reason") or _explain_assertions(assertions), verdict)
    for number, assertion in enumerate(assertions):
        known = {
            "proctor.check": assertion.get("check"),
            "proctor.assertion.id": assertion.get("id"),
            "proctor.assertion.number": number,
            "proctor.assertion.label": assertion.get("label"),
            "proctor.turn": assertion.get("turn"),
            "proctor.advisory": assertion.get("advisory"),
        }
        name = f"{case}/{assertion.get('id') or assertion.get('check')}"
        yield event("assertion", name, assertion, assertion.get("reason"), known)


def render_otlp(run: RunResult, entries: Mapping[tuple[str, int], RunEntry]) -> Iterator[bytes]:
    """Yield a stored run as lines of OTLP JSON; `entries` have the time and trace of each attempt."""
    requests = group_by_request(
        event for result in run.cases for event in _list_run_events(run, result, entries.get((result.id, result.attempt)))
    )
    return (to_json(events) + b"\n" for events in requests)


def _list_run_events(run: RunResult, result: CaseResult, entry: RunEntry | None) -> Iterator[EvaluationEvent]:
    metadata = entry.evidence.metadata if entry is not None and entry.evidence is not None else {}
    about = About(
        time_ns=_find_end_ns(entry, run.started_at),
        trace_id=_read_text(metadata.get("trace_id")),
        span_id=_read_text(metadata.get("span_id")),
        attributes={"proctor.run.id": run.run_id, "proctor.suite": run.suite_name, "proctor.attempt": result.attempt},
    )
    return iterate_events(cast("dict[str, Json]", decode_any_json(CaseEncoder().encode(result))), about)


def _find_end_ns(entry: RunEntry | None, run_started: str) -> int:
    started = (entry.started_at if entry is not None else "") or run_started
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    took = entry.duration_ms if entry is not None and entry.duration_ms is not None else 0.0
    # Whole milliseconds: nanoseconds since 1970 are not exact as a float.
    return int(moment.timestamp() * 1_000 + took) * 1_000_000


def group_by_request(events: Iterable[EvaluationEvent]) -> Iterator[list[EvaluationEvent]]:
    """Yield events in batches of a request."""
    waiting = iter(events)
    while batch := list(islice(waiting, AT_ONCE)):
        yield batch


def to_json(events: Iterable[EvaluationEvent]) -> bytes:
    """Return one request in JSON, without a line break."""
    records = [_write_record(event) for event in events]
    resource = {"attributes": _write_attributes({"service.name": "proctor"})}
    scope = {"scope": {"name": "proctor"}, "logRecords": records}
    return msgspec.json.encode({"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]})


def to_protobuf(events: Iterable[EvaluationEvent]) -> bytes:
    """Return one request in protobuf. Raises `MissingExtra`."""
    # Imported late: protobuf takes a tenth of a second and is optional.
    try:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    except ImportError:
        raise MissingExtra("OTLP protobuf", "otlp") from None
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    _fill(group.resource.attributes, {"service.name": "proctor"})
    scope = group.scope_logs.add()
    scope.scope.name = "proctor"
    for event in events:
        record = scope.log_records.add()
        record.time_unix_nano = record.observed_time_unix_nano = event.time_ns
        record.severity_number, record.severity_text = event.severity  # type: ignore[assignment]  # an enumeration, by its number
        record.event_name = EVENT
        record.trace_id, record.span_id = bytes.fromhex(event.trace_id), bytes.fromhex(event.span_id)
        _fill(record.attributes, event.attributes)
    return request.SerializeToString()


def _write_record(event: EvaluationEvent) -> dict[str, Json]:
    number, name = event.severity
    record: dict[str, Json] = {
        "timeUnixNano": str(event.time_ns),
        "observedTimeUnixNano": str(event.time_ns),
        "severityNumber": number,
        "severityText": name,
        "eventName": EVENT,
        "attributes": _write_attributes(event.attributes),
    }
    if event.trace_id:
        record["traceId"] = event.trace_id
    if event.span_id:
        record["spanId"] = event.span_id
    return record


def _write_attributes(attributes: Mapping[str, Value]) -> list[dict[str, Json]]:
    return [{"key": key, "value": _write_value(value)} for key, value in attributes.items()]


def _write_value(value: Value) -> dict[str, Json]:
    kind = _KINDS[type(value)]
    # OTLP writes 64-bit integers as text.
    return {f"{kind}Value": str(value) if kind == "int" else value}


def _fill(holder: Any, attributes: Mapping[str, Value]) -> None:
    for key, value in attributes.items():
        setattr(holder.add(key=key).value, f"{_KINDS[type(value)]}_value", value)


def _list_usable(attributes: Mapping[str, Json]) -> Iterator[tuple[str, Value]]:
    for key, value in attributes.items():
        if isinstance(value, str):
            if value:
                # Lone surrogates, which neither form allows.
                yield key, value[:LONGEST_TEXT].encode("utf-8", errors="replace").decode()
        # OTLP has signed 64-bit integers; protobuf raises for larger ones.
        elif isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 2**63):
            yield key, value


def _read_score(decided: Mapping[str, Json], outcome: str) -> float | None:
    if outcome not in ("pass", "fail"):
        return None
    score: Json = decided.get("score")
    if is_number(score) and is_finite(score):
        return float(score)
    return 1.0 if outcome == "pass" else 0.0


def _explain_assertions(assertions: Sequence[Mapping[str, Json]]) -> str | None:
    if not assertions:
        return None
    against = [assertion for assertion in assertions if assertion.get("outcome") in ("fail", "error") and not assertion.get("advisory")]
    if not against:
        passed = sum(assertion.get("outcome") == "pass" for assertion in assertions)
        return f"{passed} of {len(assertions)} assertions passed"
    reasons = [str(assertion.get("reason")) for assertion in against[:_MOST_REASONS]]
    return "; ".join(reasons) + count_rest(len(against), _MOST_REASONS, "; and")


def _read_id(text: str, digits: int) -> str:
    """Return a valid OpenTelemetry id, else None: hexadecimal, not all zeros."""
    lowered = text.lower()
    fits = len(lowered) == digits and set(lowered) <= set("0123456789abcdef") and set(lowered) != {"0"}
    return lowered if fits else ""


def _read_text(value: Json) -> str:
    return value if isinstance(value, str) else ""
