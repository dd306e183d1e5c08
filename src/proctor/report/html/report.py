"""A run as one HTML file that needs nothing else: no server, no network, no second file.

What the page shows is drawn here as elements, by the functions that the web pages use too (`drawn_*.py`), carried as deflated JSON in
base64, and put together by the page's own script with text nodes only, so no text of a suite, an agent or a tool is ever read as markup.
The policy in the head allows that one script and that one style sheet, by hash,
and nothing else: no request leaves the page whatever it carries.

The list of cases is one packet, read at once. Details are many packets, each read when one of its cases is opened. Conversations go
in as long as there is room, those of cases that did not pass first; verdicts always do.
"""

from __future__ import annotations

import base64
import html
import zlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.model.result import RunResult
from proctor.model.run import RunEntry
from proctor.model.verdict import OUTCOMES
from proctor.report.blocks.attempt import draw_attempt
from proctor.report.blocks.attempt_layout import lay_out_attempt
from proctor.report.blocks.outcomes import draw_counts, draw_outcome, draw_rate, draw_sprite
from proctor.report.html.case import write_attempt, write_case
from proctor.report.html.page import page, read_template
from proctor.report.html.rows import Entries, Row, Tags, list_rows, write_row
from proctor.report.words.elements import write_markup
from proctor.report.words.html_text import write_label
from proctor.report.words.tallies import AxisTally, TagTally, name_axis, name_value
from proctor.report.words.wording import (
    cost_words,
    count_noun,
    count_words,
    has_undecided_claims,
    incomplete_words,
    missing_words,
    number_words,
    origin_place,
    score_words,
    unmatched_words,
    unmet_words,
)

CONVERSATION_ROOM = 6_500_000
"""Characters of packets after which conversations are left out, so that the file can be mailed and opened on a phone."""
_PACKET = 200_000
"""Bytes of JSON in one packet: some hundred cases without trouble or a few with much to say; read in a few milliseconds."""
_MOST_OF_A_CASE = 1_000_000
"""Bytes of JSON of one case after which its further attempts come without conversation."""
_MOST_LISTED = 200
"""Warnings and records without a case that the page lists."""
_STYLES = ("tokens.css", "family.css", "report.css")
_SCRIPTS = ("elements.js", "case.js", "report.js")
_encode = msgspec.json.Encoder(order=None).encode


def render_html(run: RunResult, entries: Mapping[tuple[str, int], RunEntry] | None = None, axes: Sequence[str] = ()) -> str:
    """Return the whole run as one page; `entries`, by case id and attempt, bring the conversations.

    `axes` make a table of pass rates on top; left out, they are those of the matrix, where there is one.
    """
    known: Entries = entries or {}
    rows, tags, packets = list_rows(run), Tags(), _Packets()
    listed: list[dict[str, Json]] = []
    for row in rows:
        # Rows come worst first, so the conversations of what failed are in before the room is used up.
        packet, place = packets.add(_write_details(row, known, room=packets.size < CONVERSATION_ROOM))
        listed.append({**write_row(row, tags, known), "packet": packet, "place": place})
    counts = {outcome: sum(row.outcome == outcome for row in rows) for outcome in OUTCOMES}
    index = {**_write_overview(run), "counts": counts, "rows": listed, "tags": tags.list_pairs()}
    return _page(run, counts, _pack(_encode(index)), packets.finish(), _write_pivot(run, axes))


def _write_pivot(run: RunResult, axes: Sequence[str]) -> str:
    from proctor.report.blocks.pivot import build_pivot, find_matrix_axes  # most runs have no matrix
    from proctor.report.blocks.pivot_tables import write_pivot_html

    chosen = axes or find_matrix_axes(run)
    return write_pivot_html(build_pivot(run, chosen)) if chosen else ""


class _Packets:
    """Details of cases, gathered into packets."""

    def __init__(self) -> None:
        self.size = 0
        """Characters of the packets closed so far."""
        self._closed: list[str] = []
        self._open: list[bytes] = []
        self._open_size = 0

    def add(self, document: Json) -> tuple[int, int]:
        """Put the details of one case in; returns the number of its packet and its place there."""
        # Closed before the next case is added, so that the number and the place of each case are known when it is put in.
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


def _write_details(row: Row, entries: Entries, *, room: bool) -> dict[str, Json]:
    """Return a case in full; of many attempts the ones that did not pass get their conversations in first."""
    # Encoded in the order of need, and put back in the order of the attempts.
    attempts = [msgspec.Raw()] * len(row.results)
    size = 0
    for index in sorted(range(len(attempts)), key=lambda index: row.results[index].passed):
        result = row.results[index]
        entry = entries.get((result.case.id, result.attempt))
        written = write_attempt(result, entry, with_evidence=room and size < _MOST_OF_A_CASE)
        view = draw_attempt(lay_out_attempt(written))
        encoded = _encode({"outcome": result.outcome, "number": result.attempt + 1, "view": view})
        # Encoded already, to be measured; it goes into the case as it is, and is not encoded twice.
        attempts[index] = msgspec.Raw(encoded)
        size += len(encoded)
    return {**write_case(row.results[0].case), "attempts": attempts}


def _write_overview(run: RunResult) -> dict[str, Json]:
    """Return everything about the run as a whole."""
    by_tag, axes = TagTally(), AxisTally()
    for result in run.cases:
        by_tag.add(result)
        axes.add(result)
    return {
        "groups": [
            [
                write_label(tag, 80),
                [[write_label(name_value(row.value), 80), draw_rate(row.counts), draw_counts(row.counts)] for row in table],
            ]
            for tag, table in by_tag.iterate_tables()
        ],
        "axes": [[write_label(name_axis(name), 80), number_words(axis.score)] for name, axis in axes.score_axes().items()]
        if axes.is_worth_showing()
        else [],
        "missing": _list_missing(run),
        "cost": write_label(cost_words(run.cost), 300),
        "warnings": _bound_lines([_write_warning(problem) for problem in run.warnings[:_MOST_LISTED]], len(run.warnings)),
        "unmatched": _bound_lines(
            [write_label(unmatched_words(one), 400) for one in run.unmatched_evidence[:_MOST_LISTED]],
            len(run.unmatched_evidence),
        ),
    }


def _list_missing(run: RunResult) -> list[str]:
    incomplete = run.incomplete
    if incomplete is None:
        return []
    shown = [write_label(f"{each.case.id}: {missing_words(each, incomplete)}", 400) for each in incomplete.missing[:_MOST_LISTED]]
    return _bound_lines(shown, len(incomplete.missing))


def _write_warning(problem: Problem) -> str:
    place = origin_place(problem.origin)
    return write_label(problem.message if place is None else f"{place}: {problem.message}", 600)


def _bound_lines(lines: list[str], total: int) -> list[str]:
    return [*lines, f"and {total - len(lines):,} more"] if total > len(lines) else lines


def _page(run: RunResult, counts: Mapping[str, int], index: str, packets: list[str], pivot: str) -> str:
    style, script = "".join(map(read_template, _STYLES)), "".join(map(read_template, _SCRIPTS))
    name = _escape(run.suite_name or "suite")
    told = _escape("  ·  ".join(part for part in (incomplete_words(run.incomplete), count_words(counts)) if part))
    rate = draw_rate(counts)
    body = read_template("report.html.report").format(
        name=name,
        sprite=write_markup(draw_sprite()),
        outcome=write_markup(draw_outcome(run.shown_outcome)),
        told=told,
        rate="" if rate is None else f'<p class="summary">{write_markup(rate)}</p>',
        facts=" · ".join(_escape(fact) for fact in _list_facts(run, sum(counts.values()))),
        pivot=pivot,
        script=script,
        index=index,
        packets="".join(f'<script type="text/plain" id="packet-{number}">{packet}</script>\n' for number, packet in enumerate(packets)),
    )
    return page(title=f"{name}: {told}", style=style, script=script, body=body)


def _list_facts(run: RunResult, cases: int) -> Iterator[str]:
    if run.let_through:
        yield run.let_through
    if len(run.cases) > cases:
        yield f"{len(run.cases):,} attempts at {count_noun(cases, 'case')}"
    score = "" if run.score is None else score_words(run.score, run.counts, undecided=has_undecided_claims(run.cases))
    if score:
        yield score
    unmet = unmet_words(run.unmet)
    if unmet:
        yield unmet
    if run.started_at:
        yield f"started {run.started_at}"
    if run.run_id:
        yield f"run {run.run_id}"
    if run.suite_path:
        yield run.suite_path
    yield f"{run.dialect} suite"


def _escape(text: str) -> str:
    return html.escape(write_label(text, 300))
