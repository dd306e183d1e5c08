"""Writes two runs side by side as Markdown, for a pull request or a job summary."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.actions.compare import RunComparison
from proctor.report.markdown_text import write_code, write_plain
from proctor.report.wording import count_noun
from proctor.scoring.amounts import AmountChange

MOST_CASES = 50
_ICONS = {"regressed": "❌", "improved": "✅", "unchanged": "✅", "too_little_data": "❔"}


def write_comparison(found: RunComparison) -> str:
    """Return the verdict, the figures, and the cases that changed."""
    comparison = found.comparison
    interval = comparison.interval
    verdict = comparison.verdict.replace("_", " ")
    whole = found.base_incomplete is None and found.candidate_incomplete is None
    lines = [
        f"## {_ICONS.get(comparison.verdict, '❔') if whole else '❔'} {write_plain(found.candidate.suite_name or 'suite')}: {verdict}",
        "",
        f"{write_code(found.base.run_id)} → {write_code(found.candidate.run_id)}: {write_plain(comparison.reason, 500)}",
        "",
        *(f"**{write_plain(line, 300)}**\n" for line in describe_incomplete(found)),
        "| | base | candidate | change |",
        "|---|---|---|---|",
        f"| pass rate over {comparison.cases} cases | {comparison.base_rate:.1%} | {comparison.candidate_rate:.1%} | "
        f"{comparison.effect:+.1%}, {interval.low:+.1%} to {interval.high:+.1%}, p {comparison.p_value:.3g} |",
        _write_amount("latency in ms", found.latency),
        _write_amount("tokens", found.tokens),
        "",
    ]
    for title, cases in (
        ("Newly failing", comparison.newly_failing),
        ("Newly passing", comparison.newly_passing),
        ("Flaky in the candidate", comparison.candidate.flaky),
        ("Only in the base", comparison.only_in_base),
        ("Only in the candidate", comparison.only_in_candidate),
    ):
        lines += _write_cases(title, cases)
    for needed in comparison.repeats_needed:
        if needed.repeats is not None:
            lines.append(f"To see a drop of {needed.drop:.0%} four times out of five: {needed.repeats} repeats of each case.")
    return "\n".join(lines).rstrip() + "\n"


def describe_incomplete(found: RunComparison) -> list[str]:
    """Return lines that say how much there is of either run, where that is not all; the comparison says nothing about what is missing."""
    told = (("base", found.base_incomplete), ("candidate", found.candidate_incomplete))
    return [
        f"INCOMPLETE: the {name} has {much.attempts_finished:,} of {count_noun(much.attempts_planned, 'attempt')}, "
        f"{much.cases_finished:,} of {count_noun(much.cases_planned, 'case')}"
        for name, much in told
        if much is not None
    ]


def _write_amount(title: str, change: AmountChange) -> str:
    if change.base_median is None or change.candidate_median is None or change.ratio is None:
        return f"| {title} | | | not recorded |"
    interval = f", {change.interval.low:.2f} to {change.interval.high:.2f}" if change.interval is not None else ""
    told = f"ratio {change.ratio:.2f}{interval}: {change.verdict.replace('_', ' ')}"
    return f"| {title} | {change.base_median:.0f} | {change.candidate_median:.0f} | {told} |"


def _write_cases(title: str, cases: Sequence[str]) -> list[str]:
    if not cases:
        return []
    more = [f"- … and {len(cases) - MOST_CASES:,} more"] if len(cases) > MOST_CASES else []
    return [f"### {title}", "", *(f"- {write_code(case, 80) or '(no id)'}" for case in cases[:MOST_CASES]), *more, ""]
