"""A comparison of two runs as text for a terminal, or as Markdown."""

from __future__ import annotations

from proctor.actions.history.compare import RunComparison
from proctor.actions.history.compare_several import (
    ChangedCase,
    ChangedGroup,
    describe_change,
    describe_incomplete,
    describe_runs,
    list_changed_cases,
    list_repeats_needed,
)
from proctor.report.words.comparison import describe_amount
from proctor.report.words.neutral import to_one_line, write_code, write_plain
from proctor.report.words.style import Colour, Style, count_columns, pad
from proctor.report.words.wording import count_noun
from proctor.scoring.amounts import AmountChange

MOST_CASES = 30
_COLOURS: dict[str, Colour] = {"bad": "red", "doubtful": "yellow", "good": "green", "plain": "dim"}
_VERDICTS: dict[str, Colour] = {"regressed": "red", "improved": "green", "unchanged": "green", "too_little_data": "yellow"}


def describe_comparison(found: RunComparison, *, colour: bool) -> str:
    """Return verdict, figures and changed cases, worst first."""
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
        ("latency", _describe_amount(found.latency, "ms", words=("slower", "faster"))),
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


def _describe_amount(change: AmountChange, unit: str, form: str = ".0f", words: tuple[str, str] = ("more", "less")) -> str:
    if change.base_median is None or change.candidate_median is None or change.ratio is None:
        return "not recorded"
    base, candidate = (f"{median:{form}}" for median in (change.base_median, change.candidate_median))
    return f"{base} -> {candidate} {unit}".rstrip() + f"  ({describe_amount(change, *words)})"


MOST_MARKDOWN_CASES = 50
_ICONS = {"regressed": "❌", "improved": "✅", "unchanged": "✅", "too_little_data": "❔"}


def write_comparison(found: RunComparison) -> str:
    """Return verdict, figures and changed cases as Markdown."""
    comparison = found.comparison
    verdict = comparison.verdict.replace("_", " ")
    whole = found.base_incomplete is None and found.candidate_incomplete is None
    lines = [
        f"## {_ICONS.get(comparison.verdict, '❔') if whole else '❔'} {write_plain(found.candidate.suite_name or 'suite')}: {verdict}",
        "",
        f"{' → '.join(map(write_code, describe_runs(found)))}: {write_plain(comparison.reason, 500)}",
        "",
        *(f"**{write_plain(line, 300)}**\n" for line in describe_incomplete(found)),
        "| | base | candidate | change |",
        "|---|---|---|---|",
        f"| pass rate over {comparison.cases} cases | {comparison.base_rate:.1%} | {comparison.candidate_rate:.1%} | "
        f"{describe_change(comparison)} |",
        _write_amount("latency in ms", found.latency),
        _write_amount("tokens", found.tokens),
        *([_write_amount("cost", found.cost, ".4g")] if found.cost is not None else []),
        "",
    ]
    for group in list_changed_cases(found):
        lines += _write_group(group)
    for needed in list_repeats_needed(found):
        lines.append(f"To see a drop of {100 * needed.drop:.0f} points with 80 % power: {needed.repeats} repeats of each case.")
    return "\n".join(lines).rstrip() + "\n"


def _write_amount(title: str, change: AmountChange, form: str = ".0f") -> str:
    if change.base_median is None or change.candidate_median is None or change.ratio is None:
        return f"| {title} | | | not recorded |"
    return f"| {title} | {change.base_median:{form}} | {change.candidate_median:{form}} | {describe_amount(change)} |"


def _write_group(group: ChangedGroup) -> list[str]:
    more = [f"- … and {len(group.cases) - MOST_MARKDOWN_CASES:,} more"] if len(group.cases) > MOST_MARKDOWN_CASES else []
    return [f"### {group.title.capitalize()}", "", *map(_write_case, group.cases[:MOST_MARKDOWN_CASES]), *more, ""]


def _write_case(each: ChangedCase) -> str:
    shares = f" {each.base} → {each.candidate}" if each.base else ""
    reason = f": {write_plain(each.reason, 300)}" if each.reason else ""
    return f"- {write_code(each.case, 80) or '(no id)'}{shares}{reason}"
