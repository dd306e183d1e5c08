"""The end state of a run: what its tasks are verified on. Uploaded with an organization key only; an agent must not grade itself.

    {"fhir": {...}, "hl7": {...}, "portal": {...}, "files": [...], "voice": {...}, "x12": {...},
     "fax": {...}, "messages": {...}, "cds": {...}, "records": {...}}
    {"state": {...}, "now": "2026-11-15T09:00:00Z", "context": {...}}

A state belongs to a task run, or to a benchmark run and then to all its tasks. Where both have a family, that of the task run counts. It
is kept without secrets, compressed, and again in full when it is replaced.

What is verified is what was sent. Where redacting took something out, the state as it was sent is kept beside it, encrypted, for as long as
it may still be verified: until its task run, or the last task run of its benchmark run, has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import EvidenceError, StoreError
from proctor.evidence.plain.record import read_plain
from proctor.evidence.shared.state import FAMILIES
from proctor.model.evidence import Evidence, Json
from proctor.model.show import kind_of, nearest
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.access.secret_box import SecretBox
from proctor.service.access.secrets import make_box
from proctor.service.hub import Hub, new_id
from proctor.service.redaction import redact
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.fields import invalid
from proctor.service.verification.shared.hidden_values import HiddenValues, find_hidden_values
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.pages import Row
from proctor.store.sql.verification_records import NewRecord, add_record, change_record, children, delete_records, find_by_slug

_MOST_TOLD = 50
"""Parts that nobody knows which are named in an answer."""
_BESIDE = ("now", "context", "timezone")
_KEPT, _SEALED = "state", "sealed_state"
"""The kinds of records: what is kept for good, and what it was before it was redacted."""


class Uploaded(msgspec.Struct, frozen=True):
    """What tasks are verified on, and which upload it is."""

    evidence: Evidence
    hidden: HiddenValues
    """What must not be told of it."""
    stamps: tuple[str, ...]
    """Different after every upload."""


class PackedUpload(msgspec.Struct, frozen=True):
    """An upload as it is kept."""

    families: list[str]
    kept: bytes
    """Without secrets."""
    sealed: bytes | None
    """As it was sent, encrypted; None where it holds no secrets."""


def read_upload(given: Mapping[str, Json]) -> dict[str, Json]:
    """Return an upload in its full form. Raises a `Refusal` with the path of what is wrong."""
    whole = dict(given) if "state" in given else {"state": dict(given)}
    problems = _find_unknown(whole, ("state", *_BESIDE), "") if "state" in given else {}
    state = whole["state"]
    if not isinstance(state, dict):
        raise invalid("state", {"state": [f"expected an object, got {kind_of(state)}"]})
    problems |= _find_unknown(cast(dict[str, Json], state), FAMILIES, "state." if "state" in given else "")
    if problems:
        raise invalid("state", problems)
    try:
        read_plain(whole)
    except EvidenceError as error:
        # The message quotes what it found.
        told = find_hidden_values(whole, redact(whole)).hide_text(error.message)
        raise invalid("state", {"state": [told]}) from None
    return whole


def pack_upload(hub: Hub, given: Mapping[str, Json]) -> PackedUpload:
    """Return an upload as it is kept. Takes long for a large one. Raises `Refusal`."""
    whole = read_upload(given)
    kept = redact(whole)
    families = sorted(name for name, value in whole["state"].items() if value is not None)
    return PackedUpload(families, pack(kept), None if kept == whole else make_box(hub).lock_bytes(pack(whole)))


def _find_unknown(given: Mapping[str, Json], known: tuple[str, ...], prefix: str) -> dict[str, list[str]]:
    # A family that is misspelt would count as not recorded.
    found: dict[str, list[str]] = {}
    for name in given:
        if name not in known and len(found) < _MOST_TOLD:
            near = nearest(name, known) or known
            found[f"{prefix}{name}"] = [f"unknown part of a state; nearest: {', '.join(near)}"]
    return found


async def keep_state(connection: AsyncConnection, hub: Hub, caller: Caller, run: Row, upload: PackedUpload) -> dict[str, Json]:
    """Keep the state of a run that is locked; one it had is replaced."""
    before = await find_by_slug(connection, caller.organization_id, _KEPT, run["id"])
    # The number tells two uploads of the same moment apart.
    body: dict[str, Json] = {"families": upload.families, "upload": (before["body"]["upload"] if before else 0) + 1}
    row = await _put_blob(connection, hub, caller, run, before, body, upload.kept)
    # Also where the new upload has no secrets: the sealed state of the one before would be verified in its place.
    await drop_sealed_states(connection, caller.organization_id, [run["id"]])
    if upload.sealed is not None:
        await add_record(connection, _make_record(caller, _SEALED, run, {"upload": body["upload"]}, upload.sealed), now=hub.now())
    size = len(upload.kept)
    await note(connection, hub, caller, "upload_state", run["kind"], run["id"], {"families": upload.families, "bytes": size})
    return {"families": upload.families, "bytes": size, "updated_at": row["updated_at"]}


async def _put_blob(
    connection: AsyncConnection, hub: Hub, caller: Caller, run: Row, before: Row | None, body: dict[str, Json], blob: bytes
) -> Row:
    if before is None:
        return await add_record(connection, _make_record(caller, _KEPT, run, body, blob), now=hub.now())
    row = await change_record(connection, caller.organization_id, before["id"], now=hub.now(), body=body, blob=blob)
    assert row is not None
    return row


def _make_record(caller: Caller, kind: str, run: Row, body: dict[str, Json], blob: bytes) -> NewRecord:
    return NewRecord(
        id=new_id("st"), organization_id=caller.organization_id, kind=kind, body=body, parent_id=run["id"], slug=run["id"], blob=blob
    )


async def drop_sealed_states(connection: AsyncConnection, organization_id: str, runs: list[str]) -> None:
    """Forget what was sent for runs but for what is kept of it: they will not be verified any more."""
    rows = await children(connection, organization_id, _SEALED, runs)
    await delete_records(connection, organization_id, [row["id"] for row in rows])


class FoundUploads(msgspec.Struct, frozen=True):
    """What is kept for a task run, as it is kept."""

    rows: list[Row]
    sealed: dict[str, bytes]
    """By the run whose it is."""


async def find_uploads(connection: AsyncConnection, organization_id: str, task_run: Row) -> FoundUploads:
    """Return what was uploaded for a task run and its benchmark run."""
    runs = [task_run["parent_id"], task_run["id"]]
    rows = _sort_rows(await children(connection, organization_id, _KEPT, runs, blobs=True), task_run)
    sealed = await children(connection, organization_id, _SEALED, runs, blobs=True)
    return FoundUploads(rows, {row["parent_id"]: row["blob"] for row in sealed})


async def open_uploads(hub: Hub, found: FoundUploads) -> Uploaded:
    """Return what a task run is verified on; evidence without anything in it where nothing was uploaded."""
    # Outside of a transaction and beside the event loop: opening and reading takes long for a large one.
    return await asyncio.to_thread(_read_rows, found.rows, found.sealed, make_box(hub))


async def read_stamps(connection: AsyncConnection, organization_id: str, task_run: Row) -> tuple[str, ...]:
    """Return which uploads a task run would be verified on now."""
    runs = [task_run["parent_id"], task_run["id"]]
    return _list_stamps(_sort_rows(await children(connection, organization_id, _KEPT, runs), task_run))


def _sort_rows(rows: list[Row], task_run: Row) -> list[Row]:
    # The state of the whole run first, so that what the task's own state says is laid over it.
    return sorted(rows, key=lambda row: row["parent_id"] == task_run["id"])


def _list_stamps(rows: list[Row]) -> tuple[str, ...]:
    return tuple(f"{row['id']} {row['body']['upload']}" for row in rows)


def _read_rows(rows: list[Row], sealed: Mapping[str, bytes], box: SecretBox) -> Uploaded:
    whole: dict[str, Json] = {}
    families: dict[str, Json] = {}
    told: list[Json] = []
    sent: list[Json] = []
    for row in rows:
        kept = cast(dict[str, Json], unpack(row["blob"]))
        given = _open_sealed(sealed[row["parent_id"]], box) if row["parent_id"] in sealed else kept
        told.append(kept)
        sent.append(given)
        families |= {name: value for name, value in given["state"].items() if value is not None}
        whole |= given
    evidence = read_plain({**whole, "state": families}) if rows else Evidence()
    return Uploaded(evidence, find_hidden_values(sent, told), _list_stamps(rows))


def _open_sealed(blob: bytes, box: SecretBox) -> dict[str, Json]:
    try:
        return cast(dict[str, Json], unpack(box.unlock_bytes(blob)))
    except StoreError as error:
        told = f"what was uploaded cannot be opened any more: {error}"
        raise Refusal("CONFLICT", told, hint="set the key that the service had, or upload the state again") from None
