"""A run as Markdown for a pull request or a job summary: the totals, a table of cases with the worst first, then what went wrong.

Rows and details are bounded, and details stop before the text grows past what GitHub accepts as a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from proctor.model.problem import Problem
from proctor.model.result import AssertionResult, CaseResult, RunResult
from proctor.model.verdict import Outcome, Verdict
from proctor.report.findings import finding_lines
from proctor.report.markdown_text import code, fenced, plain
from proctor.report.neutral import one_line, several_lines
from proctor.report.tallies import AxisTally, TagTally, axis_name
from proctor.report.wording import (
    LABEL,
    MARKS,
    assertion_notes,
    assertion_title,
    case_remark,
    case_title,
    count_words,
    evidence_place,
    in_one_line,
    incomplete_words,
    missing_words,
    number_words,
    origin_place,
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
MOST_DETAILED = 20
MOST_ASSERTIONS = 10
MOST_LISTED = 20
MOST_CHARACTERS = 60_000
"""GitHub refuses a comment of more than 65,536."""

_ICONS = {"pass": "✅", "fail": "❌", "error": "💥", "skip": "⏭️"}
_WORST_FIRST = {"fail": 0, "error": 1, "skip": 2, "pass": 3}
_MOST_POINTERS = 3
_SECTION = MOST_CHARACTERS // 16
"""Room for each section below the details; together with the table of cases they leave room for some details."""


class _Row(msgspec.Struct, frozen=True):
    outcome: Outcome
    title: str
    result: str
    finding: str


class MarkdownReport:
    """Takes results as they come and keeps a bounded number of those that did not pass, for runs that nobody keeps whole."""

    def __init__(self) -> None:
        self._tags, self._axes = TagTally(), AxisTally()
        self._broken: list[CaseResult] = []

    def add(self, result: CaseResult) -> None:
        """One result has come."""
        self._tags.add(result)
        self._axes.add(result)
        if result.outcome != "pass" and len(self._broken) < MOST_ROWS:
            self._broken.append(result)

    def finish(self, run: RunResult) -> str:
        """The whole run; its totals and its summary of cases are looked at, its results are those that came."""
        return _rendered(run, self._broken, self._tags, self._axes)


def render_markdown(run: RunResult) -> str:
    """The whole run as Markdown."""
    tags, axes = TagTally(), AxisTally()
    for result in run.cases:
        tags.add(result)
        axes.add(result)
    return _rendered(run, run.cases, tags, axes)


def _rendered(run: RunResult, results: Sequence[CaseResult], tags: TagTally, axes: AxisTally) -> str:
    score = "" if run.score is None else f" · {score_words(run.score, run.counts)}"
    title = f"## {_ICONS[run.outcome]} {plain(run.suite_name or 'suite')}: {count_words(run.counts)}{score}"
    notes = [words for words in (incomplete_words(run.incomplete), unmet_words(run.unmet)) if words]
    head = [title, "", *(line for words in notes for line in (f"**{words}**", "")), *_case_table(run, results), *_not_finished(run)]
    foot = [
        *_tag_tables(tags),
        *_axis_table(axes),
        *_listed("Warnings", run.warnings, _warning),
        *_listed("Evidence that answers no case of this suite", run.unmatched_evidence, lambda record: plain(unmatched_words(record), 300)),
    ]
    room = MOST_CHARACTERS - _size(head) - _size(foot)
    broken = run.counts.get("fail", 0) + run.counts.get("error", 0)
    return "\n".join([*head, *_failures(results, broken, room), *foot]).rstrip() + "\n"


def _not_finished(run: RunResult) -> list[str]:
    incomplete = run.incomplete
    if incomplete is None:
        return []
    return _listed("Not finished", incomplete.missing, lambda each: f"{code(each.case.id, 80)}: {missing_words(each, incomplete)}")


def _case_table(run: RunResult, results: Sequence[CaseResult]) -> list[str]:
    rows = sorted(_rows(run, results), key=lambda row: _WORST_FIRST[row.outcome])
    if not rows:
        return []
    lines = [f"| {_ICONS[row.outcome]} | {row.title} | {row.result} | {row.finding} |" for row in rows[:MOST_ROWS]]
    shown = _within(lines, MOST_CHARACTERS // 2)
    rest = len(rows) - len(shown)
    more = [f"… and {rest:,} more cases.", ""] if rest else []
    return ["| | case | result | finding |", "|---|---|---|---|", *shown, "", *more]


def _rows(run: RunResult, results: Sequence[CaseResult]) -> Iterable[_Row]:
    """One row per case, from the summary where there is one."""
    worst: dict[str, CaseResult] = {}
    for result in results:
        known = worst.get(result.case.id)
        if known is None or _WORST_FIRST[result.outcome] < _WORST_FIRST[known.outcome]:
            worst[result.case.id] = result
    if not run.summary:
        for result in results:
            yield _Row(result.outcome, _title(*case_title(result)), _outcome_words(result), _finding(result))
        return
    for summary in run.summary:
        result = worst.get(summary.id)
        finding = "" if result is None else _finding(result)
        if result is None or summary.runs > 1:
            yield _Row(summary.outcome, _title(*summary_title(summary.id, summary.name)), share_words(summary.counts), finding)
        else:
            yield _Row(summary.outcome, _title(*case_title(result)), _outcome_words(result), finding)


def _title(case_id: str, name: str) -> str:
    return code(case_id, 80) + (f" {plain(name, 100)}" if name else "")


def _outcome_words(result: CaseResult) -> str:
    if result.verdict is None or result.score is None:
        return result.outcome
    return f"{result.verdict}, {number_words(result.score)}"


def _finding(result: CaseResult) -> str:
    """The first thing to know about a case, short enough for a table."""
    if result.outcome == "pass":
        return ""
    remark = case_remark(result)
    if remark is not None:
        return plain(remark, 140)
    entries = [entry for entry in result.assertions if entry.outcome == result.outcome and not entry.assertion.advisory]
    if not entries:
        return ""
    first = plain(in_one_line(entries[0].assertion, entries[0].reason), 140)
    return first if len(entries) == 1 else f"{first} (and {len(entries) - 1} more)"


def _failures(results: Iterable[CaseResult], count: int, room: int) -> list[str]:
    """What is known about the failures; `count` is how many there were, of which not all may have been kept."""
    broken = [result for result in results if result.outcome in ("fail", "error")]
    broken.sort(key=lambda result: _WORST_FIRST[result.outcome])
    if not broken:
        return []
    count = max(count, len(broken))
    lines = ["### What went wrong", ""]
    for number, result in enumerate(broken):
        if number == MOST_DETAILED or room <= 0:
            return [*lines, f"… and {count - number:,} more that did not pass.", ""]
        block = _failure(result, room)
        room -= _size(block)
        lines += block
    rest = count - len(broken)
    return [*lines, f"… and {rest:,} more that did not pass.", ""] if rest else lines


def _failure(result: CaseResult, room: int) -> list[str]:
    case_id, name = case_title(result)
    lines = [f"#### {_ICONS[result.outcome]} {_title(case_id, name)}", ""]
    place = evidence_place(result.source)
    facts = [f"evidence {code(place)}"] if place is not None and result.case.id else []
    if result.attempt:
        facts.append(f"attempt {result.attempt + 1}")
    if result.verdict is not None and result.score is not None:
        facts.append(f"score {number_words(result.score)} ({result.verdict})")
    if facts:
        lines += [" · ".join(facts), ""]
    remark = case_remark(result)
    if remark is not None:
        lines += [plain(remark, 1000), ""]
    unknown = unknown_words(result)
    if unknown is not None:
        lines += [f"❔ {plain(unknown[0], 600)}; {code(unknown[1])} shows what was read", ""]
    failures = list(result.failures())
    for number, entry in enumerate(failures):
        block = _assertion(entry)
        if number == MOST_ASSERTIONS or _size(lines) + _size(block) > room:
            return [*lines, f"- … {len(failures) - number} more that did not hold", ""]
        lines += block
    return lines


def _assertion(entry: AssertionResult) -> list[str]:
    assertion, verdict = entry.assertion, entry.verdict
    notes = assertion_notes(assertion, verdict)
    written = origin_place(assertion.origin)
    title = f"- {MARKS[entry.outcome]} **{plain(assertion_title(assertion))}**"
    title += (f" ({plain(notes)})" if notes else "") + (f" · {code(written)}" if written is not None else "")
    return [title, *fenced(_said(verdict.reason) + _found(verdict), "  "), ""]


def _said(reason: str) -> list[str]:
    parts = split_reason(reason)
    if parts is None:
        return several_lines(reason or "no reason given", limit=1200, most_lines=15)
    lines = [one_line(parts.about, 300)] if parts.about else []
    return [*lines, f"{'expected':<{LABEL}}{one_line(parts.expected, 600)}", f"{'found':<{LABEL}}{one_line(parts.found, 600)}"]


def _found(verdict: Verdict) -> list[str]:
    lines = [one_line(finding, 400) for finding in finding_lines(verdict)]
    pointers = verdict.pointers
    if pointers:
        more = len(pointers) - _MOST_POINTERS
        shown = ", ".join(one_line(pointer) for pointer in pointers[:_MOST_POINTERS])
        lines.append(f"{'at':<{LABEL}}{shown}" + (f" and {more} more" if more > 0 else ""))
    return lines


def _tag_tables(tags: TagTally) -> list[str]:
    lines: list[str] = []
    for tag, rows in tags.tables():
        lines += [f"### By {plain(tag)}", "", f"| {plain(tag)} | result |", "|---|---|"]
        lines += [*_within([f"| {plain(row.value, 80)} | {share_words(row.counts)} |" for row in rows], _SECTION), ""]
    return lines


def _axis_table(axes: AxisTally) -> list[str]:
    if not axes.worth_showing():
        return []
    rows = [
        f"| {plain(axis_name(name), 80)} | {number_words(axis.score)} | {weight_words(axis.weight)} |" for name, axis in axes.axes().items()
    ]
    return ["### Score by axis", "", "| axis | score | weight |", "|---|---|---|", *_within(rows, _SECTION), ""]


def _warning(problem: Problem) -> str:
    place = origin_place(problem.origin)
    return plain(problem.message, 300) if place is None else f"{code(place)} {plain(problem.message, 300)}"


def _listed(header: str, entries: Sequence[T], words: Callable[[T], str]) -> list[str]:
    if not entries:
        return []
    shown = _within([f"- {words(entry)}" for entry in entries[:MOST_LISTED]], _SECTION)
    rest = len(entries) - len(shown)
    return [f"### {header}", "", *shown, *([f"- … and {rest:,} more"] if rest else []), ""]


def _within(lines: Sequence[str], room: int) -> list[str]:
    """The first lines, as many as have room."""
    shown: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    return shown


def _size(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)
