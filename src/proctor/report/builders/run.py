"""The document of a run, worst first.

Results arrive one by one and a run may have millions, so only the first failures are held; everything else is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from proctor.model.result import CaseResult, RunResult
from proctor.model.verdict import OUTCOMES, Outcome
from proctor.report.builders.case import CaseBuilder, title_case
from proctor.report.document import model as doc
from proctor.report.words.faults import Failure, JudgeFaults, Repeats
from proctor.report.words.neutral import to_one_line
from proctor.report.words.tallies import AxisTally, TagTally, UserTally, name_axis, name_value
from proctor.report.words.wording import (
    case_remark,
    case_title,
    cost_words,
    count_words,
    incomplete_words,
    join_title_and_reason,
    missing_words,
    pass_hat_words,
    score_words,
    share_words,
    show_number,
    skip_words,
    summary_title,
    unmatched_words,
    unmet_words,
    weight_words,
)
from proctor.scoring.statistics import count_outcomes

T = TypeVar("T")

MOST_FAILURES = 20
"""Failed cases shown in full."""
MOST_ROWS = 200
"""Rows of the table of cases."""
LISTED_PASSES = 30
"""Up to this many results, a passing run lists each."""
LISTED_SKIPS = 10
"""Skipped cases named at the end of a report."""
LISTED_REMARKS = 5
"""Passed cases with remarks."""
LISTED_FAULTS = 20
"""Faults of the judge."""
LISTED = 20
"""Warnings, unmatched records, unfinished cases, cases with several attempts."""
MOST_NUMBERS = 20
"""Attempts named with a failure."""
_MORE = "… and {rows} more"
_WORST_FIRST = {"fail": 0, "error": 1, "skip": 2, "pass": 3}


def _find_failure(result: CaseResult) -> Failure | None:
    """Return the key of a failed attempt: case and failed verdicts; None for recorded evidence."""
    if result.source is not None or result.outcome not in ("fail", "error"):
        return None
    broken = tuple((number, verdict.outcome, verdict.reason) for number, verdict in enumerate(result.verdicts) if verdict.outcome != "pass")
    return (result.case.id, result.outcome, result.code, result.reason, broken)


class RunReport:
    """Collects results and builds the document at the end; holds a limited number of results."""

    def __init__(self, output: doc.Output, *, most_failures: int = MOST_FAILURES) -> None:
        self._output: doc.Output = output
        self._faults, self._case_faults, self._repeated = (
            JudgeFaults(),
            Repeats(),
            Repeats(_find_failure, lambda result: str(result.attempt + 1), most_names=MOST_NUMBERS),
        )
        self._grouped: dict[str, int] = {"fail": 0, "error": 0}
        """Results counted with an earlier one of the same fault."""
        self._undecided = False
        """Whether a claim ended in an error."""
        self._cases = CaseBuilder(output, shown_below=self._faults.is_repeated if output == "terminal" else lambda verdict: False)
        self._most_failures = most_failures if output == "terminal" else MOST_ROWS
        self._counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self._failures: list[CaseResult] = []
        self._passes: list[CaseResult] = []
        self._skips: list[CaseResult] = []
        self._remarks: list[CaseResult] = []
        self._remarked = 0
        self._tags, self._axes, self._users = TagTally(), AxisTally(), UserTally()

    @property
    def held(self) -> int:
        """How many results are held in memory."""
        return len(self._failures) + len(self._passes) + len(self._skips) + len(self._remarks)

    def add(self, result: CaseResult) -> None:
        """Add one result; it is held only if it may be shown."""
        outcome = result.outcome
        self._counts[outcome] += 1
        if result.case.tags:
            self._tags.add(result)
        if result.axes:
            self._axes.add(result)
        self._users.add(result)
        if outcome == "pass":
            self._add_pass(result)
        elif outcome == "skip":
            if len(self._skips) < (LISTED_SKIPS if self._output == "terminal" else MOST_ROWS):
                self._skips.append(result)
        else:
            self._faults.add(result)
            self._undecided = self._undecided or any(verdict.outcome == "error" for verdict in result.verdicts)
            # A table of cases needs each of them.
            if self._output == "terminal" and (self._case_faults.is_repeat(result) or self._repeated.is_repeat(result)):
                self._grouped[result.outcome] += 1
            elif len(self._failures) < self._most_failures:
                self._failures.append(result)
            else:
                self._repeated.forget(result)
                self._case_faults.forget(result)

    def _add_pass(self, result: CaseResult) -> None:
        if len(self._passes) < LISTED_PASSES:
            self._passes.append(result)
        for verdict in result.verdicts:
            if verdict.outcome == "fail" or verdict.outcome == "error":
                self._remarked += 1
                self._faults.add(result)
                if len(self._remarks) < LISTED_REMARKS:
                    self._remarks.append(result)
                return

    def finish(self, run: RunResult, pivot: doc.Section | None = None) -> doc.Document:
        """Return the document of the run; `pivot` is a table of pass rates by tags."""
        # A stored run was not added result by result.
        if not any(self._counts.values()):
            for result in run.cases:
                self.add(result)
        self._cases.run_id = run.run_id
        self._cases.repeated = frozenset(summary.id for summary in run.summary if summary.runs > 1)
        terminal = self._output == "terminal"
        counts = run.counts or self._counts
        score = "" if run.score is None else score_words(run.score, counts, undecided=self._undecided)
        incomplete, unmet, cost = incomplete_words(run.incomplete), unmet_words(run.unmet), cost_words(run.cost)
        let_through = to_one_line(run.let_through, 500)
        parts = [incomplete, count_words(counts), score, unmet, cost, let_through] if terminal else [count_words(counts), score]
        place = [run.suite_path] if run.suite_path and run.suite_path != run.suite_name else []
        return doc.Document(
            name=run.suite_name or "suite",
            verdict=(run.shown_outcome, run.shown_outcome),
            headline=("  ·  " if terminal else " · ").join(filter(None, parts)),
            about=(*place, run.dialect) if terminal else (),
            blocks=(
                *(self._list_terminal() if terminal else self._list_markdown(run, incomplete, unmet, let_through, cost)),
                *self._list_notes(run),
                *(self._list_repeated(run) if terminal else ()),
                *self._list_tags(),
                *self._list_axes(),
                *([doc.Paragraph((users,))] if terminal and (users := self._users.describe()) else []),
                *([pivot] if pivot is not None else []),
            ),
        )

    def _list_terminal(self) -> Iterator[doc.Block]:
        for result in self._failures:
            yield self._cases.build(result, self._describe_same(result))
        hidden = {name: self._counts[name] - self._grouped[name] for name in ("fail", "error")}
        for result in self._failures:
            hidden[result.outcome] -= 1
        if any(hidden.values()):
            yield doc.Paragraph((f"… not shown here: {count_words(hidden)}; `--format jsonl` has them all",))
        yield from self._list_passed()
        if self._remarks:
            items = [doc.Item(self._title(result), (self._cases.make_remarks(result),)) for result in self._remarks]
            yield doc.Section(("Passed, with remarks",), (doc.Items(tuple(items), doc.Rest(_MORE, self._remarked - len(items))),))
        yield from self._list_judge_faults()
        if self._skips:
            rows = [
                doc.Row(((doc.Mark("skip"), " ", *self._title(result)[2:]), (doc.Text(_explain_skip(result), "muted"),)))
                for result in self._skips
            ]
            rest = doc.Rest(_MORE, self._counts["skip"] - len(rows))
            yield doc.Section(("Skipped",), (doc.Table((doc.Column(""), doc.Column("")), tuple(rows), rest),))

    def _describe_same(self, result: CaseResult) -> str:
        """Return other results with the same failure or fault."""
        alike = self._case_faults.find_alike(result)
        if alike is not None:
            names = ", ".join(to_one_line(name, 40) for name in alike.names)
            often = "once" if alike.count == 1 else f"{alike.count:,} times"
            return f"the same {often} more: {names}{' and others' if alike.others else ''}"
        alike = self._repeated.find_alike(result)
        if alike is None:
            return ""
        more = f" and {alike.count - len(alike.names):,} more" if alike.others else ""
        return f"the same in attempt{'' if alike.count == 1 else 's'} {', '.join(alike.names)}{more}"

    @staticmethod
    def _title(result: CaseResult) -> doc.Line:
        return (doc.Mark(result.outcome, named=True), " ", *title_case(*case_title(result)))

    def _list_passed(self) -> Iterator[doc.Table]:
        if self._counts["fail"] or self._counts["error"] or not 0 < self._counts["pass"] <= LISTED_PASSES:
            return
        weighted = any(result.verdict is not None for result in self._passes)
        rows: list[doc.Row] = []
        for result in self._passes:
            repeated = result.source is None and result.case.id in self._cases.repeated
            attempt: doc.Line = (doc.Text(f"attempt {result.attempt + 1:,}", "muted"),) if repeated else ()
            score: doc.Line = (doc.Text(show_number(result.score), "muted"),) if weighted and result.score is not None else ()
            rows.append(doc.Row((self._title(result), attempt, score)))
        yield doc.Table((doc.Column(""), doc.Column(""), doc.Column("", number=True)), tuple(rows))

    def _list_judge_faults(self) -> Iterator[doc.Section]:
        """Return faults of the judge that affect several checks, each once."""
        rows = self._faults.list_repeated()
        items: list[doc.Item] = []
        for code, reason, touched in rows[:LISTED_FAULTS]:
            replied = [doc.Facts((("replied", (doc.Text(touched.replied, limit=400),)),))] if touched.replied else []
            title: doc.Line = (doc.Mark("error"), " ", doc.Text(f"{reason} [{code}]", limit=2000))
            items.append(doc.Item(title, (*replied, doc.Paragraph((touched.describe(),), muted=True))))
        if items:
            yield doc.Section(("Not judged",), (doc.Items(tuple(items), doc.Rest(_MORE, len(rows) - len(items))),))

    def _list_markdown(self, run: RunResult, incomplete: str, unmet: str, let_through: str, cost: str) -> Iterator[doc.Block]:
        passed_on = f"let through: {let_through}" if let_through else ""
        repeated = pass_hat_words([summary for summary in run.summary if summary.runs > 1])
        for note in filter(None, (incomplete, unmet, passed_on, self._describe_rate(run), repeated)):
            yield doc.Paragraph((doc.Text(note, "strong", limit=500),))
        if cost:
            yield doc.Paragraph((doc.Text(cost, limit=300),))
        results = run.cases or [*self._failures, *self._skips]
        rows = sorted(_iterate_rows(run, results), key=lambda row: _WORST_FIRST[row[0]])
        if rows:
            columns = tuple(map(doc.Column, ("", "case", "result", "finding")))
            rest = doc.Rest("… and {rows} more cases.", max(0, len(rows) - MOST_ROWS))
            yield doc.Table(columns, tuple(doc.Row(((doc.Mark(outcome),), *cells)) for outcome, cells in rows[:MOST_ROWS]), rest)
        broken = sorted(self._failures, key=lambda result: _WORST_FIRST[result.outcome])
        if broken:
            count = max(len(broken), run.counts.get("fail", 0) + run.counts.get("error", 0))
            sections = tuple(self._cases.build(result) for result in broken[:MOST_FAILURES])
            yield doc.Section(("Failures",), sections, rest=doc.Rest("… and {rows} more that did not pass.", count - len(sections)))

    def _list_notes(self, run: RunResult) -> Iterator[doc.Section]:
        # An undecided claim fails its case and is shown with it.
        warnings = [problem for problem in run.warnings if problem.code != "unsupported_assertion"]
        yield from _list_lines("Warnings", warnings, lambda problem: problem.write_headline())
        yield from _list_lines("Evidence that answers no case of this suite", run.unmatched_evidence, unmatched_words)
        incomplete = run.incomplete
        if incomplete is not None:
            yield from _list_lines("Not finished", incomplete.missing, lambda each: f"{each.case.id}: {missing_words(each, incomplete)}")

    def _describe_rate(self, run: RunResult) -> str:
        """Return the pass rate of attempts and cases; empty for one case or one attempt per case, whose counts say it all."""
        passed = sum(summary.outcome == "pass" for summary in run.summary)
        is_repeated = len(run.summary) > 1 and any(summary.runs > 1 for summary in run.summary)
        if not is_repeated:
            return ""
        from proctor.report.blocks.outcomes import describe_pass_rate  # few runs repeat a case

        return describe_pass_rate(run.counts or self._counts, len(run.summary), passed)

    def _list_repeated(self, run: RunResult) -> Iterator[doc.Section]:
        repeated = [summary for summary in run.summary if summary.runs > 1]
        # Worst first, else in the order of the suite.
        repeated.sort(key=lambda summary: ("fail", "error", "pass", "skip").index(summary.outcome))
        rows = [
            doc.Row(
                ((doc.Mark(each.outcome, named=True), " ", *title_case(*summary_title(each.id, each.name))), (share_words(each.counts),))
            )
            for each in repeated[:LISTED]
        ]
        if rows:
            chances = pass_hat_words(repeated)
            table = doc.Table((doc.Column(""), doc.Column("")), tuple(rows), doc.Rest(_MORE, len(repeated) - len(rows)))
            paragraphs = [doc.Paragraph((line,)) for line in (self._describe_rate(run), chances) if line]
            yield doc.Section(("Cases checked more than once",), (table, *paragraphs))

    def _list_tags(self) -> Iterator[doc.Section]:
        for tag, rows in self._tags.iterate_tables():
            listed = [
                doc.Row(((doc.Text(name_value(row.value), limit=80),), (doc.Share(_find_share(row.counts)),), (share_words(row.counts),)))
                for row in rows
            ]
            yield doc.Section((f"By {to_one_line(tag, 80)}",), (doc.Table(self._name_columns(tag, "", "result"), tuple(listed)),))

    def _list_axes(self) -> Iterator[doc.Section]:
        if self._axes.is_worth_showing():
            label = "weight " if self._output == "terminal" else ""
            rows = [
                doc.Row(
                    (
                        (doc.Text(name_axis(name), limit=80),),
                        (doc.Share(axis.score),),
                        (show_number(axis.score),),
                        (f"{label}{weight_words(axis.weight)}",),
                    )
                )
                for name, axis in self._axes.score_axes().items()
            ]
            yield doc.Section(("Score by axis",), (doc.Table(self._name_columns("axis", "", "score", "weight"), tuple(rows)),))

    def _name_columns(self, *names: str) -> tuple[doc.Column, ...]:
        """Return columns with headings, which a terminal does not need."""
        return tuple(doc.Column("" if self._output == "terminal" else name) for name in names)


def _list_lines(title: str, entries: Sequence[T], words: Callable[[T], str]) -> Iterator[doc.Section]:
    if entries:
        lines = tuple((doc.Text(words(entry), limit=400),) for entry in entries[:LISTED])
        yield doc.Section((title,), (doc.Listing(lines, rest=doc.Rest(_MORE, len(entries) - len(lines))),))


def _explain_skip(result: CaseResult) -> str:
    return skip_words(case_remark(result) or next((verdict.reason for verdict in result.verdicts if verdict.reason), ""))


def _iterate_rows(run: RunResult, results: Iterable[CaseResult]) -> Iterator[tuple[Outcome, tuple[doc.Line, ...]]]:
    """Return outcome and cells of one row per case, from the summary if there is one."""
    if not run.summary:
        for result in results:
            yield result.outcome, (title_case(*case_title(result)), (_describe_outcome(result),), (_find_finding(result),))
        return
    worst: dict[str, CaseResult] = {}
    for result in results:
        known = worst.get(result.case.id)
        if known is None or _WORST_FIRST[result.outcome] < _WORST_FIRST[known.outcome]:
            worst[result.case.id] = result
    for summary in run.summary:
        result = worst.get(summary.id)
        finding = "" if result is None else _find_finding(result)
        if result is None or summary.runs > 1:
            yield summary.outcome, (title_case(*summary_title(summary.id, summary.name)), (share_words(summary.counts),), (finding,))
        else:
            yield summary.outcome, (title_case(*case_title(result)), (_describe_outcome(result),), (finding,))


def _describe_outcome(result: CaseResult) -> str:
    if result.verdict is None or result.score is None:
        return result.outcome
    return f"{result.verdict}, {show_number(result.score)}"


def _find_finding(result: CaseResult) -> str:
    """Return the first finding of a case, short enough for a table."""
    if result.outcome == "pass":
        return ""
    remark = case_remark(result)
    if remark is not None:
        return to_one_line(remark, 140)
    entries = [entry for entry in result.assertions if entry.outcome == result.outcome and not entry.assertion.advisory]
    if not entries:
        return ""
    first = to_one_line(join_title_and_reason(entries[0].assertion, entries[0].reason), 140)
    return first if len(entries) == 1 else f"{first} (and {len(entries) - 1} more)"


def _find_share(counts: Mapping[str, int]) -> float | None:
    decided = count_outcomes(counts)
    return decided.rate if decided.runs else None


def render_markdown(run: RunResult, pivot: doc.Section | None = None) -> str:
    """Return the whole run as Markdown."""
    from proctor.report.document.markdown import write_markdown  # one format at a time

    return write_markdown(RunReport("markdown").finish(run, pivot))
