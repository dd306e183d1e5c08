"""Labels and notes of people on traces, results and attempts: made, listed, changed, taken back.

Everybody who may see what they are about may read them; they are written with an organization key, as everything is. A label on a claim
that a judge decided keeps what was judged and what the judge said: from these, agreement is computed (`agreement.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from proctor.model.evidence import Json
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.access.permissions import find_seen, list_seen, require_reader, require_writer
from proctor.service.hub import Hub, new_id
from proctor.service.labels.claims import Subject, SubjectKind, find_subject, read_claims
from proctor.service.paging import fetch_page_or_refuse, require_row, show_page
from proctor.service.refusals import Refusal, not_found
from proctor.store.accounts.annotations import find_own_annotation
from proctor.store.accounts.tenants import change_row, delete_row, insert_row
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import annotation_rows

Label = Literal["pass", "fail", "skip"]
LONGEST_NOTE = 4_000
_SHOWN = (
    "id", "project_id", "agent_id", "subject", "subject_id", "parent_id", "claim", "label", "note", "author", "created_at", "updated_at",
)  # fmt: skip


class NewAnnotation(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody says about something."""

    subject: SubjectKind
    subject_id: str
    claim: int | None = None
    """Which assertion, counted from 0; none: about the whole."""
    label: Label | None = None
    note: str = ""


async def create_annotation(hub: Hub, caller: Caller, said: NewAnnotation) -> dict[str, Json]:
    """Keep a label or a note. Who labels a claim again changes what they said before."""
    require_writer(caller, "labels are written")
    if said.label is None and not said.note.strip():
        raise Refusal("VALIDATION_ERROR", "there is nothing to keep", fields={"label": ["expected a label, a note, or both"]})
    _check_said({"label": said.label, "note": said.note})
    async with hub.database.reading() as connection:
        subject = await find_subject(connection, caller, said.subject, said.subject_id)
    body = await _find_judged(hub, caller, subject, said.claim)
    now = hub.now()
    values = {"label": said.label, "note": said.note, "body": body, "updated_at": now}
    async with hub.database.writing() as connection:
        # Once more, since it may have been deleted meanwhile: nothing is said about what is gone.
        await find_subject(connection, caller, said.subject, said.subject_id)
        before = None
        if said.claim is not None:
            before = await find_own_annotation(connection, caller.organization_id, caller.actor, subject.id, said.claim)
        row = None if before is None else await change_row(connection, annotation_rows, caller.organization_id, before["id"], values)
        if row is None:
            row = await insert_row(
                connection, annotation_rows, {**_make_place(caller, subject), "claim": said.claim, "created_at": now, **values}
            )
        await note(connection, hub, caller, "create" if before is None else "update", "annotation", row["id"])
    return show_annotation(row)


async def list_annotations(
    hub: Hub,
    caller: Caller,
    *,
    project_id: str | None = None,
    subject: SubjectKind | None = None,
    subject_id: str | None = None,
    label: Label | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> dict[str, Json]:
    """Return a page of what people said."""
    require_reader(caller)
    equal: dict[str, Any] = {"project_id": project_id, "subject": subject, "subject_id": subject_id, "label": label}
    query = list_seen(annotation_rows, caller, columns=_SHOWN, **equal)
    async with hub.database.reading() as connection:
        return show_page(await fetch_page_or_refuse(connection, query, annotation_rows, limit=limit, cursor=cursor), show_annotation)


async def get_annotation(hub: Hub, caller: Caller, id: str) -> dict[str, Json]:
    """Return one, with what was judged where it is about a claim of a judge."""
    require_reader(caller)
    async with hub.database.reading() as connection:
        row = await find_seen(connection, annotation_rows, caller, "annotation", id)
    return {**show_annotation(row), "judged": None if row["body"] is None else unpack(row["body"])}


async def change_annotation(hub: Hub, caller: Caller, id: str, sent: dict[str, Json]) -> dict[str, Json]:
    """Change the label or the note of one. Who changes it is its author from then on: a label says what its author thinks."""
    require_writer(caller, "labels are changed")
    _check_said(sent)
    async with hub.database.writing() as connection:
        row = await require_row(connection, annotation_rows, caller.organization_id, "annotation", id, locked=True)
        after = {**row, **sent}
        if after["label"] is None and not str(after["note"]).strip():
            raise Refusal("VALIDATION_ERROR", "nothing would be left of it", fields={"label": ["expected a label, a note, or both"]})
        values = {**sent, "author": caller.actor, "updated_at": hub.now()}
        changed = await change_row(connection, annotation_rows, caller.organization_id, id, values)
        await note(connection, hub, caller, "update", "annotation", id)
    if changed is None:
        raise not_found("annotation", id)
    return show_annotation(changed)


async def delete_annotation(hub: Hub, caller: Caller, id: str) -> None:
    """Take one back."""
    require_writer(caller, "labels are deleted")
    async with hub.database.writing() as connection:
        if not await delete_row(connection, annotation_rows, caller.organization_id, id):
            raise not_found("annotation", id)
        await note(connection, hub, caller, "delete", "annotation", id)


def _check_said(said: Mapping[str, Json]) -> None:
    """Refuse a label that is none of the three, and a note that is no text or too long."""
    label, text = said.get("label"), said.get("note", "")
    wrong: dict[str, list[str]] = {}
    if label is not None and label not in get_args(Label):
        wrong["label"] = [f"expected one of {', '.join(get_args(Label))}"]
    if not isinstance(text, str) or len(text) > LONGEST_NOTE:
        wrong["note"] = [f"expected at most {LONGEST_NOTE} characters"]
    if wrong:
        raise Refusal("VALIDATION_ERROR", f"the {' and the '.join(wrong)} cannot be kept", fields=wrong)


def show_annotation(row: Row) -> dict[str, Json]:
    """Return one as it goes over the wire."""
    return {**{name: row[name] for name in _SHOWN}, "agent_id": row["agent_id"] or None}


async def _find_judged(hub: Hub, caller: Caller, subject: Subject, claim: int | None) -> bytes | None:
    """Return what a judge was asked about a claim and said, as it is kept; None where none was. Refused for a claim that cannot be."""
    if claim is None:
        return None
    if subject.kind == "trace":
        raise Refusal("VALIDATION_ERROR", "a trace has no claims", fields={"claim": ["expected the subject to be a result or an attempt"]})
    found = next((one for one in await read_claims(hub, caller, subject) if one.number == claim), None)
    return None if found is None else pack(found)


def _make_place(caller: Caller, subject: Subject) -> dict[str, Json]:
    return {
        "id": new_id("ann"),
        "organization_id": caller.organization_id,
        "project_id": subject.project_id,
        "agent_id": subject.agent_id,
        "subject": subject.kind,
        "subject_id": subject.id,
        "parent_id": subject.parent_id,
        "author": caller.actor,
    }
