"""Alerts: when a rule fires, when it is quiet again, and that it notifies once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.secret_box import SecretBox
from proctor.service.hub import Hub, new_id
from proctor.service.notify.alert_kinds import KINDS
from proctor.service.notify.alerts import (
    NewAlert,
    check_rules,
    create_alert,
    delete_alert,
    get_alert,
    list_alerts,
    list_deliveries,
    send_test,
    update_alert,
)
from proctor.service.refusals import Refusal
from proctor.store.sql.compressed_json import pack
from proctor.store.sql.tables import alert_rules, results
from tests.databases import TestDatabase
from tests.service.trace_world import Clock, world

HOOK = "https://hooks.example.com/x"


async def add(hub: Hub, project: str, agent: str, outcome: str, count: int, *, code: str | None = None, case: str = "case_1") -> None:
    row = {"organization_id": LOCAL.organization_id, "project_id": project, "agent_id": agent, "case_id": case, "case_version": 1}
    more = {
        "case_key": "k",
        "trace_revision": 1,
        "outcome": outcome,
        "code": code,
        "body": pack({}),
        "created_at": hub.now(),
        "updated_at": hub.now(),
    }
    async with hub.database.writing() as connection:
        rows = [{"id": new_id("res"), "trace_id": new_id("trc"), **row, **more} for _ in range(count)]
        await connection.execute(results.insert(), rows)


async def events(hub: Hub, rule: str) -> list[str]:
    page = await list_deliveries(hub, LOCAL, rule)
    return [row["payload"]["event"] for row in reversed(page["data"])]


async def made(hub: Hub, project: str, kind: Any, **more: Any) -> str:
    return (await create_alert(hub, LOCAL, NewAlert(project_id=project, name="r", kind=kind, webhook_url=HOOK, **more)))["id"]


def test_a_pass_rate_below_its_bound_fires_once_and_is_resolved_once(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        project, agent = await world(hub)
        rule = await made(hub, project, "pass_rate", settings={"below": 0.9, "minimum": 10, "window_s": 600})
        await add(hub, project, agent, "fail", 5)
        await check_rules(hub)
        assert (await get_alert(hub, LOCAL, rule))["state"] is None, "too little to say"
        await add(hub, project, agent, "pass", 10)
        for _ in range(3):
            await check_rules(hub)
            clock.now += 1
        assert await events(hub, rule) == ["alert.firing"]
        (delivery,) = (await list_deliveries(hub, LOCAL, rule))["data"]
        assert delivery["payload"]["observed"]["pass_rate"] == pytest.approx(10 / 15)
        assert delivery["payload"]["rule"]["id"] == rule and delivery["status"] == "waiting"
        await add(hub, project, agent, "pass", 100)
        await check_rules(hub)
        assert await events(hub, rule) == ["alert.firing", "alert.resolved"]
        clock.now += 3600
        await check_rules(hub)
        assert len(await events(hub, rule)) == 2, "an empty window changes nothing"

    database.run_hub(use, clock=clock)


async def test_a_rule_that_starts_quiet_sends_nothing(hub: Hub) -> None:
    project, agent = await world(hub)
    rule = await made(hub, project, "pass_rate")
    await add(hub, project, agent, "pass", 20)
    await check_rules(hub)
    assert (await get_alert(hub, LOCAL, rule))["state"] == "quiet" and await events(hub, rule) == []


def test_a_failing_case_and_missing_instrumentation(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        project, agent = await world(hub)
        failing = await made(hub, project, "failing_case", settings={"times": 2})
        lacking = await made(hub, project, "missing_evidence", settings={"above": 0.2, "minimum": 5})
        elsewhere = await made(hub, project, "failing_case", agent_id=agent)
        await add(hub, project, "agent_other", "fail", 1, code="missing_evidence")
        await add(hub, project, "agent_other", "pass", 5)
        await check_rules(hub)
        assert [await events(hub, rule) for rule in (failing, lacking, elsewhere)] == [[], [], []]
        await add(hub, project, "agent_other", "error", 2, code="missing_evidence")
        await check_rules(hub)
        assert [await events(hub, rule) for rule in (failing, lacking, elsewhere)] == [["alert.firing"], ["alert.firing"], []]
        await add(hub, project, agent, "skip", 3)
        await check_rules(hub)
        assert await events(hub, elsewhere) == [], "what was skipped did not fail"
        clock.now += 4000
        await check_rules(hub)
        assert await events(hub, failing) == ["alert.firing", "alert.resolved"]

    database.run_hub(use, clock=clock)


async def test_of_two_servers_one_notifies(hub: Hub) -> None:
    project, agent = await world(hub)
    rule = await made(hub, project, "failing_case")
    await add(hub, project, agent, "fail", 1)
    await asyncio.gather(*(check_rules(hub) for _ in range(4)))
    assert await events(hub, rule) == ["alert.firing"]


async def test_rules_are_made_listed_changed_and_deleted_with_their_messages(hub: Hub) -> None:
    project, _ = await world(hub)
    rule = await create_alert(hub, LOCAL, NewAlert(project_id=project, name="r", kind="pass_rate", webhook_url=HOOK))
    assert rule["secret"].startswith("whsec_") and rule["settings"] == KINDS["pass_rate"].defaults
    async with hub.database.reading() as connection:
        stored = (await connection.execute(alert_rules.select())).mappings().one()
    assert rule["secret"] not in stored["secret"], "what signs is encrypted"
    (listed,) = (await list_alerts(hub, LOCAL, project_id=project))["data"]
    assert "secret" not in listed and listed["id"] == rule["id"]
    changed = await update_alert(hub, LOCAL, rule["id"], {"settings": {"below": 0.5}, "name": "n"})
    assert changed["settings"]["below"] == 0.5 and changed["settings"]["minimum"] == 10 and changed["name"] == "n"
    assert (await send_test(hub, LOCAL, rule["id"]))["payload"]["event"] == "alert.test"
    await delete_alert(hub, LOCAL, rule["id"])
    with pytest.raises(Refusal, check=lambda error: error.missing == "alert"):
        await list_deliveries(hub, LOCAL, rule["id"])


async def test_a_secret_is_encrypted_before_the_writer_is_taken(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = SecretBox.lock

    def lock_alone(self: SecretBox, text: str) -> str:
        # The first use stretches the key, which takes a while.
        assert not hub.database._one_writer.locked()  # pyright: ignore[reportPrivateUsage]
        return lock(self, text)

    monkeypatch.setattr(SecretBox, "lock", lock_alone)
    project, _ = await world(hub)
    rule = await made(hub, project, "pass_rate")
    assert await update_alert(hub, LOCAL, rule, {"secret": "x" * 16})


BAD = [
    ({"webhook_url": "http://127.0.0.1/x"}, "webhook_url"),
    ({"webhook_url": "http://169.254.169.254/latest"}, "webhook_url"),
    ({"webhook_url": "http://[::ffff:10.0.0.1]/"}, "webhook_url"),
    ({"webhook_url": "file:///etc/passwd"}, "webhook_url"),
    ({"webhook_url": "http://user:secret@example.com/"}, "webhook_url"),
    ({"webhook_url": "https://exa mple.com/"}, "webhook_url"),
    ({"settings": {"below": 2}}, "settings.below"),
    ({"settings": {"below": True}}, "settings.below"),
    ({"settings": {"above": 0.5}}, "settings.above"),
    ({"settings": {"window_s": 0}}, "settings.window_s"),
    ({"secret": "short"}, "secret"),
    ({"name": " "}, "name"),
]


@pytest.mark.parametrize(("changes", "field"), BAD, ids=[str(row[0])[:50] for row in BAD])
def test_a_rule_that_cannot_work_is_refused_by_field(tmp_path: Any, changes: dict[str, Any], field: str) -> None:
    async def use(hub: Hub) -> None:
        project, _ = await world(hub)
        values: dict[str, Any] = {"project_id": project, "name": "r", "kind": "pass_rate", "webhook_url": HOOK}
        with pytest.raises(Refusal) as caught:
            await create_alert(hub, LOCAL, NewAlert(**{**values, **changes}))
        assert list(caught.value.fields) == [field]

    TestDatabase(f"sqlite:///{tmp_path}/p.db", tmp_path).run_hub(use)


async def test_rules_of_others_are_not_there_and_project_keys_see_none(hub: Hub) -> None:
    project, _ = await world(hub)
    rule = await made(hub, project, "pass_rate")
    stranger = Caller(organization_id="org_other")
    for verb in (get_alert, delete_alert, send_test, list_deliveries):
        with pytest.raises(Refusal, check=lambda error: error.missing == "alert"):
            await verb(hub, stranger, rule)
        with pytest.raises(Refusal, check=lambda error: error.code == "FORBIDDEN"):
            await verb(hub, Caller(organization_id=LOCAL.organization_id, kind="project", project_id=project), rule)
    assert (await list_alerts(hub, stranger))["data"] == []
    with pytest.raises(Refusal, match="there is no case"):
        await made(hub, project, "failing_case", settings={"case_id": "case_nobody"})
