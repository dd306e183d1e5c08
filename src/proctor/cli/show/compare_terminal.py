"""Writes two runs side by side for a terminal."""

from __future__ import annotations

from proctor.actions.history.compare import RunComparison
from proctor.actions.history.compare_several import (
    ChangedGroup,
    describe_incomplete,
    describe_runs,
    list_changed_cases,
    list_repeats_needed,
)
from proctor.report.words.comparison import describe_ratio
from proctor.report.words.neutral import to_one_line
from proctor.report.words.style import Colour, Style, count_columns, pad
from proctor.report.words.wording import count_noun
from proctor.scoring.amounts import AmountChange

MOST_CASES = 30
_COLOURS: dict[str, Colour] = {"bad": "red", "doubtful": "yellow", "good": "green", "plain": "dim"}
_VERDICTS: dict[str, Colour] = {"regressed": "red", "improved": "green", "unchanged": "green", "too_little_data": "yellow"}


def describe_comparison(found: RunComparison, *, colour: bool) -> str:
    """Return the verdict, the figures, and the cases that changed, worst first."""
    style, comparison = Style(colour=colour), found.comparison
    verdict = style.paint(comparison.verdict.replace("_", " ").upper(), "bold", _VERDICTS[comparison.verdict])
    base, candidate = (to_one_line(each, 120) for each in describe_runs(found))
    lines = [
        f"{base}  ->  {candidate}",
        "",
        *(style.paint(line, "bold", "yellow") for line in describe_incomplete(found)),
        f"{verdict}  {comparison.reason}",
        *_list_figures(found),
    ]
    for group in list_changed_cases(found):
        lines += _describe_group(group, style)
    for needed in list_repeats_needed(found):
        lines.append(f"  to see a drop of {100 * needed.drop:.0f} points four times out of five: {needed.repeats} repeats of each case")
    return "\n".join(lines) + "\n"


def _list_figures(found: RunComparison) -> list[str]:
    comparison = found.comparison
    base, candidate = (f"{rate:.1%}" for rate in (comparison.base_rate, comparison.candidate_rate))
    rows = [
        ("pass rate", f"{base} -> {candidate} over {count_noun(comparison.cases, 'case')}"),
        ("latency", _describe_amount(found.latency, "ms")),
        ("tokens", _describe_amount(found.tokens, "")),
        *([("cost", _describe_amount(found.cost, "", ".4g"))] if found.cost is not None else []),
    ]
    width = max(count_columns(name) for name, _ in rows)
    return [f"  {pad(name, width)}  {text}" for name, text in rows]


def _describe_group(group: ChangedGroup, style: Style) -> list[str]:
    title = style.paint(f"  {group.title}:", _COLOURS[group.kind])
    shown, rest = group.cases[:MOST_CASES], len(group.cases) - MOST_CASES
    more = f"and {rest:,} more" if rest > 0 else ""
    if group.kind == "plain" or not any(each.reason or each.base for each in shown):
        return [f"{title} {', '.join(to_one_line(each.case, 80) for each in shown)}{f' {more}' if more else ''}"]
    lines = [title]
    for each in shown:
        reason = f"  {to_one_line(each.reason, 300)}" if each.reason else ""
        lines.append(f"    {to_one_line(each.case, 80)}  {style.paint(f'{each.base} -> {each.candidate}', 'dim')}{reason}")
    return [*lines, f"    {more}"] if more else lines


def _describe_amount(change: AmountChange, unit: str, form: str = ".0f") -> str:
    if change.base_median is None or change.candidate_median is None or change.ratio is None:
        return "not recorded"
    base, candidate = (f"{median:{form}}" for median in (change.base_median, change.candidate_median))
    return f"{base} -> {candidate} {unit}".rstrip() + f"  ({describe_ratio(change)})"
