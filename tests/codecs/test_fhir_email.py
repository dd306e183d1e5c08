"""E-mail addresses are found in any case, with and without an index; every other token is compared as written."""

from __future__ import annotations

import pytest

from tests.simulators.workplace import Workplace

PEOPLE = [
    {
        "resourceType": "Patient",
        "id": f"p{number}",
        "telecom": [{"system": "email", "value": f"Ann{number}@Example.org"}],
        "identifier": [{"system": "http://x", "value": f"Login{number}@X"}],
    }
    for number in range(50)
]


@pytest.mark.parametrize("count", [2, 50])
@pytest.mark.parametrize(
    ("search", "total"),
    [
        ("email=Ann1@Example.org", 1),
        ("email=ann1@example.ORG", 1),
        ("telecom=email|ANN1@EXAMPLE.ORG", 1),
        ("identifier=Login1@X", 1),
        ("identifier=login1@x", 0),
        ("email=nobody@example.org", 0),
    ],
)
def test_an_address_is_found_in_any_case(count: int, search: str, total: int) -> None:
    assert Workplace("fhir", PEOPLE[:count]).get(f"/Patient?{search}")["total"] == total
