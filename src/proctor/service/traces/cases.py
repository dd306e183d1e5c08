"""Cases: documents of any dialect that the traces of an agent are evaluated against.

An invalid document is rejected with all of its problems. A changed document creates a new version, and earlier versions are stored. `when`
limits a case to matching traces (all conditions must hold), `sample` to a share of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, TypedDict, Unpack

import msgspec

from proctor.errors import InputError
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.patterns.engine import compile_pattern
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_writer, select_visible
from proctor.service.access.transactions import Transaction, read_visible, reading, writing
from proctor.service.field_checks import refuse_secrets_in_suite
from proctor.service.hub import Hub
from proctor.service.paging import read_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, Paging, about, operation, show_row
from proctor.service.suites.documents import Problem, read_sent_suite, shown_problems
from proctor.store.runs.retention import delete_cases
from proctor.store.sql.pages import Row, clamp_limit, fetch_all, fetch_first
from proctor.store.sql.tables import case_versions, cases
from proctor.store.sql.text_search import contains_text

Document = str | dict[str, Json] | list[Json]
LONGEST_QUERY = 200


class When(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions for the traces of a case; all must hold."""

    input: Annotated[str | None, about("a regular expression (ECMAScript) that must match the input", max_length=4000)] = None
    metadata: Annotated[dict[str, Json] | None, about("required metadata values by name")] = None
    tags: Annotated[list[str] | None, about("required tags")] = None


class CaseSummary(TypedDict):
    """A document that traces are evaluated against."""

    id: str
    project_id: str
    agent_id: Annotated[str | None, about("none: every agent of the project")]
    name: str
    dialect: str
    version: Annotated[int, about("incremented with every change of the document")]
    active: bool
    when: dict[str, Json] | None
    sample: float
    created_at: str
    updated_at: str


class Case(CaseSummary):
    """A case with its document."""

    document: str


class WrittenCase(Case):
    """A case with the problems of its document."""

    warnings: list[Problem]


class NewCase(msgspec.Struct, frozen=True, kw_only=True):
    """A new case."""

    project_id: str
    agent_id: Annotated[str | None, about("default: every agent of the project")] = None
    name: Annotated[str | None, about("default: the name in the document", min_length=1, max_length=200)] = None
    document: Annotated[Document, about("a suite of any dialect, as text (YAML, JSON) or as JSON")]
    dialect: Annotated[str | None, about("native, mcplab, mibo, verial or mcpjam; default: detected")] = None
    active: bool = True
    when: Annotated[dict[str, Json] | None, When] = None
    sample: Annotated[float, about("share of traces to evaluate", ge=0, le=1)] = 1.0


class CaseChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changed fields; omitted fields stay unchanged."""

    agent_id: str | None = None
    name: Annotated[str, about(min_length=1, max_length=200)] = ""
    document: Document = ""
    dialect: str | None = None
    active: bool = True
    when: Annotated[dict[str, Json] | None, When] = None
    sample: Annotated[float, about(ge=0, le=1)] = 1.0
    expected_version: Annotated[int | None, about("answered 409 if the case has another version", ge=1, le=2**53)] = None


class CaseVersionSummary(TypedDict):
    """An earlier version of a case."""

    version: int
    dialect: str
    created_at: str


class CaseVersion(CaseVersionSummary):
    """A version with its document."""

    document: str


@operation("cases", "POST /api/cases", status=201)
async def create_case(hub: Hub, caller: Caller, spec: NewCase) -> WrittenCase:
    """Create a case; requires an organization key. An invalid document is rejected with all of its problems."""
    require_writer(caller, "creating cases")
    check_when(read_when(spec.when))
    suite, text = await read_sent_suite(spec.document, dialect=spec.dialect, name=spec.name)
    await asyncio.to_thread(refuse_secrets_in_suite, suite, "document")
    async with writing(hub, caller) as tx:
        row = await insert_case(tx, spec, suite, text)
    return show_row(WrittenCase, row, when=row["when_matches"], warnings=shown_problems(suite.warnings))


async def insert_case(tx: Transaction, spec: NewCase, suite: Suite, text: str) -> Row:
    """Insert a case whose document was read. The other fields were checked."""
    await tx.check_place(spec.project_id, spec.agent_id)
    # By default the name of the only case of a document, or of the document.
    name = spec.name or ((suite.cases[0].name or suite.cases[0].id) if len(suite.cases) == 1 else suite.name)
    values = {
        **{field: getattr(spec, field) for field in ("project_id", "agent_id", "active", "sample")},
        "name": name[:200],
        "dialect": suite.dialect,
        "document": text,
        "version": 1,
        "when_matches": read_when(spec.when),
    }
    row = await tx.insert_row(cases, "case", "case", values, {"name": name[:200], "dialect": suite.dialect})
    await _store_version(tx, row)
    return row


@operation("cases", "GET /api/cases")
async def list_cases(
    hub: Hub,
    caller: Caller,
    *,
    project_id: str | None = None,
    agent_id: str | None = None,
    active: bool | None = None,
    query: Annotated[str | None, about("part of the name")] = None,
    **paging: Unpack[Paging],
) -> Page[CaseSummary]:
    """List cases, newest first, without their documents."""
    if query is not None and len(query) > LONGEST_QUERY:
        raise Refusal("VALIDATION_ERROR", "the query is too long", fields={"query": [f"expected at most {LONGEST_QUERY} characters"]})
    name_filter = () if not query else (contains_text(cases.c.name, query),)
    shown = select_visible(cases, caller, project_id=project_id, agent_id=agent_id, active=active, filters=name_filter)
    return await read_page(hub, shown, cases, lambda row: show_row(CaseSummary, row, when=row["when_matches"]), **paging)


@operation("cases", "GET /api/cases/{case_id}")
async def get_case(hub: Hub, caller: Caller, id: str) -> Case:
    """Read a case."""
    row = await read_visible(hub, caller, cases, "case", id)
    return show_row(Case, row, when=row["when_matches"])


@operation("cases", "PATCH /api/cases/{case_id}")
async def update_case(hub: Hub, caller: Caller, id: str, changes: Annotated[Mapping[str, Json], CaseChanges]) -> WrittenCase:
    """Change a case; requires an organization key. A change of the document creates a new version."""
    return await _change_case(hub, caller, id, changes, "update")


@operation("cases", "POST /api/cases/{case_id}/pause")
async def pause_case(hub: Hub, caller: Caller, id: str) -> WrittenCase:
    """Stop evaluating traces against the case until it is resumed; requires an organization key."""
    return await _change_case(hub, caller, id, {"active": False}, "pause")


@operation("cases", "POST /api/cases/{case_id}/resume")
async def resume_case(hub: Hub, caller: Caller, id: str) -> WrittenCase:
    """Evaluate traces against the case again; requires an organization key."""
    return await _change_case(hub, caller, id, {"active": True}, "resume")


async def _change_case(hub: Hub, caller: Caller, id: str, changes: Mapping[str, Json], action: str) -> WrittenCase:
    require_writer(caller, "changing cases")
    when = read_when(changes.get("when"))
    check_when(when)
    async with reading(hub, caller) as tx:
        old = await tx.require_row(cases, "case", id)
    expected: int | None = changes.get("expected_version")
    _check_version(old, expected)
    values: dict[str, Json] = {name: changes[name] for name in ("name", "agent_id", "active", "sample") if name in changes}
    if "when" in changes:
        values["when_matches"] = when
    warnings: list[Problem] = []
    if "document" in changes or "dialect" in changes:
        # The dialect of a new document is detected again, unless it is named.
        dialect = changes.get("dialect")
        suite, text = await read_sent_suite(changes.get("document", old["document"]), dialect=dialect, name=old["name"])
        await asyncio.to_thread(refuse_secrets_in_suite, suite, "document")
        values |= {"document": text, "dialect": suite.dialect}
        warnings = shown_problems(suite.warnings)
    async with writing(hub, caller) as tx:
        row = await write_case(tx, id, values, action, expected)
    return show_row(WrittenCase, row, when=row["when_matches"], warnings=warnings)


async def write_case(tx: Transaction, id: str, values: dict[str, Json], action: str, expected: int | None) -> Row:
    """Change the columns of a case; another document becomes a new version."""
    old = await tx.require_row(cases, "case", id, locked=True)
    # Checked again: another request may have changed the case while the document was parsed.
    _check_version(old, expected)
    if values.get("agent_id") is not None:
        await tx.check_place(old["project_id"], values["agent_id"])
    another = any(values.get(name, old[name]) != old[name] for name in ("document", "dialect"))
    if another:
        # Workers cache documents by id and version, so that a changed document needs a new version.
        values["version"] = old["version"] + 1
    details: dict[str, Json] = {"fields": sorted(values), "version": values.get("version", old["version"])}
    row = await tx.change_row(cases, "case", id, values, action, details)
    if another:
        await _store_version(tx, row)
    return row


@operation("cases", "DELETE /api/cases/{case_id}")
async def delete_case(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a case and its versions; requires an organization key. Results stay."""
    require_writer(caller, "deleting cases")
    async with writing(hub, caller) as tx:
        if not await delete_cases(tx.connection, tx.owner, cases.c.id == id):
            raise not_found("case", id)
        await tx.note("delete", "case", id)


@operation("cases", "GET /api/cases/{case_id}/versions")
async def list_versions(
    hub: Hub, caller: Caller, id: str, *, limit: int | None = None, cursor: str | None = None
) -> Page[CaseVersionSummary]:
    """List the versions of a case, newest first."""
    async with reading(hub, caller) as tx:
        await tx.find_visible(cases, "case", id)
        query = case_versions.select().where(case_versions.c.case_id == id).order_by(case_versions.c.version.desc())
        if cursor is not None:
            if not cursor.isdecimal() or len(cursor) > 15:
                raise Refusal("BAD_REQUEST", "invalid cursor", hint="start again without a cursor")
            query = query.where(case_versions.c.version < int(cursor))
        size = clamp_limit(limit)
        rows = await fetch_all(tx.connection, query.limit(size + 1))
    shown = [show_row(CaseVersionSummary, row) for row in rows[:size]]
    # Versions are numbered, so that the last version is the cursor.
    following = str(rows[size - 1]["version"]) if len(rows) > size else None
    return {"data": shown, "_meta": {"next": following, "prev": None, "limit": size}}


@operation("cases", "GET /api/cases/{case_id}/versions/{version}")
async def get_version(hub: Hub, caller: Caller, id: str, version: Annotated[int, about(ge=1, le=2**53)]) -> CaseVersion:
    """Read a version of a case."""
    async with reading(hub, caller) as tx:
        await tx.find_visible(cases, "case", id)
        query = case_versions.select().where(case_versions.c.case_id == id, case_versions.c.version == version)
        row = await fetch_first(tx.connection, query)
    if row is None:
        raise not_found("version", str(version))
    return show_row(CaseVersion, row)


async def _store_version(tx: Transaction, row: Row) -> None:
    version = {name: row[name] for name in ("version", "dialect", "document")}
    await tx.connection.execute(case_versions.insert().values(case_id=row["id"], created_at=row["updated_at"], **version))


def _check_version(row: Row, expected: int | None) -> None:
    if expected is not None and row["version"] != expected:
        reason = f"the case is at version {row['version']}; the change was made to version {expected}"
        raise Refusal(
            "CONFLICT", reason, fields={"expected_version": [f"is now {row['version']}"]}, hint="reload the case and change it again"
        )


def check_when(when: Mapping[str, Json] | None) -> None:
    """Reject an invalid trace filter."""
    pattern = (when or {}).get("input")
    if pattern is not None:
        try:
            compile_pattern(pattern)
        except InputError as error:
            raise Refusal("VALIDATION_ERROR", "the pattern is invalid", fields={"when.input": [str(error)]}) from None


def read_when(when: Mapping[str, Json] | None) -> dict[str, Json] | None:
    """Return the conditions that are set, or None."""
    return {name: value for name, value in (when or {}).items() if value is not None} or None
