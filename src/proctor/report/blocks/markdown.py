"""Markdown of agents as elements: headings, lists, tables, quotes, code, emphasis. JSON is shown indented.

Only elements are built, never markup from the text: HTML in it is shown as text. Links show their address and cannot be followed, since
their text may be untrue; images are not loaded.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from proctor.model.evidence import Json
from proctor.report.words.html_text import Child, Element, Node, make, make_table_head, write_block, write_pretty

MOST_CHARACTERS = 20_000
_MOST_ROWS = 100
"""Rows of one table."""
_DEEPEST = 4
"""Quotes within quotes."""
_FENCE = re.compile(r"[ ]{0,3}(```|~~~)[^`]*")
_HEADING = re.compile(r"[ ]{0,3}(#{1,6})[ ]+(.*)")
_ITEM = re.compile(r"([ ]*)(?:[-*+]|([0-9]{1,6})[.)])[ ]+(.*)")
_RULE = re.compile(r"[ ]{0,3}(?:-[ ]*){3,}|[ ]{0,3}(?:\*[ ]*){3,}|[ ]{0,3}(?:_[ ]*){3,}")
_DIVIDER = re.compile(r"\|?(?:[ ]*:?-+:?[ ]*\|)*(?:[ ]*:?-+:?)?")
_INLINE = re.compile(
    r"(?P<code>`+)(?P<coded>[^`\n]{1,2000})(?P=code)(?!`)"
    r"|\*\*(?=\S)(?P<strong>[^*\n]{1,2000})(?<=\S)\*\*"
    r"|(?<![\w*])[*_](?=\S)(?P<em>[^*_\n]{1,2000})(?<=\S)[*_](?![\w*])"
    r"|!?\[(?P<text>[^\]\[\n]{0,500})\]\((?P<address>[^()\s]{1,1000})\)"
)


def draw_rich_text(value: Json) -> list[Node]:
    """Return a text with a folded copy as it was sent; without formatting, the text alone."""
    unformatted = write_block(value, MOST_CHARACTERS) if isinstance(value, str) else write_pretty(value, MOST_CHARACTERS)
    if not isinstance(value, str) or _is_json(value):
        laid_out = write_pretty(value, MOST_CHARACTERS)
        drawn: list[Node] = [make("pre", "data", make("code", "", laid_out), tabindex="0", dir="auto")]
        if laid_out == unformatted:
            return drawn
    else:
        drawn = draw_markdown(unformatted.split("\n"))
        if not _is_formatted(drawn):
            return [make("div", "rich plain", unformatted, dir="auto")]
    raw = make("details", "as-sent", make("summary", "small", "As sent"), make("pre", "", unformatted, tabindex="0", dir="auto"))
    return [make("div", "rich", *drawn, dir="auto"), raw]


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _is_formatted(drawn: Sequence[Node]) -> bool:
    return any(
        isinstance(each, Element) and (each[0] != "p" or any(isinstance(child, Element) for child in each.children)) for each in drawn
    )


def draw_markdown(lines: Sequence[str], depth: int = 0) -> list[Node]:
    """Return the blocks of a text."""
    blocks: list[Node] = []
    paragraph: list[str] = []
    place = 0

    def end_paragraph() -> None:
        if paragraph:
            blocks.append(make("p", "", _draw_inline("\n".join(paragraph))))
            paragraph.clear()

    while place < len(lines):
        line = lines[place]
        fence, heading = _FENCE.fullmatch(line), _HEADING.fullmatch(line)
        end = place + 1
        block: Node | None = None
        if fence is not None:
            end = _find_end(lines, place + 1, functools.partial(_ends_code, fence[1]))
            block = make("pre", "data", make("code", "", "\n".join(lines[place + 1 : end])), tabindex="0", dir="auto")
            end += 1
        elif heading is not None:
            # No heading elements: the outline of the page is not that of the answer.
            block = make("p", f"heading h{len(heading[1])}", make("strong", "", _draw_inline(heading[2].rstrip(" #"))))
        elif _RULE.fullmatch(line):
            block = make("p", "rule", "· · ·")
        elif line.startswith(">") and depth < _DEEPEST:
            end = _find_end(lines, place, lambda other: not other.startswith(">"))
            block = make("blockquote", "", draw_markdown([block_line[1:].removeprefix(" ") for block_line in lines[place:end]], depth + 1))
        elif "|" in line and place + 1 < len(lines) and "-" in lines[place + 1] and _DIVIDER.fullmatch(lines[place + 1].strip()):
            end = _find_end(lines, place + 2, lambda other: "|" not in other)
            heads = _split_row(lines[place])
            cells = [_split_row(row)[: len(heads)] for row in lines[place + 2 : end][:_MOST_ROWS]]
            body = make("tbody", "", [make("tr", "", [make("td", "", _draw_inline(cell)) for cell in row]) for row in cells])
            block = make("div", "wide", make("table", "known", make_table_head([_draw_inline(cell) for cell in heads]), body), tabindex="0")
        elif _ITEM.fullmatch(line):
            end = _find_end(lines, place, lambda other: not (_ITEM.fullmatch(other) or other.startswith("  ")))
            block = _draw_list(lines[place:end])
        elif line.strip():
            paragraph.append(line)
            place = end
            continue
        end_paragraph()
        if block is not None:
            blocks.append(block)
        place = end
    end_paragraph()
    return blocks


def _find_end(lines: Sequence[str], place: int, ends: Callable[[str], bool]) -> int:
    """Return the index of the first line from `place` on that ends a block."""
    while place < len(lines) and not ends(lines[place]):
        place += 1
    return place


def _ends_code(mark: str, line: str) -> bool:
    return line.strip().startswith(mark)


def _draw_list(lines: Sequence[str]) -> Element:
    items: list[tuple[int, str]] = []
    first = _ITEM.fullmatch(lines[0])
    assert first is not None
    for line in lines:
        item = _ITEM.fullmatch(line)
        if item is None:
            # A continued item.
            items[-1] = (items[-1][0], f"{items[-1][1]}\n{line.strip()}")
        else:
            items.append((min(3, len(item[1]) // 2), item[3]))
    tag, start = ("ol", first[2]) if first[2] else ("ul", None)
    drawn = [make("li", f"in{depth}" if depth else "", _draw_inline(text)) for depth, text in items]
    return make(tag, "list", drawn, start=start if start not in (None, "1") else None)


def _split_row(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _draw_inline(text: str) -> list[Child]:
    return list(_iterate_inline(text))


def _iterate_inline(text: str) -> Iterator[Child]:
    place = 0
    for match in _INLINE.finditer(text):
        yield text[place : match.start()]
        place = match.end()
        if match["coded"] is not None:
            yield make("code", "", match["coded"])
        elif match["strong"] is not None:
            yield make("strong", "", match["strong"])
        elif match["em"] is not None:
            yield make("em", "", match["em"])
        else:
            yield from (match["text"], " ", make("code", "address", match["address"]))
    yield text[place:]
