"""Concurrent changes of one object: the second one sees what the first one wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.service.access import agents
from proctor.service.access.callers import LOCAL
from proctor.service.access.secrets import make_box, read_secrets, relock_all, set_secret
from proctor.service.access.transactions import Transaction
from proctor.service.hub import Hub
from proctor.service.labels.annotations import NewAnnotation, change_annotation, create_annotation
from proctor.service.notify.alerts import NewAlert, create_alert, update_alert
from proctor.service.refusals import Refusal
from proctor.service.traces.cases import NewCase, create_case, get_version, update_case
from proctor.store.accounts.tenants import change_row
from proctor.store.sql.tables import alert_rules, annotation_rows, case_versions, cases, secrets
from tests.service.trace_world import SUITE, post, world

OTHER = SUITE.replace("refund", "other")
THIRD = SUITE.replace("refund", "third")


async def change_during(hub: Hub, table: sa.Table, id: str, values: Mapping[str, Any], change: Coroutine[Any, Any, Any]) -> Any:
    """Change a row, run `change` before the commit, and return the result of `change`."""
    async with hub.database.writing() as connection:
        row = await change_row(connection, table, LOCAL.organization_id, id, values)
        assert row is not None
        if table is cases:
            fields = {"case_id": id, **{name: row[name] for name in ("version", "dialect", "document")}, "created_at": hub.now()}
            await connection.execute(case_versions.insert().values(fields))
        task = asyncio.create_task(change)
        await _wait_until_held_up(connection, task)
    return await task


async def _wait_until_held_up(connection: AsyncConnection, task: asyncio.Task[Any]) -> None:
    if connection.dialect.name == "sqlite":
        await asyncio.sleep(0.05)  # there is only one writer
        return
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    while not task.done() and not (await connection.execute(waiting)).scalar_one():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("document", [SUITE, THIRD], ids=["as before", "another one"])
async def test_a_document_that_is_written_at_the_same_time_is_the_next_version(hub: Hub, document: str) -> None:
    project, _ = await world(hub, suite=None)
    case = await create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE))
    other_change = {"document": OTHER, "version": 2}
    changed = await change_during(hub, cases, case["id"], other_change, update_case(hub, LOCAL, case["id"], {"document": document}))
    assert (changed["version"], changed["document"]) == (3, document)
    documents = [(await get_version(hub, LOCAL, case["id"], version))["document"] for version in (1, 2, 3)]
    assert documents == [SUITE, OTHER, document]


async def test_an_outdated_expected_version_is_a_conflict(hub: Hub) -> None:
    project, _ = await world(hub, suite=None)
    case = await create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE))
    change = update_case(hub, LOCAL, case["id"], {"document": THIRD, "expected_version": 1})
    with pytest.raises(Refusal, check=lambda error: error.fields == {"expected_version": ["is now 2"]}):
        await change_during(hub, cases, case["id"], {"document": OTHER, "version": 2}, change)


async def test_concurrent_changes_of_a_rule_are_both_stored(hub: Hub) -> None:
    project, _ = await world(hub)
    rule = await create_alert(
        hub, LOCAL, NewAlert(project_id=project, name="r", kind="pass_rate", webhook_url="https://hooks.example.com/x")
    )
    other_change = {"settings": {**rule["settings"], "below": 0.5}}
    changed = await change_during(
        hub, alert_rules, rule["id"], other_change, update_alert(hub, LOCAL, rule["id"], {"settings": {"minimum": 3}})
    )
    assert (changed["settings"]["below"], changed["settings"]["minimum"]) == (0.5, 3)


async def test_a_label_cannot_be_removed_after_its_note(hub: Hub) -> None:
    _, agent = await world(hub)
    trace = await post(hub, {"data": {"text": "Refund"}, "platformId": agent})
    annotation = await create_annotation(hub, LOCAL, NewAnnotation(subject="trace", subject_id=trace.id, label="pass", note="good"))
    with pytest.raises(Refusal, check=lambda error: list(error.fields) == ["label"]):
        await change_during(
            hub, annotation_rows, annotation["id"], {"note": ""}, change_annotation(hub, LOCAL, annotation["id"], {"label": None})
        )


async def test_a_secret_set_while_all_are_encrypted_again_is_stored(hub: Hub) -> None:
    project, _ = await world(hub)
    secret = await set_secret(hub, LOCAL, project, "TOKEN", "old")
    await change_during(hub, secrets, secret["id"], {"value": make_box(hub).lock("new")}, relock_all(hub))
    assert await read_secrets(hub, LOCAL.organization_id, project) == {"TOKEN": "new"}


async def test_of_two_agents_with_one_service_name_one_is_made(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    project, _ = await world(hub, suite=None)
    insert_row = Transaction.insert_row
    entered: list[asyncio.Task[Any] | None] = []

    async def insert_slowly(tx: Transaction, *arguments: Any) -> Any:
        entered.append(asyncio.current_task())
        if len(entered) == 1:
            await _wait_until_held_up(tx.connection, others[1])
        return await insert_row(tx, *arguments)

    monkeypatch.setattr(Transaction, "insert_row", insert_slowly)
    others = [
        asyncio.create_task(agents.create_agent(hub, LOCAL, agents.NewAgent(project_id=project, name=name, service_name="till")))
        for name in ("a", "b")
    ]
    made = await asyncio.gather(*others, return_exceptions=True)
    assert sorted(isinstance(one, Refusal) and one.code == "CONFLICT" for one in made) == [False, True]
