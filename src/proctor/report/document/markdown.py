"""Writes a document as Markdown for a pull request or a job summary, within the size of a GitHub comment.

Every table and list gets at most half of the space that is left. Sections with sections of their own, such as failed cases, get what the
others leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proctor.model.show import show
from proctor.report.document import model as doc
from proctor.report.words.neutral import escape_line_start, to_one_line, write_code, write_fenced, write_inside, write_plain
from proctor.report.words.wording import MARKS, describe_rate, pad_label

MOST_CHARACTERS = 60_000
"""GitHub rejects comments of more than 65,536 characters."""
ICONS = {"pass": "✅", "fail": "❌", "error": "💥", "skip": "⏭️", "uncertain": "❔"}
_RESERVED = 1_000
"""Characters for headings of sections that have no space."""
_TITLE = 80
"""Characters of a headline in the title; longer ones follow it."""
_VALUE = 300
"""Characters of a value."""


def write_markdown(document: doc.Document) -> str:
    """Return the whole report, ending with a line break."""
    return _Writer().write(document)


class _Writer:
    def __init__(self) -> None:
        self._left = MOST_CHARACTERS - _RESERVED

    def write(self, document: doc.Document) -> str:
        tone, word = document.verdict
        subtitle = " · ".join(write_plain(part, 300) for part in document.about)
        headline = write_plain(document.headline, 1000)
        short = bool(headline) and len(document.headline) <= _TITLE
        title = f"## {ICONS[tone]} {write_plain(document.name)}: {headline if short else write_plain(word)}"
        head = [title, "", *([headline, ""] if headline and not short else []), *([subtitle, ""] if subtitle else [])]
        foot = [write_plain(document.footer, 1000), ""] if document.footer else []
        self._left -= _measure([*head, *foot])
        parts: dict[int, list[str]] = {}
        for details in (False, True):
            for number, block in enumerate(document.blocks):
                if _has_sections(block) is details:
                    parts[number] = self._write_block(block, "###")
        return "\n".join([*head, *(line for number in sorted(parts) for line in parts[number]), *foot]).rstrip() + "\n"

    def _write_block(self, block: doc.Block, level: str) -> list[str]:
        match block:
            case doc.Section() if _has_sections(block):
                return self._write_details(block, level)
            case doc.Section():
                heading = self._write_heading(block, level)
                return [*heading, *(line for each in block.blocks for line in self._write_block(each, f"{level}#"))]
            case doc.Table():
                return self._write_table(block)
            case doc.Items():
                return self._write_items(block)
            case doc.Listing():
                fitting = self._choose(f"- {escape_line_start(_write_line(line))}" for line in block.lines)
                omitted = [doc.Item(line) for line in block.lines[len(fitting) :]]
                return [*fitting, *(f"- {line}" for line in _write_rest(block.rest, omitted)), ""]
            case doc.Chart():
                return []
            case _:
                return [*self._take(_write_plain_block(block)), ""]

    def _write_heading(self, section: doc.Section, level: str) -> list[str]:
        icon = f"{ICONS[section.tone]} " if section.tone else ""
        remark = f" ({write_plain(section.about)})" if section.about else ""
        return self._take([f"{level} {icon}{_write_line(section.title)}{remark}", ""])

    def _write_details(self, section: doc.Section, level: str) -> list[str]:
        lines = self._write_heading(section, level) if section.title else []
        for number, each in enumerate(section.blocks):
            if self._left <= 0:
                omitted = [following for following in section.blocks[number:] if isinstance(following, doc.Section)]
                return [*lines, *_write_rest(section.rest, omitted), ""]
            lines += self._write_block(each, f"{level}#")
        return [*lines, *_write_rest(section.rest, ()), ""]

    def _write_table(self, table: doc.Table) -> list[str]:
        table = table.drop_empty_columns(bars=False)
        heads = f"| {' | '.join(write_plain(column.name, 80) for column in table.columns)} |"
        rule = f"|{''.join('--:|' if column.number else '---|' for column in table.columns)}"
        fitting = self._choose(f"| {' | '.join(_write_cells(row))} |" for row in table.rows)
        rest = _write_rest(table.rest, table.rows[len(fitting) :])
        return [*self._take([heads, rule]), *fitting, *self._take(["", *([*rest, ""] if rest else [])])]

    def _write_items(self, items: doc.Items) -> list[str]:
        fitting = self._choose("\n".join(_write_item(item, items.spaced)) for item in items.items)
        rest = [f"- {line}" for line in _write_rest(items.rest or doc.Rest("… {rows} more"), items.items[len(fitting) :])]
        return [*fitting, *self._take([*rest, ""])] if rest or not items.spaced else fitting

    def _choose(self, texts: Iterable[str]) -> list[str]:
        """Return the first texts that fit into half of the space left."""
        space, chosen = self._left // 2, list[str]()
        for text in texts:
            space -= len(text) + 1
            if space < 0:
                break
            chosen.append(text)
        return self._take(chosen)

    def _take(self, lines: list[str]) -> list[str]:
        self._left -= _measure(lines)
        return lines


def _has_sections(block: doc.Block) -> bool:
    return isinstance(block, doc.Section) and any(isinstance(each, doc.Section) for each in block.blocks)


def _measure(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _write_rest(rest: doc.Rest | None, left: Sequence[doc.Row | doc.Item | doc.Section]) -> list[str]:
    text = rest.describe(left) if rest is not None else ""
    return [text] if text else []


def _write_plain_block(block: doc.Paragraph | doc.Code | doc.Facts | doc.Figures) -> list[str]:
    match block:
        case doc.Paragraph():
            text = escape_line_start(_write_line(block.line))
            return [f"**{text}**" if block.tone in ("fail", "error") else f"❔ {text}" if block.tone else text]
        case doc.Code():
            lines = [
                to_one_line(row, 2000 if block.pasted else 400) if isinstance(row, str) else pad_label(row[0]) + to_one_line(row[1], 600)
                for row in block.lines
            ]
            return write_fenced(lines)
        case doc.Facts():
            return ["; ".join(f"{write_plain(label)}: {_write_line(line)}" for label, line in block.rows)]
        case doc.Figures():
            rows = [f"| {' | '.join(map(write_plain, (each.name, each.value, each.interval, each.about)))} |" for each in block.figures]
            return ["| | value | interval | |", "|---|--:|---|---|", *rows]


def _write_item(item: doc.Item, spaced: bool) -> list[str]:
    mark = f"{MARKS[item.tone]} " if item.tone and spaced else ""
    place = f" · {write_code(item.place)}" if item.place else ""
    lines = [f"- {mark}{escape_line_start(_write_line(item.title))}{place}"]
    for block in item.blocks:
        if isinstance(block, doc.Listing):
            lines += [f"  - {escape_line_start(_write_line(line))}" for line in block.lines]
        elif isinstance(block, (doc.Paragraph, doc.Code, doc.Facts, doc.Figures)):
            lines += [f"  {line}" for line in _write_plain_block(block)]
    return [*lines, ""] if spaced else lines


def _write_cells(row: doc.Row) -> list[str]:
    cells = [_write_line(cell) for cell in row.cells]
    return [f"&nbsp;&nbsp;{cells[0]}", *cells[1:]] if row.inner else cells


def _write_line(line: doc.Line) -> str:
    return "".join(map(_write_inline, line)).strip()


def _write_inline(inline: doc.Inline) -> str:
    match inline:
        case str():
            start, end = " " * inline.startswith(" "), " " * (inline.endswith(" ") and bool(inline.strip()))
            return start + write_inside(inline, 1000) + end
        case doc.Text():
            if inline.look == "code":
                return write_code(inline.text, inline.limit)
            escaped = write_inside(inline.text, inline.limit)
            return {"strong": f"**{escaped}**", "note": f"({escaped})"}.get(inline.look, escaped) if escaped else ""
        case doc.Value():
            return write_inside(inline.value if isinstance(inline.value, str) else show(inline.value, _VALUE), 1000)
        case doc.Mark():
            return ICONS[inline.tone]
        case doc.Rate():
            return ", ".join(filter(None, describe_rate(inline.counts)))
        case doc.Share():
            return ""
        case doc.Change():
            return f"{inline.before.passes}/{inline.before.runs} → {inline.after.passes}/{inline.after.runs}"
        case doc.Time():
            return f"{inline.at[:10]} {inline.at[11:16]} UTC"
        case doc.Small():
            return f" ({_write_line(inline.line)})"
        case doc.Link():
            return _write_line(inline.text)
