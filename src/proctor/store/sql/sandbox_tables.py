"""The tables of sandboxes, for SQLite and PostgreSQL alike.

What a sandbox holds is its baseline and a log: every row of the log is one thing that happened and the changes it made, so that neither can
be there without the other. The rows as they are now are the baseline with the changes after the last reset; who has read them once reads
only what came since.
"""

from __future__ import annotations

import sqlalchemy as sa

from proctor.store.sql.columns import boolean_column, integer_column, json_column, make_table, text_column, timestamp_columns

sandboxes = make_table(
    "sandboxes",
    text_column("id", primary_key=True),
    text_column("organization_id"),
    text_column("kind"),  # of the simulated system
    text_column("benchmark_run_id", null=True),  # none: made by hand
    integer_column("revision", default=0),  # counts up with every change of the rows
    integer_column("reset_revision", default=0),  # the revision at which the rows were brought back to the baseline
    integer_column("events", default=0),  # how many rows the log has
    integer_column("bytes", default=0),  # of the baseline and the log, as kept
    json_column("steps"),  # what will happen by itself: {at, step, given}, in the order of time
    integer_column("steps_done", default=0),
    text_column("expires_at", null=True),
    text_column("closed_at", null=True),  # from then on nothing changes any more
    sa.Column("baseline", sa.LargeBinary, nullable=False),
    *timestamp_columns(),
    sa.Index("sandboxes_by_run", "benchmark_run_id"),
)
sa.Index(
    "sandboxes_open",
    sandboxes.c.organization_id,
    sandboxes.c.expires_at,
    sqlite_where=sandboxes.c.closed_at.is_(None),
    postgresql_where=sandboxes.c.closed_at.is_(None),
)

sandbox_events = make_table(
    "sandbox_events",
    text_column("sandbox_id"),
    integer_column("number"),  # counts from 1
    text_column("id"),
    integer_column("revision", null=True),  # that the rows had afterwards; none: nothing was changed
    boolean_column("by_itself"),  # a step of a scenario, or a dataset that was added: part of the baseline from then on
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("changes", sa.LargeBinary, nullable=True),
    text_column("created_at"),
    sa.PrimaryKeyConstraint("sandbox_id", "number"),
    sa.Index("sandbox_events_by_time", "sandbox_id", "created_at", "id"),
)
