"""A run as text, worst first, totals last.

Results arrive one by one and a run may have millions, so only the first failures are held; everything else is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from proctor.model.result import CaseResult, CaseSummary, RunResult
from proctor.model.verdict import OUTCOMES
from proctor.report.text.terminal_case import COLOURS, CasePainter
from proctor.report.words.faults import CaseFaults, JudgeFaults
from proctor.report.words.neutral import to_one_line
from proctor.report.words.style import Style, count_columns, cut_to_width, draw_bar, pad, wrap
from proctor.report.words.tallies import AxisTally, TagTally, UserTally, name_axis, name_value
from proctor.report.words.wording import (
    MARKS,
    cost_words,
    count_words,
    incomplete_words,
    missing_words,
    number_words,
    pad_outcome_word,
    pass_hat_words,
    score_words,
    share_words,
    summary_title,
    unmatched_words,
    unmet_words,
    weight_words,
)

MOST_KINDS = 1_000
"""Different failures that are grouped; others are shown separately."""
MOST_NUMBERS = 20
"""Attempts named with a failure."""

Failure = tuple[object, ...]


class Alike(msgspec.Struct):
    """Later attempts with the same failure."""

    count: int = 0
    numbers: list[int] = []


class RepeatedFailures:
    """Failures of cases with several attempts."""

    def __init__(self) -> None:
        self._alike: dict[Failure, Alike] = {}

    def is_repeat(self, result: CaseResult) -> bool:
        """Return whether an earlier attempt of the case had the same failure; then count this one with it."""
        failure = find_failure(result)
        if failure is None:
            return False
        alike = self._alike.get(failure)
        if alike is None:
            if len(self._alike) < MOST_KINDS:
                self._alike[failure] = Alike()
            return False
        alike.count += 1
        if len(alike.numbers) < MOST_NUMBERS:
            alike.numbers.append(result.attempt + 1)
        return True

    def forget(self, result: CaseResult) -> None:
        """Forget a failure that was not shown, so that later ones are not merged into it."""
        self._alike.pop(find_failure(result) or (), None)

    def describe(self, result: CaseResult) -> str:
        """Return the later attempts with this failure: `the same in attempts 2, 3`, or ""."""
        alike = self._alike.get(find_failure(result) or ())
        if alike is None or not alike.count:
            return ""
        more = f" and {alike.count - len(alike.numbers):,} more" if alike.count > len(alike.numbers) else ""
        return f"the same in attempt{'' if alike.count == 1 else 's'} {', '.join(map(str, alike.numbers))}{more}"


def find_failure(result: CaseResult) -> Failure | None:
    """Return the key of a failed attempt: case and failed verdicts; None for recorded evidence."""
    if result.source is not None or result.outcome not in ("fail", "error"):
        return None
    broken = tuple((number, verdict.outcome, verdict.reason) for number, verdict in enumerate(result.verdicts) if verdict.outcome != "pass")
    return (result.case.id, result.outcome, result.code, result.reason, broken)


T = TypeVar("T")

LISTED_PASSES = 30
"""Up to this many results, a passing run lists each."""
LISTED_SKIPS = 10
"""Skipped cases named at the end of a report."""
LISTED_REMARKS = 5
"""Passed cases with remarks."""
LISTED_WARNINGS = 20
"""Warnings."""
LISTED_FAULTS = 20
"""Faults of the judge."""
LISTED_UNMATCHED = 10
"""Records without a case."""
LISTED_REPEATS = 20
"""Cases with several attempts."""
LISTED_MISSING = 20
"""Unfinished cases."""


class TerminalReport:
    """Collects results and writes the report at the end."""

    def __init__(self, *, colour: bool, width: int = 100, most_failures: int = 20) -> None:
        self._style = Style(colour=colour)
        self._width = max(40, width)
        self._faults = JudgeFaults()
        self._case_faults = CaseFaults()
        self._repeated = RepeatedFailures()
        self._grouped: dict[str, int] = {"fail": 0, "error": 0}
        """Results counted with an earlier one of the same fault."""
        self._undecided = False
        """Whether a claim ended in an error."""
        self._painter = CasePainter(self._style, self._width, shown_below=self._faults.is_repeated)
        self._most_failures = max(0, most_failures)
        self._counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self._failures: list[CaseResult] = []
        self._passes: list[CaseResult] = []
        self._skips: list[CaseResult] = []
        self._remarks: list[CaseResult] = []
        self._remarked = 0
        self._tags = TagTally()
        self._axes = AxisTally()
        self._users = UserTally()

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
            if len(self._skips) < LISTED_SKIPS:
                self._skips.append(result)
        else:
            self._faults.add(result)
            self._undecided = self._undecided or any(verdict.outcome == "error" for verdict in result.verdicts)
            if self._case_faults.is_repeat(result) or self._repeated.is_repeat(result):
                self._grouped[outcome] += 1
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

    def finish(self, run: RunResult) -> str:
        """Return the whole text, ending with a line break."""
        # A stored run was not added result by result.
        if not any(self._counts.values()):
            for result in run.cases:
                self.add(result)
        self._painter.run_id = run.run_id
        self._painter.repeated = frozenset(summary.id for summary in run.summary if summary.runs > 1)
        sections = [
            self._paint_title(run),
            self._paint_failed(),
            self._paint_passed(),
            self._with_remarks(),
            self._paint_judge_faults(),
            self._paint_skipped(),
            self._paint_warnings(run),
            self._paint_unmatched(run),
            self._paint_missing(run),
            self._paint_repeated(run.summary),
            *self._paint_by_tag(),
            self._paint_by_axis(),
            [users] if (users := self._users.describe()) else [],
            [self._paint_closing(run)],
        ]
        return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"

    def _paint_title(self, run: RunResult) -> list[str]:
        name = cut_to_width(to_one_line(run.suite_name or "suite"), self._width // 2)
        rest = [run.suite_path] if run.suite_path and run.suite_path != run.suite_name else []
        about = cut_to_width("".join(f" · {to_one_line(part)}" for part in [*rest, run.dialect]), self._width - count_columns(name))
        return [f"{self._style.paint(name, 'bold')}{self._paint_dim(about)}"]

    def _paint_failed(self) -> list[str]:
        lines: list[str] = []
        rule = self._paint_dim("─" * min(self._width, 60))
        for result in self._failures:
            if lines:
                lines += ["", rule, ""]
            lines += self._painter.paint_block(result)
            same = self._repeated.describe(result)
            if same:
                lines += ["", *wrap(f"  {same}", self._width)]
            alike = self._case_faults.find_alike(result)
            if alike is not None:
                names = ", ".join(to_one_line(name, 40) for name in alike.names)
                more = " and others" if alike.others else ""
                often = "once" if alike.cases == 1 else f"{alike.cases:,} times"
                lines += ["", *wrap(f"  the same {often} more: {names}{more}", self._width)]
        hidden: dict[str, int] = {name: self._counts[name] for name in ("fail", "error")}
        for result in self._failures:
            hidden[result.outcome] -= 1
        for name, count in self._grouped.items():
            hidden[name] -= count
        if any(hidden.values()):
            lines += ["", rule, ""] if lines else []
            lines.append(f"… not shown here: {count_words(hidden)}; `--format jsonl` has them all")
        return lines

    def _paint_passed(self) -> list[str]:
        undecided = self._counts["fail"] + self._counts["error"]
        if undecided or not self._counts["pass"] or self._counts["pass"] > LISTED_PASSES:
            return []
        lines: list[str] = []
        weighted = any(result.verdict is not None for result in self._passes)
        for result in self._passes:
            line = self._painter.paint_heading(result)
            if result.source is None and result.case.id in self._painter.repeated:
                line += self._paint_dim(f"  attempt {result.attempt + 1:,}")
            if weighted and result.score is not None:
                line += self._paint_dim(f"  {number_words(result.score)}")
            lines.append(line)
        return lines

    def _with_remarks(self) -> list[str]:
        if not self._remarked:
            return []
        lines = [self._paint_header("Passed, with remarks")]
        for result in self._remarks:
            lines += self._painter.paint_remarks(result)
        return lines + self._paint_more(self._remarked - len(self._remarks))

    def _paint_judge_faults(self) -> list[str]:
        """Return faults of the judge that affect several checks, each once."""
        rows = self._faults.list_repeated()
        lines = [self._paint_header("Not judged")] if rows else []
        for code, reason, touched in rows[:LISTED_FAULTS]:
            lines += self._painter.paint_fault(f"{reason} [{code}]", touched.replied, touched.describe())
        return lines + self._paint_more(len(rows) - LISTED_FAULTS)

    def _paint_skipped(self) -> list[str]:
        if not self._skips:
            return []
        lines = [self._painter.paint_skipped(result) for result in self._skips]
        return [self._paint_header("Skipped"), *lines, *self._paint_more(self._counts["skip"] - len(lines))]

    def _paint_repeated(self, summaries: Sequence[CaseSummary]) -> list[str]:
        repeated = [summary for summary in summaries if summary.runs > 1]
        if not repeated:
            return []
        # Worst first, else in the order of the suite.
        repeated.sort(key=lambda summary: ("fail", "error", "pass", "skip").index(summary.outcome))
        shown = repeated[:LISTED_REPEATS]
        titles = [" · ".join(part for part in summary_title(summary.id, summary.name) if part) for summary in shown]
        names = [cut_to_width(to_one_line(title), self._width // 2) for title in titles]
        size = max(count_columns(name) for name in names)
        lines = [self._paint_header("Cases checked more than once")]
        for summary, name in zip(shown, names, strict=True):
            word = self._style.paint(f"{MARKS[summary.outcome]} {pad_outcome_word(summary.outcome)}", COLOURS[summary.outcome])
            lines.append(f"  {word} {pad(name, size)}  {share_words(summary.counts)}")
        chances = pass_hat_words(repeated)
        return [*lines, *self._paint_more(len(repeated) - len(shown)), *([f"  {chances}"] if chances else [])]

    def _paint_by_tag(self) -> list[list[str]]:
        return [
            [
                self._paint_header(f"By {tag}"),
                *self._paint_bars(
                    [
                        (
                            cut_to_width(to_one_line(name_value(row.value)), self._width // 3),
                            _find_share(row.counts),
                            share_words(row.counts),
                        )
                        for row in rows
                    ]
                ),
            ]
            for tag, rows in self._tags.iterate_tables()
        ]

    def _paint_by_axis(self) -> list[str]:
        if not self._axes.is_worth_showing():
            return []
        rows = [
            (
                cut_to_width(to_one_line(name_axis(name)), self._width // 3),
                axis.score,
                f"{number_words(axis.score):<5}  " + f"weight {weight_words(axis.weight)}",
            )
            for name, axis in self._axes.score_axes().items()
        ]
        return [self._paint_header("Score by axis"), *self._paint_bars(rows)]

    def _paint_bars(self, rows: Sequence[tuple[str, float | None, str]]) -> list[str]:
        size = max((count_columns(name) for name, _, _ in rows), default=0)
        return [f"  {pad(name, size)}  {self._paint_bar(share)}  {text}" for name, share, text in rows]

    def _paint_bar(self, share: float | None) -> str:
        if share is None:
            return " " * 20
        return self._style.paint(draw_bar(share), "green" if share >= 1 else "yellow" if share > 0 else "red")

    def _paint_warnings(self, run: RunResult) -> list[str]:
        # An undecided claim fails its case and is shown with it.
        shown = [problem for problem in run.warnings if problem.code != "unsupported_assertion"]
        return self._list("Warnings", shown, LISTED_WARNINGS, lambda problem: problem.write_headline())

    def _paint_unmatched(self, run: RunResult) -> list[str]:
        header = "Evidence that answers no case of this suite"
        return self._list(header, run.unmatched_evidence, LISTED_UNMATCHED, lambda record: unmatched_words(record))

    def _list(self, header: str, entries: Sequence[T], most: int, words: Callable[[T], str]) -> list[str]:
        if not entries:
            return []
        lines = [self._paint_header(header)]
        for entry in entries[:most]:
            wrapped = wrap(to_one_line(words(entry), 400), self._width - 4)
            lines += [f"  {wrapped[0]}", *(f"    {line}" for line in wrapped[1:])]
        return lines + self._paint_more(len(entries) - most)

    def _paint_missing(self, run: RunResult) -> list[str]:
        incomplete = run.incomplete
        if incomplete is None:
            return []
        return self._list(
            "Not finished",
            incomplete.missing,
            LISTED_MISSING,
            lambda each: f"{each.case.id}: {missing_words(each, incomplete)}",
        )

    def _paint_closing(self, run: RunResult) -> str:
        counts = run.counts or self._counts
        outcome = run.shown_outcome
        text = self._style.paint(f"{MARKS[outcome]} {outcome.upper()}", "bold", COLOURS[outcome])
        parts = [
            incomplete_words(run.incomplete),
            count_words(counts),
            "" if run.score is None else score_words(run.score, counts, undecided=self._undecided),
            unmet_words(run.unmet),
            to_one_line(cost_words(run.cost)),
            to_one_line(run.let_through, 500),
        ]
        return f"{text}  {'  ·  '.join(part for part in parts if part)}"

    def _paint_header(self, text: str) -> str:
        return self._style.paint(to_one_line(text, 80), "bold")

    def _paint_more(self, count: int) -> list[str]:
        return [self._paint_dim(f"  … and {count:,} more")] if count > 0 else []

    def _paint_dim(self, text: str) -> str:
        return self._style.paint(text, "dim")


def _find_share(counts: Mapping[str, int]) -> float | None:
    decided = sum(counts.get(name, 0) for name in ("pass", "fail", "error"))
    return counts.get("pass", 0) / decided if decided else None
