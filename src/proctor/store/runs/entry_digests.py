"""Digests of attempts for lists, groups and comparisons, stored next to the body, which may be megabytes.

A digest is an entry without its long values, in the same JSON form. It has the times and tokens of the evidence, and the verdicts up to the
first failed one, without details; only the failed one has its reason. Attempts of earlier versions, and those with a very long reason,
have no stored digest: it is made from the body on demand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.errors import StoreError
from proctor.model.run import EntryDigest, RunEntry
from proctor.model.typed import make_json_decoder
from proctor.model.verdict import Verdict
from proctor.store.sql.compressed_json import expand_bytes
from proctor.store.sql.pages import Row
from proctor.store.sql.queries import DialectFunction
from proctor.store.sql.tables import run_entries

LARGEST_DIGEST = 4_000
"""Maximum bytes. A longer digest is not stored; the body is read instead."""
_FEW, _MANY = 200, 5_000
"""Rows per query: few if they include bodies, which may be large."""


_DIGEST = make_json_decoder(EntryDigest)
_DIGESTS = make_json_decoder(list[EntryDigest])
_ENTRY = make_json_decoder(RunEntry)

DIGEST: tuple[sa.ColumnElement[Any], ...] = (
    run_entries.c.digest,
    sa.case((run_entries.c.digest.is_(None), run_entries.c.body), else_=sa.null()).label("body"),
)
"""The columns for a digest: the body only if there is no digest."""
Edge = tuple[str, str]
"""The end time and the id of an attempt."""
_ORDER = (run_entries.c.created_at, run_entries.c.id)


class _JoinedDigests(DialectFunction):
    """The digests of many rows in one value, separated by commas, and the columns that order them."""

    inherit_cache = True
    name = "joined_digests"
    type = sa.LargeBinary()
    plain = "string_agg({}, ','::bytea ORDER BY {}, {})"
    sqlite = "CAST(group_concat({}, ',') AS BLOB)"
    """In the order of the subquery, which SQLite preserves for this function."""


def make_digest(entry: bytes) -> bytes | None:
    """Return the digest of an entry given as JSON, or None if it would be too long. Raises `StoreError`."""
    digest = shorten_entry(entry)
    return digest if len(digest) <= LARGEST_DIGEST else None


def read_digest(row: Row) -> RunEntry:
    """Return the digest of an attempt; the row has the columns of `DIGEST`. Raises `StoreError`."""
    try:
        return _ENTRY.decode(_read_or_make_digest(row["digest"], row["body"]))
    except msgspec.MsgspecError as error:
        raise StoreError(f"a stored result cannot be read: {error}") from error


def _read_or_make_digest(digest: bytes | None, body: bytes) -> bytes:
    return digest if digest is not None else shorten_entry(expand_bytes(body))


async def tally_digests(connection: AsyncConnection, run_id: str, add: Callable[[Iterable[EntryDigest]], None]) -> None:
    """Pass every attempt of a run to `add`, in batches, in the order in which they ended. Raises `StoreError`."""
    begin: Edge | None = None
    while True:
        query = sa.select(*_ORDER).where(*_match_stretch(run_id, begin, None)).order_by(*_ORDER)
        row = (await connection.execute(query.offset(_MANY - 1).limit(1))).first()
        end = None if row is None else (row[0], row[1])
        await _tally_stretch(connection, _match_stretch(run_id, begin, end), add)
        if end is None:
            return
        begin = end


def _match_stretch(run_id: str, begin: Edge | None, end: Edge | None) -> list[sa.ColumnElement[bool]]:
    """Return the condition for the attempts of a run after one and up to another."""
    matched: list[sa.ColumnElement[bool]] = [run_entries.c.run_id == run_id]
    if begin is not None:
        matched.append(sa.tuple_(*_ORDER) > sa.tuple_(*map(sa.literal, begin)))
    if end is not None:
        matched.append(sa.tuple_(*_ORDER) <= sa.tuple_(*map(sa.literal, end)))
    return matched


async def _tally_stretch(
    connection: AsyncConnection, where: Sequence[sa.ColumnElement[bool]], add: Callable[[Iterable[EntryDigest]], None]
) -> None:
    rows = sa.select(*_ORDER, run_entries.c.digest).where(*where).order_by(*_ORDER).subquery()
    # All digests in one row: for a driver, returning a row costs more than reading it, and each row competes with other threads.
    joined = _JoinedDigests(rows.c.digest, rows.c.created_at, rows.c.id)
    count, known, digests = (await connection.execute(sa.select(sa.func.count(), sa.func.count(rows.c.digest), joined))).one()
    if count == known:
        # Many at once in a thread: a thread per attempt would take longer than decoding it.
        await asyncio.to_thread(lambda: add(_decode_joined(digests or b"", count)))
        return
    # Few at once: they include bodies, which may be large.
    begin = 0
    while begin < count:
        query = sa.select(*DIGEST).where(*where).order_by(*_ORDER).offset(begin).limit(_FEW)
        found = (await connection.execute(query)).all()
        await asyncio.to_thread(lambda rows=found: add([decode_digest(_read_or_make_digest(digest, body)) for digest, body in rows]))
        begin += _FEW


def _decode_joined(digests: bytes, count: int) -> list[EntryDigest]:
    try:
        decoded = _DIGESTS.decode(b"[" + digests + b"]")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StoreError(f"a stored result cannot be read: {error}") from error
    if len(decoded) != count:
        raise StoreError(f"stored results cannot be read: {len(decoded)} in the place of {count}")
    return decoded


def decode_digest(entry: bytes) -> EntryDigest:
    """Decode the digest fields of an entry, or of its digest. Raises `StoreError`."""
    try:
        return _DIGEST.decode(entry)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise StoreError(f"a result cannot be read: {error}") from error


def shorten_entry(entry: bytes) -> bytes:
    """Return the digest of an entry, of any length. Raises `StoreError`."""
    digest = decode_digest(entry)
    failed = next((number for number, verdict in enumerate(digest.verdicts) if verdict.outcome in ("fail", "error")), None)
    verdicts: tuple[Verdict, ...] = ()
    if failed is not None:
        passed = (Verdict(verdict.outcome, verdict.score, "", verdict.code) for verdict in digest.verdicts[:failed])
        last = digest.verdicts[failed]
        verdicts = (*passed, Verdict(last.outcome, last.score, last.reason, last.code))
    return msgspec.json.encode(msgspec.structs.replace(digest, verdicts=verdicts))
