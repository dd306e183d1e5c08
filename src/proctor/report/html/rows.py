"""The list of cases: one row each, the worst first, with the words that a search looks through.

Repeats of a case are one row with a pass rate. A case checked against several records (none of them a repeat: their attempts have
the same number) is one row per record, because each record is somebody's conversation and not another try.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from proctor.model.evidence import Json
from proctor.model.result import AssertionResult, CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.model.verdict import Outcome
from proctor.report.blocks.outcomes import draw_rate
from proctor.report.words.html_text import duration_words, list_tag_pairs, write_label
from proctor.report.words.wording import case_remark, case_title, evidence_place, join_title_and_reason, number_words
from proctor.scoring.reduce import reduce_attempts
from proctor.scoring.statistics import count_outcomes

Entries = Mapping[tuple[str, int], RunEntry]

_WORST_FIRST = {"fail": 0, "error": 1, "skip": 2, "pass": 3}
_FINDING = 240
"""Characters of the first finding in a row."""
_SEARCHED = 400
"""Characters of a row that the search box looks at."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One case with its attempts, or one record it was checked against."""

    outcome: Outcome
    results: tuple[CaseResult, ...]
    alone: bool
    """Whether this is the only row of its case."""

    @property
    def counts(self) -> dict[str, int]:
        """How many attempts ended in each outcome."""
        counts: dict[str, int] = {}
        for result in self.results:
            counts[result.outcome] = counts.get(result.outcome, 0) + 1
        return counts

    @property
    def flaky(self) -> bool:
        """Whether some attempts passed and others did not."""
        return len(self.results) > 1 and count_outcomes(self.counts).flaky

    @property
    def worst(self) -> CaseResult:
        """The first of the worst attempts."""
        return min(self.results, key=lambda result: _WORST_FIRST[result.outcome])


def list_rows(run: RunResult) -> list[Row]:
    """Return all rows, failures first, then errors, what was skipped, and what passed; flaky ones lead their group."""
    rows = list(_iterate_rows(run))
    rows.sort(key=lambda row: (_WORST_FIRST[row.outcome], not row.flaky))
    return rows


def _iterate_rows(run: RunResult) -> Iterator[Row]:
    by_case: dict[str, list[CaseResult]] = {}
    for result in run.cases:
        by_case.setdefault(result.case.id, []).append(result)
    summarised = {summary.id: summary.outcome for summary in run.summary}
    for case_id, results in by_case.items():
        if len(results) == 1:
            # Without an id this is a record that could not be read, which belongs to no case.
            yield Row(outcome=results[0].outcome, results=(results[0],), alone=bool(case_id))
        # Attempts are numbered where a case was driven several times; where numbers repeat, several records answer to it, each by itself.
        elif case_id and len({result.attempt for result in results}) == len(results):
            row = Row(outcome="skip", results=tuple(results), alone=True)
            outcome = summarised.get(case_id) or reduce_attempts(row.counts, results[0].case.pass_threshold)
            yield msgspec.structs.replace(row, outcome=outcome)
        else:
            for result in results:
                yield Row(outcome=result.outcome, results=(result,), alone=False)


class Tags:
    """Every tag and value that occurs, numbered, so that a row only names numbers."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def find_numbers(self, tags: Mapping[str, Json]) -> list[int]:
        """Return the numbers of the tags of one case."""
        numbers = self._numbers
        return list(dict.fromkeys(numbers.setdefault(pair, len(numbers)) for pair in list_tag_pairs(tags)))

    def list_pairs(self) -> list[list[str]]:
        """Name and value, by number."""
        return [[name, value] for name, value in self._numbers]


def write_row(row: Row, tags: Tags, entries: Entries) -> dict[str, Json]:
    """Return a row as the page gets it; what is empty is left out."""
    worst = row.worst
    case_id, name = case_title(worst)
    finding, searched = _find_finding(worst)
    place = None if row.alone else evidence_place(worst.source)
    entry = entries.get((worst.case.id, worst.attempt))
    document: dict[str, Json] = {
        "outcome": row.outcome,
        "id": write_label(case_id),
        "name": write_label(name),
        "at": write_label(place) if place is not None and place != case_id else "",
        "finding": write_label(finding, _FINDING),
        "words": write_label(" ".join(filter(None, (searched, _find_first_question(worst, entry)))), _SEARCHED),
        "tags": tags.find_numbers(worst.case.tags),
        "score": _score(row),
        "took": "" if entry is None or (took := entry.find_agent_ms()) is None or len(row.results) > 1 else duration_words(took),
        "rate": draw_rate(row.counts) if len(row.results) > 1 else None,
        "flaky": row.flaky,
    }
    return {key: value for key, value in document.items() if value}


def _score(row: Row) -> str:
    only = row.results[0]
    if len(row.results) > 1 or only.verdict is None or only.score is None:
        return ""
    return f"{number_words(only.score)} {only.verdict}"


def _find_first_question(result: CaseResult, entry: RunEntry | None) -> str:
    """Return what the agent was told first."""
    case = result.case
    asked = case.input or (case.turns[0].input if case.turns else None)
    if asked is None and entry is not None and entry.evidence is not None:
        asked = entry.evidence.input
    return asked[:_SEARCHED] if isinstance(asked, str) else ""


def _find_finding(result: CaseResult) -> tuple[str, str]:
    """Return the first thing to know about a case that did not pass, and more words to find it by."""
    if result.outcome == "pass":
        return "", ""
    remark = case_remark(result)
    told = [join_title_and_reason(entry.assertion, entry.reason[:_SEARCHED]) for entry in _list_broken(result)]
    if remark is not None:
        return remark, " ".join(told)
    if not told:
        return "", ""
    more = "" if len(told) == 1 else f" (and {len(told) - 1:,} more)"
    return f"{told[0]}{more}", " ".join(told[1:5])


def _list_broken(result: CaseResult) -> Sequence[AssertionResult]:
    return [entry for entry in result.assertions if entry.outcome == result.outcome and not entry.assertion.advisory]
