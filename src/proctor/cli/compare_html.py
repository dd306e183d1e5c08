"""Writes two runs side by side as one page that loads nothing and runs nothing."""

from __future__ import annotations

from html import escape

from proctor.actions.compare import RunComparison
from proctor.actions.compare_rows import (
    ChangedGroup,
    describe_change,
    describe_incomplete,
    describe_ratio,
    describe_runs,
    list_changed_cases,
    list_repeats_needed,
)
from proctor.report.drawn_outcomes import draw_chip, draw_sprite
from proctor.report.elements import write_markup
from proctor.report.html_page import page, read_template
from proctor.report.neutral import to_one_line
from proctor.scoring.amounts import AmountChange

MOST_CASES = 1000
_KINDS = {"regressed": "fail", "improved": "pass", "unchanged": "pass", "too_little_data": "uncertain"}
_STYLES = ("tokens.css", "family.css", "comparison.css")


def write_comparison_page(found: RunComparison) -> str:
    """Return the page: the verdict, the figures, and the cases that changed, worst first, with reasons."""
    comparison = found.comparison
    incomplete = describe_incomplete(found)
    kind = "uncertain" if incomplete else _KINDS[comparison.verdict]
    suite = _write(found.candidate.suite_name or "suite", 200)
    base, candidate = (_write(each, 200) for each in describe_runs(found))
    verdict = _write(comparison.verdict.replace("_", " "))
    rate = _write_figures(f"{comparison.base_rate:.1%}", f"{comparison.candidate_rate:.1%}", describe_change(comparison))
    body = [
        write_markup(draw_sprite()),
        f"<h1>{write_markup(draw_chip(kind, comparison.verdict.replace('_', ' ')))} {suite}</h1>",
        f"<p><code>{base}</code> → <code>{candidate}</code></p>",
        *(f'<p class="bad">{_write(line, 300)}</p>' for line in incomplete),
        f"<p>{_write(comparison.reason, 500)}</p>",
        '<table class="rows"><thead><tr><th></th><th>base</th><th>candidate</th><th>change</th></tr></thead><tbody>',
        f"<tr><th>pass rate over {comparison.cases} cases</th>{rate}</tr>",
        _write_amount("latency in ms", found.latency),
        _write_amount("tokens", found.tokens),
        *([_write_amount("cost", found.cost, ".4g")] if found.cost is not None else []),
        "</tbody></table>",
        *(_write_group(group) for group in list_changed_cases(found)),
        *(
            f"<p>To see a drop of {100 * needed.drop:.0f} points four times out of five: {needed.repeats} repeats of each case.</p>"
            for needed in list_repeats_needed(found)
        ),
    ]
    return page(title=f"{suite}: {verdict}", style="".join(map(read_template, _STYLES)), body="\n".join(body) + "\n")


def _write(text: str, limit: int = 200) -> str:
    return escape(to_one_line(text, limit))


def _write_amount(title: str, change: AmountChange, form: str = ".0f") -> str:
    if change.base_median is None or change.candidate_median is None or change.ratio is None:
        return f"<tr><th>{title}</th><td></td><td></td><td>not recorded</td></tr>"
    figures = _write_figures(f"{change.base_median:{form}}", f"{change.candidate_median:{form}}", describe_ratio(change))
    return f"<tr><th>{title}</th>{figures}</tr>"


def _write_figures(base: str, candidate: str, change: str) -> str:
    return f'<td class="figure">{base}</td><td class="figure">{candidate}</td><td>{change}</td>'


def _write_group(group: ChangedGroup) -> str:
    rows = [
        f"<tr><td><code>{_write(each.case, 120) or '(no id)'}</code></td>"
        f'<td class="figure">{each.base}</td><td class="figure">{each.candidate}</td>'
        f"<td>{_write(each.reason, 1000)}</td></tr>"
        for each in group.cases[:MOST_CASES]
    ]
    rest = len(group.cases) - MOST_CASES
    more = f"<p>and {rest:,} more</p>" if rest > 0 else ""
    head = "<thead><tr><th>case</th><th>base</th><th>candidate</th><th>why</th></tr></thead>"
    title = f'<h2 class="{group.kind}">{group.title} ({len(group.cases):,})</h2>'
    return f'{title}\n<table class="rows">{head}<tbody>{"".join(rows)}</tbody></table>{more}'
