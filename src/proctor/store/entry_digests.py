"""What lists, groups and comparisons read of an attempt, kept beside its body: a body may be megabytes, of which they show a line.

A digest is an entry in the JSON of entries, without what is long: of the evidence times and tokens stay, of the verdicts those up to the
first that failed, each without details, and only that one with its reason. Attempts of earlier versions have none, nor have those with a
very long reason: theirs is made of the body, each time it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import StoreError
from proctor.model.evidence import Cost, Usage
from proctor.model.run import RunEntry
from proctor.model.typed import make_json_decoder
from proctor.model.verdict import Verdict
from proctor.store.bodies import expand_bytes
from proctor.store.pages import Row
from proctor.store.tables import run_entries

LARGEST_DIGEST = 4_000
"""Bytes. Whatever has more to say is read from its body."""
_FEW, _MANY = 200, 2_000
"""Rows read in one query: few while there are bodies among them, which may be large."""


class _SeenEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    duration_ms: float | None = None
    usage: Usage | None = None


class EntryDigest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields of `RunEntry`; everything else in its JSON is passed over."""

    case: str
    attempt: int = 0
    outcome: str
    score: float | None = None
    verdict: str | None = None
    code: str | None = None
    reason: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    evidence: _SeenEvidence | None = None
    started_at: str = ""
    duration_ms: float | None = None
    cost: Cost | None = None

    def find_agent_ms(self) -> float | None:
        """Return how long the agent took, as `RunEntry` does."""
        recorded = self.evidence.duration_ms if self.evidence is not None else None
        return recorded if recorded is not None else self.duration_ms


_DIGEST = make_json_decoder(EntryDigest)
_ENTRY = make_json_decoder(RunEntry)

DIGEST: tuple[sa.ColumnElement[Any], ...] = (
    run_entries.c.digest,
    sa.case((run_entries.c.digest.is_(None), run_entries.c.body), else_=sa.null()).label("body"),
)
"""What is selected to read a digest: the body only where there is no digest."""


def make_digest(entry: bytes) -> bytes | None:
    """Return the digest of an entry that is given as JSON; nothing where it would be too long. Raises `StoreError`."""
    digest = shorten_entry(entry)
    return digest if len(digest) <= LARGEST_DIGEST else None


def read_digest(row: Row) -> RunEntry:
    """Return what is kept of an attempt for lists and comparisons; the row has what `DIGEST` selects. Raises `StoreError`."""
    return _decode_kept(row["digest"], row["body"])


def _decode_kept(digest: bytes | None, body: bytes) -> RunEntry:
    try:
        return _ENTRY.decode(digest if digest is not None else shorten_entry(expand_bytes(body)))
    except msgspec.MsgspecError as error:
        raise StoreError(f"a stored result cannot be read: {error}") from error


async def tally_digests(connection: AsyncConnection, run_id: str, add: Callable[[Iterable[RunEntry]], None]) -> None:
    """Hand every attempt of a run to `add`, many at once, in the order in which they ended."""
    at, key = run_entries.c.created_at, run_entries.c.id
    edge: tuple[str, str] | None = None
    size = _FEW
    while True:
        query = sa.select(at, key, *DIGEST).where(run_entries.c.run_id == run_id)
        if edge is not None:
            query = query.where(sa.tuple_(at, key) > sa.tuple_(*map(sa.literal, edge)))
        found = (await connection.execute(query.order_by(at, key).limit(size))).all()
        # Beside the event loop, many at once: a thread for each attempt takes longer than reading it.
        await asyncio.to_thread(lambda rows=found: add(_decode_kept(digest, body) for _, _, digest, body in rows))
        if len(found) < size:
            return
        edge = (found[-1].created_at, found[-1].id)
        size = _FEW if any(row.body is not None for row in found) else _MANY


def decode_digest(entry: bytes) -> EntryDigest:
    """Return of an entry, or of its digest, what digests have. Raises `StoreError`."""
    try:
        return _DIGEST.decode(entry)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StoreError(f"a result cannot be read: {error}") from error


def shorten_entry(entry: bytes) -> bytes:
    """Return the digest of an entry, whatever its length. Raises `StoreError`."""
    told = decode_digest(entry)
    failed = next((number for number, verdict in enumerate(told.verdicts) if verdict.outcome in ("fail", "error")), None)
    verdicts: tuple[Verdict, ...] = ()
    if failed is not None:
        before = (Verdict(verdict.outcome, verdict.score, "", verdict.code) for verdict in told.verdicts[:failed])
        last = told.verdicts[failed]
        verdicts = (*before, Verdict(last.outcome, last.score, last.reason, last.code))
    return msgspec.json.encode(msgspec.structs.replace(told, verdicts=verdicts))
