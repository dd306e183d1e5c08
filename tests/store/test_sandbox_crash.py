"""A server killed between a write in a sandbox and the event of its request: both are stored, or neither."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from proctor.service.caches import SizedLruCache
from proctor.simulators.rows import Snapshot
from proctor.store.accounts.sandboxes import DatabaseStore, SandboxLimits, find_heads
from proctor.store.sql.database import Database
from proctor.store.sql.pages import Row
from tests.databases import TestDatabase

SERVER = """
import asyncio, os, signal, sys
from proctor.model.evidence import StateRequest
from proctor.service.hub import SizedLruCache
from proctor.simulators.rows import Change
from proctor.store.accounts import sandboxes
from proctor.store.sql.database import open_database

name_log_row = sandboxes._name_log_row

def die_before_the_event(sandbox, number):
    # The row of the sandbox has its new revision by now, and the log has no row for it yet.
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return name_log_row(sandbox, number)

sandboxes._name_log_row = die_before_the_event

async def main():
    opened = await open_database(sys.argv[1])
    limits = sandboxes.SandboxLimits(rows=100, bytes=100_000)
    now = "2026-11-16T09:30:00.000Z"
    store = sandboxes.DatabaseStore(opened, SizedLruCache(100), organization_id="org_1", now=lambda: now, limits=limits)
    await store.create("sb_1", {"shop/orders": {}})
    for number in (1, 2, 3):
        event = StateRequest(system="shop", method="POST", path=f"/orders/{number}", status=201)
        await store.commit("sb_1", number - 1, (Change("shop/orders", str(number), {"id": number}),), event)

asyncio.run(main())
"""


@pytest.mark.timeout(60)
def test_a_write_and_its_event_are_both_stored_or_neither_after_kill_9(database: TestDatabase) -> None:
    done = subprocess.run([sys.executable, "-c", SERVER, database.url], capture_output=True, text=True, timeout=50)
    assert done.returncode == -signal.SIGKILL, done.stderr

    async def look(opened: Database) -> tuple[Snapshot, list[str], Row]:
        limits = SandboxLimits(rows=100, bytes=100_000)
        store = DatabaseStore(opened, SizedLruCache(100), organization_id="org_1", now=lambda: "2026-11-16T09:31:00.000Z", limits=limits)
        async with opened.reading() as connection:
            head = (await find_heads(connection, ["sb_1"]))["sb_1"]
        return await store.load("sb_1"), [event.path for event in await store.list_events("sb_1")], head

    snapshot, paths, head = database.run(look)
    assert list(snapshot.rows["shop/orders"]) == ["1", "2"] and paths == ["/orders/1", "/orders/2"]
    assert (snapshot.revision, head["revision"], head["events"]) == (2, 2, 2), "the next one goes on where nothing is missing"
