"""The text by which attempts are searched, stored next to the body. Attempts of earlier versions have none: their body is searched."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import sqlalchemy as sa

from proctor.model.evidence import Evidence, Json
from proctor.model.run import RunEntry
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.queries import DialectFunction, clean_text
from proctor.store.sql.tables import run_entries

MOST_ANSWERED, MOST_INPUT, MOST_REASONS = 8_000, 2_000, 2_000
"""Maximum searched characters, from the beginning of each text."""
_MOST_PIECES = 1_000

SEARCHED = sa.case((run_entries.c.search_text.is_(None), run_entries.c.body), else_=sa.null()).label("searched_body")
"""The columns to search attempts without a search text: their body."""


class _Place(DialectFunction):
    """The position of a text in another, from 1; 0 if it is not in it."""

    inherit_cache = True
    name = "place_in"
    type = sa.Integer()
    plain, sqlite = "strpos({}, {})", "instr({}, {})"


def make_search_text(entry: RunEntry) -> str:
    """Return the search text of an attempt."""
    evidence = entry.evidence or Evidence()
    turns = evidence.turns or ()
    answered: list[Json] = [turn.text for turn in turns]
    answered += [evidence.text] if evidence.text is not None else [] if any(answered) else [evidence.body]
    inputs: list[Json] = [turn.input for turn in turns] if any(turn.input for turn in turns) else [evidence.input]
    # Deciding assertions first: most of the others have passed.
    reasons = [verdict.reason for verdict in sorted(entry.verdicts, key=lambda verdict: verdict.outcome == "pass")]
    parts = (_join(answered, MOST_ANSWERED), _join(inputs, MOST_INPUT), _join([entry.reason, *reasons], MOST_REASONS))
    return "\n".join(part for part in parts if part)


def fold_text(text: str) -> str:
    """Return a text with folded case, for comparison."""
    return clean_text(text).casefold()


def match_search_text(query: str) -> sa.ColumnElement[bool]:
    """Return the condition for attempts that contain a text, and for those whose body must be searched."""
    return sa.or_(_Place(run_entries.c.search_text, sa.literal(fold_text(query), sa.Text)) > 0, run_entries.c.search_text.is_(None))


def _join(pieces: Iterable[Json], most: int) -> str:
    """Return the beginning of the distinct texts, with folded case."""
    found: dict[str, None] = {}
    characters_left = most
    for piece in islice(pieces, _MOST_PIECES):
        if piece is None or characters_left <= 0:
            continue
        text = piece if isinstance(piece, str) else to_json(piece).decode("utf-8", errors="replace")
        found[fold_text(text[:characters_left])] = None
        characters_left -= len(text)
    return "\n".join(found)
