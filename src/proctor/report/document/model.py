"""A report as a value: a verdict, and sections with paragraphs, tables, figures, charts and items.

Texts are untrusted; each writer escapes and shortens them. A builder makes a document for one output, since outputs have different limits
on how much they show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from proctor.model.evidence import Json
from proctor.scoring.intervals import Counts, Interval

Output = Literal["terminal", "markdown", "html"]
Tone = Literal["pass", "fail", "error", "skip", "uncertain"]
Look = Literal["plain", "strong", "code", "muted", "note"]

LABEL = 200
"""Characters of a text, unless it has its own limit."""


class Text(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Some characters of a line."""

    text: str
    look: Look = "plain"
    tone: Tone | None = None
    limit: int = LABEL


class Value(msgspec.Struct, frozen=True, tag=True):
    """A text or JSON value in full, as far as the output has space."""

    value: Json


class Mark(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The symbol of an outcome; a terminal adds its name if `named`."""

    tone: Tone
    named: bool = False


class Rate(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A pass rate with its interval, from counts by outcome; a page shows all counts if `detailed`."""

    counts: Mapping[str, int]
    detailed: bool = False


class Share(msgspec.Struct, frozen=True, tag=True):
    """A share from 0 to 1 as a bar; Markdown has no bars."""

    share: float | None


class Change(msgspec.Struct, frozen=True, tag=True):
    """How often a case passed before and after."""

    before: Counts
    after: Counts


class Time(msgspec.Struct, frozen=True, tag=True):
    """A time in UTC."""

    at: str


class Small(msgspec.Struct, frozen=True, tag=True):
    """A second line below the text of a cell; in text outputs it follows in brackets."""

    line: Line


class Link(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A text with an address, for web pages."""

    text: Line
    address: str
    label: str | None = None


Inline = str | Text | Value | Mark | Rate | Share | Change | Time | Small | Link
Line = tuple[Inline, ...]


class Paragraph(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Text; with a tone, a remark that must not be missed."""

    line: Line
    tone: Tone | None = None
    muted: bool = False


class Listing(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Lines below each other."""

    lines: tuple[Line, ...]
    muted: bool = False
    rest: Rest | None = None


class Code(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Lines in a fixed layout; a pair is a label and its text."""

    lines: tuple[str | tuple[str, str], ...]
    pasted: bool = False
    """Whether the lines are for a file: none is wrapped."""


class Facts(msgspec.Struct, frozen=True, tag=True):
    """Labels with values."""

    rows: tuple[tuple[str, Line], ...]


class Figure(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A number with its interval and its meaning."""

    name: str
    value: str
    interval: str = ""
    about: str = ""
    position: tuple[Interval, float] | None = None
    """The interval and the value as shares of the scale."""


class Figures(msgspec.Struct, frozen=True, tag=True):
    """Figures next to each other."""

    figures: tuple[Figure, ...]


class Column(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The heading of a column; numbers are aligned to the right."""

    name: str
    number: bool = False
    title: Line = ()
    """The heading on a page, if it is more than the name."""


class Row(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The cells of one row; `inner` rows belong to the row above them."""

    cells: tuple[Line, ...]
    inner: bool = False
    tone: Tone | None = None
    strong: bool = False
    count: int = 0
    """What the row counts, for the line about rows that are not shown."""


class Rest(msgspec.Struct, frozen=True, tag=True):
    """What a table or a list leaves out; `{rows}` and `{count}` in its text are the numbers."""

    text: str
    rows: int = 0
    count: int = 0

    def describe(self, left: Iterable[Row | Item | Section] = ()) -> str:
        """Return the line about these rows and those the builder left out, or ""."""
        rows, count = self.rows, self.count
        for row in left:
            rows += not (isinstance(row, Row) and row.inner)
            count += 0 if isinstance(row, Section) else row.count
        return self.text.format(rows=f"{rows:,}", count=f"{count:,}") if rows or count else ""


def _is_shown(cell: Line, bars: bool) -> bool:
    return any(bars if isinstance(part, Share) else part for part in cell)


class Table(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Rows under headings."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    rest: Rest | None = None
    kind: str = ""
    """The name of the table on a page, for its style sheet."""

    def drop_empty_columns(self, *, bars: bool = True) -> Table:
        """Return the table without columns that are empty in every row; without `bars`, those of bars are."""
        used = [
            number for number in range(len(self.columns)) if number == 0 or any(_is_shown(row.cells[number], bars) for row in self.rows)
        ]
        if len(used) == len(self.columns) or not self.rows:
            return self
        rows = [msgspec.structs.replace(row, cells=tuple(row.cells[number] for number in used)) for row in self.rows]
        return msgspec.structs.replace(self, columns=tuple(self.columns[number] for number in used), rows=tuple(rows))


class Item(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A title with blocks below it."""

    title: Line
    blocks: tuple[Block, ...] = ()
    tone: Tone | None = None
    summary: Line = ()
    """Shown on a page while the item is folded."""
    place: str = ""
    """Where the item is written."""
    count: int = 0


class Items(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Items below each other; a page folds them if requested."""

    items: tuple[Item, ...]
    rest: Rest | None = None
    folded: bool = False
    spaced: bool = False
    """Whether a terminal shows blank lines between items."""


class Series(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A line of a chart; `low` and `high` are the bounds of a band around it."""

    name: str
    points: tuple[tuple[float, float], ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


class Chart(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Lines over the x-axis from 0 to 1; only pages draw charts, texts have the table."""

    caption: str
    series: tuple[Series, ...]
    ticks: tuple[tuple[float, str], ...]
    """Positions and names on the x-axis."""
    lowest: float = 0.0
    percent: bool = False
    axis: str = ""
    marks: tuple[tuple[float, str, str], ...] = ()
    """Vertical lines: position, kind and name."""
    steps: bool = False
    """Whether a value holds from the previous point up to its own."""


class Section(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Blocks under a heading; a page folds them if requested."""

    title: Line
    blocks: tuple[Block, ...]
    about: str = ""
    tone: Tone | None = None
    folded: bool = False
    rest: Rest | None = None
    """What the section leaves out, if it has sections of its own."""


Block = Paragraph | Listing | Code | Facts | Figures | Table | Items | Chart | Section


class Document(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole report. A terminal shows the verdict at the end, where a reader looks first; others show it at the top."""

    name: str
    verdict: tuple[Tone, str]
    headline: str
    blocks: tuple[Block, ...]
    about: tuple[str, ...] = ()
    footer: str = ""
