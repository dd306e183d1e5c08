"""Splits an answer into the statements that a metric counts: its sentences, items of lists, rows of tables and blocks of code.

The same text always gives the same statements, and every statement is a piece of the text: no judge can leave one out, add one or
reword one. A sentence that makes several claims is one statement, which is met only if all of it is. Lines of a paragraph belong together,
so a sentence may go on in the next line; `Name: value` lines are statements of their own. A fenced block of code is one statement. Dates
and abbreviations with a full stop (`31. Mai`, `e.g.`, `J. Smith`) do not end a sentence. What has neither letters nor digits is no
statement. Of an answer that is JSON each member is a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from proctor.errors import CheckFault
from proctor.model.evidence import Json
from proctor.model.json_values import write_as_text

MOST_STATEMENTS: Final = 400
"""Statements of one answer that are judged: 20 requests."""
_MARKER: Final = re.compile(r"[\s>#|]*(?:[-*+•–]\s+|\(?\d{1,3}[.)]\s+)?[\s|]*")
_FENCE: Final = re.compile(r"[ \t>]*(```+|~~~+)([^`~]*)$")
_NAMED: Final = re.compile(r"\**[\w /()-]{1,30}\**:\**(?:\s|$)")
"""`Name: value`."""
_ITEM: Final = re.compile(r"\s*(?:[-*+•–]|\(?\d{1,3}[.)])\s")
_FIRST_ITEM: Final = re.compile(r"\s*(?:[-*+•–]|\(?1[.)])\s")
_END: Final = re.compile(r"[.!?…]++[\"'”’»)\]*_]*+(?=\s)|[。｡！？।॥۔؟።။។։]++[」』”’»\"）)]*+")
_SHORT: Final = re.compile(r"\b(?:[^\W\d]|vs|cf|ca|approx|st|dr|mrs?|ms|prof|bzw|ggf|sra?|p\.ej|[a-z]\.\s?[a-z])\.", re.IGNORECASE)
_BEFORE_NUMBER: Final = re.compile(r"\b[A-Za-z]{2,4}\.(?=\s+\d)")
_ORDINAL: Final = re.compile(r"\b\d{1,2}\.(?=\s+(?:[a-zäöü]|Jan|Feb|M[aä]r|Apr|Ma[ij]|Jun|Jul|Aug|Sep|O[ck]t|Nov|De[cz]))")
_NO_ENDS: Final = (_SHORT, _BEFORE_NUMBER, _ORDINAL)


def split_statements(answer: Json) -> list[str]:
    """Return the statements of an answer, in order. Raises `CheckFault` where there are more than can be judged."""
    if isinstance(answer, str):
        blocks = _split_blocks(answer)
        pieces = (piece for block, is_code in blocks for piece in ([block.strip()] if is_code else _split_sentences(block)))
        statements = [piece for piece in pieces if any(map(str.isalnum, piece))]
    elif isinstance(answer, dict):
        statements = [f"{key}: {write_as_text(value)}" for key, value in answer.items()]
    else:
        statements = [write_as_text(value) for value in (answer if isinstance(answer, list) else [answer])]
    if len(statements) > MOST_STATEMENTS:
        raise CheckFault("too_many_statements", f"the text has {len(statements)} statements, and at most {MOST_STATEMENTS} are judged")
    return statements


def _split_blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield paragraphs, items, rows and headings, and blocks of code with true, each as it is written."""
    block: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence and not (mark is not None and mark[1].startswith(fence) and not mark[2].strip()):
            block.append(line)
        elif mark is not None:
            yield "".join(block), bool(fence)
            # What is written after the marks, the language mostly, belongs to the block: nothing of an answer may go unjudged.
            block, fence = ([], "") if fence else ([mark[2]], mark[1])
        elif not any(map(str.isalnum, line)) or (block and _starts_block(block[0], block[-1], line)):
            yield "".join(block), False
            block = [line]
        else:
            block.append(line)
    yield "".join(block), bool(fence)


def _starts_block(first: str, last: str, line: str) -> bool:
    """Return whether a line belongs to no sentence of the block before it, given its first and last line."""
    hard_break = last.rstrip("\r\n").endswith(("  ", "\\"))
    if hard_break or not any(map(str.isalnum, last)) or _is_quoted(line) != _is_quoted(last):
        return True
    first, last, line = (each.lstrip(">") for each in (first, last, line))
    if line.lstrip().startswith(("#", "|")) or last.lstrip().startswith(("#", "|")) or _FIRST_ITEM.match(line):
        return True
    # In a paragraph a number with a full stop may be the end of a sentence, and text in lower case the rest of one.
    if _ITEM.match(first) and (_ITEM.match(line) or not (line[:1].isspace() or line[:1].islower())):
        return True
    return _NAMED.match(line) is not None and not line.lstrip("*")[:1].islower()


def _is_quoted(line: str) -> bool:
    return line.lstrip().startswith(">")


def _split_sentences(block: str) -> list[str]:
    marker = _MARKER.match(block)
    block = block[marker.end() if marker else 0 :]
    pieces: list[str] = []
    start = 0
    for end in _END.finditer(block):
        near = range(max(start, end.start() - 8), end.start())
        if any((found := pattern.match(block, at)) and found.end() == end.end() for pattern in _NO_ENDS for at in near):
            continue
        pieces.append(block[start : end.end()])
        start = end.end()
    return [piece.strip("| \t\r\n").lstrip("> ") for piece in (*pieces, block[start:])]
