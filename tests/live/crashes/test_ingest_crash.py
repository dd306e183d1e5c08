"""Kill -9 under load: everything acknowledged is stored, with one current result for each case version."""

from __future__ import annotations

import collections
import json
import os
import random
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.service.hub import Hub
from proctor.store.sql.tables import results, traces
from tests.databases import TestDatabase
from tests.live.serving import Serving, serving
from tests.postgres import Cluster, programs
from tests.service.trace_world import SUITE, new_trace, protobuf, request, root

pytestmark = [pytest.mark.live, pytest.mark.timeout(1800)]
ROUNDS = int(os.environ.get("PROCTOR_CRASH_ROUNDS", "1"))
SENDERS = 4
PROTOBUF = {"content-type": "application/x-protobuf"}
FLAGS = ("--quiet-period-s", "0", "--lease-s", "2")


class Load:
    """Senders that post until stopped, and record what was acknowledged."""

    def __init__(self, url: str) -> None:
        self._address = url.partition("//")[2]
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: list[str] = []
        self.unexpected: list[tuple[int, bytes]] = []
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _send(self, number: int) -> None:
        connection = HTTPConnection(self._address, timeout=30)
        while not self._stop.is_set():
            ids = [new_trace() for _ in range(5)]
            try:
                if number % 2:
                    body = protobuf(request(*(root(id) for id in ids)))
                    connection.request("POST", "/v1/traces", body, PROTOBUF)
                else:
                    ids = ids[:1]
                    body = json.dumps({"data": {"text": "Refund"}, "metadata": {"http_status": 200}, "platformId": AGENT["id"]}).encode()
                    connection.request("POST", "/public/traces", body, {"content-type": "application/json", "x-request-id": ids[0]})
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, HTTPException):
                connection.close()
                if self._stop.wait(0.02):
                    return
                continue
            with self._lock:
                if answer.status in (200, 201):
                    self.acknowledged += ids
                elif answer.status not in (429, 503):
                    self.unexpected.append((answer.status, content))
            if answer.status in (429, 503):
                self._stop.wait(0.1)
        connection.close()

    def wait(self) -> None:
        """Wait until something was acknowledged."""
        end = time.monotonic() + 60
        while not self.acknowledged:
            assert time.monotonic() < end, "nothing was acknowledged"
            time.sleep(0.01)

    def stop(self) -> list[str]:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not self.unexpected, self.unexpected[:3]
        return self.acknowledged


AGENT: dict[str, str] = {}


def prepare(server: Serving) -> None:
    _, project = server.ask("POST", "/api/projects", {"name": "crash"})
    place = {"project_id": project["id"], "name": "shop", "kind": "otlp", "service_name": "shop"}
    _, agent = server.ask("POST", "/api/agents", place)
    AGENT["id"] = agent["id"]
    status, _ = server.ask("POST", "/api/cases", {"project_id": project["id"], "document": SUITE})
    assert status == 201


def settle(database: TestDatabase, acknowledged: list[str]) -> None:
    """Wait until nothing is due any more, then look."""

    async def look(hub: Hub) -> tuple[int, list[Any], list[Any]]:
        async with hub.database.reading() as connection:
            due = (await connection.execute(sa.select(sa.func.count()).where(traces.c.due_at.is_not(None)))).scalar_one()
            rows = (await connection.execute(sa.select(traces.c.id, traces.c.external_id, traces.c.status, traces.c.outcome))).all()
            found = (await connection.execute(sa.select(results.c.trace_id, results.c.case_version, results.c.case_key))).all()
        return due, list(rows), list(found)

    end = time.monotonic() + 120
    while True:
        due, rows, found = database.run_hub(look)
        if not due:
            break
        assert time.monotonic() < end, f"{due} traces are still due"
        time.sleep(0.5)
    by_name = collections.Counter(row.external_id for row in rows)
    missing = [name for name in acknowledged if by_name[name] != 1]
    assert not missing, f"{len(missing)} of {len(acknowledged)} acknowledged traces are not there once"
    assert {(row.status, row.outcome) for row in rows} == {("evaluated", "pass")}
    counts = collections.Counter((row.trace_id, row.case_version, row.case_key) for row in found)
    assert set(counts.values()) == {1}
    assert {key[0] for key in counts} == {row.id for row in rows}, "one result for every trace"


def crash_rounds(database: TestDatabase, url: str | None) -> None:
    """Kill a server under load again and again; the next one, which has found everything, is killed after it."""
    acknowledged: list[str] = []
    server = Serving(database.home, database=url, flags=FLAGS)
    try:
        prepare(server)
        for number in range(ROUNDS):
            load = Load(server.url)
            load.wait()
            time.sleep(random.Random(number).uniform(0.2, 1.2))
            server.kill()
            acknowledged += load.stop()
            server = Serving(database.home, database=url, flags=FLAGS)
            settle(database, acknowledged)
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()


def test_kill_9_under_load_loses_nothing_that_was_acknowledged_on_sqlite(tmp_path: Path) -> None:
    crash_rounds(TestDatabase(f"sqlite:///{tmp_path}/proctor.db", tmp_path), None)


@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")
@pytest.mark.on_request
def test_kill_9_under_load_loses_nothing_that_was_acknowledged_on_postgresql(tmp_path: Path) -> None:
    with Cluster(fsync=True) as cluster:
        url = cluster.new_database()
        crash_rounds(TestDatabase(url, tmp_path), url)


@pytest.mark.in_turn
@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")
def test_two_servers_on_one_postgresql_evaluate_every_trace_once(tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        home.mkdir()
    with Cluster(fsync=True) as cluster:
        url = cluster.new_database()
        with serving(homes[0], database=url, flags=FLAGS) as one, serving(homes[1], database=url, flags=FLAGS) as two:
            prepare(one)
            loads = [Load(one.url), Load(two.url)]
            for load in loads:
                load.wait()
            time.sleep(1)
            acknowledged = [id for load in loads for id in load.stop()]
            settle(TestDatabase(url, tmp_path), acknowledged)


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
