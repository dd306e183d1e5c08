"""A calibration as one HTML file without scripts.

Untrusted texts are escaped and shortened.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence

from proctor.model.evidence import Json
from proctor.model.labelled import JudgedAnswer
from proctor.report.html.page import page, read_template
from proctor.report.words import calibration as words
from proctor.report.words.calibration import threshold_words
from proctor.report.words.html_text import write_block, write_label, write_pretty
from proctor.scoring.agreement import Figure
from proctor.scoring.calibration import Calibration, TagRow
from proctor.scoring.cutting import ChosenCut, SweepRow, count_at_threshold

_WIDTH, _HEIGHT = 640, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 56, 54


WORDS = {
    "accuracy": "accuracy",
    "kappa": "kappa",
    "present": "current",
    "chosen": "chosen",
    "axis": "Threshold",
    "caption": "Accuracy and kappa for every threshold; current {present}",
}
"""The labels of the curve."""


def draw_interval_bar(figure: Figure, *, low: float = 0.0) -> str:
    """Return a figure on its scale, from `low` to 1, over its interval."""
    if figure.value is None or figure.interval is None:
        return ""

    def at(value: float) -> float:
        return 100 * (min(1.0, max(low, value)) - low) / (1 - low)

    start, end, point = at(figure.interval.low), at(figure.interval.high), at(figure.value)
    return (
        '<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ground" x="0" y="3" width="100" height="2"/>'
        f'<rect class="reach" x="{start:.2f}" y="1.5" width="{max(0.6, end - start):.2f}" height="5"/>'
        f'<rect class="point" x="{max(0.0, min(98.8, point - 0.6)):.2f}" y="0" width="1.2" height="8"/></svg>'
    )


def draw_share_bar(share: float) -> str:
    """Return a share of correct decisions."""
    width = 100 * min(1.0, max(0.0, share))
    return (
        '<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="missed" width="100" height="8"/>'
        f'<rect class="got" width="{width:.2f}" height="8"/></svg>'
    )


def draw_sweep_chart(rows: Sequence[SweepRow], present: float, chosen: float | None, words: Mapping[str, str] = WORDS) -> str:
    """Draw accuracy and kappa over the threshold, as steps between scores."""
    lowest = min((row.table.kappa or 0.0 for row in rows), default=0.0)
    lowest_shown = 0.0 if lowest >= 0 else -0.5 if lowest >= -0.5 else -1.0
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{words["caption"].format(present=threshold_words(present))}">'
    ]
    steps = 5 if lowest_shown == 0 else 6 if lowest_shown == -0.5 else 4
    for step in range(steps + 1):
        value = lowest_shown + (1 - lowest_shown) * step / steps
        y = _place_y(value, lowest_shown)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{threshold_words(round(value, 2))}</text>')
    for step in range(6):
        parts.append(f'<text x="{_place_x(step / 5):.1f}" y="{_HEIGHT - 33}" text-anchor="middle">{threshold_words(step / 5)}</text>')
    parts.append(f'<text x="{_place_x(0.5):.1f}" y="{_HEIGHT - 7}" text-anchor="middle">{words["axis"]}</text>')
    parts.append(_mark(present, "present", 16, words["present"]))
    if chosen is not None and chosen != present:
        parts.append(_mark(chosen, "chosen", 40, words["chosen"]))
    for name in ("accuracy", "kappa"):
        points = [(row.threshold, value) for row in rows if (value := getattr(row.table, name)) is not None]
        parts.append(f'<path class="{name}" d="{_draw_steps(points, lowest_shown)}"/>')
    parts.append(f'<text class="accuracy" x="{_LEFT}" y="16">{words["accuracy"]}</text>')
    parts.append(f'<text class="kappa" x="{_LEFT}" y="40">{words["kappa"]}</text></svg>')
    return "".join(parts)


def _mark(threshold: float, name: str, y: int, word: str) -> str:
    x = _place_x(threshold)
    anchor, shift = ("end", -5) if threshold > 0.5 else ("start", 5)
    return (
        f'<line class="{name}" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 12}" y2="{_HEIGHT - _BOTTOM}"/>'
        f'<text class="{name}" x="{x + shift:.1f}" y="{y}" text-anchor="{anchor}">{word} {threshold_words(threshold)}</text>'
    )


def _draw_steps(points: Sequence[tuple[float, float]], lowest_shown: float) -> str:
    """Return a step line that changes just above each score."""
    drawn: list[str] = []
    before = 0.0
    for threshold, value in points:
        start, end, y = _place_x(before), _place_x(threshold), _place_y(value, lowest_shown)
        drawn.append(f"{'M' if not drawn else 'L'}{start:.1f} {y:.1f}L{end:.1f} {y:.1f}")
        before = threshold
    return "".join(drawn)


def _place_x(value: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(1.0, max(0.0, value))


def _place_y(value: float, lowest_shown: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (min(1.0, max(lowest_shown, value)) - lowest_shown) / (1 - lowest_shown))


MOST_ITEMS = 500
"""Items of each kind; the JSON has all."""
MOST_TAGS = 200
"""Tags in a page; the JSON report has all."""
_TAGS_SHOWN = 12
"""Tags shown; the others are folded."""
_COLUMNS = ("accuracy", "kappa", "precision", "recall", "f1")


def render_calibration_html(calibration: Calibration) -> str:
    """Return the whole page."""
    style = "".join(map(read_template, ("tokens.css", "family.css", "report.css", "calibration.css")))
    name = _render_text(words.judge_words(calibration))
    body = read_template("calibration.html").format(
        colour=_colour(calibration),
        badge=_render_badge(calibration),
        name=name,
        headline=_render_text(words.write_headline(calibration)),
        facts=" · ".join(_render_text(fact) for fact in _render_facts(calibration)),
        body="\n".join(_render_body(calibration)),
        method=_render_text(words.method_words(calibration)),
    )
    return page(title=f"Calibration of {name}", style=style, body=body)


def _render_body(calibration: Calibration) -> Iterator[str]:
    yield _render_figures(calibration)
    yield f'<div class="panels">{_render_table(calibration)}{_render_thresholds(calibration)}</div>'
    yield from _render_sweep(calibration)
    yield from _render_tags(calibration.tags)
    scored = calibration.threshold is not None
    yield from _render_items("False passes", words.FALSE_PASSES, calibration.false_passes, "fail", scored)
    yield from _render_items("False fails", words.FALSE_FAILS, calibration.false_fails, "fail", scored)
    yield from _render_items("Undecided", words.UNDECIDED, calibration.without_decision, "error", scored)
    if calibration.decided and not calibration.false_passes and not calibration.false_fails:
        yield '<p class="notice">The judge and the labels agree on every item that was decided.</p>'


def _colour(calibration: Calibration) -> str:
    kappa = calibration.table.kappa
    if kappa is None:
        return "skip"
    return "pass" if kappa > 0.6 else "error" if kappa > 0.4 else "fail"


def _render_badge(calibration: Calibration) -> str:
    kappa = calibration.table.kappa
    return "NO KAPPA" if kappa is None else f"KAPPA {words.value_words('kappa', kappa)}"


def _render_facts(calibration: Calibration) -> Iterator[str]:
    yield words.set_words(calibration)
    spent = calibration.spent
    if spent.judges and spent.models and spent.judges != spent.models:
        yield f"model {', '.join(spent.models)}"
    yield "yes or no" if calibration.threshold is None else f"threshold {words.threshold_words(calibration.threshold)}"
    if spent := words.spent_words(calibration):
        yield spent


def _render_figures(calibration: Calibration) -> str:
    cards: list[str] = []
    for name, figure in calibration.figures.items():
        low = -1.0 if name == "kappa" and figure.interval is not None and figure.interval.low < 0 else 0.0
        cards.append(
            f'<section class="figure"><h3>{words.TITLES[name]}</h3><b>{words.value_words(name, figure.value)}</b>'
            f'{draw_interval_bar(figure, low=low)}<p class="range">{words.interval_words(name, figure) or "cannot be computed"}</p>'
            f"<p>{words.ABOUT[name]}</p></section>"
        )
    return f'<div class="figures">{"".join(cards)}</div>'


def _render_table(calibration: Calibration) -> str:
    table = calibration.table
    undecided = f"<p>Undecided: {_render_text(words.undecided_words(calibration))}.</p>" if calibration.undecided else ""
    return (
        '<section class="panel"><h3>Confusion table</h3><table class="confusion"><thead><tr><td></td><th scope="col">judge passes</th>'
        '<th scope="col">judge fails</th></tr></thead><tbody>'
        f'<tr><th scope="row">labelled right</th>{_render_cell(table.true_pass, "", "good")}'
        f"{_render_cell(table.false_fail, 'false fails', 'bad')}</tr>"
        f'<tr><th scope="row">labelled wrong</th>{_render_cell(table.false_pass, "false passes", "bad")}'
        f"{_render_cell(table.true_fail, '', 'good')}</tr>"
        f"</tbody></table>{undecided}{_render_cuts(calibration.cut)}</section>"
    )


def _render_cell(count: int, note: str, kind: str) -> str:
    colour = f' class="{kind}"' if count else ""
    return f"<td{colour}>{count:,}<small>{note or 'agree'}</small></td>"


def _render_thresholds(calibration: Calibration) -> str:
    cut = calibration.cut
    chart = ""
    if calibration.threshold is not None and calibration.sweep:
        chart = draw_sweep_chart(calibration.sweep, calibration.threshold, cut.threshold if cut is not None else None)
    return f'<section class="panel"><h3>Threshold</h3><p>{_render_text(words.advice_words(calibration), 600)}</p>{chart}</section>'


def _render_cuts(cut: ChosenCut | None) -> str:
    """Return the current and the chosen threshold side by side."""
    if cut is None:
        return ""
    chosen = words.threshold_words(cut.threshold)
    rows = (
        ("present threshold", words.threshold_words(cut.present), cut.present_accuracy, cut.present_kappa),
        ("chosen, on items it was not chosen on", chosen, cut.held_out_accuracy, cut.held_out_kappa),
        ("best on the items it was chosen on", "", cut.fitted_accuracy, cut.fitted_kappa),
    )
    lines = "".join(
        f"<tr><td>{name}</td><td>{threshold}</td><td>{words.value_words('accuracy', accuracy)}</td>"
        f"<td>{words.value_words('kappa', kappa)}</td></tr>"
        for name, threshold, accuracy, kappa in rows
    )
    low, high = (words.threshold_words(bound) for bound in cut.spread)
    return (
        '<div class="panel-part wide"><h3>Thresholds compared</h3><table class="cuts"><thead><tr><td></td><th>passes from</th>'
        f"<th>accuracy</th><th>kappa</th></tr></thead><tbody>{lines}</tbody></table></div>"
        f'<p class="muted">Chosen by {cut.folds}-fold cross-validation, '
        f"{cut.repeats} times; nine tenths of the choices lie between {low} and {high}.</p>"
    )


def _render_sweep(calibration: Calibration) -> Iterator[str]:
    present = calibration.threshold
    if present is None or not calibration.sweep:
        return
    marks = {present: "present"}
    if calibration.cut is not None and calibration.cut.threshold != present:
        marks[calibration.cut.threshold] = "chosen"
    items = [(one.opinion.score, one.item.label) for one in calibration.items if one.decided]
    rows = {row.threshold: row for row in calibration.sweep}
    # Computed again: neither threshold need be a score that occurred.
    rows |= {threshold: SweepRow(threshold, count_at_threshold(items, threshold)) for threshold in marks}
    head = "".join(f"<th>{words.TITLES[name]}</th>" for name in _COLUMNS)
    lines: list[str] = []
    for threshold in sorted(rows):
        table = rows[threshold].table
        mark = marks.get(threshold, "")
        values = "".join(f"<td>{words.value_words(name, table.compute_figures()[name])}</td>" for name in _COLUMNS)
        note = f" ({mark})" if mark else ""
        lines.append(
            f'<tr class="{mark}"><td>{words.threshold_words(threshold)}{note}</td>'
            f"<td>{table.true_pass + table.false_pass:,}</td>{values}</tr>"
        )
    yield (
        f"<details><summary>Every threshold ({len(rows):,})</summary>"
        f'<div class="wide"><table class="sweep"><thead><tr><th>passes from</th><th>passes</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    )


def _render_tags(tags: Sequence[TagRow]) -> Iterator[str]:
    if not tags:
        return
    yield f"<h2>By tag <small>the hardest first</small></h2>{_render_tag_table(tags[:_TAGS_SHOWN])}"
    if rest := tags[_TAGS_SHOWN:MOST_TAGS]:
        left = f"<p>and {len(tags) - MOST_TAGS:,} more, which the JSON report lists</p>" if len(tags) > MOST_TAGS else ""
        yield f"<details><summary>{len(tags) - _TAGS_SHOWN:,} more tags</summary>{_render_tag_table(rest)}{left}</details>"


def _render_tag_table(tags: Sequence[TagRow]) -> str:
    lines = "".join(
        f'<tr><td dir="auto">{_render_text(row.tag, 80)}</td><td>{draw_share_bar(row.accuracy or 0.0)}</td>'
        f"<td>{row.agreed} of {row.items - row.undecided}</td>"
        f"<td>{row.false_pass or ''}</td><td>{row.false_fail or ''}</td><td>{row.undecided or ''}</td></tr>"
        for row in tags
    )
    return (
        '<div class="wide"><table class="tags"><thead><tr><th>tag</th><th></th><th>agree</th>'
        f"<th>false passes</th><th>false fails</th><th>undecided</th></tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _render_items(title: str, about: str, items: Sequence[JudgedAnswer], colour: str, scored: bool) -> Iterator[str]:
    if not items:
        return
    yield f"<h2>{title} ({len(items):,}) <small>{about}</small></h2>"
    for one in items[:MOST_ITEMS]:
        yield _render_item(one, colour, scored)
    if len(items) > MOST_ITEMS:
        yield f'<p class="notice">and {len(items) - MOST_ITEMS:,} more, which the JSON report lists</p>'


def _render_item(one: JudgedAnswer, colour: str, scored: bool) -> str:
    item, opinion = one.item, one.opinion
    tags = "".join(f'<span class="note" dir="auto">{_render_text(tag, 60)}</span>' for tag in item.tags[:12])
    rows = [("criterion", _render_block(item.criterion), ""), ("answer", _render_value(item.answer), "data")]
    if item.context is not None:
        rows.append(("context", _render_value(item.context), "data"))
    verdict = words.opinion_words(one, scored=scored)
    rows.append(("judge", _render_block(f"{verdict}: {opinion.reason}" if opinion.reason else verdict), ""))
    if item.why:
        rows.append(("label", _render_block(f"{'right' if item.label else 'wrong'}: {item.why}"), ""))
    lines = "".join(f'<dt>{name}</dt><dd class="{kind}" dir="auto">{text}</dd>' for name, text, kind in rows)
    return (
        f'<details class="row {colour}"><summary><b dir="auto">{_render_text(item.name, 80)}</b>'
        f'<span class="muted">{_render_text(verdict, 80)}</span>{tags}'
        f'<span class="criterion" dir="auto">{_render_text(item.criterion, 240)}</span></summary><dl>{lines}</dl></details>'
    )


def _render_text(text: str, limit: int = 300) -> str:
    return html.escape(write_label(text, limit))


def _render_block(text: str) -> str:
    return html.escape(write_block(text))


def _render_value(value: Json) -> str:
    return html.escape(write_pretty(value))
