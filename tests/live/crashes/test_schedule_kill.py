"""Schedules of real servers that are killed between and at due times: each time has one run, and a missed one is reported."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from tests.databases import TestDatabase
from tests.live.crashes.test_run_restart import Server
from tests.service.agents import suite

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
ROUNDS = 3 if os.environ.get("PROCTOR_ON_REQUEST") == "1" else 1
TARGET = {"type": "http", "url": "http://127.0.0.1:9/", "response_path": "text"}


def make_due(database: TestDatabase, ids: list[str], seconds_ago: float) -> None:
    """Set the next time of schedules to some time ago, as if nothing had run since."""
    from proctor.service.hub import stamp
    from proctor.store.sql.tables import schedules

    async def change(opened: Any) -> None:
        async with opened.writing() as connection:
            at = stamp(time.time() // 60 * 60 - seconds_ago)
            await connection.execute(sa.update(schedules).where(schedules.c.id.in_(ids)).values(next_at=at))

    database.run(change)


def create(server: Server, count: int, cron: str = "* * * * *") -> list[str]:
    project = server.client.post("/api/projects", json={"name": "shop"}).json()["id"]
    body = {"project_id": project, "name": "often", "cron": cron, "overlap": "skip", "run": {"suite": suite("a"), "target": TARGET}}
    made = [server.client.post("/api/schedules", json=body) for _ in range(count)]
    assert {answer.status_code for answer in made} == {201}, made[0].text
    return [answer.json()["id"] for answer in made]


def list_runs(server: Server, id: str) -> list[dict[str, Any]]:
    return server.client.get("/api/runs", params={"schedule_id": id, "limit": 100}).json()["data"]


def until_started(server: Server, ids: list[str], within_s: float = 90) -> None:
    end = time.monotonic() + within_s
    while not all(list_runs(server, id) for id in ids):
        assert time.monotonic() < end
        time.sleep(0.05)


def check_times(server: Server, ids: list[str]) -> None:
    for id in ids:
        times = Counter(run["due_at"] for run in list_runs(server, id))
        assert set(times.values()) == {1}, (id, times)


@pytest.mark.in_turn
def test_servers_that_are_killed_at_due_times_start_each_run_once(database: TestDatabase) -> None:
    servers = [Server(database.url, database.home), Server(database.url, database.home)]
    try:
        ids = create(servers[0], 20)
        for round in range(ROUNDS):
            # All are due at the same time, and a server is killed while it starts them.
            make_due(database, ids, 0)
            end = time.monotonic() + 30
            while not any(list_runs(servers[1], id) for id in ids) and time.monotonic() < end:
                time.sleep(0.01)
            servers[0].kill()
            servers[0] = Server(database.url, database.home)
            if round == ROUNDS - 1:
                servers[1].kill()
                servers[1] = Server(database.url, database.home)
            time.sleep(1.5)
        until_started(servers[0], ids)
        check_times(servers[0], ids)
        found = [servers[0].client.get(f"/api/schedules/{id}").json() for id in ids]
        assert all(one["next_at"] > one["last_run"]["due_at"] for one in found)
    finally:
        for server in servers:
            server.kill()


@pytest.mark.in_turn
def test_runs_missed_without_a_server_are_reported_once(database: TestDatabase) -> None:
    server = Server(database.url, database.home)
    try:
        # Due half an hour ago, and again in half an hour.
        ids = create(server, 3, f"{int(time.time() // 60 + 30) % 60} * * * *")
        server.kill()
        make_due(database, ids, 3 * 3_600 + 1_800)
        server = Server(database.url, database.home)
        until_started(server, ids)
        for id in ids:
            schedule = server.client.get(f"/api/schedules/{id}").json()
            assert schedule["missed"]["reason"] == "not_running" and schedule["missed"]["count"] == 4
            assert len(list_runs(server, id)) == 1
        reported = {id: server.client.get(f"/api/schedules/{id}").json()["missed"]["reported_at"] for id in ids}
        server.kill()
        server = Server(database.url, database.home)
        time.sleep(2)
        assert {id: server.client.get(f"/api/schedules/{id}").json()["missed"]["reported_at"] for id in ids} == reported
    finally:
        server.kill()
