"""A run as Markdown for a pull request or job summary: totals, cases with the worst first, failures.

Rows and details are limited to the size of a GitHub comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from proctor.model.problem import Problem
from proctor.model.result import AssertionResult, CaseResult, RunResult
from proctor.model.verdict import Outcome, Verdict
from proctor.report.words.findings import write_findings
from proctor.report.words.neutral import to_lines, to_one_line, write_code, write_fenced, write_plain
from proctor.report.words.tallies import AxisTally, TagTally, describe_user, name_axis
from proctor.report.words.wording import (
    MARKS,
    assertion_notes,
    assertion_title,
    case_remark,
    case_title,
    cost_words,
    count_words,
    evidence_place,
    has_undecided_claims,
    incomplete_words,
    join_title_and_reason,
    missing_words,
    number_words,
    origin_place,
    pad_label,
    pass_hat_words,
    score_words,
    share_words,
    split_reason,
    summary_title,
    unknown_words,
    unmatched_words,
    unmet_words,
    weight_words,
)

T = TypeVar("T")

MOST_ROWS = 200
"""Rows of the table of cases."""
MOST_DETAILED = 20
"""Failed cases shown in full."""
MOST_ASSERTIONS = 10
"""Assertions per failed case."""
MOST_LISTED = 20
"""Warnings and unmatched records listed."""
MOST_CHARACTERS = 60_000
"""GitHub rejects comments of more than 65,536 characters."""

_ICONS = {"pass": "✅", "fail": "❌", "error": "💥", "skip": "⏭️"}
_WORST_FIRST = {"fail": 0, "error": 1, "skip": 2, "pass": 3}
_MOST_POINTERS = 3
"""Pointers per assertion."""
_SECTION = MOST_CHARACTERS // 16
"""Characters for each section below the details."""


class _Row(msgspec.Struct, frozen=True):
    outcome: Outcome
    title: str
    result: str
    finding: str


class MarkdownReport:
    """Collects results of a streamed run; holds a limited number of failures."""

    def __init__(self) -> None:
        self._tags, self._axes = TagTally(), AxisTally()
        self._broken: list[CaseResult] = []

    def add(self, result: CaseResult) -> None:
        """Add a result."""
        self._tags.add(result)
        self._axes.add(result)
        if result.outcome != "pass" and len(self._broken) < MOST_ROWS:
            self._broken.append(result)

    def finish(self, run: RunResult) -> str:
        """Return the run as Markdown, from its totals and the collected results."""
        return _render(run, self._broken, self._tags, self._axes)


def render_markdown(run: RunResult) -> str:
    """Return the whole run as Markdown."""
    tags, axes = TagTally(), AxisTally()
    for result in run.cases:
        tags.add(result)
        axes.add(result)
    return _render(run, run.cases, tags, axes)


def _render(run: RunResult, results: Sequence[CaseResult], tags: TagTally, axes: AxisTally) -> str:
    words = "" if run.score is None else score_words(run.score, run.counts, undecided=has_undecided_claims(results))
    score = f" · {words}" if words else ""
    title = f"## {_ICONS[run.shown_outcome]} {write_plain(run.suite_name or 'suite')}: {count_words(run.counts)}{score}"
    let_through = write_plain(f"let through: {run.let_through}", 500) if run.let_through else ""
    repeated = pass_hat_words([summary for summary in run.summary if summary.runs > 1])
    notes = [words for words in (incomplete_words(run.incomplete), unmet_words(run.unmet), let_through, repeated) if words]
    priced = cost_words(run.cost)
    head = [
        title,
        "",
        *(line for words in notes for line in (f"**{words}**", "")),
        *([write_plain(priced, 300), ""] if priced else []),
        *_write_case_table(run, results),
        *_write_not_finished(run),
    ]
    foot = [
        *_write_tag_tables(tags),
        *_write_axis_table(axes),
        *_write_list("Warnings", run.warnings, _write_warning),
        *_write_list(
            "Evidence that answers no case of this suite", run.unmatched_evidence, lambda record: write_plain(unmatched_words(record), 300)
        ),
    ]
    # The rest is written first: it determines the budget of the details.
    budget = MOST_CHARACTERS - _measure_size(head) - _measure_size(foot)
    broken = run.counts.get("fail", 0) + run.counts.get("error", 0)
    return "\n".join([*head, *_write_failures(results, broken, budget, run.run_id), *foot]).rstrip() + "\n"


def _write_not_finished(run: RunResult) -> list[str]:
    incomplete = run.incomplete
    if incomplete is None:
        return []
    return _write_list(
        "Not finished", incomplete.missing, lambda each: f"{write_code(each.case.id, 80)}: {missing_words(each, incomplete)}"
    )


def _write_case_table(run: RunResult, results: Sequence[CaseResult]) -> list[str]:
    rows = sorted(_list_rows(run, results), key=lambda row: _WORST_FIRST[row.outcome])
    if not rows:
        return []
    lines = [f"| {_ICONS[row.outcome]} | {row.title} | {row.result} | {row.finding} |" for row in rows[:MOST_ROWS]]
    # At most half of the budget, to leave some for the failures.
    shown = _cut_to_budget(lines, MOST_CHARACTERS // 2)
    rest = len(rows) - len(shown)
    more = [f"… and {rest:,} more cases.", ""] if rest else []
    return ["| | case | result | finding |", "|---|---|---|---|", *shown, "", *more]


def _list_rows(run: RunResult, results: Sequence[CaseResult]) -> Iterable[_Row]:
    """Return one row per case, from the summary if there is one."""
    worst: dict[str, CaseResult] = {}
    for result in results:
        known = worst.get(result.case.id)
        if known is None or _WORST_FIRST[result.outcome] < _WORST_FIRST[known.outcome]:
            worst[result.case.id] = result
    if not run.summary:
        for result in results:
            yield _Row(result.outcome, _write_title(*case_title(result)), _describe_outcome(result), _find_finding(result))
        return
    for summary in run.summary:
        result = worst.get(summary.id)
        finding = "" if result is None else _find_finding(result)
        if result is None or summary.runs > 1:
            yield _Row(summary.outcome, _write_title(*summary_title(summary.id, summary.name)), share_words(summary.counts), finding)
        else:
            yield _Row(summary.outcome, _write_title(*case_title(result)), _describe_outcome(result), finding)


def _write_title(case_id: str, name: str) -> str:
    return write_code(case_id, 80) + (f" {write_plain(name, 100)}" if name else "")


def _describe_outcome(result: CaseResult) -> str:
    if result.verdict is None or result.score is None:
        return result.outcome
    return f"{result.verdict}, {number_words(result.score)}"


def _find_finding(result: CaseResult) -> str:
    """Return the first finding of a case, short enough for a table."""
    if result.outcome == "pass":
        return ""
    remark = case_remark(result)
    if remark is not None:
        return write_plain(remark, 140)
    entries = [entry for entry in result.assertions if entry.outcome == result.outcome and not entry.assertion.advisory]
    if not entries:
        return ""
    first = write_plain(join_title_and_reason(entries[0].assertion, entries[0].reason), 140)
    return first if len(entries) == 1 else f"{first} (and {len(entries) - 1} more)"


def _write_failures(results: Iterable[CaseResult], count: int, budget: int, run_id: str) -> list[str]:
    """Return the failures; `count` is their total, of which some may not be stored."""
    broken = [result for result in results if result.outcome in ("fail", "error")]
    broken.sort(key=lambda result: _WORST_FIRST[result.outcome])
    if not broken:
        return []
    count = max(count, len(broken))
    lines = ["### Failures", ""]
    for number, result in enumerate(broken):
        if number == MOST_DETAILED or budget <= 0:
            return [*lines, f"… and {count - number:,} more that did not pass.", ""]
        block = _write_failure(result, budget, run_id)
        budget -= _measure_size(block)
        lines += block
    rest = count - len(broken)
    return [*lines, f"… and {rest:,} more that did not pass.", ""] if rest else lines


def _write_failure(result: CaseResult, budget: int, run_id: str) -> list[str]:
    case_id, name = case_title(result)
    lines = [f"#### {_ICONS[result.outcome]} {_write_title(case_id, name)}", ""]
    place = evidence_place(result.source)
    facts = [f"evidence {write_code(place)}"] if place is not None and result.case.id else []
    if result.attempt:
        facts.append(f"attempt {result.attempt + 1}")
    if result.verdict is not None and result.score is not None:
        facts.append(f"score {number_words(result.score)} ({result.verdict})")
    if result.simulated_user is not None:
        facts.append(write_plain(f"user {describe_user(result.simulated_user)}", 400))
    if facts:
        lines += [" · ".join(facts), ""]
    remark = case_remark(result)
    if remark is not None:
        lines += [write_plain(remark, 1000), ""]
    unknown = unknown_words(result, run_id)
    if unknown is not None:
        lines += [f"❔ {write_plain(unknown[0], 600)}; {write_code(unknown[1])} shows what was read", ""]
    failures = list(result.failures())
    for number, entry in enumerate(failures):
        block = _write_assertion(entry)
        if number == MOST_ASSERTIONS or _measure_size(lines) + _measure_size(block) > budget:
            return [*lines, f"- … {len(failures) - number} more that did not hold", ""]
        lines += block
    return lines


def _write_assertion(entry: AssertionResult) -> list[str]:
    assertion, verdict = entry.assertion, entry.verdict
    notes = assertion_notes(assertion, verdict)
    written = origin_place(assertion.origin)
    title = f"- {MARKS[entry.outcome]} **{write_plain(assertion_title(assertion))}**"
    title += (f" ({write_plain(notes)})" if notes else "") + (f" · {write_code(written)}" if written is not None else "")
    return [title, *write_fenced(_write_reason(verdict.reason) + _write_findings(verdict), "  "), ""]


def _write_reason(reason: str) -> list[str]:
    parts = split_reason(reason)
    if parts is None:
        return to_lines(reason or "no reason given", limit=1200, most_lines=15)
    lines = [to_one_line(parts.about, 300)] if parts.about else []
    return [
        *lines,
        f"{pad_label('expected')}{to_one_line(parts.expected, 600)}",
        f"{pad_label('found')}{to_one_line(parts.found, 600)}",
    ]


def _write_findings(verdict: Verdict) -> list[str]:
    lines = [to_one_line(finding, 400) for finding in write_findings(verdict)]
    pointers = verdict.pointers
    if pointers:
        more = len(pointers) - _MOST_POINTERS
        shown = ", ".join(to_one_line(pointer) for pointer in pointers[:_MOST_POINTERS])
        lines.append(f"{pad_label('at')}{shown}" + (f" and {more} more" if more > 0 else ""))
    return lines


def _write_tag_tables(tags: TagTally) -> list[str]:
    lines: list[str] = []
    for tag, rows in tags.iterate_tables():
        lines += [f"### By {write_plain(tag)}", "", f"| {write_plain(tag)} | result |", "|---|---|"]
        lines += [*_cut_to_budget([f"| {write_plain(row.value, 80)} | {share_words(row.counts)} |" for row in rows], _SECTION), ""]
    return lines


def _write_axis_table(axes: AxisTally) -> list[str]:
    if not axes.is_worth_showing():
        return []
    rows = [
        f"| {write_plain(name_axis(name), 80)} | {number_words(axis.score)} | {weight_words(axis.weight)} |"
        for name, axis in axes.score_axes().items()
    ]
    return ["### Score by axis", "", "| axis | score | weight |", "|---|---|---|", *_cut_to_budget(rows, _SECTION), ""]


def _write_warning(problem: Problem) -> str:
    place = origin_place(problem.origin)
    return write_plain(problem.message, 300) if place is None else f"{write_code(place)} {write_plain(problem.message, 300)}"


def _write_list(header: str, entries: Sequence[T], words: Callable[[T], str]) -> list[str]:
    if not entries:
        return []
    shown = _cut_to_budget([f"- {words(entry)}" for entry in entries[:MOST_LISTED]], _SECTION)
    rest = len(entries) - len(shown)
    return [f"### {header}", "", *shown, *([f"- … and {rest:,} more"] if rest else []), ""]


def _cut_to_budget(lines: Sequence[str], budget: int) -> list[str]:
    """Return the first lines within the budget."""
    shown: list[str] = []
    for line in lines:
        budget -= len(line) + 1
        if budget < 0:
            break
        shown.append(line)
    return shown


def _measure_size(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)
