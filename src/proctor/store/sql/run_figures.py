"""The table of what was found out about runs that have ended, see `service/runs/figures.py`."""

from __future__ import annotations

import sqlalchemy as sa

from proctor.store.sql.columns import make_table, text_column

run_figures = make_table(
    "run_figures",
    text_column("run_id", primary_key=True),
    sa.Column("facts", sa.LargeBinary, nullable=False),  # what its page shows beside attempts
    sa.Column("tally", sa.LargeBinary, nullable=False),  # what it is compared by
)
