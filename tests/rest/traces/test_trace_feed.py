"""Events of traces as a stream, and counts by their common fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.traces import feed, search
from proctor.service.traces.search import TraceSearch
from tests.pages.trace_seeds import add_trace, make_spans, seed_traces
from tests.rest.services import Service

EARLIER = "2020-01-01T00:00:00.000Z"


@pytest.fixture
def key(service: Service) -> str:
    found = service.keys()["organization"]
    service.run(seed_traces)
    return found


def read_events(service: Service, key: str, **query: str) -> list[dict[str, Any]]:
    parameters = "&".join(f"{name}={value}" for name, value in {"project_id": "proj_home", "follow": "false", **query}.items())
    answer = service.get(f"/api/traces/events?{parameters}", key=key)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream"), answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def test_arrivals_and_decisions_are_listed_by_time(service: Service, key: str) -> None:
    events = [(event["kind"], event["trace_id"], event.get("outcome")) for event in read_events(service, key, after=EARLIER)]
    assert events == [
        ("decided", "trc_shop", "pass"),
        ("received", "trc_shop", None),
        ("decided", "trc_rude", "fail"),
        ("received", "trc_rude", None),
        ("received", "trc_plain", None),
        ("received", "trc_waiting", None),
    ]


def test_a_returning_reader_continues_after_the_last_event(service: Service, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = read_events(service, key, after=EARLIER)
    for number, event in enumerate(every):
        assert read_events(service, key, after=event["id"]) == every[number + 1 :]
    path = f"/api/traces/events?project_id=proj_home&follow=false&after={EARLIER}"
    answer = service.get(path, key=key, headers={"last-event-id": every[-2]["id"]})
    assert answer.text.count("data: ") == 1, "what a browser remembers wins over the address"
    assert next(line for line in answer.text.splitlines() if line.startswith("id: ")) == f"id: {every[-2]['id']}"
    # Events in the same batch are neither lost nor repeated.
    monkeypatch.setattr(feed, "_AT_ONCE", 2)
    assert read_events(service, key, after=EARLIER) == every


def test_one_agent_can_be_followed_alone_and_keys_see_their_own(service: Service, key: str) -> None:
    assert {event["trace_id"] for event in read_events(service, key, after=EARLIER, agent_id="agent_home_2")} == {"trc_plain"}


def test_a_recent_write_appears_a_moment_later(service: Service, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def now(hub: Hub) -> Any:
        return add_trace(hub, "now", make_spans(), at=hub.clock())

    service.run(now)
    assert "trc_now" not in {event["trace_id"] for event in read_events(service, key, after=EARLIER)}
    monkeypatch.setattr(feed, "SETTLED_S", 0.0)
    assert "trc_now" in {event["trace_id"] for event in read_events(service, key, after=EARLIER)}
    assert read_events(service, key) == [], "without a place a reader begins now"


@pytest.mark.parametrize("after", ["soon", "2031-01-01", EARLIER + ",x", EARLIER + ",trc_" + "x" * 80])
def test_a_place_that_no_event_has_is_refused(service: Service, key: str, after: str) -> None:
    assert service.get(f"/api/traces/events?project_id=proj_home&after={after}", key=key).status_code == 400


def test_a_stream_goes_on_until_its_service_stops(service: Service, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LOOK_EVERY_S", 0.0)
    looks: list[int] = []

    async def follow(hub: Hub) -> list[str | None]:
        followed = await feed.find_followed_traces(hub, LOCAL, "proj_home", after=EARLIER)
        stopping = lambda: looks.append(1) is None and len(looks) > 4  # noqa: E731
        return [event and event["kind"] async for event in feed.follow_traces(hub, followed, stopping=stopping, beat_every_s=0.0)]

    kinds = service.run(follow)
    assert kinds.count(None) == 4 and kinds[0] == "decided"


def test_streams_of_traces_are_counted_with_those_of_runs(service: Service, key: str) -> None:
    streams = service.app.state.streams
    who = service.get("/api/annotations", key=key) and service.run(lambda hub: find_actor(hub, key))
    for _ in range(service.settings.service.streams_per_key):
        streams.enter(who)
    assert service.get(f"/api/traces/events?project_id=proj_home&follow=false&after={EARLIER}", key=key).status_code == 429
    for _ in range(service.settings.service.streams_per_key):
        streams.leave(who)
    assert read_events(service, key, after=EARLIER)


async def find_actor(hub: Hub, key: str) -> str:
    from proctor.service.access.keys import authenticate

    caller = await authenticate(hub, key)
    assert caller is not None
    return caller.actor


def counts(found: list[dict[str, Any]]) -> dict[str, int]:
    return {one["name"] or one["value"]: one["count"] for one in found}


def test_facets_count_the_other_choices_too(service: Service, key: str) -> None:
    found = service.get("/api/traces/facets?project_id=proj_home&outcome=fail", key=key).json()
    assert counts(found["outcomes"]) == {"fail": 1, "pass": 1}
    assert counts(found["agents"]) == {"home 1": 1} and counts(found["cases"]) == {"apology": 1}
    everything = service.get("/api/traces/facets?project_id=proj_home", key=key).json()
    assert counts(everything["agents"]) == {"home 1": 3, "home 2": 1} and counts(everything["statuses"]) == {"evaluated": 3, "open": 1}
    assert counts(everything["cases"]) == {"apology": 2} and everything["looked_at"] == 4 and everything["more"] is False


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("case_id=case_apology", {"trc_shop", "trc_rude"}),
        ("case_id=case_apology&outcome=fail", {"trc_rude"}),
        ("case_id=case_apology&outcome=error", set()),
        ("case_id=case_gone", set()),
        ("case_id=case_apology&query=charged&project_id=proj_home", {"trc_shop", "trc_rude"}),
    ],
)
def test_traces_are_found_by_the_case_that_was_decided_on_them(service: Service, key: str, query: str, found: set[str]) -> None:
    assert {one["id"] for one in service.get(f"/api/traces?{query}", key=key).json()["data"]} == found


def test_facets_say_where_they_stopped_looking(service: Service, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "STRETCH", 2)
    found = service.run(lambda hub: search.count_facets(hub, LOCAL, TraceSearch(project_id="proj_home", query="charged")))
    assert found.looked_at == 2 and found.more and found.since is not None and found.since.startswith("20")
    assert sum(one.count for one in found.agents) == 1, "one of the two examined traces matches"


def test_a_filter_of_facets_that_cannot_be_used_is_refused(service: Service, key: str) -> None:
    with pytest.raises(Refusal):
        service.run(lambda hub: search.count_facets(hub, LOCAL, TraceSearch(metadata=("env",))))
    assert service.get("/api/traces/facets?since=soon", key=key).status_code == 400
