"""Splits an answer into the statements that a metric counts: its sentences, items of lists and rows of tables.

The same text always gives the same statements, and every statement is a piece of the text: no judge can leave one out, add one or word
one anew. A sentence that makes several claims is one statement, which is met only if all of it is. Dates and abbreviations with a full
stop (`31. Mai`, `e.g.`, `J. Smith`) do not end a sentence. Lines without letters or digits are no statements. Of an answer that is JSON
each member is a statement.
"""

from __future__ import annotations

import re
from typing import Final

from proctor.errors import CheckFault
from proctor.model.evidence import Json
from proctor.model.json_values import write_as_text

MOST_STATEMENTS: Final = 400
"""Statements of one answer that are judged: 20 requests."""
_MARKER: Final = re.compile(r"[\s>#|]*(?:[-*+•–]\s+|\(?\d{1,3}[.)]\s+)?[\s|]*")
_END: Final = re.compile(r"[.!?…]++[\"'”’»)\]*_]*+(?=\s)|[。！？]++[」』”’）]*+")
_SHORT: Final = re.compile(r"\b(?:[^\W\d]|vs|cf|ca|approx|st|dr|mrs?|ms|prof|bzw|ggf|sra?|p\.ej|[a-z]\.\s?[a-z])\.", re.IGNORECASE)
_BEFORE_NUMBER: Final = re.compile(r"\b[A-Za-z]{2,4}\.(?=\s+\d)")
_ORDINAL: Final = re.compile(r"\b\d{1,2}\.(?=\s+(?:[a-zäöü]|Jan|Feb|M[aä]r|Apr|Ma[ij]|Jun|Jul|Aug|Sep|O[ck]t|Nov|De[cz]))")
_NO_ENDS: Final = (_SHORT, _BEFORE_NUMBER, _ORDINAL)


def split_statements(answer: Json) -> list[str]:
    """Return the statements of an answer, in order. Raises `CheckFault` where there are more than can be judged."""
    if isinstance(answer, str):
        statements = [piece for line in answer.splitlines() for piece in _split_line(line)]
    elif isinstance(answer, dict):
        statements = [f"{key}: {write_as_text(value)}" for key, value in answer.items()]
    else:
        statements = [write_as_text(value) for value in (answer if isinstance(answer, list) else [answer])]
    if len(statements) > MOST_STATEMENTS:
        raise CheckFault("too_many_statements", f"the text has {len(statements)} statements, and at most {MOST_STATEMENTS} are judged")
    return statements


def _split_line(line: str) -> list[str]:
    marker = _MARKER.match(line)
    line = line[marker.end() if marker else 0 :]
    pieces: list[str] = []
    start = 0
    for end in _END.finditer(line):
        near = range(max(start, end.start() - 8), end.start())
        if any((found := pattern.match(line, at)) and found.end() == end.end() for pattern in _NO_ENDS for at in near):
            continue
        pieces.append(line[start : end.end()])
        start = end.end()
    return [piece.strip("| \t") for piece in (*pieces, line[start:]) if any(map(str.isalnum, piece))]
