"""Reads stored traces as evidence, for trials of documents and for backtests.

Traces are decoded one at a time in a thread, since one may need much memory. A trace that cannot be read has an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from functools import partial

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from proctor.decide.prepare import PreparedSuite
from proctor.errors import EvidenceError, StoreError
from proctor.model.evidence import Evidence, Json
from proctor.service.agent import Agent
from proctor.service.decisions.trace_evidence import read_agent_evidence
from proctor.service.decisions.trace_verdicts import ActiveCase, is_selected
from proctor.service.traces.search import make_agent
from proctor.store.accounts.tenants import query_owned
from proctor.store.sql.pages import Row
from proctor.store.sql.tables import agents, trace_parts

LARGEST_TRACE = 1_000_000
"""Compressed bytes of the largest trace that is read this way."""
COLUMNS = ("id", "agent_id", "external_id", "status", "size", "body", "metadata", "input_text", "created_at")
"""The columns of a trace that are read."""


class StoredTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A stored trace: its row, its pieces, and its agent."""

    row: Row
    pieces: Sequence[bytes]
    agent: Agent | None


class ReadTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of a trace, or why it cannot be read."""

    row: Row
    evidence: Evidence | None = None
    error: tuple[str, str] | None = None
    """Why it could not be read: a code and a message."""
    is_for: bool = True
    """Whether `when` matches."""

    @property
    def is_decided(self) -> bool:
        """Whether cases are decided on it."""
        return self.is_for and self.evidence is not None and self.evidence.no_run is None

    def list_positions(self, prepared: PreparedSuite) -> list[int]:
        """Return the positions of the cases for this trace; none if it names an unknown case."""
        assert self.evidence is not None
        places = {id(case): position for position, case in enumerate(prepared.cases)}
        return [places[id(case)] for _, case in prepared.cases_for_trace(self.evidence.case)]


async def fetch_pieces(connection: AsyncConnection, organization_id: str, rows: Sequence[Row]) -> list[StoredTrace]:
    """Return rows of traces with their pieces and agents; without pieces if too large."""
    small = [row["id"] for row in rows if row["size"] <= LARGEST_TRACE]
    parts = sa.select(trace_parts.c.trace_id, trace_parts.c.body).where(trace_parts.c.trace_id.in_(small))
    pieces: dict[str, list[bytes]] = {row["id"]: [row["body"]] for row in rows if row["body"] is not None}
    for trace_id, body in await connection.execute(parts.order_by(trace_parts.c.trace_id, trace_parts.c.number)):
        pieces.setdefault(trace_id, []).append(body)
    owners = query_owned(agents, organization_id).where(agents.c.id.in_({row["agent_id"] for row in rows}))
    by_id = {row["id"]: make_agent(dict(row)) for row in (await connection.execute(owners)).mappings()}
    return [StoredTrace(row=row, pieces=pieces.get(row["id"], ()), agent=by_id.get(row["agent_id"])) for row in rows]


async def read_stored_trace(stored: StoredTrace, when: dict[str, Json] | None) -> ReadTrace:
    """Read the evidence of a trace in a thread, and whether `when` matches."""
    return await asyncio.to_thread(copy_context().run, partial(_read_trace, stored, when))


def _read_trace(stored: StoredTrace, when: dict[str, Json] | None) -> ReadTrace:
    row = stored.row
    if row["size"] > LARGEST_TRACE:
        return ReadTrace(row=row, error=("too_large", f"{row['size']} bytes are more than the limit of {LARGEST_TRACE}"))
    try:
        evidence = read_agent_evidence(stored.pieces, stored.agent)
    except EvidenceError as error:
        return ReadTrace(row=row, error=(error.code, error.message))
    except StoreError as error:
        return ReadTrace(row=row, error=("unreadable_evidence", str(error)))
    metadata: Mapping[str, Json] = {**evidence.metadata, **(row["metadata"] or {})}
    case = ActiveCase(id="", version=1, project_id="", agent_id=None, name="", when=when, sample=1.0)
    return ReadTrace(row=row, evidence=evidence, is_for=is_selected(case, row["id"], evidence, metadata))
