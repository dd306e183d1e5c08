"""One failed case in a terminal: the case, its evidence, expected and actual values.

    ✗ FAIL  refund-1 · The customer was charged twice
      evidence  traces/support.jsonl:3

      ✗ the order is looked up with its number
          expected  17
          found     71
          at        $.tool_calls[0].arguments.id
          written   suites/refund.yaml:14:7

Passed assertions are counted, skipped ones named. A fault that several claims share is shown once, further down.
"""

from __future__ import annotations

from collections.abc import Callable

from proctor.model.case import Assertion
from proctor.model.result import AssertionResult, CaseResult
from proctor.model.verdict import Outcome, Verdict
from proctor.report.blocks.exchange import describe_exchange
from proctor.report.words.faults import find_case_fault
from proctor.report.words.findings import measure_hanging_indent, write_findings
from proctor.report.words.neutral import to_lines, to_one_line
from proctor.report.words.remedies import find_remedy
from proctor.report.words.style import Colour, Style, count_columns, cut_to_width, wrap
from proctor.report.words.tallies import describe_user, has_named_axes, name_axis
from proctor.report.words.wording import (
    LABEL_WIDTH,
    MARKS,
    assertion_notes,
    assertion_title,
    case_remark,
    case_title,
    count_noun,
    count_words,
    evidence_place,
    number_words,
    origin_place,
    pad_label,
    pad_outcome_word,
    skip_words,
    split_reason,
    unknown_words,
)

COLOURS: dict[Outcome, Colour] = {"pass": "green", "fail": "red", "error": "magenta", "skip": "yellow"}
MOST_ASSERTIONS = 20
"""Failed assertions shown of one case."""
MOST_POINTERS = 3
"""Places in the evidence shown of one assertion."""
MOST_EXCHANGE = 30
"""Lines of the exchange of one case."""
MOST_AXES = 12
"""Axes shown of one case."""


class CasePainter:
    """Text about cases, for one width and colour choice."""

    def __init__(
        self,
        style: Style,
        width: int,
        *,
        shown_below: Callable[[Verdict], bool] = lambda verdict: False,
    ) -> None:
        self._style = style
        self._width = width
        self._shown_below = shown_below
        self.run_id = ""
        """The run of the cases, if known."""
        self.repeated: frozenset[str] = frozenset()
        """Cases with several attempts, which are shown with their number."""

    def paint_heading(self, result: CaseResult) -> str:
        """Return symbol, outcome, id and name on one line."""
        return self.paint_title(result.outcome, *case_title(result))

    def paint_title(self, outcome: Outcome, case_id: str, name: str) -> str:
        """Like `paint_heading`, for a case of which only the title is known."""
        paint = self._style.paint
        written = pad_outcome_word(outcome)
        word = paint(f"{MARKS[outcome]} {written}", "bold", COLOURS[outcome])
        most = self._width - 11 - len(written)  # symbol, outcome, indent, score
        shown_id = cut_to_width(to_one_line(case_id), most)
        width_left = most - count_columns(shown_id) - 3
        shown_name = cut_to_width(to_one_line(name), width_left) if name and width_left > 15 else ""
        return f"{word} {paint(shown_id, 'bold')}" + (f" · {shown_name}" if shown_name else "")

    def paint_block(self, result: CaseResult) -> list[str]:
        """Return a failed or undecided case in full."""
        lines = [self.paint_heading(result), *self._paint_facts(result)]
        failures = list(result.failures())
        if find_case_fault(result) is not None:
            # Claims need not repeat the heading.
            return [*lines, self._paint_dim(f"  {count_noun(len(failures), 'claim')} not decided")] if failures else lines
        short = False
        for entry in failures[:MOST_ASSERTIONS]:
            before, short = short, self._shown_below(entry.verdict)
            # Single lines need no blank line between them.
            lines += [*([] if before and short else [""]), *self.paint_assertion(entry.assertion, entry.verdict)]
        if len(failures) > MOST_ASSERTIONS:
            lines += ["", self._paint_dim(f"  … {len(failures) - MOST_ASSERTIONS:,} more that did not hold")]
        rest = [*self._paint_unknown(result), *self._paint_rest(result)]
        return [*lines, "", *rest] if rest else lines

    def paint_assertion(self, assertion: Assertion, verdict: Verdict) -> list[str]:
        """Return one failed assertion."""
        mark = self._style.paint(MARKS[verdict.outcome], "bold", COLOURS[verdict.outcome])
        below = self._shown_below(verdict)
        notes = assertion_notes(assertion, verdict) + (", see below" if below else "")
        title = wrap(to_one_line(assertion_title(assertion)) + (f" [{to_one_line(notes)}]" if notes else ""), self._width - 4)
        lines = [f"  {mark} {title[0]}", *(f"    {more}" for more in title[1:])]
        if below:
            return lines
        lines += self._paint_reason(verdict.reason)
        for finding in write_findings(verdict):
            lines += self._indent(finding, 6, measure_hanging_indent(finding))
        if verdict.pointers:
            more = len(verdict.pointers) - MOST_POINTERS
            shown = ", ".join(to_one_line(pointer) for pointer in verdict.pointers[:MOST_POINTERS])
            rest = f" and {more:,} more" if more > 0 else ""
            lines += self._paint_labelled("at", shown + rest, "cyan")
        place = origin_place(assertion.origin)
        if place is not None:
            lines.append(self._place("written", to_one_line(place)))
        return lines

    def paint_remarks(self, result: CaseResult) -> list[str]:
        """Return a case that passed with findings, one line each."""
        lines = [f"  {self.paint_heading(result)}"]
        for entry in list(result.failures())[:MOST_ASSERTIONS]:
            lines += self._paint_remark(entry)
        return lines

    def paint_fault(self, reason: str, replied: str, touched: str) -> list[str]:
        """Return why several claims could not be decided, and how many."""
        first, *rest = (line for raw in to_lines(reason) for line in wrap(raw, self._width - 4))
        mark = self._style.paint(MARKS["error"], "bold", COLOURS["error"])
        reply = self._paint_labelled("replied", to_one_line(replied, 400), indent=4) if replied else []
        return [f"  {mark} {first}", *(f"    {line}" for line in rest), *reply, self._paint_dim(f"    {touched}")]

    def paint_skipped(self, result: CaseResult) -> str:
        """Return an undecided case on one line."""
        case_id, name = case_title(result)
        remark = case_remark(result) or next((v.reason for v in result.verdicts if v.reason), "")
        shown = cut_to_width(to_one_line(case_id if not name else f"{case_id} · {name}"), self._width // 2)
        why = cut_to_width(to_one_line(skip_words(remark)), self._width - count_columns(shown) - 6)
        return f"  {self._style.paint(MARKS['skip'], 'yellow')} {shown}" + (f"  {self._paint_dim(why)}" if why else "")

    def _paint_facts(self, result: CaseResult) -> list[str]:
        lines: list[str] = []
        place = evidence_place(result.source)
        numbered = result.attempt or result.case.id in self.repeated
        if place is not None and result.case.id:
            attempt = f" (attempt {result.attempt + 1:,})" if result.attempt else ""
            lines.append(self._place("evidence", to_one_line(place) + attempt, indent=2))
        elif numbered:
            lines += self._paint_labelled("attempt", str(result.attempt + 1), "dim", indent=2)
        if result.verdict is not None or result.axes:
            lines += self._paint_labelled("score", self._score(result), indent=2)
        if result.now is not None:
            clock = f"{to_one_line(result.now)}, as the evidence has none"
            lines += self._paint_labelled("clock", clock, "dim", indent=2)
        for label, text in describe_exchange(result.exchange)[:MOST_EXCHANGE] if result.exchange is not None else ():
            lines += self._paint_labelled(label, to_one_line(text, 400), indent=2)
        if result.simulated_user is not None:
            lines += self._paint_labelled("user", to_one_line(describe_user(result.simulated_user), 400), indent=2)
        remark = case_remark(result)
        if remark is not None:
            for line in to_lines(remark):
                lines += self._indent(line, 2)
        return lines

    def _score(self, result: CaseResult) -> str:
        parts = [] if result.score is None else [self._write_score(result.score)]
        if result.verdict is not None:
            parts.append(result.verdict)
        axes = result.axes or {}
        if has_named_axes(axes):
            named = [(to_one_line(name_axis(name), 40), axis.score) for name, axis in list(axes.items())[:MOST_AXES]]
            parts += [f"{name} {self._write_score(score)}" for name, score in named]
        return " · ".join(parts)

    def _write_score(self, score: float) -> str:
        return number_words(score)

    def _paint_reason(self, reason: str) -> list[str]:
        parts = split_reason(reason)
        if parts is None:
            return [line for raw in to_lines(reason or "no reason given") for line in self._indent(raw, 6)]
        lines = self._indent(to_one_line(parts.about, 400), 6) if parts.about else []
        lines += self._paint_labelled("expected", to_one_line(parts.expected, 800))
        return lines + self._paint_labelled("found", to_one_line(parts.found, 800), "bold")

    def _paint_remark(self, entry: AssertionResult) -> list[str]:
        outcome = entry.outcome
        notes = assertion_notes(entry.assertion, entry.verdict)
        title = to_one_line(assertion_title(entry.assertion), 80) + (f" [{to_one_line(notes)}]" if notes else "")
        why = "see below" if self._shown_below(entry.verdict) else to_one_line(entry.reason, 300)
        lines = wrap(f"{title}: {why}", self._width - 8)
        mark = self._style.paint(MARKS[outcome], COLOURS[outcome])
        return [f"      {mark} {lines[0]}", *(f"        {line}" for line in lines[1:])]

    def _paint_unknown(self, result: CaseResult) -> list[str]:
        """Return the missing evidence, and where to look."""
        unknown = unknown_words(result, self.run_id)
        if unknown is None:
            return []
        lines = [f"? {unknown[0]}; `{unknown[1]}` shows what was read"]
        remedy = find_remedy(result)
        if remedy is not None:
            lines.append(f"→ {remedy}")
        return [self._style.paint(line, "yellow") for text in lines for line in self._indent(text, 2, 2)]

    def _paint_rest(self, result: CaseResult) -> list[str]:
        """Return the other assertions of a failed case: skipped ones by name, passed ones counted."""
        lines: list[str] = []
        skipped = [entry for entry in result.assertions if entry.outcome == "skip"]
        if result.outcome != "skip":
            for entry in skipped[:MOST_ASSERTIONS]:
                title = to_one_line(assertion_title(entry.assertion), 80)
                shown = f"{MARKS['skip']} {title}: {to_one_line(skip_words(entry.reason), 160)}"
                lines += [self._paint_dim(line) for line in self._indent(shown, 2)]
        passed = sum(1 for verdict in result.verdicts if verdict.outcome == "pass")
        if passed:
            held = f"{count_words({'pass': passed})} in this case"
            lines.append(self._paint_dim(f"  {MARKS['pass']} {held}"))
        return lines

    def _paint_labelled(self, label: str, text: str, colour: Colour | None = None, *, indent: int = 6) -> list[str]:
        lines = wrap(text, max(20, self._width - indent - LABEL_WIDTH))
        first, rest = " " * indent + self._paint_dim(pad_label(label)), " " * (indent + LABEL_WIDTH)
        return [
            (first if number == 0 else rest) + (line if colour is None else self._style.paint(line, colour))
            for number, line in enumerate(lines)
        ]

    def _place(self, label: str, place: str, *, indent: int = 6) -> str:
        # Not wrapped, so that it can be clicked and copied.
        return " " * indent + self._paint_dim(pad_label(label)) + self._paint_dim(place)

    def _indent(self, text: str, indent: int, hang: int = 0) -> list[str]:
        first, *rest = wrap(to_one_line(text, 2000), self._width - indent - hang)
        return [" " * indent + first, *(" " * (indent + hang) + line for line in rest)]

    def _paint_dim(self, text: str) -> str:
        return self._style.paint(text, "dim")
