from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from proctor.errors import InputError, StoreError
from proctor.service.access.audit import list_notes
from proctor.service.access.callers import LOCAL, Caller
from proctor.service.access.secret_box import KEY_FILE, SecretBox
from proctor.service.access.secrets import delete_secret, list_secrets, read_secrets, relock_all, set_secret
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.store.sql.tables import alert_rules, projects, secrets

VALUE = "hunter2 ü \ud800"


async def add_projects(hub: Hub) -> None:
    async with hub.database.writing() as connection:
        for id, organization in (("proj_1", "org_default"), ("proj_2", "org_other")):
            row = {"id": id, "organization_id": organization, "name": "n", "created_at": "t", "updated_at": "t"}
            await connection.execute(projects.insert().values(row))


async def test_a_secret_is_stored_encrypted_and_never_shown(hub: Hub) -> None:
    await add_projects(hub)
    for value in ("first", VALUE):
        shown = await set_secret(hub, LOCAL, "proj_1", "SHOP_TOKEN", value)
        assert shown["name"] == "SHOP_TOKEN" and "value" not in shown
    assert await list_secrets(hub, LOCAL, "proj_1") == {"data": [shown]}
    assert await read_secrets(hub, "org_default", "proj_1") == {"SHOP_TOKEN": VALUE}
    assert await read_secrets(hub, "org_other", "proj_1") == {}
    async with hub.database.reading() as connection:
        stored = (await connection.execute(sa.select(secrets.c.value))).scalars().all()
    assert len(stored) == 1 and "hunter2" not in stored[0]
    assert "hunter2" not in str(await list_notes(hub, LOCAL))
    await delete_secret(hub, LOCAL, "proj_1", "SHOP_TOKEN")
    assert await list_secrets(hub, LOCAL, "proj_1") == {"data": []}


async def test_secrets_of_others_are_not_there(hub: Hub) -> None:
    other = Caller(organization_id="org_other")
    await add_projects(hub)
    await set_secret(hub, LOCAL, "proj_1", "A", "x")
    for verb in (
        set_secret(hub, other, "proj_1", "A", "y"),
        list_secrets(hub, other, "proj_1"),
        delete_secret(hub, other, "proj_1", "A"),
        delete_secret(hub, LOCAL, "proj_1", "B"),
    ):
        with pytest.raises(Refusal) as refused:
            await verb
        assert refused.value.code == "NOT_FOUND"
    project_key = Caller(organization_id="org_default", kind="project", project_id="proj_1", key_id="k")
    for verb in (set_secret(hub, project_key, "proj_1", "A", "y"), list_secrets(hub, project_key, "proj_1")):
        with pytest.raises(Refusal) as refused:
            await verb
        assert refused.value.code == "FORBIDDEN"
    for name, value, field in (
        ("", "x", "name"),
        ("1A", "x", "name"),
        ("A-B", "x", "name"),
        ("A", "", "value"),
        ("A", "x" * 64_001, "value"),
    ):
        with pytest.raises(Refusal) as refused:
            await set_secret(hub, LOCAL, "proj_1", name, value)
        assert list(refused.value.fields) == [field]
    assert await read_secrets(hub, "org_default", "proj_1") == {"A": "x"}


async def test_a_key_is_replaced_without_losing_a_secret(hub: Hub) -> None:
    old, new = Fernet.generate_key().decode(), "a long passphrase of my own"

    def under(keys: str) -> Hub:
        return Hub(database=hub.database, settings=hub.settings, secret_box=SecretBox(hub.settings.home, keys))

    await add_projects(hub)
    await set_secret(under(old), LOCAL, "proj_1", "A", VALUE)
    rule = {"id": "r", "organization_id": "o", "project_id": "p", "name": "n", "kind": "k", "webhook_url": "u", "created_at": "t"}
    async with hub.database.writing() as connection:
        locked = SecretBox(hub.settings.home, old).lock("signing")
        await connection.execute(alert_rules.insert().values({**rule, "secret": locked, "updated_at": "t"}))
        await connection.execute(alert_rules.insert().values({**rule, "id": "r2", "updated_at": "t"}))
    with pytest.raises(StoreError, match="cannot be decrypted with the configured key"):
        await read_secrets(under(new), "org_default", "proj_1")
    both = under(f"{new}, {old}")
    assert await read_secrets(both, "org_default", "proj_1") == {"A": VALUE}
    assert await relock_all(both) == 2
    assert await read_secrets(under(new), "org_default", "proj_1") == {"A": VALUE}
    async with hub.database.reading() as connection:
        locked = (await connection.execute(sa.select(alert_rules.c.secret).where(alert_rules.c.id == "r"))).scalar_one()
    assert SecretBox(hub.settings.home, new).unlock(locked) == "signing"
    with pytest.raises(StoreError):
        await relock_all(under(old))
    assert await read_secrets(under(new), "org_default", "proj_1") == {"A": VALUE}


def test_the_key_file_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    boxes = [SecretBox(home) for _ in range(8)]
    locked: list[str] = []
    threads = [threading.Thread(target=lambda box=box: locked.append(box.lock("x"))) for box in boxes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [SecretBox(home).unlock(one) for one in locked] == ["x"] * 8
    assert stat.S_IMODE((home / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == [KEY_FILE]


def test_a_key_file_that_others_can_read_or_that_is_empty_is_refused(tmp_path: Path) -> None:
    SecretBox(tmp_path).lock("x")
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(StoreError, match="is readable by others"):
        SecretBox(tmp_path).lock("x")
    (tmp_path / KEY_FILE).chmod(0o600)
    (tmp_path / KEY_FILE).write_text("\n")
    with pytest.raises(InputError, match="no key in"):
        SecretBox(tmp_path).lock("x")
    (tmp_path / KEY_FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match="cannot be used"):
        SecretBox(tmp_path).lock("x")


def test_a_given_key_wins_over_the_file_which_is_then_not_made(tmp_path: Path) -> None:
    box = SecretBox(tmp_path, "a long passphrase of my own")
    assert SecretBox(tmp_path / "other", "a long passphrase of my own").unlock(box.lock("x")) == "x"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="too short") as short:
        SecretBox(tmp_path, "hunter2").lock("x")
    assert "hunter2" not in str(short.value)
    assert "passphrase" not in repr(box) + str(vars(box).keys())


def test_a_value_tampered_at_rest_is_not_decrypted(tmp_path: Path) -> None:
    box = SecretBox(tmp_path)
    locked = box.lock("x")
    for wrong in ("", "x", locked[:-4] + "AAA=", locked[:-1], "ü"):
        with pytest.raises(StoreError):
            box.unlock(wrong)
