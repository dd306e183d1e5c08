"""Writes two runs side by side as Markdown, for a pull request or a job summary."""

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
from proctor.report.words.comparison import describe_ratio
from proctor.report.words.markdown_text import write_code, write_plain
from proctor.scoring.amounts import AmountChange

MOST_CASES = 50
_ICONS = {"regressed": "❌", "improved": "✅", "unchanged": "✅", "too_little_data": "❔"}


def write_comparison(found: RunComparison) -> str:
    """Return the verdict, the figures, and the cases that changed."""
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
        lines.append(f"To see a drop of {100 * needed.drop:.0f} points four times out of five: {needed.repeats} repeats of each case.")
    return "\n".join(lines).rstrip() + "\n"


def _write_amount(title: str, change: AmountChange, form: str = ".0f") -> str:
    if change.base_median is None or change.candidate_median is None or change.ratio is None:
        return f"| {title} | | | not recorded |"
    return f"| {title} | {change.base_median:{form}} | {change.candidate_median:{form}} | {describe_ratio(change)} |"


def _write_group(group: ChangedGroup) -> list[str]:
    more = [f"- … and {len(group.cases) - MOST_CASES:,} more"] if len(group.cases) > MOST_CASES else []
    return [f"### {group.title.capitalize()}", "", *map(_write_case, group.cases[:MOST_CASES]), *more, ""]


def _write_case(each: ChangedCase) -> str:
    shares = f" {each.base} → {each.candidate}" if each.base else ""
    reason = f": {write_plain(each.reason, 300)}" if each.reason else ""
    return f"- {write_code(each.case, 80) or '(no id)'}{shares}{reason}"
