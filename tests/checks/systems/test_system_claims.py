"""`request_made`, `request_not_made` and `unchanged` from tables, and their Verial forms."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.evidence.reading import read_document
from proctor.formats.suites import read_suite
from proctor.model.account import Account
from proctor.model.evidence import Evidence, State, StateChange, StateRequest
from tests.checks.state_tables import verify
from tests.tables import rows

REQUESTS = [
    {"system": "clinic", "method": "GET", "path": "/Slot?status=free", "status": 200},
    {"system": "clinic", "method": "POST", "path": "/Appointment", "status": 201},
    {"system": "clinic", "method": "PUT", "path": "/Patient/ann", "status": 412},
    {"system": "drop", "method": "PUT", "path": "/outbox/a.json", "status": 201},
]


@rows("checks/cases/requests.yaml")
def test_requests_decide(row: dict[str, Any]) -> None:
    verify(row["check"], {"state": {"requests": REQUESTS}, **row})


@rows("checks/cases/unchanged.yaml")
def test_unchanged_decides(row: dict[str, Any]) -> None:
    verify("unchanged", row)


@pytest.mark.parametrize("check", ["unchanged", "request_not_made"])
def test_a_claim_of_absence_is_an_error_without_a_recording(check: str) -> None:
    registry = default_registry()
    assert registry.prepare(check, registry.get(check).spec())(Evidence(state=State())).outcome == "error"


def test_recorded_evidence_shows_requests_changes_and_records() -> None:
    changes = [{"system": "shop", "change": "added", "place": "orders/7", "after": {"id": 7}}]
    document = {"text": "ok", "state": {"requests": REQUESTS, "changes": changes, "records": {"orders": [{"id": 7}]}}}
    (evidence,) = read_document(document, format="plain")
    assert evidence.state == State(
        requests=tuple(StateRequest(**request) for request in REQUESTS),
        changes=(StateChange(system="shop", change="added", place="orders/7", after={"id": 7}),),
        records={"orders": [{"id": 7}]},
    )


def read_criterion(assertion: dict[str, Any]) -> Any:
    task = {"name": "t", "criteria": [{"label": "c", "assertion": assertion}]}
    return read_suite(json.dumps(task), dialect="verial").cases[0].assertions[0]


@pytest.mark.parametrize(
    ("assertion", "check", "spec"),
    [
        ({"assert": "unchanged"}, "unchanged", {}),
        ({"assert": "unchanged", "besides": "clinic/Appointment/*"}, "unchanged", {"besides": ["clinic/Appointment/*"]}),
        (
            {"assert": "unchanged", "allowed": [{"place": "a/*", "atMost": 1}]},
            "unchanged",
            {"allowed": [{"place": "a/*", "at_most": 1}]},
        ),
        ({"assert": "request-made", "method": "POST", "atMost": 1}, "request_made", {"method": "POST", "at_most": 1}),
        ({"assert": "requestNotMade", "path": "/x"}, "request_not_made", {"path": "/x"}),
    ],
)
def test_verial_criteria_are_read(assertion: dict[str, Any], check: str, spec: dict[str, Any]) -> None:
    found = read_criterion(assertion)
    assert (found.check, msgspec.json.decode(msgspec.json.encode(found.spec))) == (check, spec)


@pytest.mark.parametrize(
    "assertion",
    [
        {"assert": "unchanged", "beside": []},
        {"assert": "unchanged", "allowed": [{"plaice": "a"}]},
        {"assert": "request-made", "status": "created"},
    ],
)
def test_a_criterion_that_is_not_understood_fails(assertion: dict[str, Any]) -> None:
    assert read_criterion(assertion).check == "unsupported"


def test_a_path_that_is_too_long_to_look_at_is_not_known() -> None:
    request = {"system": "shop", "method": "DELETE", "path": "/orders/" + "a" * 2_000, "status": 204}
    row = {"spec": {"path": "/*/a"}, "state": {"requests": [request]}, "expect": {"outcome": "fail", "code": "missing_evidence"}}
    verify("request_not_made", row)


@pytest.mark.parametrize(
    ("check", "given", "outcome"),
    [
        ("unchanged", {}, "error"),
        ("request_not_made", {"method": "DELETE"}, "error"),
        ("records_match", {"collection": "orders", "where": {"id": 8}, "absent": True}, "error"),
        ("records_match", {"collection": "orders", "where": {"id": 8}, "count": 0}, "error"),
        ("records_match", {"collection": "orders", "where": {"id": 7}}, "pass"),
        ("request_made", {"method": "GET"}, "pass"),
        ("request_not_made", {"method": "GET"}, "fail"),
    ],
)
def test_nothing_is_ruled_out_where_the_scenario_was_not_played_to_its_end(check: str, given: dict[str, Any], outcome: str) -> None:
    request = StateRequest(system="shop", method="GET", path="/orders", status=200)
    state = State(requests=(request,), changes=(), records={"orders": [{"id": 7}]}, systems=("shop",))
    evidence = Evidence(state=state, account=Account(unplayed=("the step add_row of shop, due after 60 s, did not happen",)))
    registry = default_registry()
    verdict = registry.prepare(check, msgspec.convert(given, registry.get(check).spec))(evidence)
    assert verdict.outcome == outcome
    assert outcome != "error" or "due after 60 s" in verdict.reason
