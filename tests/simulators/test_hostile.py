"""Whatever an agent sends, a simulated system answers it, refuses it, and stays what it was where it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulators.workplace import Workplace

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
}
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
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "Patient", "Bundle", "transaction", "ann", "POST", "Patient/ann"]),
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
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
BODIES = st.binary(max_size=20) | JSON.map(msgspec.json.encode)
TYPES = st.sampled_from(["", "application/json", "application/json-patch+json", "application/merge-patch+json", "application/fhir+xml"])


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
    told = "&".join(f"{name}={value}" for name, value in query)
    response = system.ask(method, f"/{'/'.join(parts)}?{told}", body, content_type=sent_as)
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
        asked = {"method": "PUT", "url": "Patient/ann", **(entry if isinstance(entry, dict) else {})}
        bundle = {"resourceType": "Bundle", "type": kind, "entry": [entry, {"request": asked, "resource": entry}]}
        assert system.ask("POST", "/", bundle).status < 500


_SYSTEMS: dict[str, Workplace] = {}
"""Made once for all examples: a system that went through a thousand requests must hold, too."""
