"""Cases: documents of any dialect that the traces of an agent are evaluated against.

An invalid document is rejected with all of its problems. A changed document creates a new version, and earlier versions are stored. `when`
limits a case to matching traces (all conditions must hold), `sample` to a share of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import InputError
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.patterns.engine import compile_pattern
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import check_place, find_seen, list_seen, require_reader, require_writer
from proctor.service.field_checks import check_fields, refuse_emptying, refuse_secrets_in_suite
from proctor.service.hub import Hub, new_id
from proctor.service.paging import fetch_page_or_refuse, require_row, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.suites.documents import read_sent_suite, shown_problems
from proctor.store.accounts.tenants import change_row, insert_row
from proctor.store.sql.pages import Row, clamp_limit
from proctor.store.sql.tables import case_versions, cases
from proctor.store.sql.text_search import contains_text
from proctor.store.upkeep.retention import delete_cases

Document = str | dict[str, Json] | list[Json]
LONGEST_QUERY = 200
_SHOWN = ("id", "project_id", "agent_id", "name", "dialect", "version", "active", "sample", "created_at", "updated_at")


class CaseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A new case."""

    project_id: str
    document: Document
    agent_id: str | None = None
    """None for every agent of the project."""
    name: str | None = None
    """None: the name in the document."""
    dialect: str | None = None
    """None: detected."""
    active: bool = True
    when: dict[str, Json] | None = None
    """Conditions for its traces; all must hold."""
    sample: float = 1.0
    """The share of matching traces that is evaluated."""


async def create_case(hub: Hub, caller: Caller, spec: CaseSpec) -> dict[str, Json]:
    """Create a case of a project, for one agent or for all of them."""
    require_writer(caller, "creating cases")
    _check_values(spec.name, spec.when, spec.sample)
    suite, text = await read_sent_suite(spec.document, dialect=spec.dialect, name=spec.name)
    await asyncio.to_thread(refuse_secrets_in_suite, suite, "document")
    now = hub.now()
    async with hub.database.writing() as connection:
        await check_place(connection, caller, spec.project_id, spec.agent_id)
        row = await insert_row(
            connection,
            cases,
            {
                "id": new_id("case"),
                "organization_id": caller.organization_id,
                "project_id": spec.project_id,
                "agent_id": spec.agent_id,
                "name": (spec.name or _choose_name(suite))[:200],
                "dialect": suite.dialect,
                "document": text,
                "version": 1,
                "active": spec.active,
                "when_matches": spec.when,
                "sample": spec.sample,
                "created_at": now,
                "updated_at": now,
            },
        )
        await _store_version(connection, row, now)
        await note(connection, hub, caller, "create", "case", row["id"], {"name": row["name"], "dialect": suite.dialect})
    return {**_show_whole_case(row), "warnings": shown_problems(suite.warnings)}


async def list_cases(
    hub: Hub,
    caller: Caller,
    *,
    project_id: str | None = None,
    agent_id: str | None = None,
    active: bool | None = None,
    query: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> dict[str, Json]:
    """Return a page of the visible cases, without their documents; `query` is a part of the name."""
    require_reader(caller)
    if query is not None and len(query) > LONGEST_QUERY:
        raise Refusal("VALIDATION_ERROR", "the query is too long", fields={"query": [f"expected at most {LONGEST_QUERY} characters"]})
    named = () if not query else (contains_text(cases.c.name, query),)
    async with hub.database.reading() as connection:
        found = list_seen(cases, caller, project_id=project_id, agent_id=agent_id, active=active, filters=named)
        return show_page(await fetch_page_or_refuse(connection, found, cases, limit=limit, cursor=cursor), _show_case)


async def get_case(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one case with its document."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        return _show_whole_case(await find_seen(connection, cases, caller, "case", id))


async def update_case(hub: Hub, caller: Caller, id: str, changes: Mapping[str, Json], *, action: str = "update") -> dict[str, Json]:
    """Change the fields in `changes`: name, agent_id, document, dialect, active, when, sample.

    `expected_version` rejects the change if the case has another version, so that concurrent changes are not overwritten.
    """
    require_writer(caller, "changing cases")
    refuse_emptying(changes, "name", "document", "active", "sample")
    _check_values(changes.get("name"), changes.get("when"), changes.get("sample", 1.0))
    async with hub.database.reading() as connection:
        before = await require_row(connection, cases, caller.organization_id, "case", id)
    expected: int | None = changes.get("expected_version")
    _check_version(before, expected)
    values: dict[str, Json] = {name: changes[name] for name in ("name", "agent_id", "active", "sample") if name in changes}
    if "when" in changes:
        values["when_matches"] = changes["when"]
    warnings: list[dict[str, Json]] = []
    if "document" in changes or "dialect" in changes:
        # The dialect of a new document is detected again, unless it is named.
        dialect = changes.get("dialect")
        suite, text = await read_sent_suite(changes.get("document", before["document"]), dialect=dialect, name=before["name"])
        await asyncio.to_thread(refuse_secrets_in_suite, suite, "document")
        values |= {"document": text, "dialect": suite.dialect}
        warnings = shown_problems(suite.warnings)
    row = await _write_case(hub, caller, id, values, action, expected)
    return {**_show_whole_case(row), "warnings": warnings}


async def _write_case(hub: Hub, caller: Caller, id: str, values: dict[str, Json], action: str, expected: int | None) -> Row:
    now = hub.now()
    async with hub.database.writing() as connection:
        before = await require_row(connection, cases, caller.organization_id, "case", id, locked=True)
        # Checked again: another request may have changed the case while the document was parsed.
        _check_version(before, expected)
        if values.get("agent_id") is not None:
            await check_place(connection, caller, before["project_id"], values["agent_id"])
        another = any(values.get(name, before[name]) != before[name] for name in ("document", "dialect"))
        if another:
            # Workers cache documents by id and version, so that a changed document needs a new version.
            values["version"] = before["version"] + 1
        row = await change_row(connection, cases, caller.organization_id, id, {**values, "updated_at": now})
        if row is None:
            raise not_found("case", id)
        if another:
            await _store_version(connection, row, now)
        await note(connection, hub, caller, action, "case", id, {"fields": sorted(values), "version": row["version"]})
    return row


async def delete_case(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a case and its versions. Its results stay."""
    require_writer(caller, "deleting cases")
    async with hub.database.writing() as connection:
        if not await delete_cases(connection, caller.organization_id, cases.c.id == id):
            raise not_found("case", id)
        await note(connection, hub, caller, "delete", "case", id)


async def list_versions(hub: Hub, caller: Caller, id: str, *, limit: int | None = None, cursor: str | None = None) -> dict[str, Json]:
    """Return a page of the versions of a case, without the documents."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        await find_seen(connection, cases, caller, "case", id)
        query = case_versions.select().where(case_versions.c.case_id == id).order_by(case_versions.c.version.desc())
        if cursor is not None:
            if not cursor.isdecimal() or len(cursor) > 15:
                raise Refusal("BAD_REQUEST", "invalid cursor", hint="start again without a cursor")
            query = query.where(case_versions.c.version < int(cursor))
        size = clamp_limit(limit)
        rows = [dict(row) for row in (await connection.execute(query.limit(size + 1))).mappings()]
    shown = [{name: row[name] for name in ("version", "dialect", "created_at")} for row in rows[:size]]
    # Versions are numbered, so that the last version is the cursor.
    following = str(rows[size - 1]["version"]) if len(rows) > size else None
    return {"data": shown, "_meta": {"next": following, "prev": None, "limit": size}}


async def get_version(hub: Hub, caller: Caller, id: str, version: int) -> dict[str, Json]:
    """Return one version of a case with its document."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        await find_seen(connection, cases, caller, "case", id)
        query = case_versions.select().where(case_versions.c.case_id == id, case_versions.c.version == version)
        row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise not_found("version", str(version))
    return {name: row[name] for name in ("version", "dialect", "document", "created_at")}


async def _store_version(connection: AsyncConnection, row: Row, now: str) -> None:
    version = {"case_id": row["id"], **{name: row[name] for name in ("version", "dialect", "document")}, "created_at": now}
    await connection.execute(case_versions.insert().values(version))


def _check_version(row: Row, expected: int | None) -> None:
    if expected is not None and row["version"] != expected:
        reason = f"the case is at version {row['version']}; the change was made to version {expected}"
        raise Refusal(
            "CONFLICT", reason, fields={"expected_version": [f"is now {row['version']}"]}, hint="reload the case and change it again"
        )


def _choose_name(suite: Suite) -> str:
    """Return the name of the only case of a document, or of the document."""
    if len(suite.cases) == 1:
        return suite.cases[0].name or suite.cases[0].id
    return suite.name


def _check_values(name: str | None, when: dict[str, Json] | None, sample: float) -> None:
    check_fields({"name": name})
    if not 0 <= sample <= 1:
        raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={"sample": ["expected a share from 0 to 1"]})
    pattern = (when or {}).get("input")
    if pattern is not None:
        try:
            compile_pattern(pattern)
        except InputError as error:
            raise Refusal("VALIDATION_ERROR", "the pattern is invalid", fields={"when.input": [str(error)]}) from None


def _show_case(row: Row) -> dict[str, Json]:
    return {**{name: row[name] for name in _SHOWN}, "when": row["when_matches"]}


def _show_whole_case(row: Row) -> dict[str, Json]:
    return {**_show_case(row), "document": row["document"]}
