"""Webhook messages: signed, retried, and never sent to forbidden addresses."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import get_organization_caller
from proctor.service.access.projects import NewProject, create_project
from proctor.service.hub import Hub
from proctor.service.notify.alerts import NewAlert, create_alert, list_deliveries, send_test
from proctor.service.notify.deliveries import ATTEMPTS_AFTER_S, PER_ORGANIZATION, PER_PROJECT, TIMEOUT_S, WebhookSender, watch_alerts
from proctor.store.accounts.alerts import lease_delivery, list_due_deliveries
from tests.databases import TestDatabase
from tests.service.trace_world import Clock, world

# Real connections on loopback, many of them: a busy machine takes its time.
pytestmark = pytest.mark.timeout(30)


async def deliver_due(hub: Hub) -> int:
    """Attempt everything that is due once and return the number of accepted messages."""
    async with WebhookSender(hub) as sending:
        while await sending.start_due() or sending.under_way:
            if sending.under_way:
                await asyncio.wait(sending.under_way, return_when=asyncio.FIRST_COMPLETED)
        return sending.sent


@contextlib.asynccontextmanager
async def webhook(*statuses: int, location: str = "") -> AsyncIterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A server that answers with these statuses, repeating the last, and the requests it received."""
    seen: list[tuple[dict[str, str], bytes]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head)}
        seen.append((headers, await reader.readexactly(int(headers["content-length"]))))
        status = statuses[min(len(seen), len(statuses)) - 1]
        more = f"location: {location}\r\n" if location else ""
        writer.write(f"HTTP/1.1 {status} X\r\n{more}content-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook", seen


async def queued(hub: Hub, url: str, **more: Any) -> tuple[str, str]:
    project, _ = await world(hub)
    rule = await create_alert(hub, LOCAL, NewAlert(project_id=project, name="r", kind="pass_rate", webhook_url=url, **more))
    await send_test(hub, LOCAL, rule["id"])
    return rule["id"], rule["secret"]


async def only(hub: Hub, rule: str) -> dict[str, Any]:
    (delivery,) = (await list_deliveries(hub, LOCAL, rule))["data"]
    return delivery


def test_a_message_is_signed_with_its_time_and_delivered_once(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with webhook(204) as (url, seen):
            rule, secret = await queued(hub, url)
            assert await deliver_due(hub) == 1 and await deliver_due(hub) == 0
            ((headers, body),) = seen
            signed = headers["x-proctor-timestamp"].encode() + b"." + body
            assert headers["x-proctor-signature"] == "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
            event = json.loads(body)
            assert event["event"] == "alert.test" and event["id"] == headers["x-proctor-delivery"]
            delivery = await only(hub, rule)
            assert (delivery["status"], delivery["attempts"], delivery["error"]) == ("delivered", 1, None)
            assert hub.counters.read()["alerts_sent"] == 1

    database.run_hub(use, allowed_addresses=("127.0.0.1",))


def test_a_message_that_is_not_taken_is_sent_again_later_and_later_and_given_up(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        async with webhook(500) as (url, seen):
            rule, _ = await queued(hub, url)
            for number, wait in enumerate(ATTEMPTS_AFTER_S, 1):
                await deliver_due(hub)
                clock.now += wait - 1
                await deliver_due(hub)
                assert len(seen) == number, "not before its time"
                clock.now += 1
            await deliver_due(hub)
            clock.now += 10**6
            await deliver_due(hub)
            assert len(seen) == len(ATTEMPTS_AFTER_S) + 1
            assert len({headers["x-proctor-delivery"] for headers, _ in seen}) == 1
            delivery = await only(hub, rule)
            assert (delivery["status"], delivery["error"]) == ("given up", "answered 500")

    database.run_hub(use, clock=clock, allowed_addresses=("127.0.0.1",))


def test_a_message_that_fails_first_is_delivered_at_last(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        async with webhook(503, 200) as (url, _):
            rule, _secret = await queued(hub, url)
            await deliver_due(hub)
            clock.now += 10
            assert await deliver_due(hub) == 1
            assert (await only(hub, rule))["attempts"] == 2

    database.run_hub(use, clock=clock, allowed_addresses=("127.0.0.1",))


def test_a_message_that_ends_its_sender_is_given_up(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        async with webhook(200) as (url, seen):
            rule, _secret = await queued(hub, url)
            for _ in range(len(ATTEMPTS_AFTER_S) + 1):
                async with hub.database.writing() as connection:
                    (due,) = await list_due_deliveries(connection, clock.now, 1, per_project=1, per_organization=1)
                    # A worker that leases it and dies: nothing more is written.
                    assert await lease_delivery(connection, due, clock.now + 60)
                clock.now += 60
            assert await deliver_due(hub) == 0 and not seen
            delivery = await only(hub, rule)
            assert (delivery["status"], delivery["attempts"]) == ("given up", len(ATTEMPTS_AFTER_S) + 1)
            assert "ended before" in delivery["error"]

    database.run_hub(use, clock=clock, allowed_addresses=("127.0.0.1",))


def test_gone_is_given_up_at_once(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with webhook(410) as (url, _):
            rule, _secret = await queued(hub, url)
            await deliver_due(hub)
            assert (await only(hub, rule))["status"] == "given up"

    database.run_hub(use, allowed_addresses=("127.0.0.1",))


def test_a_redirect_is_not_followed(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with webhook(200) as (inner, reached), webhook(302, location=inner) as (url, _):
            rule, _secret = await queued(hub, url)
            await deliver_due(hub)
            assert (await only(hub, rule))["error"] == "answered 302" and not reached

    database.run_hub(use, allowed_addresses=("127.0.0.1",))


@pytest.mark.parametrize("host", ["localhost.example.test", "rebound.example.test"])
def test_a_name_that_means_this_machine_is_not_reached(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    async def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr("proctor.network.guard._resolve", resolve)
    monkeypatch.setattr("proctor.network.guard.Guard.__init__.__kwdefaults__", {"resolve": resolve})

    async def use(hub: Hub) -> None:
        async with webhook(200) as (url, seen):
            rule, _ = await queued(hub, url.replace("127.0.0.1", host))
            await deliver_due(hub)
            delivery = await only(hub, rule)
            assert delivery["error"].startswith("refused: ") and delivery["status"] == "waiting" and not seen

    TestDatabase(f"sqlite:///{tmp_path}/p.db", tmp_path).run_hub(use)


def test_of_two_servers_one_sends_a_message(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with webhook(200) as (url, seen):
            await queued(hub, url)
            await asyncio.gather(*(deliver_due(hub) for _ in range(4)))
            assert len(seen) == 1

    database.run_hub(use, allowed_addresses=("127.0.0.1",))


def test_the_worker_sends_until_it_is_stopped(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with webhook(200) as (url, seen):
            await queued(hub, url)
            stop = asyncio.Event()
            task = asyncio.create_task(watch_alerts(hub, stop))
            async with asyncio.timeout(20):
                while not seen:
                    await asyncio.sleep(0.02)
            stop.set()
            await asyncio.wait_for(task, 15)

    database.run_hub(use, allowed_addresses=("127.0.0.1",))


# --- several tenants ----------------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def silent() -> AsyncIterator[tuple[str, list[int]]]:
    """A server that never answers, and the number of waiting requests after each new one."""
    waiting: list[int] = []
    held: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.add(writer)
        waiting.append(len(held))
        with contextlib.suppress(ConnectionError):
            while await reader.read(1_000):
                pass
        held.discard(writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook", waiting


async def tenant(hub: Hub, name: str, url: str, *, projects: int, messages: int) -> None:
    """An organization with a number of projects and queued messages in each."""
    caller = await get_organization_caller(hub, name, create=True)
    for number in range(projects):
        project = (await create_project(hub, caller, NewProject(name=f"{name} {number}")))["id"]
        rule = await create_alert(hub, caller, NewAlert(project_id=project, name="r", kind="pass_rate", webhook_url=url))
        for _ in range(messages):
            await send_test(hub, caller, rule["id"])


@pytest.mark.parametrize(("projects", "messages", "most"), [(1, 30, PER_PROJECT), (30, 1, PER_ORGANIZATION)])
def test_slow_receivers_of_one_tenant_do_not_hold_up_another(database: TestDatabase, projects: int, messages: int, most: int) -> None:
    async def use(hub: Hub) -> None:
        async with silent() as (slow, waiting), webhook(200) as (quick, seen):
            await tenant(hub, "slow", slow, projects=projects, messages=messages)
            await tenant(hub, "quick", quick, projects=1, messages=2)
            stop = asyncio.Event()
            task = asyncio.create_task(watch_alerts(hub, stop))
            async with asyncio.timeout(TIMEOUT_S / 2):
                while len(seen) < 2 or len(waiting) < most:
                    await asyncio.sleep(0.02)
            assert max(waiting) == most
            stop.set()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    database.run_hub(use, allowed_addresses=("127.0.0.1",))


@pytest.mark.timeout(60)
def test_tenants_take_turns(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with webhook(200) as (many, _), webhook(200) as (few, _):
            await tenant(hub, "many", many, projects=3, messages=20)
            await tenant(hub, "few", few, projects=1, messages=2)
            async with hub.database.reading() as connection:
                due = await list_due_deliveries(connection, hub.clock(), 6, per_project=2, per_organization=4)
            assert [row["webhook_url"] == few for row in due].count(True) == 2
            assert {row["webhook_url"] for row in due[:2]} == {many, few}, "each has its first before anybody has a second"
            assert await deliver_due(hub) == 62

    database.run_hub(use, allowed_addresses=("127.0.0.1",))


def test_a_stop_does_not_wait_for_receivers_that_do_not_answer(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.service.notify.deliveries.STOP_S", 0.1)

    async def use(hub: Hub) -> None:
        async with silent() as (slow, waiting):
            await tenant(hub, "slow", slow, projects=1, messages=1)
            stop = asyncio.Event()
            task = asyncio.create_task(watch_alerts(hub, stop))
            async with asyncio.timeout(TIMEOUT_S / 2):
                while not waiting:
                    await asyncio.sleep(0.02)
                stop.set()
                await task

    database.run_hub(use, allowed_addresses=("127.0.0.1",))
