"""The end state of a run, on which its tasks are verified. Uploaded with an organization key; an agent must not grade itself.

    {"fhir": {...}, "hl7": {...}, "portal": {...}, "files": [...], "voice": {...}, "x12": {...},
     "fax": {...}, "messages": {...}, "cds": {...}, "records": {...}}
    {"state": {...}, "now": "2026-11-15T09:00:00Z", "context": {...}}

A state belongs to a task run, or to a benchmark run and all of its tasks; a family of the task run wins. It is stored redacted and
compressed. If redaction removed something, the original is stored encrypted, until its runs have ended, so that the original is verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import msgspec

from proctor.cassettes.redaction import redact
from proctor.errors import EvidenceError, StoreError
from proctor.evidence.plain.record import read_plain
from proctor.evidence.shared.state import FAMILIES
from proctor.model.evidence import Evidence, Json
from proctor.model.show import kind_of, nearest
from proctor.service.access.secret_box import SecretBox
from proctor.service.access.secrets import make_box
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.fields import invalid
from proctor.service.verification.shared.hidden_values import HiddenValues, find_hidden_values
from proctor.service.verification.shared.resources import Transaction
from proctor.store.sql.compressed_json import pack, unpack
from proctor.store.sql.pages import Row

_MOST_UNKNOWN = 50
"""Unknown parts that are listed in a response."""
_OTHER_KEYS = ("now", "context", "timezone")
_STORED, _SEALED = "state", "sealed_state"
"""The kinds of records: the redacted state, and the encrypted original."""


class UploadedState(msgspec.Struct, frozen=True):
    """An uploaded end state, on which tasks are verified."""

    evidence: Evidence
    hidden: HiddenValues
    """Values that must not be shown."""
    stamps: tuple[str, ...]
    """Different after every upload."""


class PackedUpload(msgspec.Struct, frozen=True):
    """An upload in its stored form."""

    families: list[str]
    redacted: bytes
    """Packed, without secrets."""
    sealed: bytes | None
    """The original, encrypted; None without secrets."""


def pack_upload(hub: Hub, request_body: Mapping[str, Json]) -> PackedUpload:
    """Return an upload in its stored form, which takes long if large. Raises `Refusal`."""
    whole = dict(request_body) if "state" in request_body else {"state": dict(request_body)}
    problems = _find_unknown(whole, ("state", *_OTHER_KEYS), "") if "state" in request_body else {}
    state = whole["state"]
    if not isinstance(state, dict):
        raise invalid("state", {"state": [f"expected an object, got {kind_of(state)}"]})
    problems |= _find_unknown(cast(dict[str, Json], state), FAMILIES, "state." if "state" in request_body else "")
    if problems:
        raise invalid("state", problems)
    try:
        read_plain(whole)
    except EvidenceError as error:
        # The message quotes the state.
        message = find_hidden_values(whole, redact(whole)).hide_text(error.message)
        raise invalid("state", {"state": [message]}) from None
    redacted = redact(whole)
    families = sorted(name for name, value in whole["state"].items() if value is not None)
    return PackedUpload(families, pack(redacted), None if redacted == whole else make_box(hub).lock_bytes(pack(whole)))


def _find_unknown(request_body: Mapping[str, Json], known: tuple[str, ...], prefix: str) -> dict[str, list[str]]:
    # A misspelt family would count as not recorded.
    unknown: dict[str, list[str]] = {}
    for name in request_body:
        if name not in known and len(unknown) < _MOST_UNKNOWN:
            near = nearest(name, known) or known
            unknown[f"{prefix}{name}"] = [f"unknown part of a state; nearest: {', '.join(near)}"]
    return unknown


async def store_state(tx: Transaction, run: Row, upload: PackedUpload) -> dict[str, Json]:
    """Store the state of a locked run, replacing an earlier one."""
    stored = await tx.find_by_slug(_STORED, run["id"])
    # The number distinguishes two uploads at the same time.
    body: dict[str, Json] = {"families": upload.families, "upload": (stored["body"]["upload"] if stored else 0) + 1}
    if stored is None:
        row = await tx.insert(_STORED, "st", body, parent_id=run["id"], slug=run["id"], blob=upload.redacted)
    else:
        row = await tx.rewrite(stored, body=body, blob=upload.redacted)
    # Also without secrets in the new upload: the earlier original must not be verified.
    await drop_sealed_states(tx, [run["id"]])
    if upload.sealed is not None:
        await tx.insert(_SEALED, "st", {"upload": body["upload"]}, parent_id=run["id"], slug=run["id"], blob=upload.sealed)
    size = len(upload.redacted)
    await tx.note("upload_state", run["kind"], run["id"], {"families": upload.families, "bytes": size})
    return {"families": upload.families, "bytes": size, "updated_at": row["updated_at"]}


async def drop_sealed_states(tx: Transaction, runs: list[str]) -> None:
    """Delete the originals of runs that will not be verified again."""
    await tx.delete([row["id"] for row in await tx.children(_SEALED, runs)])


class StoredUploads(msgspec.Struct, frozen=True):
    """The stored uploads of a task run."""

    rows: list[Row]
    sealed: dict[str, bytes]
    """By run id."""


async def find_uploads(tx: Transaction, task_run: Row) -> StoredUploads:
    """Return the uploads of a task run and its benchmark run."""
    runs = [task_run["parent_id"], task_run["id"]]
    rows = _sort_rows(await tx.children(_STORED, runs, blobs=True), task_run)
    sealed = await tx.children(_SEALED, runs, blobs=True)
    return StoredUploads(rows, {row["parent_id"]: row["blob"] for row in sealed})


async def open_uploads(hub: Hub, uploads: StoredUploads) -> UploadedState:
    """Return the state for verifying a task run; empty evidence without uploads."""
    # Outside a transaction and in a thread, since it takes long if large.
    return await asyncio.to_thread(_read_rows, uploads.rows, uploads.sealed, make_box(hub))


async def read_stamps(tx: Transaction, task_run: Row) -> tuple[str, ...]:
    """Return the uploads that a task run would be verified on now."""
    runs = [task_run["parent_id"], task_run["id"]]
    return _list_stamps(_sort_rows(await tx.children(_STORED, runs), task_run))


def _sort_rows(rows: list[Row], task_run: Row) -> list[Row]:
    # The state of the benchmark run first, so that the task's own state wins.
    return sorted(rows, key=lambda row: row["parent_id"] == task_run["id"])


def _list_stamps(rows: list[Row]) -> tuple[str, ...]:
    return tuple(f"{row['id']} {row['body']['upload']}" for row in rows)


def _read_rows(rows: list[Row], sealed: Mapping[str, bytes], box: SecretBox) -> UploadedState:
    whole: dict[str, Json] = {}
    families: dict[str, Json] = {}
    redacted: list[Json] = []
    uploaded: list[Json] = []
    for row in rows:
        stored = cast(dict[str, Json], unpack(row["blob"]))
        try:
            original = cast(dict[str, Json], unpack(box.unlock_bytes(sealed[row["parent_id"]]))) if row["parent_id"] in sealed else stored
        except StoreError as error:
            reason = f"the uploaded state cannot be decrypted: {error}"
            raise Refusal("CONFLICT", reason, hint="restore the service's earlier key, or upload the state again") from None
        redacted.append(stored)
        uploaded.append(original)
        families |= {name: value for name, value in original["state"].items() if value is not None}
        whole |= original
    evidence = read_plain({**whole, "state": families}) if rows else Evidence()
    return UploadedState(evidence, find_hidden_values(uploaded, redacted), _list_stamps(rows))
