"""Proposed cases of a project: made from its stored traces or sent with a key, and accepted or rejected by a person.

A project key may propose, so that a coding agent can; accepting requires an organization key, and never the key that sent the proposal. An
accepted proposal becomes a case, or the next version of one. A rejected one stays, so that the same content is not proposed again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypedDict, TypeVar, Unpack

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.actions.checking.draft_case import write_head
from proctor.actions.generating.accept import edit_suite
from proctor.actions.generating.generate_traces import describe_rest, make_writer
from proctor.checks.registry import default_registry
from proctor.errors import InputError
from proctor.evidence.values.text import as_text
from proctor.formats.native.editing import append_cases
from proctor.formats.native.text import build_native_document
from proctor.formats.suites import read_suite
from proctor.generation.proposals import compare_with_suite, write_key
from proctor.generation.trace_cases import LEAST_RUNS, TraceGrouping
from proctor.generation.trace_paths import EffectNames
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import require_reader, select_visible
from proctor.service.access.transactions import Transaction, read_visible, reading, writing
from proctor.service.field_checks import read_moment, refuse_secrets_in_suite
from proctor.service.hub import Hub
from proctor.service.paging import fetch_page_or_refuse, read_page
from proctor.service.refusals import Refusal, not_found
from proctor.service.resource import Page, Paging, about, operation, show_row
from proctor.service.runs.case_draft import match_input
from proctor.service.suites.documents import read_sent_suite
from proctor.service.traces.case_history import COLUMNS, fetch_pieces, read_stored_trace
from proctor.service.traces.cases import Document, NewCase, When, check_when, insert_case, read_when, write_case
from proctor.store.accounts.tenants import query_owned
from proctor.store.sql.pages import Row, fetch_first
from proctor.store.sql.tables import cases, projects, proposals, traces

MOST_OF_KEY = 100
"""Pending proposals that one key may have sent to a project."""
MOST_PENDING = 500
"""Pending proposals of a project from which on none is generated."""
LONGEST_PROPOSAL = 50_000
"""Characters of a proposed document: its page shows all of it."""
MOST_TRACES = 1_000
_LONGEST_REASON = 2_000
_TRACES_AT_ONCE = 50
# One at a time: grouping traces uses a whole core.
_GENERATOR = ThreadPoolExecutor(1, thread_name_prefix="generate")

T = TypeVar("T")
Status = Literal["pending", "accepted", "rejected"]
Source = Literal["traces", "key"]


class ProposalSummary(TypedDict):
    """A proposed case, or a change of one."""

    id: str
    project_id: str
    agent_id: Annotated[str | None, about("none: every agent of the project")]
    case_id: Annotated[str | None, about("the case to change, or the case that accepting created; none: a new case")]
    case_version: Annotated[int | None, about("the version that the change was made to")]
    name: str
    because: Annotated[str, about("why it is proposed")]
    source: Annotated[Source, about("traces: generated from stored traces; key: sent")]
    proposed_by: Annotated[str, about("the id of a key, or `local`")]
    status: Status
    reason: Annotated[str | None, about("why it was rejected")]
    version: Annotated[int, about("incremented with every edit")]
    created_at: str
    updated_at: str


class Proposal(ProposalSummary):
    """A proposal with its document."""

    document: str
    dialect: str
    when: dict[str, Json] | None


class NewProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A case to propose."""

    project_id: str
    agent_id: Annotated[str | None, about("default: every agent of the project; with `case_id`: that of the case")] = None
    case_id: Annotated[str | None, about("the case whose document this would replace; default: a new case")] = None
    name: Annotated[str | None, about("default: the name in the document", min_length=1, max_length=200)] = None
    document: Annotated[Document, about(f"a suite of any dialect, of at most {LONGEST_PROPOSAL:,} characters")]
    dialect: Annotated[str | None, about("native, mcplab, mibo, verial or mcpjam; default: detected")] = None
    when: Annotated[dict[str, Json] | None, When] = None
    because: Annotated[str, about("why a person should accept it", min_length=1, max_length=_LONGEST_REASON)]


class ProposalChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changed fields of a pending proposal."""

    agent_id: str | None = None
    name: Annotated[str, about(min_length=1, max_length=200)] = ""
    document: Document = ""
    dialect: str | None = None
    when: Annotated[dict[str, Json] | None, When] = None
    expected_version: Annotated[int | None, about("answered 409 if the proposal has another version", ge=1, le=2**53)] = None


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """What is accepted."""

    expected_version: Annotated[int | None, about("answered 409 if the proposal has another version", ge=1, le=2**53)] = None


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a proposal is rejected."""

    reason: Annotated[str, about("shown to those who propose the same again", max_length=_LONGEST_REASON)] = ""


class TracesToGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Stored traces to make proposals of."""

    project_id: str
    agent_id: Annotated[str | None, about("default: each agent of the project by itself")] = None
    since: Annotated[str | None, about("only traces received from then on (ISO 8601)", max_length=40)] = None
    limit: Annotated[int, about("number of traces, the newest", ge=1, le=MOST_TRACES)] = 500
    least: Annotated[int, about("traces of a path that make a case", ge=1, le=MOST_TRACES)] = LEAST_RUNS


class GeneratedProposals(TypedDict):
    """The proposals that were made of stored traces."""

    traces: Annotated[int, about("traces that were used")]
    proposals: list[ProposalSummary]
    known: Annotated[int, about("cases that the project has, or that were proposed or rejected before")]
    notes: Annotated[list[str], about("what did not become a case, and why")]


@operation("proposals", "GET /api/proposals")
async def list_proposals(
    hub: Hub, caller: Caller, *, project_id: str | None = None, status: Annotated[str | None, Status] = None, **paging: Unpack[Paging]
) -> Page[ProposalSummary]:
    """List proposals, newest first, without their documents."""
    query = select_visible(proposals, caller, project_id=project_id, status=status)
    return await read_page(hub, query, proposals, lambda row: show_row(ProposalSummary, row), **paging)


@operation("proposals", "POST /api/proposals", status=201)
async def create_proposal(hub: Hub, caller: Caller, spec: NewProposal) -> Proposal:
    """Propose a case, or a change of one; a project key may do so. Nothing is evaluated against it before a person accepts it."""
    require_reader(caller)
    check_when(read_when(spec.when))
    if not spec.because.strip():
        _refuse_field("because", f"expected 1 to {_LONGEST_REASON} characters")
    suite, text = await _read_document(spec.document, spec.dialect, spec.name)
    digest = await asyncio.to_thread(make_digest, suite, spec.case_id or "")
    agent_id, version = spec.agent_id, None
    async with writing(hub, caller) as tx:
        await _lock_project(tx, spec.project_id)
        if spec.case_id is None:
            if caller.agent_ids is not None and agent_id not in caller.agent_ids:
                raise Refusal("FORBIDDEN", "the key is limited to some agents: name one of them", fields={"agent_id": ["not of this key"]})
            await tx.check_place(spec.project_id, agent_id)
        else:
            case = await tx.find_visible(cases, "case", spec.case_id)
            if case["project_id"] != spec.project_id:
                raise not_found("case", spec.case_id)
            if agent_id not in (None, case["agent_id"]):
                _refuse_field("agent_id", "a change has the agent of its case")
            agent_id, version = case["agent_id"], case["version"]
        known = await _find_known(tx.connection, spec.project_id, digest)
        if known is not None:
            why = f": {known['reason']}" if known["reason"] else ""
            state = "is pending" if known["status"] == "pending" else f"was {known['status']}"
            fields = {"document": [f"proposal {known['id']} {state}"]}
            raise Refusal("CONFLICT", f"the same proposal {state} ({known['id']}){why}", fields=fields)
        if await _count_pending(tx.connection, spec.project_id, proposed_by=caller.actor, source="key") >= MOST_OF_KEY:
            reason = f"{MOST_OF_KEY} proposals of this key are pending in this project"
            raise Refusal("CONFLICT", reason, hint="wait until a person has accepted or rejected some of them")
        values = {"agent_id": agent_id, "case_id": spec.case_id, "case_version": version, "because": spec.because, "source": "key"}
        values |= {"name": (spec.name or suite.cases[0].name or suite.cases[0].id)[:200], "when_matches": read_when(spec.when)}
        return _show(await _insert(tx, spec.project_id, values, suite.dialect, text, digest))


@operation("proposals", "POST /api/proposals/generate", doing="generating proposals")
async def generate_proposals(hub: Hub, caller: Caller, spec: TracesToGroup) -> GeneratedProposals:
    """Propose cases from stored traces, without a model; requires an organization key. Cases that are known are not proposed again."""
    groups = await group_stored_traces(hub, caller, spec)
    made: list[Row] = []
    known = used = 0
    notes: list[str] = []
    for agent_id, grouping in groups.items():
        generated = await _run(partial(grouping.finish, least=spec.least))
        used += generated.runs
        notes += describe_rest(generated)
        for case in generated.cases:
            row = await _propose_generated(hub, caller, spec.project_id, agent_id, case.document)
            made += [] if row is None else [row]
            known += row is None
    return {"traces": used, "proposals": [show_row(ProposalSummary, row) for row in made], "known": known, "notes": notes}


@operation("proposals", "GET /api/proposals/{proposal_id}")
async def get_proposal(hub: Hub, caller: Caller, id: str) -> Proposal:
    """Read a proposal."""
    return _show(await read_visible(hub, caller, proposals, "proposal", id))


@operation("proposals", "PATCH /api/proposals/{proposal_id}", person=True, doing="editing proposals")
async def update_proposal(hub: Hub, caller: Caller, id: str, changes: Annotated[Mapping[str, Json], ProposalChanges]) -> Proposal:
    """Edit a pending proposal before it is accepted; requires an organization key."""
    check_when(read_when(changes.get("when")))
    old = await read_visible(hub, caller, proposals, "proposal", id)
    values: dict[str, Json] = {name: changes[name] for name in ("name", "agent_id") if name in changes}
    if "when" in changes:
        values["when_matches"] = read_when(changes["when"])
    if "document" in changes or "dialect" in changes:
        suite, text = await _read_document(changes.get("document", old["document"]), changes.get("dialect"), old["name"])
        values |= {"document": text, "dialect": suite.dialect}
    async with writing(hub, caller) as tx:
        row = await _lock_pending(tx, id, changes.get("expected_version"))
        if values.get("agent_id") is not None:
            await tx.check_place(row["project_id"], values["agent_id"])
        return await _settle(tx, row, "update", {**values, "version": row["version"] + 1})


@operation("proposals", "POST /api/proposals/{proposal_id}/accept", person=True, doing="accepting proposals")
async def accept_proposal(hub: Hub, caller: Caller, id: str, spec: Acceptance) -> Proposal:
    """Make a proposal a case, or the next version of its case; requires an organization key other than the one that sent it."""
    old = await read_visible(hub, caller, proposals, "proposal", id)
    if old["status"] == "accepted":
        return _show(old)
    if old["source"] == "key" and caller.key_id is not None and old["proposed_by"] == caller.key_id:
        raise Refusal("FORBIDDEN", "a key cannot accept its own proposal", hint="accept it with another organization key")
    suite, text = await _read_document(old["document"], old["dialect"], old["name"])
    async with writing(hub, caller) as tx:
        row = await _lock_pending(tx, id, spec.expected_version or old["version"])
        if row["case_id"] is None:
            new = NewCase(project_id=row["project_id"], agent_id=row["agent_id"], name=row["name"], document=text, when=row["when_matches"])
            case = await insert_case(tx, new, suite, text)
        else:
            values: dict[str, Json] = {"document": text, "dialect": suite.dialect}
            case = await write_case(tx, row["case_id"], values, "update", row["case_version"])
        return await _settle(tx, row, "accept", {"status": "accepted", "case_id": case["id"]})


@operation("proposals", "POST /api/proposals/{proposal_id}/reject", person=True, doing="rejecting proposals")
async def reject_proposal(hub: Hub, caller: Caller, id: str, spec: Rejection) -> Proposal:
    """Reject a proposal; requires an organization key. The same content is not proposed again."""
    async with writing(hub, caller) as tx:
        row = await _lock_pending(tx, id, None)
        return await _settle(tx, row, "reject", {"status": "rejected", "reason": spec.reason})


@operation("proposals", "DELETE /api/proposals/{proposal_id}", person=True, doing="deleting proposals")
async def delete_proposal(hub: Hub, caller: Caller, id: str) -> None:
    """Delete a proposal, and with it the memory of its rejection; requires an organization key. An accepted case stays."""
    async with writing(hub, caller) as tx:
        await tx.delete_row(proposals, "proposal", id)


async def _read_document(document: Document, dialect: str | None, name: str | None) -> tuple[Suite, str]:
    suite, text = await read_sent_suite(document, dialect=dialect, name=name)
    if not suite.cases:
        _refuse_field("document", "has no case")
    if len(text) > LONGEST_PROPOSAL:
        _refuse_field("document", f"expected at most {LONGEST_PROPOSAL:,} characters: a person reads all of it")
    await asyncio.to_thread(refuse_secrets_in_suite, suite, "document")
    return suite, text


def make_digest(suite: Suite, case_id: str) -> str:
    """Return a digest of the claims of a document, without its comments, layout and reasons."""
    parts: list[Json] = [case_id]
    for case in build_native_document(suite, default_registry())["cases"]:
        turns = [{**turn, "expect": _write_keys(turn)} for turn in case.get("turns", ())]
        parts.append({**case, "description": "", "expect": _write_keys(case), "turns": turns})
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted", enc_hook=str)).hexdigest()


def _write_keys(part: Mapping[str, Json]) -> list[str]:
    return sorted(write_key(claim) for claim in part.get("expect", ()))


async def _lock_project(tx: Transaction, project_id: str) -> None:
    """Lock the project, so that its proposals are counted one by one. Another project does not exist for a project key."""
    if tx.caller.project_id not in (None, project_id):
        raise not_found("project", project_id)
    await tx.require_row(projects, "project", project_id, locked=True)


async def _find_known(connection: AsyncConnection, project_id: str, digest: str) -> Row | None:
    """Return an earlier proposal of this content: pending, rejected, or accepted with a case that is still there."""
    there = sa.exists().where(cases.c.id == proposals.c.case_id)
    query = sa.select(proposals).where(proposals.c.project_id == project_id, proposals.c.digest == digest)
    query = query.where(sa.or_(proposals.c.status != "accepted", there)).order_by(proposals.c.created_at.desc()).limit(1)
    return await fetch_first(connection, query)


async def _count_pending(connection: AsyncConnection, project_id: str, **equal: str) -> int:
    query = sa.select(sa.func.count()).where(proposals.c.project_id == project_id, proposals.c.status == "pending")
    return (await connection.execute(query.where(*(proposals.c[name] == value for name, value in equal.items())))).scalar_one()


async def group_stored_traces(
    hub: Hub,
    caller: Caller,
    spec: TracesToGroup,
    effects: EffectNames = EffectNames(),  # noqa: B008 - immutable
) -> dict[str, TraceGrouping]:
    """Return the newest traces by agent, grouped by their path."""
    groups: dict[str, TraceGrouping] = {}
    left, cursor = spec.limit, None
    newer = () if spec.since is None else (traces.c.created_at >= read_moment(spec.since, "since"),)
    while left > 0:
        async with reading(hub, caller) as tx:
            await tx.check_place(spec.project_id, spec.agent_id)
            query = select_visible(traces, caller, project_id=spec.project_id, agent_id=spec.agent_id, columns=COLUMNS, filters=newer)
            page = await fetch_page_or_refuse(tx.connection, query, traces, limit=min(left, _TRACES_AT_ONCE), cursor=cursor)
            stored = await fetch_pieces(tx.connection, tx.owner, page.rows)
        for each in stored:
            grouping = groups.setdefault(each.row["agent_id"], TraceGrouping(effects))
            read = await read_stored_trace(each, None)
            if read.evidence is None:
                grouping.skip("the trace cannot be read")
            else:
                await _run(partial(grouping.add, read.evidence, each.row["id"]))
        left, cursor = left - len(page.rows), page.next
        if cursor is None:
            break
    return groups


async def _run(call: Callable[[], T]) -> T:
    """Run a long computation, one at a time."""
    return await asyncio.get_running_loop().run_in_executor(_GENERATOR, copy_context().run, call)


async def _propose_generated(hub: Hub, caller: Caller, project_id: str, agent_id: str, document: dict[str, Json]) -> Row | None:
    """Insert the proposal of a group, or of a change to the case that was made of it before; None if there is nothing new."""
    name = str(document["id"])
    async with hub.database.reading() as connection:
        query = query_owned(cases, caller.organization_id, project_id=project_id, agent_id=agent_id, name=name[:200])
        case = await fetch_first(connection, query.order_by(cases.c.created_at.desc()).limit(1))
    text = await _run(partial(_write_document, document, case))
    if text is None:
        return None
    suite, text = await _read_document(text, "native", name)
    # A new case is known by its path: with more traces its claims change a little.
    path = hashlib.sha256(msgspec.json.encode([agent_id, name])).hexdigest()
    digest = path if case is None else await asyncio.to_thread(make_digest, suite, case["id"])
    values: dict[str, Json] = {"agent_id": agent_id, "name": name[:200], "because": document.get("description", ""), "source": "traces"}
    if case is None:
        first = document["turns"][0]["input"] if "turns" in document else document.get("input", document.get("body"))
        values["when_matches"] = match_input(as_text(first) or "")
    else:
        values |= {"case_id": case["id"], "case_version": case["version"], "when_matches": case["when_matches"]}
    async with writing(hub, caller) as tx:
        await _lock_project(tx, project_id)
        if await _find_known(tx.connection, project_id, digest) is not None:
            return None
        if await _count_pending(tx.connection, project_id) >= MOST_PENDING:
            raise Refusal("CONFLICT", f"{MOST_PENDING} proposals are pending in this project", hint="accept or reject some of them")
        return await _insert(tx, project_id, values, suite.dialect, text, digest)


def _write_document(document: dict[str, Json], case: Row | None) -> str | None:
    """Return the document to propose; None if the case has all of it, or was written in a way that cannot be edited."""
    name = str(document["id"])
    if case is None:
        return append_cases(write_head(name), None, [document])
    try:
        suite = read_suite(case["document"], dialect=case["dialect"], name=case["name"])
        if suite.dialect != "native" or name not in {each.id for each in suite.cases}:
            return None
        changes = compare_with_suite([document], suite, make_writer(suite))
        return edit_suite(case["document"], suite, changes, Path(name)) if changes else None
    except InputError:
        return None


async def _insert(tx: Transaction, project_id: str, values: dict[str, Json], dialect: str, text: str, digest: str) -> Row:
    state = {"project_id": project_id, "proposed_by": tx.caller.actor, "status": "pending", "version": 1, "digest": digest}
    details: dict[str, Json] = {"name": values["name"], "source": values["source"]}
    return await tx.insert_row(proposals, "proposal", "prop", {**state, **values, "dialect": dialect, "document": text}, details)


async def _lock_pending(tx: Transaction, id: str, version: int | None) -> Row:
    row = await tx.require_row(proposals, "proposal", id, locked=True)
    if row["status"] != "pending":
        raise Refusal("CONFLICT", f"the proposal was {row['status']}")
    if version not in (None, row["version"]):
        reason = [f"is now {row['version']}"]
        raise Refusal("CONFLICT", "the proposal was edited since", fields={"expected_version": reason}, hint="read it again")
    return row


async def _settle(tx: Transaction, row: Row, action: str, values: dict[str, Json]) -> Proposal:
    details: dict[str, Json] = {name: values.get(name, row[name]) for name in ("name", "case_id")}
    return _show(await tx.change_row(proposals, "proposal", row["id"], values, action, details))


def _show(row: Row) -> Proposal:
    return show_row(Proposal, row, when=row["when_matches"])


def _refuse_field(name: str, reason: str) -> None:
    raise Refusal("VALIDATION_ERROR", "some fields are invalid", fields={name: [reason]})
