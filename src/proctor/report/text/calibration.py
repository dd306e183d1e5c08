"""A calibration as text: figures, table, thresholds, disagreements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.model.labelled import JudgedAnswer
from proctor.model.show import show
from proctor.report.words import calibration as words
from proctor.report.words.neutral import to_one_line
from proctor.report.words.style import Colour, Style, draw_bar, pad, wrap
from proctor.scoring.calibration import Calibration, TagRow
from proctor.scoring.cutting import SweepRow, count_at_threshold

MOST_LISTED = 20
"""Disagreements of each kind; the JSON and the HTML report have all."""
MOST_ROWS = 12
"""Thresholds shown around the current and the chosen one."""
MOST_TAGS = 15
"""Tags shown; the other reports have more."""
_SHOWN = 400
"""Characters of an answer or a reason."""


def render_calibration(calibration: Calibration, *, colour: bool = False, width: int = 100) -> str:
    """Return the whole report."""
    painter = _Painter(calibration, Style(colour=colour), max(60, width))
    parts = (
        painter.paint_head(),
        painter.paint_figures(),
        painter.paint_table(),
        painter.paint_tags(),
        painter.paint_thresholds(),
        painter.paint_items(),
        painter.end(),
    )
    return "\n".join(line for part in parts for line in part) + "\n"


class _Painter:
    def __init__(self, calibration: Calibration, style: Style, width: int) -> None:
        self._found = calibration
        self._style = style
        self._width = width

    def paint_head(self) -> Iterator[str]:
        yield self._style.paint(to_one_line(words.judge_words(self._found), 160), "bold") + f" on {words.set_words(self._found)}"
        if spent := words.spent_words(self._found):
            yield spent
        yield ""

    def paint_figures(self) -> Iterator[str]:
        for name, figure in self._found.figures.items():
            value = self._style.paint(pad(words.value_words(name, figure.value), 8), "bold")
            yield f"  {words.TITLES[name]:<10} {value} {pad(words.interval_words(name, figure), 18)}  {words.ABOUT[name]}".rstrip()
        yield ""

    def paint_table(self) -> Iterator[str]:
        table = self._found.table
        yield "                    judge passes  judge fails"
        yield f"  labelled right  {table.true_pass:>14,}{self._paint_bad(table.false_fail, 13)}"
        yield f"  labelled wrong  {self._paint_bad(table.false_pass, 14)}{table.true_fail:>13,}"
        if self._found.undecided:
            undecided = f"undecided: {words.undecided_words(self._found)} (neither right nor wrong)"
            yield "  " + self._style.paint(to_one_line(undecided, 200), "yellow")
        yield ""

    def _paint_bad(self, count: int, width: int) -> str:
        text = f"{count:>{width},}"
        return self._style.paint(text, "red") if count else text

    def paint_tags(self) -> Iterator[str]:
        rows = self._found.tags[:MOST_TAGS]
        if not rows:
            return
        size = min(30, max(len(to_one_line(row.tag, 30)) for row in rows))
        yield "  by tag, the hardest first"
        for row in rows:
            yield f"  {self._write_tag(row, size)}".rstrip()
        if len(self._found.tags) > len(rows):
            yield f"  and {len(self._found.tags) - len(rows):,} more tags"
        yield ""

    @staticmethod
    def _write_tag(row: TagRow, size: int) -> str:
        decided = row.items - row.undecided
        missed = [
            f"{row.false_pass} false pass{'es' if row.false_pass > 1 else ''}" if row.false_pass else "",
            f"{row.false_fail} false fail{'s' if row.false_fail > 1 else ''}" if row.false_fail else "",
            f"{row.undecided} undecided" if row.undecided else "",
        ]
        details = ", ".join(part for part in missed if part)
        return f"{pad(to_one_line(row.tag, 30), size)}  {draw_bar(row.accuracy or 0.0, 10)}  {row.agreed:>3} of {decided:<3}  {details}"

    def paint_thresholds(self) -> Iterator[str]:
        found = self._found
        if found.threshold is None:
            return
        rows = self._choose_rows(found.threshold)
        if rows:
            yield "  passes from  accuracy   kappa  precision   recall"
            for row, note in rows:
                figures = (
                    words.value_words(name, row.table.compute_figures()[name]) for name in ("accuracy", "kappa", "precision", "recall")
                )
                accuracy, kappa, precision, recall = figures
                line = f"  {words.threshold_words(row.threshold):>11}  {accuracy:>8}  {kappa:>6}  {precision:>9}  {recall:>7}"
                yield self._style.paint(f"{line}  {note}", "bold") if note else line
        yield from self._wrap(words.advice_words(found), "  ")
        yield ""

    def _choose_rows(self, present: float) -> list[tuple[SweepRow, str]]:
        """Return some thresholds of the sweep, including the current and the chosen one."""
        swept = list(self._found.sweep)
        if not swept:
            return []
        step = max(1, -(-len(swept) // MOST_ROWS))
        notes = {present: "present"}
        if self._found.cut is not None and self._found.cut.threshold != present:
            notes[self._found.cut.threshold] = "chosen"
        items = [(one.opinion.score, one.item.label) for one in self._found.items if one.decided]
        rows = {row.threshold: (row, "") for row in swept[::step]}
        # Computed again: neither threshold need be a score that occurred.
        rows |= {threshold: (SweepRow(threshold, count_at_threshold(items, threshold)), f"← {note}") for threshold, note in notes.items()}
        return [rows[threshold] for threshold in sorted(rows)]

    def paint_items(self) -> Iterator[str]:
        found = self._found
        yield from self._paint_list("false passes", words.FALSE_PASSES, found.false_passes, "red")
        yield from self._paint_list("false fails", words.FALSE_FAILS, found.false_fails, "red")
        yield from self._paint_list("undecided", words.UNDECIDED, found.without_decision, "yellow")

    def _paint_list(self, title: str, about: str, items: Sequence[JudgedAnswer], colour: Colour) -> Iterator[str]:
        if not items:
            return
        yield self._style.paint(f"{title} ({len(items):,})", "bold", colour) + f"  {about}"
        faults = {(one.opinion.code, one.opinion.reason) for one in items if not one.decided}
        codes = {code for code, _ in faults}
        same = len(faults) == 1 or (len(codes) == 1 and not self._found.decided)
        if len(items) > 1 and same and not any(one.decided for one in items):
            # One fault is the cause of all of them, in texts that differ by the claim: which items they are tells nothing.
            code, reason = min(faults, key=lambda fault: len(fault[1]))
            yield from self._wrap(to_one_line(f"{code}: {reason}", _SHOWN), "  ")
            yield ""
            return
        for one in items[:MOST_LISTED]:
            yield from self._paint_item(one)
        if len(items) > MOST_LISTED:
            yield f"  and {len(items) - MOST_LISTED:,} more, which the JSON and HTML reports list"
        yield ""

    def _paint_item(self, one: JudgedAnswer) -> Iterator[str]:
        item = one.item
        tags = f"  [{', '.join(item.tags)}]" if item.tags else ""
        yield f"  {self._style.paint(to_one_line(item.name, 60), 'bold')}{self._style.paint(to_one_line(tags, 80), 'dim')}"
        answer = item.answer if isinstance(item.answer, str) else show(item.answer, _SHOWN)
        opinion = words.opinion_words(one, scored=self._found.threshold is not None)
        for name, text in (
            ("criterion", item.criterion),
            ("answer", answer),
            ("judge", f"{opinion}: {one.opinion.reason}" if one.opinion.reason else opinion),
            ("label", item.why),
        ):
            if text:
                yield from self._wrap(to_one_line(text, _SHOWN), f"    {name:<10}")

    def _wrap(self, text: str, lead: str) -> Iterator[str]:
        for number, line in enumerate(wrap(text, self._width - len(lead))):
            yield (lead if number == 0 else " " * len(lead)) + line

    def end(self) -> Iterator[str]:
        yield from self._wrap(words.write_headline(self._found), "")
        yield from (self._style.paint(line, "dim") for line in self._wrap(words.method_words(self._found), ""))
