"""One case in a report: its evidence, and every claim that did not hold with expected and actual values.

Passed assertions are counted, skipped ones are named. A fault that several claims share is shown once, below the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from proctor.model.result import AssertionResult, CaseResult
from proctor.model.verdict import Verdict
from proctor.report.document.model import Block, Code, Facts, Item, Items, Line, Listing, Output, Paragraph, Rest, Section, Text, Value
from proctor.report.words.faults import find_case_fault, find_remedy
from proctor.report.words.findings import write_findings
from proctor.report.words.neutral import to_lines
from proctor.report.words.tallies import describe_user, has_named_axes, name_axis
from proctor.report.words.wording import (
    MARKS,
    assertion_notes,
    assertion_title,
    case_remark,
    case_title,
    count_noun,
    count_words,
    evidence_place,
    origin_place,
    show_number,
    skip_words,
    split_reason,
    unknown_words,
)

MOST_ASSERTIONS: Mapping[Output, int] = {"terminal": 20, "markdown": 10}
"""Failed assertions shown of one case."""
MOST_POINTERS = 3
"""Places in the evidence shown of one assertion."""
MOST_EXCHANGE = 30
"""Lines of the exchange of one case."""
MOST_AXES = 12
"""Axes shown of one case."""


def title_case(case_id: str, name: str) -> Line:
    """Return id and name of a case."""
    return (Text(case_id, "code"), *((" · ", Text(name)) if name else ()))


class CaseBuilder:
    """Builds the sections of cases of one run."""

    def __init__(self, output: Output, *, shown_below: Callable[[Verdict], bool] = lambda verdict: False) -> None:
        self._output: Output = output
        self._shown_below = shown_below
        self.run_id = ""
        """The run of the cases, if known."""
        self.repeated: frozenset[str] = frozenset()
        """Cases with several attempts, which are shown with their number."""

    def build(self, result: CaseResult, same: str = "") -> Section:
        """Return a failed or undecided case in full; `same` is about other results with the same failure."""
        blocks = [*self._list_facts(result), *self._list_claims(result), *([Paragraph((same,))] if same else [])]
        return Section(title_case(*case_title(result)), tuple(blocks), tone=result.outcome)

    def _list_claims(self, result: CaseResult) -> Iterator[Block]:
        failures = list(result.failures())
        terminal = self._output == "terminal"
        if terminal and find_case_fault(result) is not None:
            # Claims need not repeat the heading.
            if failures:
                yield Paragraph((f"{count_noun(len(failures), 'claim')} not decided",), muted=True)
            return
        unknown = list(self._list_unknown(result))
        if not terminal:
            yield from unknown
        if failures:
            most = MOST_ASSERTIONS[self._output]
            rest = Rest("… {rows} more that did not hold", max(0, len(failures) - most))
            yield Items(tuple(map(self._make_claim, failures[:most])), rest, spaced=True)
        if terminal:
            yield from unknown
            skipped = [entry for entry in result.assertions if entry.outcome == "skip"] if result.outcome != "skip" else []
            lines: list[Line] = [
                (f"{MARKS['skip']} ", Text(assertion_title(entry.assertion), limit=80), ": ", Text(skip_words(entry.reason), limit=160))
                for entry in skipped[: MOST_ASSERTIONS[self._output]]
            ]
            passed = sum(1 for verdict in result.verdicts if verdict.outcome == "pass")
            if passed:
                lines.append((f"{MARKS['pass']} {count_words({'pass': passed})} in this case",))
            if lines:
                yield Listing(tuple(lines), muted=True)

    def _make_claim(self, entry: AssertionResult) -> Item:
        assertion, verdict = entry.assertion, entry.verdict
        below = self._shown_below(verdict)
        notes = assertion_notes(assertion, verdict) + (", see below" if below else "")
        title: Line = (Text(assertion_title(assertion), "strong"), *((" ", Text(notes, "note")) if notes else ()))
        if below:
            return Item(title, tone=verdict.outcome)
        lines: list[str | tuple[str, str]] = [*_write_reason(verdict.reason), *write_findings(verdict)]
        if verdict.pointers:
            more = len(verdict.pointers) - MOST_POINTERS
            lines.append(("at", ", ".join(verdict.pointers[:MOST_POINTERS]) + (f" and {more:,} more" if more > 0 else "")))
        return Item(title, (Code(tuple(lines)),), verdict.outcome, place=origin_place(assertion.origin) or "")

    def make_remarks(self, result: CaseResult) -> Listing:
        """Return the findings of a case that passed, one line each."""
        lines: list[Line] = []
        for entry in list(result.failures())[: MOST_ASSERTIONS[self._output]]:
            notes = assertion_notes(entry.assertion, entry.verdict)
            reason = Text("see below") if self._shown_below(entry.verdict) else Text(entry.reason, limit=300)
            title = Text(assertion_title(entry.assertion), limit=80)
            lines.append((f"{MARKS[entry.outcome]} ", title, *((" ", Text(notes, "note")) if notes else ()), ": ", reason))
        return Listing(tuple(lines))

    def _list_facts(self, result: CaseResult) -> Iterator[Block]:
        rows: list[tuple[str, Line]] = []
        place = evidence_place(result.source)
        if place is not None and result.case.id:
            attempt = f" (attempt {result.attempt + 1:,})" if result.attempt else ""
            rows.append(("evidence", (Text(place, "code"), attempt)))
        elif result.attempt or result.case.id in self.repeated:
            rows.append(("attempt", (str(result.attempt + 1),)))
        if result.verdict is not None or result.axes:
            parts = [] if result.score is None else [show_number(result.score)]
            if result.verdict is not None:
                parts.append(result.verdict)
            axes = result.axes or {}
            if has_named_axes(axes):
                parts += [f"{name_axis(name)} {show_number(axis.score)}" for name, axis in list(axes.items())[:MOST_AXES]]
            rows.append(("score", (Text(" · ".join(parts), limit=1000),)))
        if result.now is not None:
            rows.append(("clock", (Text(result.now), ", as the evidence has none")))
        exchange: list[tuple[str, str]] = []
        if result.exchange is not None:
            from proctor.report.blocks.exchange import describe_exchange  # few reports show it

            exchange = describe_exchange(result.exchange)[:MOST_EXCHANGE]
        rows += [(label, (Text(text, limit=400),)) for label, text in exchange]
        if result.simulated_user is not None:
            rows.append(("user", (Text(describe_user(result.simulated_user), limit=400),)))
        if rows:
            yield Facts(tuple(rows))
        remark = case_remark(result)
        if remark is not None:
            yield Paragraph((Value(remark),))

    def _list_unknown(self, result: CaseResult) -> Iterator[Paragraph]:
        """Return the missing evidence, and where to look."""
        unknown = unknown_words(result, self.run_id)
        if unknown is not None:
            command = f"`{unknown[1]}`" if self._output == "terminal" else Text(unknown[1], "code")
            yield Paragraph((Text(unknown[0], limit=600), "; ", command, " shows what was read"), tone="uncertain")
            if remedy := find_remedy(result):
                yield Paragraph((f"→ {remedy}",))


def _write_reason(reason: str) -> list[str | tuple[str, str]]:
    parts = split_reason(reason)
    if parts is None:
        return [*to_lines(reason or "no reason given")]
    return [*([parts.about] if parts.about else []), ("expected", parts.expected), ("found", parts.found)]
