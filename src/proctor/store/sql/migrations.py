"""Migrates the schema: small named steps, each applied once, in order, and never changed afterwards.

Each step runs in a transaction together with the note that it ran, so that an interrupted one leaves nothing half done. Two servers that
start at once take turns. A database with more steps than this program knows was made by a newer one and is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from proctor.errors import StoreError
from proctor.store.sql.tables import (
    METADATA,
    agents,
    alert_rules,
    annotation_rows,
    audit,
    cases,
    claims_due,
    judged_claims,
    keys,
    proposals,
    records,
    results,
    run_entries,
    run_figures,
    run_snapshots,
    runs,
    sandbox_events,
    sandboxes,
    schedules,
    sessions,
    traces,
)

_LOCK = 0x70726F63  # "proc": the lock number shared by all servers

NOTES = sa.Table(
    "schema_steps", sa.MetaData(), sa.Column("name", sa.Text, primary_key=True), sa.Column("applied_at", sa.Text, nullable=False)
)


Step = Callable[[sa.Connection], None]
_LARGE_BINARY = "LARGE_BINARY"
"""The type of binary columns, which has another name in each database."""


def _add_column(connection: sa.Connection, table: str, name: str, kind: str) -> None:
    """Add a column, unless the first step has created it."""
    if name not in {column["name"] for column in sa.inspect(connection).get_columns(table)}:
        kind = sa.LargeBinary().compile(dialect=connection.dialect) if kind == _LARGE_BINARY else kind
        connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {name} {kind}"))


def _create_indices(connection: sa.Connection, table: sa.Table) -> None:
    """Create the missing indices of a table, except those over columns of later steps."""
    known = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    for index in table.indexes:
        if known.issuperset(column.name for column in index.columns):
            index.create(connection, checkfirst=True)


def _change(
    *tables: sa.Table, columns: Mapping[str, Mapping[str, str]] | None = None, indices: Sequence[sa.Table] = (), drops: Sequence[str] = ()
) -> Step:
    """Return a step that creates tables, adds columns (by table, with their types), drops indices, and adds the indices of tables."""

    def step(connection: sa.Connection) -> None:
        for table in tables:
            table.create(connection, checkfirst=True)
        for name, added in (columns or {}).items():
            for column, kind in added.items():
                _add_column(connection, name, column, kind)
        for name in drops:
            connection.execute(sa.text(f"DROP INDEX IF EXISTS {name}"))
        for table in indices:
            _create_indices(connection, table)

    return step


_ADD_CLAIM_TABLES = _change(
    judged_claims,
    claims_due,
    columns={"traces": {"digest": "TEXT"}, "annotations": {"question": "TEXT"}},
    indices=[annotation_rows],
)


def _add_judged_claims(connection: sa.Connection) -> None:
    """Add the index of judged claims, to be filled from what was decided before, and digests of traces."""
    _ADD_CLAIM_TABLES(connection)
    for kind, source in (("trace", sa.select(traces.c.id).where(traces.c.outcome.is_not(None))), ("attempt", sa.select(run_entries.c.id))):
        columns = source.add_columns(sa.literal(kind), sa.literal(""))
        connection.execute(sa.insert(claims_due).from_select(["subject_id", "subject", "at"], columns))


STEPS: tuple[tuple[str, Step], ...] = (
    ("0001_first_tables", METADATA.create_all),
    (
        "0002_attempts_of_traces",
        _change(columns={"traces": {"attempts": "BIGINT NOT NULL DEFAULT 0"}}, drops=["traces_due"], indices=[traces]),
    ),
    ("0003_records_by_age", _change(indices=[records])),
    ("0004_no_run_of_traces", _change(columns={"traces": {"no_run": "TEXT"}})),
    ("0005_indices_of_lists", _change(indices=[agents, alert_rules, audit, cases, keys, results, run_entries, runs, traces])),
    ("0006_names_of_runs", _change(columns={"runs": {"name": "TEXT", "tags": "TEXT"}}, indices=[runs])),
    ("0007_sessions", _change(sessions)),
    ("0008_annotations", _change(annotation_rows)),
    ("0009_digests_of_attempts", _change(columns={"run_entries": {"digest": _LARGE_BINARY}})),
    ("0010_retention_of_projects", _change(columns={"projects": {"trace_days": "BIGINT", "run_days": "BIGINT"}})),
    ("0011_texts_of_attempts", _change(columns={"run_entries": {"search_text": "TEXT"}})),
    ("0012_sandboxes", _change(sandboxes, sandbox_events, columns={"keys": {"sandbox_id": "TEXT"}}, indices=[keys])),
    ("0013_shown_of_attempts", _change(columns={"run_entries": {"shown": _LARGE_BINARY}})),
    ("0014_attempts_by_case", _change(drops=["run_entries_listed_by_run_id_case_id"], indices=[run_entries])),
    ("0015_figures_of_runs", _change(run_figures)),
    ("0016_judged_claims", _add_judged_claims),
    (
        "0017_schedules",
        _change(
            schedules,
            columns={
                "runs": {"schedule_id": "TEXT", "due_at": "TEXT"},
                "alert_rules": {"channel": "TEXT NOT NULL DEFAULT 'webhook'", "email": "TEXT"},
            },
            indices=[runs],
        ),
    ),
    ("0018_proposals", _change(proposals)),
    ("0019_snapshots_of_runs", _change(run_snapshots)),
)
"""Append only. After the first release a step must contain what it creates; `tables.py` is the current schema."""
MADE_AT_ONCE = frozenset(name for name, _ in STEPS)
"""Steps that an empty database skips: its tables are created from `tables.py`, which is the result of all steps."""


class SchemaState(msgspec.Struct, frozen=True, kw_only=True):
    """The applied steps of a database."""

    applied: list[str]
    pending: list[str]
    unknown: list[str]
    """Steps of a newer program."""


async def read_schema_state(connection: AsyncConnection) -> SchemaState:
    """Return the applied steps, without changes."""
    return await connection.run_sync(_read_state)


async def migrate(engine: AsyncEngine, dialect: Literal["sqlite", "postgresql"]) -> None:
    """Apply every missing step. Raises `StoreError` for a database of a newer program."""
    async with engine.begin() as connection:
        # Both databases can roll back schema changes, so all steps are one transaction, with a lock that a second server waits for.
        if dialect == "sqlite":
            await connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            await connection.execute(sa.text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK})
        await connection.run_sync(_apply_steps)


def _read_state(connection: sa.Connection) -> SchemaState:
    done: set[str] = set()
    if sa.inspect(connection).has_table(NOTES.name):
        done = set(connection.execute(sa.select(NOTES.c.name)).scalars())
    known = [name for name, _ in STEPS]
    return SchemaState(
        applied=[name for name in known if name in done],
        pending=[name for name in known if name not in done],
        unknown=sorted(done - set(known)),
    )


def _apply_steps(connection: sa.Connection) -> None:
    NOTES.metadata.create_all(connection)
    state = _read_state(connection)
    if state.unknown:
        raise StoreError(
            f"the database was made by a newer proctor (it knows {state.unknown[-1]!r}, this one ends at {STEPS[-1][0]!r}); "
            "upgrade proctor, or export the data with the newer one"
        )
    # Not step by step, which checks hundreds of times for existing objects: that took five times as long, a quarter of a second.
    skipped = MADE_AT_ONCE if set(sa.inspect(connection).get_table_names()) == {NOTES.name} else frozenset[str]()
    if skipped:
        METADATA.create_all(connection, checkfirst=False)
    for name, step in STEPS:
        if name in state.pending:
            if name not in skipped:
                step(connection)
            connection.execute(NOTES.insert().values(name=name, applied_at=datetime.now(UTC).isoformat(timespec="milliseconds")))
