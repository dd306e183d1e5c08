"""The end state of a run: what its tasks are verified on. Uploaded with an organization key only; an agent must not grade itself.

    {"fhir": {...}, "hl7": {...}, "portal": {...}, "files": [...], "voice": {...}, "x12": {...}}
    {"state": {...}, "now": "2026-11-15T09:00:00Z", "context": {...}}

A state belongs to a task run, or to a benchmark run and then to all its tasks. Where both have a family, that of the task run counts. It
is kept without secrets, compressed, and again in full when it is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import EvidenceError
from proctor.evidence.plain import read_plain
from proctor.evidence.state import FAMILIES
from proctor.model.evidence import Evidence, Json
from proctor.model.show import kind_of, nearest
from proctor.service.access.audit import note
from proctor.service.access.callers import Caller
from proctor.service.hub import Hub, new_id
from proctor.service.redaction import redact
from proctor.service.verification.fields import invalid
from proctor.store.bodies import pack, unpack
from proctor.store.pages import Row
from proctor.store.records import NewRecord, add_record, change_record, children, find_by_slug

_MOST_TOLD = 50
"""Parts that nobody knows which are named in an answer."""
_BESIDE = ("now", "context", "timezone")


class Uploaded(msgspec.Struct, frozen=True):
    """What tasks are verified on, and which upload it is."""

    evidence: Evidence
    stamps: tuple[str, ...]
    """Different after every upload."""


def read_upload(given: Mapping[str, Json]) -> dict[str, Json]:
    """Return an upload without its secrets. Raises a `Refusal` with the path of what is wrong."""
    whole = dict(given) if "state" in given else {"state": dict(given)}
    problems = _find_unknown(whole, ("state", *_BESIDE), "") if "state" in given else {}
    state = whole["state"]
    if not isinstance(state, dict):
        raise invalid("state", {"state": [f"expected an object, got {kind_of(state)}"]})
    problems |= _find_unknown(cast(dict[str, Json], state), FAMILIES, "state." if "state" in given else "")
    if problems:
        raise invalid("state", problems)
    kept = redact(whole)
    try:
        read_plain(kept)
    except EvidenceError as error:
        raise invalid("state", {"state": [error.message]}) from None
    return kept


def pack_upload(given: Mapping[str, Json]) -> tuple[dict[str, Json], bytes]:
    """Return an upload without its secrets, and as it is kept. Takes long for a large one. Raises `Refusal`."""
    kept = read_upload(given)
    return kept, pack(kept)


def _find_unknown(given: Mapping[str, Json], known: tuple[str, ...], prefix: str) -> dict[str, list[str]]:
    # A family that is misspelt would count as not recorded.
    found: dict[str, list[str]] = {}
    for name in given:
        if name not in known and len(found) < _MOST_TOLD:
            near = nearest(name, known) or known
            found[f"{prefix}{name}"] = [f"unknown part of a state; nearest: {', '.join(near)}"]
    return found


async def keep_state(
    connection: AsyncConnection, hub: Hub, caller: Caller, run: Row, kept: Mapping[str, Json], blob: bytes
) -> dict[str, Json]:
    """Keep the state of a run that is locked, packed in `blob`; one it had is replaced."""
    families = sorted(name for name, value in kept["state"].items() if value is not None)
    before = await find_by_slug(connection, caller.organization_id, "state", run["id"])
    # The number tells two uploads of the same moment apart.
    body: dict[str, Json] = {"families": families, "upload": (before["body"]["upload"] if before else 0) + 1}
    if before is None:
        row = await add_record(
            connection,
            NewRecord(
                id=new_id("st"),
                organization_id=caller.organization_id,
                kind="state",
                body=body,
                parent_id=run["id"],
                slug=run["id"],
                blob=blob,
            ),
            now=hub.now(),
        )
    else:
        row = await change_record(connection, caller.organization_id, before["id"], now=hub.now(), body=body, blob=blob)
        assert row is not None
    await note(connection, hub, caller, "upload_state", run["kind"], run["id"], {"families": families, "bytes": len(blob)})
    return {"families": families, "bytes": len(blob), "updated_at": row["updated_at"]}


async def read_uploaded_state(connection: AsyncConnection, organization_id: str, task_run: Row) -> Uploaded:
    """Return what a task run is verified on; evidence without anything in it where nothing was uploaded."""
    rows = await children(connection, organization_id, "state", [task_run["parent_id"], task_run["id"]], blobs=True)
    # The state of the whole run first, so that what the task's own state says is laid over it.
    rows.sort(key=lambda row: row["parent_id"] == task_run["id"])
    return await asyncio.to_thread(_read_rows, rows)


def _read_rows(rows: list[Row]) -> Uploaded:
    whole: dict[str, Json] = {}
    families: dict[str, Json] = {}
    for row in rows:
        kept = cast(dict[str, Json], unpack(row["blob"]))
        families |= {name: value for name, value in kept["state"].items() if value is not None}
        whole |= kept
    evidence = read_plain({**whole, "state": families}) if rows else Evidence()
    return Uploaded(evidence, tuple(f"{row['id']} {row['body']['upload']}" for row in rows))
