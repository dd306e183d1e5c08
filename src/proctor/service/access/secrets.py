"""Secrets of projects: set once, referred to as `${NAME}`, never shown.

Only an organization key sets or deletes them; a list shows their names.
"""

from __future__ import annotations

import re
from typing import Annotated, TypedDict

import msgspec
import sqlalchemy as sa

from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_writer
from proctor.service.access.secret_box import SecretBox
from proctor.service.access.transactions import reading, writing
from proctor.service.hub import Hub, new_id
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import about, operation, show_row
from proctor.store.accounts import tenants as rows
from proctor.store.sql.tables import alert_rules, records, secrets

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LONGEST_VALUE = 64_000


class Secret(TypedDict):
    """A secret without its value."""

    id: str
    project_id: str
    name: str
    created_at: str
    updated_at: str


class Secrets(TypedDict):
    """The secrets of a project."""

    data: list[Secret]


class SecretValue(msgspec.Struct, frozen=True):
    """The value of a secret."""

    value: Annotated[str, about("encrypted at rest; it cannot be read again", min_length=1)]


def make_box(hub: Hub) -> SecretBox:
    """Return the secret box of this service."""
    return hub.secret_box or SecretBox(hub.settings.home)


@operation("secrets", "GET /api/projects/{project_id}/secrets", doing="managing secrets")
async def list_secrets(hub: Hub, caller: Caller, project_id: str) -> Secrets:
    """List the names of a project's secrets; requires an organization key."""
    async with reading(hub, caller) as tx:
        await tx.check_place(project_id)
        return {"data": [show_row(Secret, row) for row in await rows.list_secrets(tx.connection, tx.owner, project_id)]}


@operation("secrets", "PUT /api/projects/{project_id}/secrets/{name}", name="set_secret")
async def put_secret(hub: Hub, caller: Caller, project_id: str, name: str, spec: SecretValue) -> Secret:
    """Create or replace a secret; requires an organization key. Settings and suites refer to it as `${NAME}`."""
    return await set_secret(hub, caller, project_id, name, spec.value)


async def set_secret(hub: Hub, caller: Caller, project_id: str, name: str, value: str) -> Secret:
    """Create or replace a secret."""
    require_writer(caller, "managing secrets")
    fields: dict[str, list[str]] = {}
    if not _NAME.fullmatch(name):
        fields["name"] = ["expected letters, digits and underscores, as in an environment variable"]
    if not value or len(value) > _LONGEST_VALUE:
        fields["value"] = [f"expected 1 to {_LONGEST_VALUE} characters"]
    if fields:
        raise Refusal("VALIDATION_ERROR", "the secret is invalid", fields=fields)
    # Outside the transaction: the first use stretches the key, which is slow, and SQLite has one writer.
    locked = make_box(hub).lock(value)
    async with writing(hub, caller) as tx:
        await tx.check_place(project_id)
        now = hub.now()
        values: dict[str, object] = {"organization_id": tx.owner, "project_id": project_id, "name": name, "value": locked}
        row = await rows.put_secret(tx.connection, {"id": new_id("sec"), **values, "created_at": now, "updated_at": now})
        await tx.note("set", "secret", row["id"], {"name": name})
    return show_row(Secret, row)


@operation("secrets", "DELETE /api/projects/{project_id}/secrets/{name}", doing="managing secrets")
async def delete_secret(hub: Hub, caller: Caller, project_id: str, name: str) -> None:
    """Delete a secret; requires an organization key."""
    async with writing(hub, caller) as tx:
        if not await rows.delete_secret(tx.connection, tx.owner, project_id, name):
            raise not_found("secret", name)
        await tx.note("delete", "secret", name)


async def read_secrets(hub: Hub, organization_id: str, project_id: str) -> dict[str, str]:
    """Return the secrets of a project in plain text, for its runs. Never shown to a caller."""
    async with hub.database.reading() as connection:
        rows_of_project = await rows.list_secrets(connection, organization_id, project_id)
    box = make_box(hub)
    return {row["name"]: box.unlock(row["value"]) for row in rows_of_project}


async def relock_all(hub: Hub) -> int:
    """Encrypt every stored secret with the first key, so that older keys can be removed, and return their number."""
    box = make_box(hub)
    count = 0
    async with hub.database.writing() as connection:
        # One transaction, so that all secrets have the same key.
        for table, column in ((secrets, secrets.c.value), (alert_rules, alert_rules.c.secret)):
            # Locked: a concurrently set secret would be overwritten by its old value.
            stored = sa.select(table.c.id, column).where(column.is_not(None)).with_for_update()
            for id, locked in (await connection.execute(stored)).all():
                await connection.execute(sa.update(table).where(table.c.id == id).values({column: box.relock(locked)}))
                count += 1
        # States of runs that are not verified yet.
        sealed = sa.select(records.c.id, records.c.blob).where(records.c.kind == "sealed_state").with_for_update()
        for id, blob in (await connection.execute(sealed)).all():
            await connection.execute(sa.update(records).where(records.c.id == id).values(blob=box.lock_bytes(box.unlock_bytes(blob))))
            count += 1
    return count
