"""Results as OpenTelemetry events: their content, and that both forms of OTLP agree."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry
from proctor.model.verdict import errored, failed, missing, passed, skipped
from proctor.report.data.evaluation_events import (
    AT_ONCE,
    LONGEST_TEXT,
    About,
    group_by_request,
    iterate_events,
    render_otlp,
    to_json,
    to_protobuf,
)
from tests.report.samples import claim, decided, run_of

TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"
ABOUT = About(time_ns=1_800_000_000_000_000_000, trace_id=TRACE, span_id=SPAN)


def refund() -> CaseResult:
    case = Case(
        id="refund",
        name="A refund",
        assertions=(
            claim("the order is looked up", id="lookup"),
            claim("names the amount", check="response_contains"),
            claim("polite", turn=1),
        ),
    )
    return decided(case, passed("called once"), failed("expected '$40', found '$4'", score=0.25), errored("judge_unavailable", "no judge"))


def of_json(line: bytes) -> ExportLogsServiceRequest:
    """OTLP's own JSON has ids in hexadecimal, where protobuf's has base64."""
    document = json.loads(line)
    for group in document["resourceLogs"]:
        for scope in group["scopeLogs"]:
            for record in scope["logRecords"]:
                for name in ("traceId", "spanId"):
                    if name in record:
                        record[name] = base64.b64encode(bytes.fromhex(record[name])).decode()
    return json_format.ParseDict(document, ExportLogsServiceRequest())


def records(request: ExportLogsServiceRequest) -> list[Any]:
    return [record for group in request.resource_logs for scope in group.scope_logs for record in scope.log_records]


def attributes(record: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in record.attributes}


def document(result: CaseResult) -> dict[str, Any]:
    from proctor.report.data.json_text import CaseEncoder

    return json.loads(CaseEncoder().encode(result))


def test_a_case_and_each_of_its_assertions_is_an_event_of_the_convention() -> None:
    found = ExportLogsServiceRequest.FromString(to_protobuf(iterate_events(document(refund()), ABOUT)))
    case, *assertions = records(found)
    assert {record.event_name for record in records(found)} == {"gen_ai.evaluation.result"}
    assert {(record.trace_id.hex(), record.span_id.hex()) for record in records(found)} == {(TRACE, SPAN)}
    assert {record.time_unix_nano for record in records(found)} == {ABOUT.time_ns}
    fields = attributes(case)
    assert fields["gen_ai.evaluation.name"] == fields["proctor.case.id"] == "refund"
    assert (fields["gen_ai.evaluation.score.label"], fields["proctor.result.kind"]) == ("fail", "case")
    assert fields["gen_ai.evaluation.score.value"] == refund().score and "error.type" not in fields
    assert fields["gen_ai.evaluation.explanation"] == "expected '$40', found '$4'; no judge"
    lookup, amount, polite = map(attributes, assertions)
    assert [fields["gen_ai.evaluation.name"] for fields in (lookup, amount, polite)] == [
        "refund/lookup",
        "refund/response_contains",
        "refund/tool_called",
    ]
    assert (lookup["gen_ai.evaluation.score.value"], lookup["gen_ai.evaluation.score.label"]) == (1.0, "pass")
    assert (amount["gen_ai.evaluation.score.value"], amount["gen_ai.evaluation.score.label"]) == (0.25, "fail")
    assert amount["gen_ai.evaluation.explanation"] == "expected '$40', found '$4'" and "error.type" not in amount
    assert (polite["error.type"], polite["proctor.code"], polite["proctor.turn"]) == ("judge_unavailable", "judge_unavailable", 1)
    assert [record.severity_text for record in records(found)] == ["WARN", "INFO", "WARN", "ERROR"]


def test_a_case_that_could_not_be_decided_has_no_score_but_a_type_of_error() -> None:
    case = Case(id="c", assertions=(claim("polite"),))
    whole, _ = iterate_events(document(decided(case, errored("judge_unavailable", "no judge"))), ABOUT)
    assert (whole.attributes["gen_ai.evaluation.score.label"], whole.attributes["error.type"]) == ("error", "_OTHER")
    assert "gen_ai.evaluation.score.value" not in whole.attributes
    unusable = next(iterate_events({"id": None, "outcome": "error", "code": "unusable_spec"}, About(time_ns=1, case="case_1")))
    assert (unusable.attributes["gen_ai.evaluation.name"], unusable.attributes["error.type"]) == ("case_1", "unusable_spec")


def test_json_and_protobuf_say_the_same() -> None:
    events = list(iterate_events(document(refund()), ABOUT))
    assert of_json(to_json(events)) == ExportLogsServiceRequest.FromString(to_protobuf(events))
    assert b"\n" not in to_json(events)


@settings(max_examples=60, deadline=None)
@given(reason=st.text(st.characters(exclude_categories=())), score=st.floats(), id=st.text(), trace=st.text(), span=st.text())
def test_nothing_in_a_result_makes_a_request_that_cannot_be_read(reason: str, score: float, id: str, trace: str, span: str) -> None:
    claims = [{"outcome": "fail", "score": score, "reason": reason, "check": "x", "id": id, "code": reason}]
    result = {"id": id, "outcome": "fail", "score": score, "assertions": claims}
    about = About(time_ns=1, trace_id=trace, span_id=span, attributes={"proctor.run.id": reason, "proctor.attempt": 2**70})
    events = list(iterate_events(result, about))
    assert of_json(to_json(events)) == ExportLogsServiceRequest.FromString(to_protobuf(events))
    assert all(len(value) <= LONGEST_TEXT for event in events for value in event.attributes.values() if isinstance(value, str))


def test_ids_that_are_none_of_opentelemetry_are_left_out() -> None:
    for trace, span, expected in (
        ("request-1", SPAN, ("", "")),
        ("0" * 32, SPAN, ("", "")),
        (TRACE.upper(), "x" * 16, (TRACE, "")),
        (TRACE, "", (TRACE, "")),
    ):
        event = next(iterate_events({"id": "c", "outcome": "pass"}, About(time_ns=1, trace_id=trace, span_id=span)))
        assert (event.trace_id, event.span_id) == expected


def test_a_long_explanation_is_cut_and_many_failures_are_counted() -> None:
    case = Case(id="c", assertions=tuple(claim(str(number)) for number in range(8)))
    result = decided(case, *(failed(f"reason {number}") for number in range(7)), failed("x" * 10_000))
    events = list(iterate_events(document(result), ABOUT))
    explanation = events[0].attributes["gen_ai.evaluation.explanation"]
    assert str(explanation).startswith("reason 0; reason 1") and str(explanation).endswith("and 3 more")
    assert len(str(events[-1].attributes["gen_ai.evaluation.explanation"])) == LONGEST_TEXT


def test_skipped_and_missing_evidence_have_their_own_outcome() -> None:
    case = Case(id="c", assertions=(claim("a"), claim("b")))
    _, absent, left = iterate_events(document(decided(case, missing("tool calls"), skipped("dependency_failed", "not decided"))), ABOUT)
    assert (absent.attributes["gen_ai.evaluation.score.value"], absent.attributes["proctor.code"]) == (0.0, "missing_evidence")
    assert left.attributes["gen_ai.evaluation.score.label"] == "skip" and "gen_ai.evaluation.score.value" not in left.attributes


def test_a_run_is_lines_of_requests_with_its_traces_and_times() -> None:
    evidence = Evidence(text="x", metadata={"trace_id": TRACE})
    entry = RunEntry(case="refund", outcome="error", started_at="2026-11-15T09:00:00.500+00:00", duration_ms=250.0, evidence=evidence)
    run = run_of(refund(), started_at="2026-11-15T08:00:00Z")
    (line,) = render_otlp(run, {("refund", 0): entry})
    assert line.endswith(b"\n")
    first = records(of_json(line))[0]
    assert first.trace_id.hex() == TRACE and first.time_unix_nano == 1_794_733_200_750_000_000
    assert attributes(first)["proctor.run.id"] == "run-1" and attributes(first)["proctor.attempt"] == 0
    (without,) = render_otlp(run, {})
    assert records(of_json(without))[0].time_unix_nano == 1_794_729_600_000_000_000


def test_half_a_character_does_not_keep_a_run_from_being_written() -> None:
    half = "a\ud83db"
    case = Case(id=half, name=half, assertions=(claim(half),))
    (line,) = render_otlp(run_of(decided(case, failed(half))), {})
    listed = [attributes(record) for record in records(of_json(line))]
    assert [one["gen_ai.evaluation.explanation"] for one in listed][1:] == ["a?b"]


def test_many_events_are_several_requests() -> None:
    event = next(iterate_events({"id": "c", "outcome": "pass"}, ABOUT))
    assert [len(batch) for batch in group_by_request([event] * (2 * AT_ONCE + 1))] == [AT_ONCE, AT_ONCE, 1]
