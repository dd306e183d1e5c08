"""The health of the service: reported in levels and quickly in any state of the database; writes fail at once while it is down."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.service.hub import Hub
from proctor.service.upkeep import health
from proctor.store.sql import database as store
from tests.rest.services import Service
from tests.service.trace_world import Clock, new_trace, request, root, send, world

QUICK_S = 3.0
"""Far less than a lock or a hanging database would take."""


def timed(service: Service, path: str = "/health") -> Any:
    started = time.monotonic()
    answer = service.get(path)
    assert time.monotonic() - started < QUICK_S
    return answer


def summarise(answer: Any) -> tuple[int, str, list[str]]:
    document = answer.json()
    return answer.status_code, document["status"], [reason["code"] for reason in document["reasons"]]


def test_a_full_disk_is_failing_and_one_that_fills_up_is_degraded(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    free = shutil.disk_usage("/")
    for left, expected in ((1_000, (503, "failing", ["disk_full"])), (100_000_000, (200, "degraded", ["disk_low"]))):
        monkeypatch.setattr(health.shutil, "disk_usage", lambda _, left=left: free._replace(free=left))
        service.app.state.health_watch = health.HealthWatch(service.hub)
        answer = timed(service)
        assert summarise(answer) == expected
        assert f"{left:,} bytes are free" in answer.json()["reasons"][0]["message"]


def test_a_silent_database_is_reported_within_two_seconds(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def hangs() -> AsyncIterator[None]:
        await asyncio.sleep(60)
        yield

    monkeypatch.setattr(service.hub.database, "reading", hangs)
    assert summarise(timed(service)) == (503, "failing", ["database_unreachable"])


def test_an_event_loop_that_is_held_up_is_busy_and_the_database_is_not_to_blame(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = service.hub.database.reading

    @contextlib.asynccontextmanager
    async def held_up() -> AsyncIterator[Any]:
        for _ in range(4):
            time.sleep(0.45)  # as another request does that takes the loop for itself
            await asyncio.sleep(0)
        async with reading() as connection:
            yield connection

    monkeypatch.setattr(service.hub.database, "reading", held_up)
    answer = timed(service)
    assert summarise(answer) == (200, "degraded", ["service_busy"]) and answer.json()["database"] == "reachable"


def test_a_lock_of_our_own_is_no_lock(service: Service) -> None:
    async def look(hub: Hub) -> health.Health:
        async with hub.database.writing():
            return await health.find_health(hub)

    assert service.run(look).status == "ok"


def test_traces_that_wait_long_are_reported(database_url: str, tmp_path: Path) -> None:
    clock = Clock()
    with Service(database_url, tmp_path) as service:

        async def fill(hub: Hub) -> health.Health:
            late = Hub(database=hub.database, settings=hub.settings, clock=clock)
            await world(late)
            await send(late, request(root(new_trace(), "Refund done")))
            assert (await health.find_health(late)).status == "ok"
            clock.now += 600
            return await health.find_health(late)

        found = service.run(fill)
    assert found.status == "degraded" and [reason.code for reason in found.reasons] == ["queue_behind"]


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Service, sqlite3.Connection]]:
    """A service on SQLite, and another program that can lock the database."""
    monkeypatch.setattr(store, "WRITE_WAIT_S", 0.3)
    path = tmp_path / "proctor.db"
    with Service(f"sqlite:///{path}", tmp_path) as service, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        yield service, other


def test_a_locked_database_is_degraded_and_writers_are_refused_at_once(locked: tuple[Service, sqlite3.Connection]) -> None:
    service, other = locked
    other.execute("BEGIN IMMEDIATE")
    assert summarise(timed(service)) == (200, "degraded", ["database_locked"])
    took: list[float] = []
    for _ in range(5):
        started = time.monotonic()
        answer = service.post("/api/projects", json={"name": "shop"})
        took.append(time.monotonic() - started)
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "UNAVAILABLE"
        assert "locked" in answer.json()["error"]["message"] and int(answer.headers["retry-after"]) >= 1
    assert sum(took) < QUICK_S, took
    service.app.state.health_watch = health.HealthWatch(service.hub)
    assert summarise(timed(service)) == (503, "failing", ["database_not_written"])
    other.execute("ROLLBACK")
    end = time.monotonic() + 5
    # Without a write: a load balancer sends none to a failing service.
    while summarise(timed(service)) != (200, "ok", []):
        assert time.monotonic() < end
    assert service.post("/api/projects", json={"name": "shop"}).status_code == 201
