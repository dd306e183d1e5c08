"""Checks on the state of the simulated systems: each passes after the right work, and fails after wrong or no work."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.model.evidence import Evidence
from tests.simulators import test_cds, test_hl7, test_messages, test_portal, test_voice, test_x12
from tests.simulators.workplace import Workplace

CALL = [("/calls", {"to": test_voice.NUMBER}), ("/calls/CAnew-1/turns", {"say": "benefits"})]
HOOK = "/hooks/order-select"
ROWS: dict[str, tuple[str, Any, list[tuple[str, Any]], list[tuple[str, Any]], dict[str, Any]]] = {
    "hl7": (
        "hl7_message",
        {"accepts": ["ADT"]},
        [("/outbound", {"payload": test_hl7.ADT})],
        [("/outbound", {"payload": test_hl7.ADT.replace("Smith", "Smythe")}), ("/outbound", {"payload": test_hl7.ORU})],
        {"correlate_by": {"trigger_event": "A01"}, "fields": [{"path": "PID.5.1", "expected": "Smith"}]},
    ),
    "x12": (
        "x12_response",
        test_x12.SEED,
        [("/eligibility", {"patient_id": "ann"})],
        [("/eligibility", {"patient_id": "W2"}), ("/", {"payload": "no EDI"})],
        {"transaction": "271", "fields": [{"path": "EB.1", "expected": "1"}]},
    ),
    "messages": (
        "message_sent",
        test_messages.SEED,
        [("/messages", {"patient_id": "ann", "body": "See you on Tuesday"})],
        [("/messages", {"to": "+15550999", "body": "See you on Tuesday"}), ("/messages", {"patient_id": "ann", "body": "Hello"})],
        {"channel": "sms", "to": "+1 555 0101", "contains": ["tuesday"]},
    ),
    "voice": (
        "voice_said",
        {"lines": [{"number": test_voice.NUMBER, "ivr": test_voice.IVR}]},
        [*CALL, ("/calls/CAnew-1/turns", {"digits": "12345#"})],
        [*CALL, ("/calls/CAnew-1/turns", {"digits": "999#"})],
        {"speaker": "agent", "contains": ["12345"], "match": "normalized"},
    ),
    "fax": (
        "fax_document",
        {},
        [("/faxes", {"to_number": "+15550199", "text": "Missing signature"})],
        [("/faxes", {"to_number": "+15550199", "text": "Thank you"}), ("/faxes", {"to_number": "x", "text": "Missing signature"})],
        {"to": "+15550199", "pages": 1, "contains": ["missing signature"]},
    ),
    "portal": (
        "portal_record",
        test_portal.SEED,
        [("/api/prior-auths", test_portal.REQUEST)],
        [("/api/prior-auths", {**test_portal.REQUEST, "procedure_code": "73721"})],
        {"resource": "prior_auth_requests", "fields": [{"path": "status", "expected": "approved"}]},
    ),
    "cds": (
        "cds_card",
        test_cds.SEED,
        [(HOOK, {"patient_id": "ann"})],
        [(HOOK, {"patient_id": "bob"})],
        {"hook": "order-select", "indicator": "warning", "contains": ["interaction"]},
    ),
}


@pytest.mark.parametrize("kind", ROWS)
def test_the_check_of_a_kind_distinguishes_right_from_wrong_work(kind: str) -> None:
    name, seed, right, wrong, spec = ROWS[kind]
    entry = default_registry().get(name)
    decide = entry.prepare(msgspec.convert(spec, entry.spec))
    for requests, outcome in ((right, "pass"), (wrong, "fail"), ([], "fail")):
        system = Workplace(kind, seed)
        for path, body in requests:
            system.ask("POST", path, body, content_type="application/json")
        assert decide(Evidence(state=system.state())).outcome == outcome, requests
