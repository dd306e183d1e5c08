"""A simulated system answers or refuses any request, and a refusal changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.simulators.ports import list_kinds
from tests.simulators.workplace import Workplace, find_own_tests

SEEDS: dict[str, Any] = {
    "fhir": [
        {"resourceType": "Patient", "id": "ann", "name": [{"family": "Smith"}], "birthDate": "1980"},
        {"resourceType": "Appointment", "id": "a1", "participant": [{"actor": {"reference": "Patient/ann"}}]},
    ],
    "files": {"inbox/a.txt": "a"},
    "records": {
        "orders": {
            "rows": [{"id": 7, "total": 3}],
            "unique": [
                "number",
            ],
            "schema": {"type": "object"},
        },
        "notes": [],
    },
    "hl7": {"inbox": ["MSH|^~\\&|A|B|C|D|2026||ADT^A01|1|P|2.5\rPID|1||17"], "rules": [{"when": {"PID.3.1": None}, "reason": "none"}]},
    "x12": {"members": [{"member_id": "ann", "benefits": [{"copay": 5}]}], "claims": [{"claim_number": "7", "member_id": "ann"}]},
    "messages": {"people": [{"id": "ann", "phone": "+15550101"}], "answers": ["Yes."]},
    "voice": {"lines": [{"number": "+15550101", "ivr": {"start": {"say": "Hi.", "options": [{"press": "1", "go": "start"}]}}}]},
    "fax": {"inbox": [{"text": "Hello", "patient_id": "ann"}]},
    "portal": {"password": "x", "patients": [{"member_id": "ann"}], "requests": [{"patient_member_id": "ann"}]},
    "cds": {"services": [{"id": "ann", "hook": "patient-view", "cards": [{"summary": "Hello"}]}]},
}
SEEDS.update({kind: module.SEED for kind, module in find_own_tests(SEEDS).items()})
WORDS = st.sampled_from(
    [
        "Patient",
        "Appointment",
        "Bundle",
        "ann",
        "a1",
        "orders",
        "notes",
        "7",
        "inbox",
        "a.txt",
        "_search",
        "_history",
        "metadata",
        "token",
        "$everything",
        "1",
        "..",
        "%2e%2e",
        "%00",
        "%ff",
        "outbound",
        "eligibility",
        "transactions",
        "270",
        "276",
        "278",
        "messages",
        "SMnew-1",
        "2010-04-01",
        "Accounts",
        "Messages.json",
        "calls",
        "CAnew-1",
        "turns",
        "answer",
        "hangup",
        "faxes",
        "fax_new-1",
        "document",
        "login",
        "logout",
        "requests",
        "new",
        "submit",
        "REQ-0001",
        "patients",
        "api",
        "prior-auths",
        "providers",
        "services",
        "hooks",
        "patient-view",
        "feedback",
        "cds-services",
    ]
)
NAMES = st.sampled_from(
    [
        "_id",
        "_count",
        "_sort",
        "_include",
        "_revinclude",
        "_elements",
        "_offset",
        "_summary",
        "name",
        "birthdate",
        "patient",
        "patient.name",
        "patient:Patient.name",
        "total",
        "total__gte",
        "total__exists",
        "status:not",
        "_limit",
        "prefix",
    ]
)
VALUES = st.sampled_from(
    [
        "ann",
        "7",
        "-1",
        "x",
        "ge2026",
        "ge",
        "9999999999999",
        "Appointment:patient",
        "*",
        "Patient:",
        ",",
        "|",
        "\\",
        "a|b|c",
        "true",
    ]
) | st.text(max_size=8)
HL7 = "MSH|^~\\&|A|B|C|D|2026||ADT^A01|1|P|2.5\rPID|1||17\r"
EDI = (
    "ISA*00*          *00*          *ZZ*CLINIC         *ZZ*ACME           *261116*0930*^*00501*000000905*0*P*:~"
    "GS*HS*A*B*2*0*1*X*005010X279A1~ST*270*0001~BHT*0022*13*1*2*0~HL*1**20*1~NM1*IL*1*S*A****MI*ann~EQ*30~SE*6*0001~GE*1*1~IEA*1*000000905~"
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "Patient", "Bundle", "transaction", "ann", "POST", "Patient/ann", "+15550101", "1", EDI, HL7, "patient-view"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "resourceType",
                    "id",
                    "type",
                    "entry",
                    "request",
                    "method",
                    "url",
                    "resource",
                    "meta",
                    "versionId",
                    "name",
                    "op",
                    "path",
                    "value",
                    "reference",
                    "number",
                    "payload",
                    "patient_id",
                    "channel",
                    "to",
                    "from",
                    "body",
                    "text",
                    "subject",
                    "say",
                    "digits",
                    "to_number",
                    "document",
                    "content_reference",
                    "discovery_url",
                    "card",
                    "outcome",
                    "feedback",
                    "hook",
                    "hookInstance",
                    "context",
                    "patient_member_id",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
BROKEN = st.tuples(st.sampled_from([EDI, HL7]), st.integers(0, 200), st.text("|^~*:\r1A", max_size=3)).map(
    lambda given: (given[0][: given[1]] + given[2] + given[0][given[1] + 2 :]).encode()
)
"""Messages and interchanges with something else in their middle."""
BODIES = (
    st.binary(max_size=20)
    | JSON.map(msgspec.json.encode)
    | BROKEN
    | st.sampled_from([b"%PDF-1.4\nx", b"II*\x00\x08\x00\x00\x00", b"To=%2B15550101&Body=x", b"username=agent&password=x"])
)
TYPES = st.sampled_from(
    [
        "",
        "application/json",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/fhir+xml",
        "application/x-www-form-urlencoded",
    ]
)


def test_every_kind_is_attacked() -> None:
    assert set(SEEDS) == set(list_kinds()), "a kind has its seed here, or SEED in tests/simulators/test_KIND.py"


@pytest.mark.parametrize("kind", SEEDS)
@given(
    st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]),
    st.lists(WORDS | st.text("ab/%.é", max_size=4), max_size=4),
    st.lists(st.tuples(NAMES, VALUES), max_size=3),
    BODIES,
    TYPES,
)
@settings(max_examples=150, deadline=None)
def test_no_request_breaks_a_system(
    kind: str, method: str, parts: list[str], query: list[tuple[str, str]], body: bytes, sent_as: str
) -> None:
    system = _SYSTEMS.setdefault(kind, Workplace(kind, SEEDS[kind]))
    before = system.state()
    encoded = "&".join(f"{name}={value}" for name, value in query)
    response = system.ask(method, f"/{'/'.join(parts)}?{encoded}", body, content_type=sent_as)
    assert response.status < 500, response.body
    after = system.state()
    assert len(after.requests or ()) == len(before.requests or ()) + 1
    if response.status >= 400:
        assert after.changes == before.changes


@given(JSON)
@settings(max_examples=150, deadline=None)
def test_no_bundle_breaks_the_server(entry: Any) -> None:
    system = _SYSTEMS.setdefault("bundles", Workplace("fhir", SEEDS["fhir"]))
    for kind in ("batch", "transaction"):
        request = {"method": "PUT", "url": "Patient/ann", **(entry if isinstance(entry, dict) else {})}
        bundle = {"resourceType": "Bundle", "type": kind, "entry": [entry, {"request": request, "resource": entry}]}
        assert system.ask("POST", "/", bundle).status < 500


_SYSTEMS: dict[str, Workplace] = {}
"""Built once for all examples: a system must survive thousands of requests, too."""
