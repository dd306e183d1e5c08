"""Writes a document as one HTML file without scripts.

Everything is escaped, and texts are shortened. Every table and list gets at most half of the space that is left.

The frame of every HTML report has templates and a content security policy by hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from proctor.report.blocks.outcomes import draw_chip, draw_counts, draw_dumbbell, draw_mark, draw_rate, draw_sprite, write_share
from proctor.report.document import model as doc
from proctor.report.words.html_text import Child, Element, make, write_block, write_label, write_markup, write_pretty
from proctor.report.words.wording import pad_label
from proctor.scoring.intervals import Interval


def read_template(name: str) -> str:
    """Return a template; uses the package loader, so zipped installations work."""
    from pkgutil import get_data  # only for reports

    content = get_data("proctor.report", f"templates/{name}")
    assert content is not None, name
    # Normalise line ends: browsers do before they compare hashes.
    return content.decode().replace("\r\n", "\n")


def page(*, title: str, style: str, body: str, script: str | None = None) -> str:
    """Return a page around `body` that can run only `script`; title and body are HTML."""
    runs = "" if script is None else f"script-src {_hash_source(script)}; "
    # With Trusted Types, browsers block scripts that write markup.
    types = "" if script is None else "; require-trusted-types-for 'script'; trusted-types 'none'"
    policy = f"default-src 'none'; {runs}style-src {_hash_source(style)}; img-src data:; base-uri 'none'; form-action 'none'{types}"
    return read_template("page.html").format(title=title, policy=policy, style=style, body=body)


def _hash_source(text: str) -> str:
    """Return a policy source for a script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


MOST_BYTES = 1_800_000
"""Bytes of all tables and lists."""
_STYLES = ("tokens.css", "family.css", "compared.css", "document.css")
_TAGS = {"plain": "bdi", "strong": "b", "code": "code", "muted": "span", "note": "span"}


def write_html(document: doc.Document) -> str:
    """Return the whole page."""
    return _Writer().write(document)


def write_block_html(block: doc.Block) -> str:
    """Return one block, for a web page."""
    return _Writer().write_block(block)


class _Writer:
    def __init__(self) -> None:
        self._left = MOST_BYTES

    def write(self, document: doc.Document) -> str:
        tone, word = document.verdict
        name = write_label(document.name)
        head = [
            draw_sprite(),
            make("h1", "", draw_chip(tone, word), " ", make("bdi", "", name)),
            make("p", "", write_label(document.headline, 1000)) if document.headline else "",
            make("p", "facts muted", [make("span", "", write_label(part, 300), dir="auto") for part in document.about]),
        ]
        foot = make("p", "muted small", write_label(document.footer, 1000), dir="auto") if document.footer else ""
        parts = [*map(write_markup, head), *map(self.write_block, document.blocks), write_markup(foot)]
        style = "".join(map(read_template, _STYLES))
        title = escape(f"{name}: {word}")
        return page(title=title, style=style, body=f"<main>\n{chr(10).join(filter(None, parts))}\n</main>\n")

    def write_block(self, block: doc.Block) -> str:
        """Return the markup of one block."""
        match block:
            case doc.Section():
                remark = (" ", make("span", "muted", block.about)) if block.about else None
                body = "\n".join(map(self.write_block, block.blocks)) + _write_rest(block.rest, ())
                if block.folded:
                    return f"<details>{write_markup(make('summary', '', _draw_line(block.title), remark))}{body}</details>"
                return f"{write_markup(make('h2', block.tone or '', _draw_line(block.title), remark))}\n{body}"
            case doc.Table():
                return self._write_table(block)
            case doc.Items():
                fitting = self._choose(write_markup(_draw_folded_item(item) if block.folded else _draw_item(item)) for item in block.items)
                rest = _write_rest(block.rest, block.items[len(fitting) :])
                return (f"{''.join(fitting)}" if block.folded else f'<ul class="groups">{"".join(fitting)}</ul>') + rest
            case doc.Figures():
                cards = [
                    make(
                        "section",
                        "figure",
                        make("h3", "", figure.name),
                        make("b", "", figure.value),
                        draw_interval_bar(*figure.position) if figure.position is not None else None,
                        make("p", "range", figure.interval or "cannot be computed"),
                        make("p", "", figure.about),
                    )
                    for figure in block.figures
                ]
                return write_markup(make("div", "cards", cards))
            case doc.Chart():
                return write_markup(make("div", "sheet", draw_chart(block)))
            case _:
                return write_markup(_draw_plain(block))

    def _write_table(self, table: doc.Table) -> str:
        # Plain numbers stay in their columns on a narrow page, where other rows become blocks with labels.
        numbers = all(column.number or not column.name for column in table.columns[1:])
        look = f"{'numbers' if numbers else 'rows'} {table.kind}".strip()
        heads = [
            make("th", "", _draw_line(column.title) if column.title else _capitalise(column.name), scope="col") for column in table.columns
        ]
        names = [None if numbers else _capitalise(column.name) or None for column in table.columns]
        rows = self._choose(write_markup(_draw_row(row, table, names)) for row in table.rows)
        head = write_markup(make("thead", "", make("tr", "", heads))) if any(column.name for column in table.columns) else ""
        markup = f'<div class="wide"><table class="{look}">{head}<tbody>{"".join(rows)}</tbody></table></div>'
        return markup + _write_rest(table.rest, table.rows[len(rows) :])

    def _choose(self, rows: Iterable[str]) -> list[str]:
        """Return the first rows that fit into half of the space left."""
        space, chosen = self._left // 2, list[str]()
        for row in rows:
            size = len(row.encode())
            space -= size
            if space < 0:
                break
            chosen.append(row)
            self._left -= size
        return chosen


def _write_rest(rest: doc.Rest | None, left: Sequence[doc.Row | doc.Item | doc.Section]) -> str:
    text = rest.describe(left) if rest is not None else ""
    return write_markup(make("p", "muted", text)) if text else ""


def _draw_row(row: doc.Row, table: doc.Table, names: Sequence[str | None]) -> Element:
    first, *rest = row.cells
    look = "check" if row.inner else "strong" if row.strong else ""
    cells = [make("td", "", _draw_line(cell), data_label=name) for cell, name in zip(rest, names[1:], strict=True)]
    title = make("th", "", _draw_line(first), scope="row", data_label=names[0])
    marks = {"data_row": "" if table.kind else None, "data_bad": "" if row.tone == "fail" else None}
    return make("tr", look, title, cells, **marks)


def _draw_item(item: doc.Item) -> Element:
    mark = draw_mark(item.tone) if item.tone else None
    place = make("code", "muted small", write_label(item.place)) if item.place else None
    title = make("h3", "title", mark, _draw_line(item.title), place)
    return make("li", f"sheet {item.tone or ''}".strip(), title, [_draw_plain(block) for block in item.blocks])


def _draw_folded_item(item: doc.Item) -> Element:
    summary = make(
        "summary", "", _draw_line(item.title), make("span", "summary-line muted", _draw_line(item.summary)) if item.summary else None
    )
    return make("details", f"row {item.tone or ''}".strip(), summary, [_draw_plain(block) for block in item.blocks])


def _draw_plain(block: doc.Block) -> Element | str:
    match block:
        case doc.Paragraph():
            if block.tone:
                return make("p", "alarm", draw_mark(block.tone), make("span", "", _draw_line(block.line)))
            return make("p", "muted" if block.muted else "", _draw_line(block.line))
        case doc.Listing():
            return make(
                "ul", "samples small muted" if block.muted else "samples", [make("li", "", _draw_line(line)) for line in block.lines]
            )
        case doc.Code():
            lines = [row if isinstance(row, str) else pad_label(row[0]) + row[1] for row in block.lines]
            return make("pre", "", write_block("\n".join(lines)), dir="auto", tabindex="0")
        case doc.Facts():
            rows = [
                make("div", "", make("dt", "", _capitalise(name)), make("dd", "", _draw_line(line), dir="auto"))
                for name, line in block.rows
            ]
            return make("dl", "facts-list", rows)
        case _:
            return ""


def _capitalise(name: str) -> str:
    return name[:1].upper() + write_label(name[1:], 80)


def _draw_line(line: doc.Line) -> list[Child]:
    return [_draw_inline(inline) for inline in line]


def _draw_inline(inline: doc.Inline) -> Child:
    match inline:
        case str():
            return write_label(inline, 1000)
        case doc.Text():
            look = " ".join(filter(None, ("" if inline.look in ("plain", "strong", "code") else inline.look, inline.tone or "")))
            return make(_TAGS[inline.look], look, write_label(inline.text, inline.limit), dir="auto" if inline.look != "plain" else None)
        case doc.Value():
            return write_pretty(inline.value)
        case doc.Mark():
            return draw_mark(inline.tone)
        case doc.Rate():
            rate = draw_rate(inline.counts) or make("span", "muted", "not decided")
            return (rate, draw_counts(inline.counts)) if inline.detailed else rate
        case doc.Share():
            return None if inline.share is None else draw_share_bar(inline.share)
        case doc.Change():
            was, now = (f"{each.passes}/{each.runs}" for each in (inline.before, inline.after))
            picture = draw_dumbbell(inline.before.rate, inline.after.rate, f"passed {was} before, {now} after")
            return make("span", "pair", picture, make("span", "", f"{was} → {now}"))
        case doc.Time():
            return make("time", "", f"{inline.at[:10]} {inline.at[11:16]} UTC", datetime=inline.at)
        case doc.Small():
            return make("small", "", _draw_line(inline.line))
        case doc.Link():
            return make("a", "", _draw_line(inline.text), href=inline.address, aria_label=inline.label)


_WIDTH, _HEIGHT = 640, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 14, 56, 54
_MOST_DOTS = 62
"""Points up to which each has a dot."""


def draw_interval_bar(interval: Interval, value: float) -> Element:
    """Return an interval and its value on a scale from 0 to 1."""
    start, end, point = (100 * min(1.0, max(0.0, share)) for share in (interval.low, interval.high, value))
    return _draw_bar(
        make("rect", "ground", x="0", y="3", width="100", height="2"),
        make("rect", "reach", x=f"{start:.2f}", y="1.5", width=f"{max(0.6, end - start):.2f}", height="5"),
        make("rect", "point", x=f"{max(0.0, min(98.8, point - 0.6)):.2f}", y="0", width="1.2", height="8"),
    )


def draw_share_bar(share: float) -> Element:
    """Return a share of correct decisions."""
    width = 100 * min(1.0, max(0.0, share))
    return _draw_bar(make("rect", "missed", width="100", height="8"), make("rect", "got", width=f"{width:.2f}", height="8"))


def _draw_bar(*parts: Element) -> Element:
    return make("svg", "share", *parts, viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true")


def draw_chart(chart: doc.Chart) -> Element:
    """Return the lines over a grid, with their names."""
    steps = 5 if chart.lowest >= 0 else 6 if chart.lowest >= -0.5 else 4
    values = [chart.lowest + (1 - chart.lowest) * step / steps for step in range(steps + 1)]
    grid = [
        make("line", "grid", x1=str(_LEFT), x2=str(_WIDTH - _RIGHT), y1=f"{y:.1f}", y2=f"{y:.1f}")
        for y in (_place_y(value, chart) for value in values)
    ]
    scale = [
        _draw_text(write_share(value) if chart.percent else f"{round(value, 2):g}", _LEFT - 7, _place_y(value, chart) + 4, "end")
        for value in values
    ]
    ticks = [
        _draw_text(name, _place_x(at), _HEIGHT - 33, "start" if at == 0 and chart.percent else "end" if at == 1 else "middle")
        for at, name in chart.ticks
    ]
    axis = [_draw_text(chart.axis, _place_x(0.5), _HEIGHT - 7, "middle")] if chart.axis else []
    marks = [part for number, mark in enumerate(chart.marks) for part in _draw_mark(*mark, 16 + 24 * number)]
    lines = [part for series in chart.series for part in _draw_series(series, chart)]
    legend = [_draw_text(series.name, _LEFT, 16 + 24 * number, "start", series.name) for number, series in enumerate(chart.series)]
    names = legend if len(chart.series) > 1 else []
    parts = [*grid, *scale, *ticks, *axis, *marks, *lines, *names]
    return make("svg", "chart", *parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=chart.caption)


def _draw_text(text: str, x: float, y: float, anchor: str, look: str = "") -> Element:
    return make("text", look, text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _draw_mark(at: float, kind: str, name: str, y: int) -> list[Element]:
    x = _place_x(at)
    anchor, shift = ("end", -5) if at > 0.5 else ("start", 5)
    line = make("line", kind, x1=f"{x:.1f}", x2=f"{x:.1f}", y1=str(y - 12), y2=str(_HEIGHT - _BOTTOM))
    return [line, _draw_text(name, x + shift, y, anchor, kind)]


def _draw_series(series: doc.Series, chart: doc.Chart) -> list[Element]:
    across = [x for x, _ in series.points]
    band: list[Element] = []
    if series.low:
        upper = _trace_path(list(zip(across, series.high, strict=True)), chart)
        lower = _trace_path(list(zip(across, series.low, strict=True))[::-1], chart)
        band = [make("path", "band", d=f"{upper}L{lower[1:]}Z")]
    dots = [] if chart.steps or len(across) > _MOST_DOTS else series.points
    return [
        *band,
        make("path", f"line {series.name}", d=_trace_steps(series, chart) if chart.steps else _trace_path(series.points, chart)),
        *(make("circle", "point", cx=f"{_place_x(x):.1f}", cy=f"{_place_y(y, chart):.1f}", r="3") for x, y in dots),
    ]


def _trace_path(points: Sequence[tuple[float, float]], chart: doc.Chart) -> str:
    return "M" + "L".join(f"{_place_x(x):.1f} {_place_y(y, chart):.1f}" for x, y in points)


def _trace_steps(series: doc.Series, chart: doc.Chart) -> str:
    """Return a step line that changes just above each point."""
    starts = [0.0, *(x for x, _ in series.points)]
    return _trace_path([(x, y) for start, (end, y) in zip(starts, series.points, strict=False) for x in (start, end)], chart)


def _place_x(value: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(1.0, max(0.0, value))


def _place_y(value: float, chart: doc.Chart) -> float:
    share = (min(1.0, max(chart.lowest, value)) - chart.lowest) / (1 - chart.lowest)
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share)
