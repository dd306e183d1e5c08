"""A run as one self-contained HTML file.

Elements are drawn by functions shared with the web pages (`report/blocks`), carried as deflated JSON in base64, and built by the page's
script with text nodes only, so untrusted text is never parsed as markup. The policy allows only this script and style sheet, by hash.

The list of cases is one packet. Details are many packets, each read when one of its cases is opened. Conversations are included within a
budget, failed cases first; verdicts always are.
"""

from __future__ import annotations

import base64
import html
import zlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.model.result import AssertionResult, CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.model.verdict import OUTCOMES, Outcome
from proctor.report.blocks.attempt import draw_attempt
from proctor.report.blocks.attempt_layout import lay_out_attempt
from proctor.report.blocks.outcomes import describe_pass_rate, draw_counts, draw_hidden_outcome, draw_outcome, draw_rate, draw_sprite
from proctor.report.document.html import page, read_template
from proctor.report.html.case import write_attempt, write_case
from proctor.report.words.findings import find_shape
from proctor.report.words.html_text import Element, duration_words, list_tag_pairs, make, write_label, write_markup
from proctor.report.words.tallies import AxisTally, TagTally, name_axis, name_value
from proctor.report.words.wording import (
    case_remark,
    case_title,
    cost_words,
    count_noun,
    count_words,
    evidence_place,
    has_undecided_claims,
    incomplete_words,
    join_title_and_reason,
    missing_words,
    origin_place,
    score_words,
    show_number,
    unmatched_words,
    unmet_words,
)
from proctor.scoring.score import reduce_attempts
from proctor.scoring.statistics import count_outcomes

# --- the list of cases: one row each, worst first, with search text

Entries = Mapping[tuple[str, int], RunEntry]

_WORST_FIRST = {"fail": 0, "error": 1, "skip": 2, "pass": 3}
_FINDING = 240
"""Characters of the first finding in a row."""
_SEARCHED = 400
"""Characters of a row that the search covers."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One case with its attempts, or one record it was checked against."""

    outcome: Outcome
    results: tuple[CaseResult, ...]
    alone: bool
    """Whether the case has only this row."""

    @property
    def counts(self) -> dict[str, int]:
        """Attempts by outcome."""
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
    """Return all rows: failures, errors, skipped, passed; the lowest pass rate of each first."""
    rows = list(_iterate_rows(run))
    rows.sort(key=lambda row: (_WORST_FIRST[row.outcome], count_outcomes(row.counts).rate))
    return rows


def _iterate_rows(run: RunResult) -> Iterator[Row]:
    by_case: dict[str, list[CaseResult]] = {}
    for result in run.cases:
        by_case.setdefault(result.case.id, []).append(result)
    summarised = {summary.id: summary.outcome for summary in run.summary}
    for case_id, results in by_case.items():
        if len(results) == 1:
            # Without an id this is an unreadable record.
            yield Row(outcome=results[0].outcome, results=(results[0],), alone=bool(case_id))
        # Attempts are numbered; repeated numbers mean several records of one case.
        elif case_id and len({result.attempt for result in results}) == len(results):
            row = Row(outcome="skip", results=tuple(results), alone=True)
            outcome = summarised.get(case_id) or reduce_attempts(row.counts, results[0].case.pass_threshold)
            yield msgspec.structs.replace(row, outcome=outcome)
        else:
            for result in results:
                yield Row(outcome=result.outcome, results=(result,), alone=False)


class Tags:
    """All tags and values, numbered, so that rows only hold numbers."""

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
    """Return a row for the page, without empty fields."""
    worst = row.worst
    case_id, name = case_title(worst)
    finding, searched = _find_finding(worst)
    place = None if row.alone else evidence_place(worst.source)
    entry = entries.get((worst.case.id, worst.attempt))
    case = worst.case
    question = case.input or (case.turns[0].input if case.turns else None)
    if question is None and entry is not None and entry.evidence is not None:
        question = entry.evidence.input
    document: dict[str, Json] = {
        "outcome": row.outcome,
        "id": write_label(case_id),
        "name": write_label(name),
        "at": write_label(place) if place is not None and place != case_id else "",
        "finding": write_label(finding, _FINDING),
        "words": write_label(" ".join(filter(None, (searched, question[:_SEARCHED] if isinstance(question, str) else ""))), _SEARCHED),
        "tags": tags.find_numbers(worst.case.tags),
        "score": _score(row),
        "took": "" if entry is None or (took := entry.find_agent_ms()) is None or len(row.results) > 1 else duration_words(took),
        "rate": draw_rate(row.counts) if len(row.results) > 1 else None,
        "flaky": row.flaky,
    }
    return {key: value for key, value in document.items() if value}


def _score(row: Row) -> str:
    result = row.results[0]
    if len(row.results) > 1 or result.verdict is None or result.score is None:
        return ""
    return f"{show_number(result.score)} {result.verdict}"


_MOST_GROUPS, _MOST_NAMED = 50, 25
"""Reasons of failures that are listed, and cases named for each."""


def draw_failures(run: RunResult) -> Element | None:
    """Return the attempts that did not pass by reason, the most frequent first, as on the page of a run; links open their cases."""
    results_by_reason: dict[tuple[Outcome, str], list[CaseResult]] = {}
    for result in run.cases:
        if result.outcome in ("fail", "error"):
            results_by_reason.setdefault((result.outcome, find_shape(_find_reason(result))), []).append(result)
    if not results_by_reason:
        return None
    ranked = sorted(results_by_reason.items(), key=lambda item: (-len(item[1]), item[0][0] != "error"))
    groups = [_draw_group(outcome, results) for (outcome, _), results in ranked[:_MOST_GROUPS]]
    heading = make("h2", "", "Failures ", make("span", "muted", count_noun(len(results_by_reason), "reason")))
    rest = len(results_by_reason) - len(groups)
    more = make("p", "", make("a", "", f"and {count_noun(rest, 'more reason')}", href="#only=fail,error")) if rest else None
    return make("section", "failures", heading, make("ol", "groups", groups), more)


def _draw_group(outcome: Outcome, results: Sequence[CaseResult]) -> Element:
    cases = list(dict.fromkeys(result.case.id for result in results))
    title = (make("b", "", count_noun(len(results), "attempt")), " ", make("span", "muted", f"in {count_noun(len(cases), 'case')}"))
    shown = [write_label(case) for case in cases[:_MOST_NAMED]]
    links = [make("li", "", make("a", "", write_label(case, 60), href=f"#case={_quote(case)}")) for case in shown]
    rest = len(cases) - len(links)
    links += [make("li", "", make("a", "", f"and {rest:,} more", href=f"#only={outcome}"))] if rest else []
    return make(
        "li",
        f"sheet {outcome}",
        make("p", "title", draw_hidden_outcome(outcome), " ", title),
        make("p", "reason", write_label(_find_reason(results[0]) or "No reason given.", 500), dir="auto"),
        make("ul", "links", links),
    )


def _quote(text: str) -> str:
    """Return a text for the address of a page, percent-encoded."""
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in text.encode())


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")


def _find_reason(result: CaseResult) -> str:
    """Return why an attempt did not pass, as in its row."""
    return result.reason or next(iter(_list_reasons(result)), "")


def _list_reasons(result: CaseResult) -> list[str]:
    return [join_title_and_reason(entry.assertion, entry.reason[:_SEARCHED]) for entry in _list_broken(result)]


def _find_finding(result: CaseResult) -> tuple[str, str]:
    """Return the first finding of a failed case, and more text to search."""
    if result.outcome == "pass":
        return "", ""
    remark = case_remark(result)
    reasons = _list_reasons(result)
    if remark is not None:
        return remark, " ".join(reasons)
    if not reasons:
        return "", ""
    more = "" if len(reasons) == 1 else f" (and {len(reasons) - 1:,} more)"
    return f"{reasons[0]}{more}", " ".join(reasons[1:5])


def _list_broken(result: CaseResult) -> Sequence[AssertionResult]:
    return [entry for entry in result.assertions if entry.outcome == result.outcome and not entry.assertion.advisory]


CONVERSATION_BUDGET = 6_500_000
"""Characters of packets after which conversations are left out, so that the file can be mailed."""
_PACKET = 200_000
"""Bytes of JSON per packet."""
_MOST_OF_A_CASE = 1_000_000
"""Bytes of JSON of one case after which further attempts have no conversation."""
_MOST_LISTED = 200
"""Warnings and unmatched records listed."""
_STYLES = ("tokens.css", "family.css", "report.css")
_SCRIPTS = ("elements.js", "case.js", "report.js")
_encode = msgspec.json.Encoder(order=None).encode


def render_html(run: RunResult, entries: Mapping[tuple[str, int], RunEntry] | None = None, axes: Sequence[str] = ()) -> str:
    """Return the run as one page; `entries`, by case id and attempt, contain the conversations.

    `axes` add a table of pass rates; default: those of the matrix, if any.
    """
    known: Entries = entries or {}
    rows, tags, packets = list_rows(run), Tags(), _Packets()
    listed: list[dict[str, Json]] = []
    for row in rows:
        # Rows are sorted worst first, so failed cases get their conversations first.
        packet, place = packets.add(_write_details(row, known, within_budget=packets.size < CONVERSATION_BUDGET))
        listed.append({**write_row(row, tags, known), "packet": packet, "place": place})
    counts = {outcome: sum(row.outcome == outcome for row in rows) for outcome in OUTCOMES}
    attempts = {outcome: sum(row.counts.get(outcome, 0) for row in rows) for outcome in OUTCOMES}
    index = {**_write_overview(run), "counts": counts, "rows": listed, "tags": tags.list_pairs()}
    return _write_page(run, counts, attempts, _pack(_encode(index)), packets.finish(), _write_pivot(run, axes))


def _write_pivot(run: RunResult, axes: Sequence[str]) -> str:
    from proctor.report.builders.pivot import build_pivot, find_matrix_axes, make_pivot_section  # rarely needed
    from proctor.report.document.html import write_block_html

    chosen = axes or find_matrix_axes(run)
    return f'<section class="pivot">{write_block_html(make_pivot_section(build_pivot(run, chosen), "html"))}</section>' if chosen else ""


class _Packets:
    """Packets of case details."""

    def __init__(self) -> None:
        self.size = 0
        """Characters of finished packets."""
        self._closed: list[str] = []
        self._open: list[bytes] = []
        self._open_size = 0

    def add(self, document: Json) -> tuple[int, int]:
        """Add a case; return the number of its packet and its position."""
        # Closed before adding the next case, so that its packet and position are known.
        if self._open_size > _PACKET:
            self._close()
        encoded = _encode(document)
        self._open.append(encoded)
        self._open_size += len(encoded)
        return len(self._closed), len(self._open) - 1

    def finish(self) -> list[str]:
        """Return all packets, in order."""
        if self._open:
            self._close()
        return self._closed

    def _close(self) -> None:
        packet = _pack(b"[" + b",".join(self._open) + b"]")
        self._closed.append(packet)
        self.size += len(packet)
        self._open, self._open_size = [], 0


def _pack(document: bytes) -> str:
    return base64.b64encode(zlib.compress(document, 9)).decode()


def _write_details(row: Row, entries: Entries, *, within_budget: bool) -> dict[str, Json]:
    """Return a case in full; failed attempts get their conversations first."""
    # Encoded by priority, then sorted by attempt.
    attempts = [msgspec.Raw()] * len(row.results)
    size = 0
    for index in sorted(range(len(attempts)), key=lambda index: row.results[index].passed):
        result = row.results[index]
        entry = entries.get((result.case.id, result.attempt))
        document = write_attempt(result, entry, with_evidence=within_budget and size < _MOST_OF_A_CASE)
        view = draw_attempt(lay_out_attempt(document))
        encoded = _encode({"outcome": result.outcome, "number": result.attempt + 1, "view": view})
        # Encoded once, to be measured and inserted as it is.
        attempts[index] = msgspec.Raw(encoded)
        size += len(encoded)
    return {**write_case(row.results[0].case), "attempts": attempts}


def _write_overview(run: RunResult) -> dict[str, Json]:
    """Return the data about the run as a whole."""
    by_tag, by_axis = TagTally(), AxisTally()
    for result in run.cases:
        by_tag.add(result)
        by_axis.add(result)
    groups: list[Json] = []
    for tag, table in by_tag.iterate_tables():
        rows = [[write_label(name_value(row.value), 80), draw_rate(row.counts), draw_counts(row.counts)] for row in table]
        groups.append([write_label(tag, 80), rows])
    axes = by_axis.score_axes() if by_axis.is_worth_showing() else {}
    return {
        "groups": groups,
        "axes": [[write_label(name_axis(name), 80), show_number(axis.score)] for name, axis in axes.items()],
        "missing": _list_missing(run),
        "cost": write_label(cost_words(run.cost), 300),
        "warnings": _bound_lines([_write_warning(problem) for problem in run.warnings[:_MOST_LISTED]], len(run.warnings)),
        "unmatched": _bound_lines(
            [write_label(unmatched_words(record), 400) for record in run.unmatched_evidence[:_MOST_LISTED]], len(run.unmatched_evidence)
        ),
    }


def _list_missing(run: RunResult) -> list[str]:
    incomplete = run.incomplete
    if incomplete is None:
        return []
    labels = [write_label(f"{each.case.id}: {missing_words(each, incomplete)}", 400) for each in incomplete.missing[:_MOST_LISTED]]
    return _bound_lines(labels, len(incomplete.missing))


def _write_warning(problem: Problem) -> str:
    place = origin_place(problem.origin)
    return write_label(problem.message if place is None else f"{place}: {problem.message}", 600)


def _bound_lines(lines: list[str], total: int) -> list[str]:
    return [*lines, f"and {total - len(lines):,} more"] if total > len(lines) else lines


def _write_page(run: RunResult, counts: Mapping[str, int], attempts: Mapping[str, int], index: str, packets: list[str], pivot: str) -> str:
    style, script = "".join(map(read_template, _STYLES)), "".join(map(read_template, _SCRIPTS))
    # As on the page of the run: its name first, then its suite.
    name, suite = _escape(run.title or run.suite_name or "suite"), _escape(run.suite_name) if run.title else ""
    # With one attempt per case the counts are those of the rate.
    counted = count_words(counts) if sum(attempts.values()) == sum(counts.values()) else ""
    rate_text = describe_pass_rate(attempts, sum(counts.values()), counts["pass"])
    headline = _escape("  ·  ".join(part for part in (incomplete_words(run.incomplete), counted, rate_text) if part))
    rate = draw_rate(attempts)
    body = read_template("report.html").format(
        name=name,
        suite=f"<small>{suite}</small>" if suite else "",
        sprite=write_markup(draw_sprite()),
        outcome=write_markup(draw_outcome(run.shown_outcome)),
        headline=headline,
        rate="" if rate is None else f'<p class="summary">{write_markup(rate)}</p>',
        facts=" · ".join(_escape(fact) for fact in _list_facts(run, sum(counts.values()))),
        pivot=pivot,
        failures=write_markup(draw_failures(run) or ""),
        about=" · ".join(_escape(fact) for fact in _list_origins(run)),
        script=script,
        index=index,
        packets="".join(f'<script type="text/plain" id="packet-{number}">{packet}</script>\n' for number, packet in enumerate(packets)),
    )
    return page(title=f"{name}: {headline}", style=style, script=script, body=body)


def _list_facts(run: RunResult, cases: int) -> Iterator[str]:
    if run.let_through:
        yield run.let_through
    score = "" if run.score is None else score_words(run.score, run.counts, undecided=has_undecided_claims(run.cases))
    if score:
        yield score
    unmet = unmet_words(run.unmet)
    if unmet:
        yield unmet
    if run.started_at:
        yield f"started {run.started_at[:10]} {run.started_at[11:16]} UTC"


def _list_origins(run: RunResult) -> Iterator[str]:
    if run.run_id:
        yield f"run {run.run_id}"
    if run.suite_path:
        yield run.suite_path
    yield f"{run.dialect} suite"


def _escape(text: str) -> str:
    return html.escape(write_label(text, 300))
