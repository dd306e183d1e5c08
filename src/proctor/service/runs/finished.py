"""What was found out about runs that have ended is remembered: nothing is added to them any more."""

from __future__ import annotations

from collections.abc import Hashable

from proctor.store.pages import Row
from proctor.store.run_rows import UNFINISHED


def find_finished_key(*rows: Row) -> Hashable:
    """Return the key under which something about these runs is remembered; None where one of them goes on."""
    if any(row["status"] in UNFINISHED for row in rows):
        return None
    # Beside the id whatever a person may still change, which comparisons say too.
    return tuple((row["id"], row["status"], row["updated_at"], row["name"], row["tags"], row["note"]) for row in rows)
