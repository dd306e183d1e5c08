"""Sandboxes of two organizations that are really there: with which token one reaches which, on every way in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rest.services import Service
from tests.rest.verial import Author
from tests.rest.verification.test_sandboxes import Agent, benchmark, environment

MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}


class Place:
    """An organization with a sandbox made by hand, a run whose task is started, and one that is completed."""

    def __init__(self, author: Author) -> None:
        self.author = author
        made = environment(author)
        playground = author.post("/playgrounds", {"environment_id": made})
        self.by_hand, self.other = ((one["id"], one["credentials"]["token"]) for one in playground["sandboxes"])
        reference = benchmark(author, made)
        self.agent, self.ended = Agent(author, reference), Agent(author, reference)
        self.agent.start()
        self.ended.start()
        self.ended.complete()
        self.tokens = {
            "organization": author.key or "",
            "sandbox": self.by_hand[1],
            "other sandbox": self.other[1],
            "run": self.agent.token,
            "ended run": self.ended.token,
        }


@pytest.fixture
def places(service: Service) -> tuple[Place, Place]:
    keys = service.keys()
    return Place(Author(service, keys["organization"])), Place(Author(service, keys["foreign_organization"]))


def list_ways(place: Place) -> dict[str, tuple[str, str, set[str]]]:
    """Every endpoint of the systems of a place: method, path, and the accepted tokens."""
    sandbox, run = place.by_hand[0], place.agent.run["benchmark_run_id"]
    of_run = place.agent.sandbox("FHIR")["id"]
    by_hand, owner = {"organization", "sandbox"}, {"organization"}
    return {
        "sandbox": ("GET", f"/sandboxes/{sandbox}/fhir/Patient", by_hand),
        "sandbox mcp": ("POST", f"/sandboxes/{sandbox}/mcp", by_hand),
        "run": ("GET", f"/v1/benchmark-runs/{run}/fhir/Patient", {"run"}),
        "run mcp": ("POST", f"/v1/benchmark-runs/{run}/mcp", {"run"}),
        "sandbox of the run": ("GET", f"/sandboxes/{of_run}/fhir/Patient", owner),
        "mcp of the run": ("POST", f"/sandboxes/{of_run}/mcp", owner),
        **{name: ("GET", f"/sandboxes/{of_run}/{name}", owner) for name in ("events", "state", "diff")},
        "record": ("GET", f"/sandboxes/{sandbox}", owner),
    }


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_every_token_opens_what_it_is_for_and_nothing_else(places: tuple[Place, Place], service: Service) -> None:
    for place in places:
        for name, (method, path, allowed) in list_ways(place).items():
            for holder in places:
                for kind, token in holder.tokens.items():
                    body: dict[str, Any] = {"json": MESSAGE} if method == "POST" else {}
                    status = service.ask(method, path, key=token, headers=ACCEPT, **body).status_code
                    if holder is place and kind in allowed:
                        assert status == 200, (name, kind, status)
                    else:
                        assert status in (401, 403, 404, 409), (name, kind, "own" if holder is place else "foreign", status)
                        assert holder is place or status != 409, "its existence is not revealed"


@pytest.mark.timeout(60)
def test_a_stranger_ends_resets_and_fills_nothing(places: tuple[Place, Place], service: Service) -> None:
    here, there = places
    dataset = there.author.post("/datasets", {"name": "x", "type": "FHIR", "data": {"resourceType": "Patient", "id": "x"}})["id"]
    sandbox = here.by_hand[0]
    for token in there.tokens.values():
        for path in ("teardown", "reset", f"datasets/{dataset}"):
            assert service.post(f"/sandboxes/{sandbox}/{path}", key=token).status_code in (401, 403, 404)
    here.author.post(f"/sandboxes/{sandbox}/datasets/{dataset}", status=404)
    assert here.author.get(f"/sandboxes/{sandbox}")["status"] == "active"
    # The agent of a run may neither end nor reset its own sandbox.
    for path in ("teardown", "reset"):
        assert service.post(f"/sandboxes/{here.agent.sandbox('FHIR')['id']}/{path}", key=here.agent.token).status_code == 403
