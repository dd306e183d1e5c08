"""The maximum number of sandboxes of an organization: the cost of listing them, the refusal of one more, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import event
from sqlalchemy.engine import Engine

from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub, stamp
from proctor.service.verification.sandboxes import playgrounds as sandbox_life
from proctor.store.accounts.sandboxes import NewSandbox, add_sandbox, count_open
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.verification_records import NewRecord, add_record
from tests.rest.services import Clock, Service
from tests.rest.verial import Author

MANY = 1_000


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> Iterator[Service]:
    with Service(database_url, tmp_path, sandboxes=MANY) as running:
        yield running


def fill(service: Service, simulator_id: str, numbers: range) -> None:
    """Make sandboxes as the service keeps them, in one transaction."""

    async def create(hub: Hub) -> None:
        rows = {"records/orders": {"1": {"id": 1}}}
        made = stamp(hub.clock())
        async with hub.database.writing() as connection:
            for number in numbers:
                body = {"simulator_id": simulator_id, "type": "Records", "status": "active", "playground_id": None, "credentials": None}
                id = f"sb_{number:06}"
                record = NewRecord(id=id, organization_id=LOCAL.organization_id, kind="sandbox", body=body)
                await add_record(connection, record, now=made)
                new = NewSandbox(id=id, organization_id=LOCAL.organization_id, kind="records", rows=rows, packed=pack(rows))
                await add_sandbox(connection, replace(new, expires_at=stamp(hub.clock() + 24 * 3600)), now=made)

    service.run(create)


def count_statements(author: Author, path: str) -> tuple[int, dict[str, Any]]:
    """Return the number of SQL statements of a read, and its result."""
    found: list[str] = []
    listen = (Engine, "before_cursor_execute", lambda *given: found.append(given[2]))
    event.listen(*listen)
    try:
        answer = author.get(path)
    finally:
        event.remove(*listen)
    return len(found), answer


@pytest.mark.timeout(120)
@pytest.mark.on_request
def test_a_thousand_sandboxes_are_listed_limited_and_ended(service: Service, clock: Clock) -> None:
    author = Author(service, service.keys()["organization"])
    author.post("/sandboxes/sb_home/teardown")
    simulator = author.post("/simulators", {"name": "shop", "type": "Records", "config": {"seed": {"orders": [{"id": 1}]}}})["id"]
    fill(service, simulator, range(20))
    few, _ = count_statements(author, "/sandboxes?limit=20")
    fill(service, simulator, range(20, MANY))
    many, page = count_statements(author, "/sandboxes?limit=20")
    assert many == few and len(page["data"]) == 20
    deep, _ = count_statements(author, f"/sandboxes?limit=20&cursor={page['_meta']['next']}")
    assert deep == few

    error = author.post("/sandboxes", {"simulator_id": simulator}, status=409)["error"]
    assert error["code"] == "CONFLICT" and f"{MANY} sandboxes are active" in error["message"] and "tear some down" in error["message"]
    author.post("/sandboxes/sb_000500/teardown")
    author.post("/sandboxes", {"simulator_id": simulator}, status=201)

    clock.at += 25 * 3600
    assert {one["status"] for one in author.get("/sandboxes?limit=100")["data"]} == {"teardown"}
    author.post("/sandboxes", {"simulator_id": simulator}, status=201)


@pytest.mark.timeout(60)
def test_two_servers_open_no_more_sandboxes_than_there_may_be(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def count_and_wait(connection: Any, organization_id: str) -> int:
        found = await count_open(connection, organization_id)
        await asyncio.sleep(0.2)  # the other server counts at this time, if it can
        return found

    monkeypatch.setattr(sandbox_life, "count_open", count_and_wait)
    with Service(database_url, tmp_path, sandboxes=3) as one, Service(database_url, tmp_path, sandboxes=3) as other:
        simulator = Author(one).post("/simulators", {"name": "shop", "type": "Records"})["id"]

        def open_some(server: Service) -> list[int]:
            return [server.post("/sandboxes", json={"simulator_id": simulator}).status_code for _ in range(3)]

        with ThreadPoolExecutor(2) as pool:
            statuses = [status for found in pool.map(open_some, (one, other)) for status in found]
        assert sorted(statuses) == [201, 201, 201, 409, 409, 409]
        assert len(Author(other).get("/sandboxes")["data"]) == 3
