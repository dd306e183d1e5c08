from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.service.access.audit import list_notes
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.keys import (
    KeySpec,
    authenticate,
    create_key,
    find_local_caller,
    get_key,
    get_organization_caller,
    issue_key,
    list_keys,
    revoke_key,
)
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.sandboxes.playgrounds import close
from proctor.service.verification.shared.resources import Transaction
from proctor.store.sql.tables import agents, keys, projects, records
from tests.databases import TestDatabase

OTHER = Caller(organization_id="org_other")


async def fill(hub: Hub) -> None:
    at = {"created_at": hub.now(), "updated_at": hub.now()}
    async with hub.database.writing() as connection:
        for organization in ("org_default", "org_other"):
            ours = {"organization_id": organization, "name": "x", **at}
            await connection.execute(projects.insert().values(id=f"proj_{organization}", **ours))
            for number in (1, 2):
                await connection.execute(
                    agents.insert().values(id=f"agent_{organization}_{number}", project_id=f"proj_{organization}", kind="http", **ours)
                )
            for kind, id in (("solver", "slv"), ("benchmark_run", "br")):
                await connection.execute(
                    records.insert().values(id=f"{id}_{organization}", organization_id=organization, kind=kind, body={}, **at)
                )


async def test_a_key_is_shown_once_and_recognised_by_its_hash(hub: Hub) -> None:
    row, plain = await create_key(hub, LOCAL, KeySpec(kind="organization", name="ci"))
    assert plain.startswith("proctor_org_") and len(plain) >= 3 + 32
    assert row["masked"] == f"proctor_org_...{plain[-4:]}"
    async with hub.database.reading() as connection:
        stored = (await connection.execute(sa.select(keys))).mappings().one()
    assert plain not in str(dict(stored)) and len(stored["hash"]) == 64
    for listed in ((await list_keys(hub, LOCAL))["data"], [await get_key(hub, LOCAL, row["id"])], [row]):
        assert len(listed) == 1
        assert plain not in str(listed) and stored["hash"] not in str(listed)
    assert await authenticate(hub, plain) == Caller(organization_id="org_default", key_id=row["id"])


SCOPES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("organization", "proctor_org_", {}, {}),
    ("project", "proctor_proj_", {"project_id": "proj_org_default"}, {"project_id": "proj_org_default"}),
    (
        "project",
        "proctor_proj_",
        {"project_id": "proj_org_default", "agent_ids": ["agent_org_default_1"]},
        {"project_id": "proj_org_default", "agent_ids": ("agent_org_default_1",)},
    ),
    ("solver", "vrl_slv_", {"solver_id": "slv_org_default"}, {"solver_id": "slv_org_default"}),
    ("run", "vrl_run_", {"benchmark_run_id": "br_org_default"}, {"benchmark_run_id": "br_org_default"}),
]


@pytest.mark.parametrize(("kind", "prefix", "scope", "caller"), SCOPES)
async def test_every_kind_of_key_carries_its_scope(kind: Any, prefix: str, scope: dict[str, Any], caller: dict[str, Any], hub: Hub) -> None:
    await fill(hub)
    row, plain = await create_key(hub, LOCAL, KeySpec(kind=kind, name="k", **scope))
    assert plain.startswith(prefix)
    assert await authenticate(hub, plain) == Caller(organization_id="org_default", kind=kind, key_id=row["id"], **caller)


REFUSED: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("king", "k", {}, "VALIDATION_ERROR", "kind"),
    ("organization", " ", {}, "VALIDATION_ERROR", "name"),
    ("organization", "x" * 201, {}, "VALIDATION_ERROR", "name"),
    ("organization", "a\0b", {}, "VALIDATION_ERROR", "name"),
    ("project", "k", {}, "VALIDATION_ERROR", "project_id"),
    ("solver", "k", {}, "VALIDATION_ERROR", "solver_id"),
    ("run", "k", {}, "VALIDATION_ERROR", "benchmark_run_id"),
    ("organization", "k", {"project_id": "proj_org_default"}, "VALIDATION_ERROR", "project_id"),
    ("organization", "k", {"agent_ids": ["agent_org_default_1"]}, "VALIDATION_ERROR", "agent_ids"),
    ("project", "k", {"project_id": "proj_org_default", "agent_ids": []}, "VALIDATION_ERROR", "agent_ids"),
    ("organization", "k", {"expires_at": "tomorrow"}, "VALIDATION_ERROR", "expires_at"),
    ("organization", "k", {"expires_at": "2001-01-01T00:00:00Z"}, "VALIDATION_ERROR", "expires_at"),
    ("project", "k", {"project_id": "proj_none"}, "NOT_FOUND", ""),
    ("project", "k", {"project_id": "proj_org_other"}, "NOT_FOUND", ""),
    ("project", "k", {"project_id": "proj_org_default", "agent_ids": ["agent_org_other_1"]}, "NOT_FOUND", ""),
    ("solver", "k", {"solver_id": "slv_org_other"}, "NOT_FOUND", ""),
    ("solver", "k", {"solver_id": "br_org_default"}, "NOT_FOUND", ""),
    ("run", "k", {"benchmark_run_id": "br_org_other"}, "NOT_FOUND", ""),
]


async def test_a_key_that_makes_no_sense_or_reaches_elsewhere_is_refused(hub: Hub) -> None:
    await fill(hub)
    for kind, name, scope, code, field in REFUSED:
        with pytest.raises(Refusal) as refused:
            await create_key(hub, LOCAL, KeySpec(kind=kind, name=name, **scope))  # type: ignore[arg-type]
        assert refused.value.code == code, (kind, name, scope)
        assert list(refused.value.fields) == ([field] if field else []), (kind, name, scope)
    assert await find_local_caller(hub) == LOCAL, "nothing was created"


async def test_only_an_organization_key_manages_keys_and_only_its_own(hub: Hub) -> None:
    await fill(hub)
    row, _ = await create_key(hub, LOCAL, KeySpec(kind="organization", name="ours"))
    for kind in ("project", "solver", "run"):
        caller = Caller(organization_id="org_default", kind=kind, key_id="key_x")
        for verb in (
            create_key(hub, caller, KeySpec(kind="organization", name="k")),
            list_keys(hub, caller),
            get_key(hub, caller, row["id"]),
            revoke_key(hub, caller, row["id"]),
            list_notes(hub, caller),
        ):
            with pytest.raises(Refusal) as refused:
                await verb
            assert refused.value.code == "FORBIDDEN"
    assert (await list_keys(hub, OTHER))["data"] == []
    assert (await list_notes(hub, OTHER))["data"] == []
    for foreign in (get_key(hub, OTHER, row["id"]), revoke_key(hub, OTHER, row["id"]), get_key(hub, OTHER, "key_none")):
        with pytest.raises(Refusal) as refused:
            await foreign
        assert refused.value.code == "NOT_FOUND"
    assert (await get_key(hub, LOCAL, row["id"]))["revoked_at"] is None


@pytest.mark.parametrize("presented", ["", "vk_", "vk_" + "x" * 43, "mibo_nope", "\ud800", "vk_" + "x" * 100_000, "Bearer vk_x", "\0"])
async def test_an_invalid_key_has_no_caller(presented: str, hub: Hub) -> None:
    await create_key(hub, LOCAL, KeySpec(kind="organization", name="k"))
    assert await authenticate(hub, presented) is None


def test_a_revoked_key_opens_nothing_at_once_here_and_soon_elsewhere(database: TestDatabase) -> None:
    now = [1_800_000_000.0]

    async def use(hub: Hub) -> None:
        row, plain = await create_key(hub, LOCAL, KeySpec(kind="organization", name="k"))
        elsewhere = Hub(database=hub.database, settings=hub.settings, clock=hub.clock)
        assert await authenticate(hub, plain) and await authenticate(elsewhere, plain)
        revoked = await revoke_key(hub, LOCAL, row["id"])
        assert revoked["revoked_at"] == hub.now()
        assert await authenticate(hub, plain) is None
        now[0] += 6
        assert await authenticate(elsewhere, plain) is None
        now[0] += 100
        assert (await revoke_key(hub, LOCAL, row["id"]))["revoked_at"] == revoked["revoked_at"]

    database.run_hub(use, clock=lambda: now[0])


async def test_a_key_that_was_read_before_it_was_revoked_is_not_remembered(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    row, plain = await create_key(hub, LOCAL, KeySpec(kind="organization", name="k"))
    from proctor.store.accounts import keys as stored

    real = stored.find_key_by_hash

    async def slow(connection: Any, hash: str) -> Any:
        found = await real(connection, hash)
        monkeypatch.setattr(stored, "find_key_by_hash", real)
        await revoke_key(hub, LOCAL, row["id"])
        return found

    monkeypatch.setattr(stored, "find_key_by_hash", slow)
    await authenticate(hub, plain)
    assert await authenticate(hub, plain) is None


def test_an_expired_key_is_refused_also_when_it_was_just_looked_up(database: TestDatabase) -> None:
    now = [1_800_000_000.0]

    async def use(hub: Hub) -> None:
        _, plain = await create_key(hub, LOCAL, KeySpec(kind="organization", name="k", expires_at="2027-01-15T09:00:03+01:00"))
        assert await authenticate(hub, plain)
        now[0] += 2
        assert await authenticate(hub, plain)
        now[0] += 1
        assert await authenticate(hub, plain) is None

    database.run_hub(use, clock=lambda: now[0])


def test_the_use_of_a_key_is_noted_at_most_once_a_minute(database: TestDatabase) -> None:
    now = [1_800_000_000.0]

    async def use(hub: Hub) -> None:
        row, plain = await create_key(hub, LOCAL, KeySpec(kind="organization", name="k"))
        seen: list[Any] = []
        for wait in (0, 1, 58, 1, 30, 30):
            now[0] += wait
            await authenticate(hub, plain)
            seen.append((await get_key(hub, LOCAL, row["id"]))["last_used_at"])
        first, second, third = "2027-01-15T08:00:00.000Z", "2027-01-15T08:01:00.000Z", "2027-01-15T08:02:00.000Z"
        assert seen == [first, first, first, second, second, third]

    database.run_hub(use, clock=lambda: now[0])


async def test_a_database_that_cannot_be_written_does_not_lock_readers_out(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    _, plain = await create_key(hub, LOCAL, KeySpec(kind="organization", name="k"))

    def full() -> Any:
        raise StoreError("the disk is full")

    monkeypatch.setattr(hub.database, "writing", full)
    assert await authenticate(hub, plain)


def test_a_service_is_open_until_the_first_key_and_never_again(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        assert await find_local_caller(hub) == LOCAL
        row, _ = await create_key(hub, LOCAL, KeySpec(kind="organization", name="k"))
        assert await find_local_caller(hub) is None
        await revoke_key(hub, LOCAL, row["id"])
        async with hub.database.writing() as connection:
            await connection.execute(keys.delete())
        assert await find_local_caller(hub) is None

    async def later(hub: Hub) -> None:
        assert await find_local_caller(hub) is None

    database.run_hub(use)
    database.run_hub(later)


async def test_tokens_of_runs_are_made_inside_another_transaction_and_listed_only_on_request(hub: Hub) -> None:
    solver = Caller(organization_id="org_default", kind="solver", key_id="key_s", solver_id="slv_1")
    with pytest.raises(RuntimeError):
        async with hub.database.writing() as connection:
            _, lost = await issue_key(connection, hub, solver, KeySpec(kind="run", name="run", benchmark_run_id="br_1"))
            raise RuntimeError("the run could not be made")
    assert await authenticate(hub, lost) is None
    async with hub.database.writing() as connection:
        _, token = await issue_key(connection, hub, solver, KeySpec(kind="run", name="run", benchmark_run_id="br_1", solver_id="slv_1"))
    caller = await authenticate(hub, token)
    assert caller is not None and (caller.kind, caller.benchmark_run_id, caller.solver_id) == ("run", "br_1", "slv_1")
    assert (await list_keys(hub, LOCAL))["data"] == []
    assert len((await list_keys(hub, LOCAL, kind="run"))["data"]) == 1


async def test_every_write_is_in_the_audit_log_without_the_key(hub: Hub) -> None:
    row, plain = await create_key(hub, LOCAL, KeySpec(kind="organization", name="ci"))
    caller = await authenticate(hub, plain)
    assert caller is not None
    await asyncio.sleep(0.002)
    await revoke_key(hub, caller, row["id"])
    notes = (await list_notes(hub, LOCAL))["data"]
    assert [(note["actor"], note["action"], note["resource"], note["resource_id"]) for note in notes] == [
        (row["id"], "revoke", "key", row["id"]),
        ("local", "create", "key", row["id"]),
    ]
    assert plain not in str(notes)


async def test_an_organization_is_found_by_id_or_name_and_created_on_request(hub: Hub) -> None:
    assert await get_organization_caller(hub) == LOCAL
    with pytest.raises(Refusal):
        await get_organization_caller(hub, "acme")
    made = await get_organization_caller(hub, "acme", create=True)
    assert made.organization_id.startswith("org_") and made != LOCAL
    assert await get_organization_caller(hub, "acme", create=True) == made
    assert await get_organization_caller(hub, made.organization_id) == made


async def test_a_token_that_is_used_while_its_sandbox_is_closed_is_not_remembered(hub: Hub) -> None:
    async with hub.database.writing() as connection:
        token = (await issue_key(connection, hub, LOCAL, KeySpec(kind="sandbox", name="sandbox sbx_1", sandbox_id="sbx_1")))[1]
    assert await authenticate(hub, token) is not None
    async with hub.database.writing() as connection:
        await close(Transaction(connection, hub, LOCAL), ["sbx_1"])
        # Nothing is committed yet.
        assert await authenticate(hub, token) is not None
    assert await authenticate(hub, token) is None
