"""What the MCP servers of a run offered, stored with the run, so that a comparison can name a changed server; and whole examinations.

A folder has `servers.json` and `examination.json`; the database has a row for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from proctor.doctor.lock import Lock, compare_locks, lock_listing
from proctor.doctor.model import Examination
from proctor.model.typed import decode_json
from proctor.store.files.run_files import read_regular
from proctor.targets.mcp.results import Listing

TAG = "doctor"
"""The tag of every run that examines a server."""
SERVERS, EXAMINATION = "servers", "examination"
_MOST_CHANGES = 20


def list_snapshots(target: Any) -> dict[str, bytes]:
    """Return what the target of a run has to store, by kind: the definitions of its servers, and an examination."""
    own = getattr(target, "list_snapshots", None)
    if own is not None:
        return own()
    locks = {listing.server: lock_listing(listing) for listing in _iterate_listings(target)}
    return {SERVERS: msgspec.json.encode(locks)} if locks else {}


def _iterate_listings(target: Any) -> Iterator[Listing]:
    yield from getattr(target, "listings", ())
    for part in getattr(target, "targets", ()):
        yield from _iterate_listings(part)


def store_snapshots(folder: Path, target: Any) -> None:
    """Write what the target of a run has to store into its folder."""
    for kind, body in list_snapshots(target).items():
        (folder / f"{kind}.json").write_bytes(body)


def read_snapshot(folder: Path, kind: str) -> bytes | None:
    """Return what is stored with the run of a folder."""
    try:
        return read_regular(folder / f"{kind}.json")
    except OSError:
        return None


def read_examination(body: bytes | None) -> Examination | None:
    """Return a stored examination; None if a run has none."""
    return None if body is None else decode_json(body, Examination)


def describe_changes(base: bytes | None, candidate: bytes | None) -> tuple[str, ...]:
    """Return what the servers of two runs offer differently, the changes that break or reword first."""
    if base is None or candidate is None:
        return ()
    before, after = (decode_json(body, dict[str, Lock]) for body in (base, candidate))
    changes = [(name, change) for name in before.keys() & after.keys() for change in compare_locks(before[name], after[name])]
    lines = [f"the server {name} changed: {change}" for name, change in sorted(changes, key=lambda each: (not each[1].fails, each[0]))]
    return (*lines[:_MOST_CHANGES], *([f"and {len(lines) - _MOST_CHANGES} more changes"] if len(lines) > _MOST_CHANGES else []))
