"""Two versions of a document as lines that went, came and stayed."""

from __future__ import annotations

import difflib
from typing import Literal

import msgspec

MOST_LINES = 1_000
"""Lines of a document that are compared: comparing takes the square of it."""
_MOST_SHOWN = 300
_LONGEST_LINE = 400
_AROUND = 3

Kind = Literal["same", "gone", "new", "gap"]


class DiffLine(msgspec.Struct, frozen=True):
    """One line: its number before and after, and what became of it."""

    kind: Kind
    before: int | None
    after: int | None
    text: str


class DocumentDiff(msgspec.Struct, frozen=True):
    """What changed, with some lines around it."""

    lines: list[DiffLine]
    gone: int
    new: int
    more: bool
    """Whether only its beginning is shown."""


def compare_documents(before: str, after: str) -> DocumentDiff | None:
    """Return what changed between two documents; None where they are too long to be compared while somebody waits."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > MOST_LINES:
        return None
    lines: list[DiffLine] = []
    gone = came = 0
    matcher = difflib.SequenceMatcher(a=old, b=new)
    for number, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if number:
            lines.append(DiffLine("gap", None, None, ""))
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                pairs = zip(range(old_from, old_to), range(new_from, new_to), strict=True)
                lines += [DiffLine("same", left + 1, right + 1, old[left][:_LONGEST_LINE]) for left, right in pairs]
                continue
            lines += [DiffLine("gone", at + 1, None, old[at][:_LONGEST_LINE]) for at in range(old_from, old_to)]
            lines += [DiffLine("new", None, at + 1, new[at][:_LONGEST_LINE]) for at in range(new_from, new_to)]
            gone, came = gone + old_to - old_from, came + new_to - new_from
    return DocumentDiff(lines[:_MOST_SHOWN], gone, came, len(lines) > _MOST_SHOWN)
