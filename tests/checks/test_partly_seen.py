"""Claims that hold for the seen part only do not pass if other parts were not seen."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

import proctor
from proctor.model.account import Account

PATIENT = {"resourceType": "Patient", "id": "1", "gender": "male"}
STATE = {"fhir": [PATIENT], "records": {"orders": [{"id": "1", "status": "open"}]}}
FIELD = [{"path": "gender", "expected": "male"}]
ROW = [{"path": "status", "expected": "open"}]


def outcome(claim: dict[str, Any], record: dict[str, Any], unknown: dict[str, str] | None = None) -> str:
    suite = proctor.parse_suite(json.dumps({"proctor": 1, "cases": [{"id": "a", "expect": [claim]}]}))
    evidence = proctor.read_evidence(record)
    if unknown:
        evidence = msgspec.structs.replace(evidence, account=Account(reader="plain", unknown=unknown))  # type: ignore[arg-type]
    return proctor.check(suite, [evidence]).cases[0].verdicts[0].outcome


@pytest.mark.parametrize(
    ("claim", "partly"),
    [
        ({"fhir_resource": {"resource_type": "Patient", "count": 1}}, "fail"),
        ({"fhir_resource": {"resource_type": "Patient", "match": "exactly_one", "fields": FIELD}}, "fail"),
        ({"fhir_resource": {"resource_type": "Patient", "match": "all", "fields": FIELD}}, "fail"),
        ({"fhir_resource": {"resource_type": "Appointment", "count": 0}}, "error"),
        ({"fhir_resource": {"resource_type": "Appointment", "absent": True}}, "error"),
        ({"fhir_resource": {"resource_type": "Patient", "fields": FIELD}}, "pass"),
        ({"records_match": {"collection": "orders", "count": 1}}, "fail"),
        ({"records_match": {"collection": "orders", "match": "exactly_one", "fields": ROW}}, "fail"),
        ({"records_match": {"collection": "orders", "match": "all", "fields": ROW}}, "fail"),
        ({"records_match": {"collection": "orders", "where": {"id": "2"}, "count": 0}}, "error"),
        ({"records_match": {"collection": "orders", "fields": ROW}}, "pass"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(str(value).translate({ord(sign): None for sign in "{}'[]:,"}).split()),
)
def test_how_many_and_all_are_certain_only_where_all_was_seen(claim: dict[str, Any], partly: str) -> None:
    assert outcome(claim, {"text": "done", "state": STATE}) == "pass"
    assert outcome(claim, {"text": "done", "state": STATE}, {"state": "a file of it is broken"}) == partly


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ({"voice_said": {"not_contains": ["credit card"]}}, "error"),
        ({"voice_said": {"contains": ["hello"]}}, "pass"),
        ({"request_made": {"path": "/orders", "at_least": 0, "at_most": 1}}, "error"),
        ({"request_made": {"path": "/patients", "at_most": 1}}, "pass"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(str(value).translate({ord(sign): None for sign in "{}'[]:,"}).split()),
)
def test_unplayed_steps_are_not_blamed_on_the_agent(claim: dict[str, Any], expected: str) -> None:
    request = {"system": "shop", "method": "GET", "path": "/patients", "status": 200}
    record = {"text": "done", "state": {"voice": [{"speaker": "agent", "text": "hello"}], "requests": [request]}}
    assert outcome(claim, record) == "pass"
    suite = proctor.parse_suite(json.dumps({"proctor": 1, "cases": [{"id": "a", "expect": [claim]}]}))
    evidence = msgspec.structs.replace(proctor.read_evidence(record), account=Account(reader="plain", unplayed=("a step did not happen",)))
    assert proctor.check(suite, [evidence]).cases[0].verdicts[0].outcome == expected


def test_a_path_that_is_too_long_for_a_pattern_may_be_the_file_that_should_not_be_there() -> None:
    files = [{"path": "outbound/" + "a" * 2_000, "content": ""}]
    claim = {"file_present": {"path": "outbound/*", "absent": True}}
    assert outcome(claim, {"text": "done", "state": {"files": files}}) == "error"
    assert outcome(claim, {"text": "done", "state": {"files": [{"path": "inbound/a", "content": ""}]}}) == "pass"
    assert outcome(claim, {"text": "done", "state": {"files": [*files, {"path": "outbound/b", "content": ""}]}}) == "fail"


def test_a_request_whose_path_is_too_long_for_a_pattern_may_be_one_too_many() -> None:
    short = {"system": "shop", "method": "POST", "path": "/orders/1", "status": 201}
    long = {"system": "shop", "method": "POST", "path": "/orders/" + "a" * 2_000, "status": 201}
    for at_most, requests, expected in ((1, [short], "pass"), (1, [short, long], "fail"), (None, [short, long], "pass")):
        claim = {"request_made": {"path": "/orders/*", "system": "shop", **({} if at_most is None else {"at_most": at_most})}}
        assert outcome(claim, {"text": "done", "state": {"requests": requests}}) == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 10, "output_tokens": 5}, "pass"),
        ({"total_tokens": 15}, "pass"),
        ({"input_tokens": 10}, "fail"),
        ({"output_tokens": 10}, "fail"),
        ({"input_tokens": 200}, "fail"),
    ],
)
def test_one_half_of_the_tokens_is_no_total(usage: dict[str, int], expected: str) -> None:
    assert outcome({"tokens_within": {"total": 100}}, {"text": "done", "usage": usage}) == expected


@pytest.mark.parametrize(
    ("pattern", "should_match", "partly"),
    [
        ("order", True, "pass"),
        ("order", False, "fail"),
        ("refund", True, "fail"),
        ("refund", False, "error"),
        # The end of a partial answer is not the end of the whole answer.
        ("50$", True, "fail"),
        ("50$", False, "error"),
        (r"50\b", False, "error"),
        ("5(?!000)", False, "error"),
        # These are dollars.
        (r"\$50", True, "pass"),
        (r"\$50", False, "fail"),
        ("[$]50", False, "fail"),
        (r"[\]$]50", False, "fail"),
        (r"\\?50$", False, "error"),
    ],
)
def test_the_end_of_a_partial_answer_decides_nothing_about_the_whole(pattern: str, should_match: bool, partly: str) -> None:
    claim = {"response_matches": {"pattern": pattern, "should_match": should_match}}
    assert outcome(claim, {"text": "your order costs $50"}, {"answer": "it was cut off"}) == partly
