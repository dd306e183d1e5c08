"""The text that attempts of a run are found by, kept beside the body of each: what was asked, what was answered, and the reasons.

It is bounded and in small letters. A search goes along the list of attempts and looks into these texts, a stretch of the list for each page
(`pages.py`): so any piece of a word is found, in any language, the same on both databases. Attempts of earlier versions have no such text;
theirs is made of the body, for as many as a page shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from proctor.model.evidence import Evidence, Json
from proctor.model.run import RunEntry
from proctor.store.sql.chunked_queries import clean_text
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.tables import run_entries

MOST_ANSWERED, MOST_ASKED, MOST_REASONS = 8_000, 2_000, 2_000
"""Characters that are looked into: the beginning of each."""
_MOST_PIECES = 1_000

SEARCHED = sa.case((run_entries.c.search_text.is_(None), run_entries.c.body), else_=sa.null()).label("searched_body")
"""What is selected to look into attempts that have no text: their body."""


class _Place(FunctionElement[int]):
    """Where a text stands in another, from 1; 0 where it does not."""

    inherit_cache = True
    type = sa.Integer()
    name = "place_in"


@compiles(_Place)
def _compile_strpos(element: _Place, compiler: SQLCompiler, **named: Any) -> str:
    return f"strpos({compiler.process(element.clauses, **named)})"


@compiles(_Place, "sqlite")
def _compile_instr(element: _Place, compiler: SQLCompiler, **named: Any) -> str:
    return f"instr({compiler.process(element.clauses, **named)})"


def make_search_text(entry: RunEntry) -> str:
    """Return the text that an attempt is found by."""
    seen = entry.evidence or Evidence()
    turns = seen.turns or ()
    answered: list[Json] = [turn.text for turn in turns]
    answered += [seen.text] if seen.text is not None else [] if any(answered) else [seen.body]
    asked: list[Json] = [turn.input for turn in turns] if any(turn.input for turn in turns) else [seen.input]
    # Those that decided first: of many assertions most have passed.
    reasons = [verdict.reason for verdict in sorted(entry.verdicts, key=lambda verdict: verdict.outcome == "pass")]
    parts = (_join(answered, MOST_ANSWERED), _join(asked, MOST_ASKED), _join([entry.reason, *reasons], MOST_REASONS))
    return "\n".join(part for part in parts if part)


def fold_text(text: str) -> str:
    """Return a text in the letters in which texts are compared."""
    return clean_text(text).casefold()


def match_search_text(query: str) -> sa.ColumnElement[bool]:
    """Return the condition for attempts in which a text occurs, and for those whose body has to be looked into."""
    return sa.or_(_Place(run_entries.c.search_text, sa.literal(fold_text(query), sa.Text)) > 0, run_entries.c.search_text.is_(None))


def _join(pieces: Iterable[Json], most: int) -> str:
    """Return the beginning of some texts, each once, in the letters in which they are compared."""
    found: dict[str, None] = {}
    left = most
    for piece in islice(pieces, _MOST_PIECES):
        if piece is None or left <= 0:
            continue
        text = piece if isinstance(piece, str) else to_json(piece).decode("utf-8", errors="replace")
        found[fold_text(text[:left])] = None
        left -= len(text)
    return "\n".join(found)
