"""Outcomes: symbols, names, counts, pass rates with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from proctor.report.words.html_text import Element, make
from proctor.report.words.wording import OUTCOME_NAMES, count_noun, name_counted
from proctor.scoring.intervals import Counts, wilson
from proctor.scoring.statistics import count_outcomes

if TYPE_CHECKING:
    from proctor.scoring.paired import Change

KINDS: dict[Change, Literal["pass", "fail", "uncertain"]] = {
    "regressed": "fail", "improved": "pass", "unchanged": "pass", "too_little_data": "uncertain",
}  # fmt: skip
"""The symbol of the verdict of a comparison."""
WORST_FIRST = ("fail", "error", "pass", "skip")
_IN_A_BAR = ("pass", "error", "fail", "skip", "missing")
"""The order of the parts of a bar."""
_BETWEEN, _LEAST = 1.5, 2.0
"""Of a bar of 100: gap between parts, and minimum width."""
_SHAPES: dict[str, tuple[Element, ...]] = {
    "pass": (make("circle", cx="8", cy="8", r="7"), make("path", d="M4.6 8.3l2.3 2.3 4.5-5")),
    "fail": (make("rect", x="1", y="1", width="14", height="14", rx="2"), make("path", d="M5 5l6 6M11 5l-6 6")),
    "error": (make("path", d="M8 1.2l7.2 13.3H.8z"), make("path", d="M8 6v4M8 12v.4")),
    "skip": (make("circle", cx="8", cy="8", r="7", stroke_dasharray="2.4 2"), make("path", d="M5 8h6")),
    "uncertain": (
        make("path", d="M8 .8L15.2 8 8 15.2.8 8z"),
        make("path", d="M6.4 6.4a1.7 1.7 0 113 1.1c-.7.6-1.3.9-1.3 1.9M8 11.4v.4"),
    ),
    "wait": (make("circle", cx="8", cy="8", r="7"), make("path", d="M8 4v4.4l2.6 1.6")),
}


def draw_sprite() -> Element:
    """Return the symbols, defined once per page."""
    symbols = [make("symbol", "", *shapes, id=f"m-{word}", viewBox="0 0 16 16") for word, shapes in _SHAPES.items()]
    return make("svg", "sprite", *symbols, aria_hidden="true", focusable="false")


def draw_mark(outcome: str) -> Element:
    """Return the symbol of an outcome."""
    return make("svg", f"mark {outcome}", make("use", href=f"#m-{outcome}"), aria_hidden="true")


def draw_chip(kind: str, word: str) -> Element:
    """Return a symbol with text."""
    return make("span", f"outcome {kind}", draw_mark(kind), make("span", "", word))


def draw_outcome(outcome: str) -> Element:
    """Return symbol and name of an outcome."""
    return draw_chip(outcome, OUTCOME_NAMES[outcome])


def draw_verdict(verdict: Change, *, whole: bool = True) -> Element:
    """Return the symbol and name of the verdict of a comparison; uncertain for incomplete runs."""
    return draw_chip(KINDS[verdict] if whole else "uncertain", verdict.replace("_", " "))


def draw_hidden_outcome(outcome: str) -> tuple[Element, str, Element]:
    """Return the symbol of an outcome with hidden text."""
    return draw_mark(outcome), " ", make("span", "hidden", f"{OUTCOME_NAMES[outcome]}: ")


def draw_counts(counts: Mapping[str, int], *, always: tuple[str, ...] = ()) -> Element:
    """Return counts by outcome; those in `always` are shown even if zero."""
    outcomes = [word for word in WORST_FIRST if counts.get(word) or word in always]
    return make("ul", "counts", [_draw_count(word, counts.get(word, 0)) for word in outcomes])


def _draw_count(word: str, number: int) -> Element:
    name = make("span", "", name_counted(word, number))
    return make("li", word, draw_mark(word), make("b", "", f"{number:,}"), " ", name)


def describe_pass_rate(counts: Mapping[str, int], cases: int, cases_passed: int) -> str:
    """Return the pass rate with its unit: `65 % of 120 attempts passed; 20 of 40 cases`; empty if nothing was decided."""
    decided = count_outcomes(counts)
    if not decided.runs:
        return ""
    if sum(counts.values()) <= cases:
        return f"{write_share(decided.rate)} of {count_noun(decided.runs, 'case')} passed"
    return f"{write_share(decided.rate)} of {count_noun(decided.runs, 'attempt')} passed; {cases_passed:,} of {count_noun(cases, 'case')}"


def draw_rate(counts: Mapping[str, int], missing: int = 0) -> Element | None:
    """Return the pass rate as a bar with its interval and as text, or None."""
    decided = count_outcomes(counts)
    if not decided.runs:
        return None
    bounds = wilson(decided)
    low, high = write_share(bounds.low), write_share(bounds.high)
    caption = (
        f"{decided.passes:,} of {decided.runs:,} decided attempts passed; with 95 % confidence the pass rate is between {low} and {high}"
    )
    if missing > 0:
        caption += f"; {count_noun(missing, 'attempt is', 'attempts are')} missing"
    figures = make("span", "", write_share(decided.rate), " ", make("span", "muted", f"({low} – {high})"), title=caption)
    return make("span", "rate-row", draw_bar(counts, decided, caption, missing), figures)


def draw_bar(counts: Mapping[str, int], decided: Counts, title: str, missing: int = 0) -> Element:
    """Return the outcomes as one bar with the interval of the pass rate.

    Missing attempts leave a gap, so that an incomplete run is not shown as a full bar.
    """
    numbers = {**counts, "missing": max(0, missing)}
    segments = [(word, numbers[word]) for word in _IN_A_BAR if numbers.get(word)]
    total = sum(number for _, number in segments) or 1
    width_left = 100 - _BETWEEN * (len(segments) - 1)
    widths = [max(_LEAST, number / total * width_left) for _, number in segments]
    scale = width_left / sum(widths) if widths else 1
    at, reach, parts = 0.0, 0.0, list[Element]()
    for (word, _), width in zip(segments, widths, strict=True):
        parts.append(make("rect", word, x=_round(at), y="0", width=_round(width * scale), height="6"))
        reach = at + width * scale if word in ("pass", "error", "fail") else reach
        at += width * scale + _BETWEEN
    if decided.runs:
        bounds = wilson(decided)
        low, high = _round(bounds.low * reach), _round(max(bounds.high, bounds.low + 0.01) * reach)
        # Below the bar, where no colour of a part makes it hard to read.
        parts += [make("path", "interval", d=f"M{low} 8.5H{high}M{low} 7V10M{high} 7V10")]
    return make("svg", "bar", *parts, viewBox="0 0 100 10", preserveAspectRatio="none", role="img", aria_label=title)


def draw_dumbbell(before: float, after: float, title: str) -> Element:
    """Return two shares as a line from a ring (before) to a dot (after)."""
    before_at, after_at = (round(6 + max(0.0, min(1.0, share)) * 88, 1) for share in (before, after))
    kind = "worse" if after_at < before_at else "better" if after_at > before_at else "same"
    return make(
        "svg",
        f"dumbbell {kind}",
        make("line", "track", x1="6", y1="6", x2="94", y2="6"),
        make("line", x1=str(before_at), y1="6", x2=str(after_at), y2="6"),
        make("circle", "before", cx=str(before_at), cy="6", r="4"),
        make("circle", "after", cx=str(after_at), cy="6", r="4"),
        viewBox="0 0 100 12",
        role="img",
        aria_label=title,
    )


def write_share(share: float) -> str:
    """Return a percentage; 100 % and 0 % only if exact."""
    percent = share * 100
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    is_whole = round(percent, 1) == round(percent)
    return f"{percent:,.{0 if is_whole else 1}f} %"


def _round(number: float) -> str:
    return f"{round(number, 2):g}"
