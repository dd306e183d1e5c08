"""Writes a document for a terminal: wrapped to its width, in colour if wanted.

No library, because `proctor check` must start fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.model.show import show
from proctor.report.document import model as doc
from proctor.report.words.findings import measure_hanging_indent
from proctor.report.words.neutral import to_lines, to_one_line
from proctor.report.words.style import Colour, Style, count_columns, cut_to_width, draw_bar, pad, wrap
from proctor.report.words.wording import LABEL_WIDTH, MARKS, describe_rate, pad_label, pad_outcome_word

COLOURS: dict[str, Colour] = {"pass": "green", "fail": "red", "error": "magenta", "skip": "yellow", "uncertain": "yellow"}
_LABEL_COLOURS: dict[str, Colour] = {"found": "bold", "at": "cyan", "written": "dim", "attempt": "dim", "clock": "dim", "evidence": "dim"}
_PLACES = ("written", "evidence", "results")
"""Labels of places, which are not wrapped, so that they can be clicked and copied."""
_VALUE = 400
"""Characters of a value."""
_CELL = 40
"""Columns of a cell, except the first and the last."""

Piece = tuple[str, tuple[Colour, ...]]


def write_terminal(document: doc.Document, *, colour: bool = False, width: int = 100) -> str:
    """Return the whole report, ending with a line break."""
    return TerminalWriter(Style(colour=colour), width).write(document)


class TerminalWriter:
    """Writes blocks for one width and colour choice."""

    def __init__(self, style: Style, width: int) -> None:
        self._paint = style.paint
        self._width = max(40, width)

    def write(self, document: doc.Document) -> str:
        """Return the whole report."""
        name = cut_to_width(to_one_line(document.name), self._width // 2)
        subtitle = cut_to_width("".join(f" · {to_one_line(part)}" for part in document.about), self._width - count_columns(name))
        tone, word = document.verdict
        verdict = f"{MARKS[tone]} {word.upper()}"
        closing = f"{verdict}  {to_one_line(document.headline, 1000)}".rstrip()
        # Figures stay on one line, so that the last line can be read by programs.
        first, *rest = [closing] if "  ·  " in closing else wrap(closing, self._width)
        last = [self._paint(verdict, "bold", COLOURS[tone]) + first.removeprefix(verdict), *rest]
        last += [self._paint(line, "dim") for line in wrap(to_one_line(document.footer, 1000), self._width)] if document.footer else []
        parts = [[self._paint(name, "bold") + self._paint(subtitle, "dim")], *self._iterate_parts(document.blocks), last]
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"

    def _iterate_parts(self, blocks: Sequence[doc.Block]) -> Iterator[list[str]]:
        before: doc.Block | None = None
        for block in blocks:
            # A line between cases; other sections have a heading.
            if isinstance(block, doc.Section) and block.tone and isinstance(before, doc.Section) and before.tone:
                yield [self._paint("─" * min(self._width, 60), "dim")]
            yield self.write_block(block)
            before = block

    def write_block(self, block: doc.Block, indent: int = 0) -> list[str]:
        """Return the lines of one block."""
        match block:
            case doc.Paragraph():
                colours: tuple[Colour, ...] = (COLOURS[block.tone],) if block.tone else ("dim",) if block.muted else ()
                mark = (f"{MARKS[block.tone]} ",) if block.tone else ()
                return self._write_line((*mark, *block.line), indent, colours=colours, hang=2 if block.tone else 0)
            case doc.Listing():
                colours = ("dim",) if block.muted else ()
                lines = [line for row in block.lines for line in self._write_line(row, indent, colours=colours, hang=2)]
                return [*lines, *self._write_rest(block.rest, indent)]
            case doc.Code():
                if block.pasted:
                    return [" " * indent + to_one_line(row, 2000) for row in block.lines if isinstance(row, str)]
                return [line for row in block.lines for line in self._write_code(row, indent)]
            case doc.Facts():
                width = max((LABEL_WIDTH, *(len(label) + 1 for label, _ in block.rows)))
                return [line for label, row in block.rows for line in self._write_labelled(label, row, indent, width)]
            case doc.Figures():
                rows = [(each.name, each.value, each.interval, each.about) for each in block.figures]
                sizes = [max(count_columns(row[column]) for row in rows) for column in range(3)]
                padded = [[pad(text, size) for text, size in zip(row, sizes, strict=False)] for row in rows]
                return [
                    " " * indent + "  ".join((name, self._paint(value, "bold"), interval, row[3])).rstrip()
                    for (name, value, interval), row in zip(padded, rows, strict=True)
                ]
            case doc.Table():
                return self._write_table(block, indent)
            case doc.Items():
                return self._write_items(block, indent)
            case doc.Section():
                return self._write_section(block, indent)
            case doc.Chart():
                return []

    def _write_section(self, section: doc.Section, indent: int) -> list[str]:
        remark = (f"  {section.about}",) if section.about else ()
        if section.tone:
            # A case: its outcome, and its id in bold.
            names = (
                doc.Text(part.text, "strong", limit=part.limit) if isinstance(part, doc.Text) and part.look == "code" else part
                for part in section.title
            )
            title = self._write_line((doc.Mark(section.tone, named=True), " ", *names, *remark), indent)
        else:
            title = self._write_line((*section.title, *remark), indent, colours=("bold",))
        lines: list[str] = []
        for block in section.blocks:
            part = self.write_block(block, indent + 2)
            is_spaced = isinstance(block, doc.Section) or (isinstance(block, doc.Items) and block.spaced)
            if part:
                lines += ["", *part, ""] if is_spaced and lines[-1:] != [""] else [*part, ""] if is_spaced else part
        while lines and lines[-1] == "":
            lines.pop()
        return [*title, *lines, *self._write_rest(section.rest, indent + 2)]

    def _write_items(self, items: doc.Items, indent: int) -> list[str]:
        lines: list[str] = []
        short = True
        for item in items.items:
            before, short = short, not item.blocks
            if items.spaced and lines and not (before and short):
                lines.append("")
            title: doc.Line = (doc.Mark(item.tone), " ", *item.title) if item.tone and items.spaced else item.title
            lines += self._write_line(title, indent, hang=2)
            for block in item.blocks:
                lines += self.write_block(block, indent + 4)
            if item.place:
                lines += self._write_code(("written", item.place), indent + 4)
        return [*lines, *self._write_rest(items.rest, indent)]

    def _write_table(self, table: doc.Table, indent: int) -> list[str]:
        table = table.drop_empty_columns()
        columns = table.columns
        rows = [[self._list_pieces(cell) for cell in row.cells] for row in table.rows]
        for row, cells in zip(table.rows, rows, strict=True):
            if row.inner:
                cells[0].insert(0, ("  ", ()))
        heads: list[list[Piece]] = [[(column.name, ("dim",))] for column in columns]
        listed = [heads, *rows] if any(column.name for column in columns) else rows
        sizes = self._measure_columns(columns, listed, indent)
        lines: list[str] = [] if listed is rows else self._write_row(heads, sizes, columns, indent, ())
        for row, cells in zip(table.rows, rows, strict=True):
            lines += self._write_row(cells, sizes, columns, indent, ("bold",) if row.strong else ())
        return [*lines, *self._write_rest(table.rest, indent)]

    def _measure_columns(self, columns: Sequence[doc.Column], rows: Sequence[Sequence[list[Piece]]], indent: int) -> list[int]:
        last = len(columns) - 1
        sizes = [max((count_columns(_join(row[number])) for row in rows), default=0) for number in range(last + 1)]
        sizes = [min(size, _CELL) if 0 < number < last and not columns[number].number else size for number, size in enumerate(sizes)]
        # The first column gives way if the last one would have no space.
        space = self._width - indent - sum(sizes[1:last]) - 2 * last - min(sizes[last], 24) if last else self._width - indent
        sizes[0] = min(sizes[0], max(8, space))
        return sizes

    def _write_row(
        self, cells: Sequence[list[Piece]], sizes: Sequence[int], columns: Sequence[doc.Column], indent: int, colours: tuple[Colour, ...]
    ) -> list[str]:
        start = " " * indent
        used = indent
        for column, (pieces, size) in enumerate(zip(cells, sizes, strict=True)):
            text = _join(pieces)
            if text.isspace():
                # Painted blanks would stay at the end of a line.
                pieces, text = [], ""
            if column == len(cells) - 1 and column and not columns[column].number:
                space = max(20, self._width - used)
                first, *rest = wrap(text, space) if text else [""]
                cell = self._paint_pieces(pieces, colours) if not rest else self._paint(first, *colours)
                return [(start + cell).rstrip(), *(" " * used + self._paint(line, *colours) for line in rest)]
            fill = " " * max(0, size - count_columns(text))
            cell = self._paint_pieces(pieces, colours) if count_columns(text) <= size else self._paint(cut_to_width(text, size), *colours)
            start += (fill + cell if columns[column].number else cell + fill) + ("  " if column < len(cells) - 1 else "")
            used += size + 2
        return [start.rstrip()]

    def _write_rest(self, rest: doc.Rest | None, indent: int) -> list[str]:
        text = rest.describe() if rest is not None else ""
        return [self._paint(" " * indent + text, "dim")] if text else []

    def _write_code(self, row: str | tuple[str, str], indent: int) -> list[str]:
        if isinstance(row, str):
            hang = measure_hanging_indent(row)
            first, *rest = wrap(to_one_line(row, 2000), self._width - indent - hang)
            return [" " * indent + first, *(" " * (indent + hang) + line for line in rest)]
        return self._write_labelled(row[0], (doc.Text(row[1], limit=2000),), indent, LABEL_WIDTH)

    def _write_labelled(self, label: str, line: doc.Line, indent: int, width: int) -> list[str]:
        colours = (_LABEL_COLOURS[label],) if label in _LABEL_COLOURS else ()
        start = " " * indent + self._paint(pad_label(label) if width == LABEL_WIDTH else pad(label, width), "dim")
        pieces = self._list_pieces(line)
        text = _join(pieces)
        if label in _PLACES or count_columns(text) <= self._width - indent - width:
            return [start + self._paint_pieces(pieces, colours)]
        first, *rest = wrap(text, max(20, self._width - indent - width))
        return [start + self._paint(first, *colours), *(" " * (indent + width) + self._paint(more, *colours) for more in rest)]

    def _write_line(self, line: doc.Line, indent: int, *, colours: tuple[Colour, ...] = (), hang: int = 0) -> list[str]:
        """Return a line; one that must be wrapped has the same colours throughout."""
        # A text of several lines is shown as such.
        if len(line) == 1 and isinstance(line[0], doc.Value) and isinstance(line[0].value, str):
            lines = [more for raw in to_lines(line[0].value) for more in wrap(raw, self._width - indent)]
            return [" " * indent + self._paint(more, *colours) for more in lines]
        pieces = self._list_pieces(line)
        text = _join(pieces)
        if count_columns(text) <= self._width - indent:
            return [" " * indent + self._paint_pieces(pieces, colours)]
        first, *rest = wrap(text, self._width - indent - hang)
        return [" " * indent + self._paint(first, *colours), *(" " * (indent + hang) + self._paint(more, *colours) for more in rest)]

    def _paint_pieces(self, pieces: Sequence[Piece], colours: tuple[Colour, ...]) -> str:
        return "".join(self._paint(text, *(own or colours)) if own or colours else text for text, own in pieces)

    def _list_pieces(self, line: doc.Line) -> list[Piece]:
        return [piece for inline in line for piece in self._list_inline(inline)]

    def _list_inline(self, inline: doc.Inline) -> list[Piece]:
        match inline:
            case str():
                return [(to_one_line(inline, 1000), ())]
            case doc.Text():
                text = to_one_line(inline.text, inline.limit)
                look: tuple[Colour, ...] = ("bold",) if inline.look == "strong" else ("dim",) if inline.look in ("muted", "note") else ()
                return [(f"[{text}]" if inline.look == "note" else text, (*look, COLOURS[inline.tone]) if inline.tone else look)]
            case doc.Value():
                text = inline.value if isinstance(inline.value, str) else show(inline.value, _VALUE)
                return [(to_one_line(text, _VALUE), ())]
            case doc.Mark():
                name = f" {pad_outcome_word(inline.tone)}" if inline.named else ""
                return [(MARKS[inline.tone] + name, ("bold", COLOURS[inline.tone]))]
            case doc.Rate():
                share, rest = describe_rate(inline.counts)
                broken = inline.counts.get("fail", 0) + inline.counts.get("error", 0)
                colour: Colour = "red" if broken else "green" if inline.counts.get("pass") else "dim"
                return [(f"{share:>7}", (colour,)), (f"  {rest}" if rest else "", ())]
            case doc.Share():
                if inline.share is None:
                    return [(" " * 20, ())]
                return [(draw_bar(inline.share), ("green" if inline.share >= 1 else "yellow" if inline.share > 0 else "red",))]
            case doc.Change():
                return [(f"{inline.before.passes}/{inline.before.runs} -> {inline.after.passes}/{inline.after.runs}", ("dim",))]
            case doc.Time():
                return [(f"{inline.at[:10]} {inline.at[11:16]} UTC", ())]
            case doc.Small():
                return [(f" ({_join(self._list_pieces(inline.line))})", ("dim",))]
            case doc.Link():
                return self._list_pieces(inline.text)


def _join(pieces: Sequence[Piece]) -> str:
    return "".join(text for text, _ in pieces)
