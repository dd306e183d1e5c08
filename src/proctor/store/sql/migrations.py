"""Migrates the schema: small named steps, each applied once, in order, and never changed afterwards.

Each step runs in a transaction together with the note that it ran, so that an interrupted one leaves nothing half done. Two servers that
start at once take turns. A database with more steps than this program knows was made by a newer one and is rejected.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _create_first_tables(connection: sa.Connection) -> None:
    METADATA.create_all(connection)


def _count_trace_attempts(connection: sa.Connection) -> None:
    """Add the count of interrupted evaluations to traces, and the index by agent."""
    # The first step, in its current form, has already created them.
    _add_column(connection, "traces", "attempts", "BIGINT NOT NULL DEFAULT 0")
    connection.execute(sa.text("DROP INDEX IF EXISTS traces_due"))
    for index in traces.indexes:
        index.create(connection, checkfirst=True)


def _index_records_by_age(connection: sa.Connection) -> None:
    """Add the index of benchmark runs by age."""
    for index in records.indexes:
        index.create(connection, checkfirst=True)


def _add_no_run_of_traces(connection: sa.Connection) -> None:
    """Add the reason why a trace is not an agent run."""
    _add_column(connection, "traces", "no_run", "TEXT")


def _add_list_indices(connection: sa.Connection) -> None:
    """Add indices for filtered lists."""
    for table in (agents, alert_rules, audit, cases, keys, results, run_entries, runs, traces):
        _create_indices(connection, table)


def _add_column(connection: sa.Connection, table: str, name: str, kind: str) -> None:
    """Add a column, unless the first step has created it."""
    if name not in {column["name"] for column in sa.inspect(connection).get_columns(table)}:
        connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {name} {kind}"))


def _create_indices(connection: sa.Connection, table: sa.Table) -> None:
    """Create the missing indices of a table, except those over columns of later steps."""
    known = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    for index in table.indexes:
        if known.issuperset(column.name for column in index.columns):
            index.create(connection, checkfirst=True)


def _name_runs(connection: sa.Connection) -> None:
    """Add names and tags to runs."""
    for name in ("name", "tags"):
        _add_column(connection, "runs", name, "TEXT")
    _create_indices(connection, runs)


def _add_sessions(connection: sa.Connection) -> None:
    """Add browser sessions."""
    sessions.create(connection, checkfirst=True)


def _add_annotations(connection: sa.Connection) -> None:
    """Add annotations of traces and results."""
    annotation_rows.create(connection, checkfirst=True)


def _add_entry_digests(connection: sa.Connection) -> None:
    """Add digests of attempts, so that lists and comparisons need no bodies."""
    _add_column(connection, "run_entries", "digest", sa.LargeBinary().compile(dialect=connection.dialect))


def _add_project_retention(connection: sa.Connection) -> None:
    """Add retention settings to projects."""
    for name in ("trace_days", "run_days"):
        _add_column(connection, "projects", name, "BIGINT")


def _add_entry_texts(connection: sa.Connection) -> None:
    """Add search texts to attempts."""
    _add_column(connection, "run_entries", "search_text", "TEXT")


def _add_sandboxes(connection: sa.Connection) -> None:
    """Add simulated systems and their keys."""
    for table in (sandboxes, sandbox_events):
        table.create(connection, checkfirst=True)
    _add_column(connection, "keys", "sandbox_id", "TEXT")
    _create_indices(connection, keys)


def _add_shown_entries(connection: sa.Connection) -> None:
    """Add previews of attempts with very long texts."""
    _add_column(connection, "run_entries", "shown", sa.LargeBinary().compile(dialect=connection.dialect))


def _count_by_index(connection: sa.Connection) -> None:
    """Add the index that counts attempts of cases."""
    connection.execute(sa.text("DROP INDEX IF EXISTS run_entries_listed_by_run_id_case_id"))
    _create_indices(connection, run_entries)


def _add_run_figures(connection: sa.Connection) -> None:
    """Add figures of ended runs."""
    run_figures.create(connection, checkfirst=True)


def _add_judged_claims(connection: sa.Connection) -> None:
    """Add the index of judged claims, to be filled from what was decided before, and digests of traces."""
    _add_column(connection, "traces", "digest", "TEXT")
    _add_column(connection, "annotations", "question", "TEXT")
    _create_indices(connection, annotation_rows)
    for table in (judged_claims, claims_due):
        table.create(connection, checkfirst=True)
    for kind, source in (("trace", sa.select(traces.c.id).where(traces.c.outcome.is_not(None))), ("attempt", sa.select(run_entries.c.id))):
        columns = source.add_columns(sa.literal(kind), sa.literal(""))
        connection.execute(sa.insert(claims_due).from_select(["subject_id", "subject", "at"], columns))


def _add_schedules(connection: sa.Connection) -> None:
    """Add schedules, their runs, and other destinations of alerts."""
    schedules.create(connection, checkfirst=True)
    for name in ("schedule_id", "due_at"):
        _add_column(connection, "runs", name, "TEXT")
    _create_indices(connection, runs)
    _add_column(connection, "alert_rules", "channel", "TEXT NOT NULL DEFAULT 'webhook'")
    _add_column(connection, "alert_rules", "email", "TEXT")


def _add_proposals(connection: sa.Connection) -> None:
    """Add proposed cases."""
    proposals.create(connection, checkfirst=True)


def _add_run_snapshots(connection: sa.Connection) -> None:
    """Add what the MCP servers of runs offered."""
    run_snapshots.create(connection, checkfirst=True)


STEPS: tuple[tuple[str, Callable[[sa.Connection], None]], ...] = (
    ("0001_first_tables", _create_first_tables),
    ("0002_attempts_of_traces", _count_trace_attempts),
    ("0003_records_by_age", _index_records_by_age),
    ("0004_no_run_of_traces", _add_no_run_of_traces),
    ("0005_indices_of_lists", _add_list_indices),
    ("0006_names_of_runs", _name_runs),
    ("0007_sessions", _add_sessions),
    ("0008_annotations", _add_annotations),
    ("0009_digests_of_attempts", _add_entry_digests),
    ("0010_retention_of_projects", _add_project_retention),
    ("0011_texts_of_attempts", _add_entry_texts),
    ("0012_sandboxes", _add_sandboxes),
    ("0013_shown_of_attempts", _add_shown_entries),
    ("0014_attempts_by_case", _count_by_index),
    ("0015_figures_of_runs", _add_run_figures),
    ("0016_judged_claims", _add_judged_claims),
    ("0017_schedules", _add_schedules),
    ("0018_proposals", _add_proposals),
    ("0019_snapshots_of_runs", _add_run_snapshots),
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
