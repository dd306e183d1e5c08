"""CSV for spreadsheets, which take a text that begins like a formula for one.

A text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return gets an apostrophe in front, as is usual: the answer of an agent must
not be computed by whoever opens the file. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def make_harmless(value: object) -> object:
    """Return a cell that no spreadsheet computes."""
    if not isinstance(value, str):
        return value
    # NUL ends a text in some readers, and what stands behind it would be unseen.
    text = value.replace("\0", "\N{SYMBOL FOR NULL}")
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_csv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV, with the line ends of RFC 4180."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows([make_harmless(value) for value in row] for row in rows)
    return out.getvalue()
