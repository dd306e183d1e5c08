"""A report has no English word of its own in another language: every text is a sentence of the catalogue, or data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proctor.model.case import Case
from proctor.model.cost import TotalCost
from proctor.model.evidence import Cost, Evidence, EvidenceTurn, Source, ToolCall, Usage, UserEnding
from proctor.model.result import CaseResult, Incomplete, MissingAttempts, RunResult, Unmet
from proctor.model.verdict import Verdict, errored, failed, passed
from proctor.report import html
from proctor.report.catalogue import LANGUAGES, read_catalogue
from proctor.report.evidence_text import EvidencePainter
from proctor.report.exchange import add_exchanges
from proctor.report.labels import NAMES, measure_labels
from proctor.report.pivot import build_pivot
from proctor.report.pivot_tables import write_pivot_text
from proctor.report.style import Style
from proctor.report.terminal import TerminalReport
from proctor.report.wording import cost_words
from tests.report.html_reading import Page
from tests.report.html_samples import Entries, entry_of, live_run, refund_conversation, visit_workflow
from tests.report.marked_words import MARKED, ReadTexts, find_unmarked, list_packet_texts, write_in_capitals
from tests.report.samples import claim, decided
from tests.report.test_systems import STATE

VOTES = [{"model": "M", "passed": True, "score": 0.9}, {"model": "N", "passed": False}, {"model": "O", "code": "judge_timeout"}]
JUDGED = {"judge": "M", "models": ["M", "N", "O", "P", "Q"], "samples": VOTES, "threshold": 0.8}
DETAILS: list[dict[str, Any]] = [
    JUDGED,
    {"missing": [{"name": "PAY"}], "extra": [{"name": "PAY", "arguments": {"a": 1}}]},
    {"out_of_order": [{"tool_name": "PAY", "expected_index": 0, "actual_index": 2}]},
    {"argument_mismatches": [{"tool_name": "PAY", "expected_args": {"a": 1}, "actual_args": {}}] * 10},
    {"phrase_results": [{"phrase": "BYE", "found": True, "forbidden": True, "turn": 4}, {"phrase": "HELLO", "found": False}]},
    {
        "phrase_results": [
            {"phrase": "BYE", "found": True, "forbidden": True},
            {"phrase": "X", "found": True, "turn": "BYE", "forbidden": True},
        ]
    },
    {"field_results": [{"path": "N", "expected": "1", "actual": 1, "passed": False}] * 70},
    {"expected": 1, "actual": 2, "hint": "LOOK AGAIN", "traceback": "BOOM"},
    {"not_known": {"tool_calls": "NOT RECORDED", "answer": "NOT RECORDED", "input": "", "turns": "", "usage": ""}},
]
USER = UserEnding(played_by="SCRIPT", turns=3, ended="gave_up", reason="NOTHING MORE", usage=Usage(input_tokens=3, output_tokens=4))


def everything() -> tuple[RunResult, Entries]:
    """A run in which every part of a report has something to say, with data in capitals."""
    run, entries = live_run()
    case = Case(
        id="DETAILED",
        tags={"test_dimension": "REFUNDS"},
        assertions=tuple(claim(f"CLAIM {number}", required=number == 0, turn=1 if number == 1 else None) for number in range(len(DETAILS))),
    )
    verdicts = [failed("IT DOES NOT HOLD", score=0.25, details=details) for details in DETAILS]
    verdicts[-1] = Verdict("error", 0.0, "NOT SEEN", "missing_evidence", DETAILS[-1])
    silent = Verdict("error", 0.0, "NO ANSWER", "judge_timeout", {"judge": "M", "replies": ["HM"]})
    down = [CaseResult(Case(id=f"DOWN {n}"), "error", None, (), code="target_down", reason="NOBODY ANSWERS") for n in range(3)]
    results = [
        decided(case, *verdicts, simulated_user=USER, cost=Cost(currency="USD", agent=0.5, judge=0.25, user=0.1)),
        decided(Case(id="UNJUDGED", assertions=(claim("A"), claim("B"))), silent, silent),
        decided(Case(id="EMPTY")),
        decided(Case(id="OFTEN", assertions=(claim("A"),)), failed("NO"), attempt=0),
        decided(Case(id="OFTEN", assertions=(claim("A"),)), failed("NO"), attempt=1),
        decided(Case(id="", assertions=(claim("A"),)), errored("not_readable", "NOT READ")),
        decided(Case(id="PASSED", assertions=(claim("A"),)), passed("YES"), source=Source(file="A/B", line=3), attempt=2),
        *down,
    ]
    lacking = MissingAttempts(case=case, planned=3, finished=1)
    run = msgspec.structs.replace(
        run,
        cases=(*run.cases, *results),
        suite_name="",
        incomplete=Incomplete(
            ended="interrupted", attempts_planned=9, attempts_finished=3, cases_planned=4, cases_finished=2, missing=(lacking,)
        ),
        unmet=Unmet(cases_without_evidence=1, records_without_case=2, records_not_selected=3),
        cost=TotalCost(currency="USD", agent=None, judge=0.25, user=0.1, known=0.2, why="NO PRICE"),
    )
    evidence = msgspec.structs.replace(refund_conversation(), simulated_user=USER, error="BROKE", no_run="HEALTH CHECK", state=STATE)
    entries |= {("DETAILED", 0): entry_of(results[0], evidence, duration_ms=61_500.0, started_at="2026-11-15T09:00:02Z")}
    written = {(case.upper(), attempt): write_in_capitals(entry) for (case, attempt), entry in entries.items()}
    return write_in_capitals(run), written


def test_every_text_of_a_report_in_one_file_is_of_the_catalogue_or_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "read_catalogue", lambda language: MARKED)
    run, entries = everything()
    text = html.render_html(run, entries, ["test_dimension", "NOWHERE"])
    page = Page(text)
    index = page.index
    shown = [*ReadTexts(text).texts, *(line for name in ("missing", "warnings", "unmatched") for line in index[name]), index["cost"]]
    shown += [part for group in index["groups"] for row in group[1] for part in (row[0], *map_texts(row[1:]))]
    shown += [part for row in index["rows"] for part in (row.get("finding", ""), row["id"], row.get("score", ""), row.get("took", ""))]
    shown += [part for row in index["rows"] if row.get("rate") for part in list_packet_texts(row["rate"])]
    for row in index["rows"]:
        for attempt in page.details(row["id"])["attempts"]:
            shown += [part for node in attempt["view"] for part in list_packet_texts(node)]
    assert len(shown) > 500
    assert not {text: words for text in shown if (words := find_unmarked(text))}


def map_texts(nodes: list[Any]) -> list[str]:
    return [text for node in nodes if node for text in list_packet_texts(node)]


def test_every_text_of_a_terminal_report_is_of_the_catalogue_or_data() -> None:
    run, entries = everything()
    report = TerminalReport(colour=False, width=4000, words=MARKED, most_failures=12)
    text = report.finish(add_exchanges(run, entries, only_failed=True)) + write_pivot_text(build_pivot(run, ["test_dimension"]), MARKED)
    assert text.count("\n") > 100
    assert not {line: words for line in text.splitlines() if (words := find_unmarked(line))}


def test_what_was_read_of_evidence_is_of_the_catalogue_or_data() -> None:
    painter = EvidencePainter(Style(colour=False), 4000, MARKED)
    call = ToolCall(name="PAY", arguments=None, error="BOOM")
    long = Evidence(
        input="HI", tool_calls=(call,) * 30, text="BYE", usage=Usage(input_tokens=3, output_tokens=4, total_tokens=7), model="M"
    )
    talk = Evidence(turns=(EvidenceTurn(input="HI", text="BYE", tool_calls=(call,)),) * 12)
    for evidence in (long, talk, visit_workflow(), Evidence(no_run="HEALTH CHECK", simulated_user=USER, http_status=200, error="BROKE")):
        text = "\n".join(painter.paint_block("TITLE", write_in_capitals(evidence)))
        unmarked = {line: words for line in text.splitlines() if (words := find_unmarked(line))}
        assert not unmarked


def test_a_sentence_that_is_not_of_the_catalogue_is_found() -> None:
    assert find_unmarked("⟦score ⟧0,5⟦, of ⟧A TEXT IN CAPITALS") == set()
    assert find_unmarked("⟦score ⟧0,5 of what") == {"what"}
    assert find_unmarked('$.tool_calls[0].name "name": 1 /a/path') == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_labels_are_as_wide_as_the_widest_of_a_language(language: str) -> None:
    words = read_catalogue(language)
    assert measure_labels(words) == 1 + max(len(words.say(f"label.{name}")) for name in NAMES)
    assert measure_labels(read_catalogue("en")) == 10


def test_figures_are_written_as_the_language_writes_them() -> None:
    run, _ = live_run()
    told = {language: TerminalReport(colour=False, words=read_catalogue(language)).finish(run) for language in LANGUAGES}
    assert "✗ FAIL  4 failed, 2 errors, 7 passed, 1 skipped  ·  score 0.799 of what was decided" in told["en"]
    assert "✗ FEHLGESCHLAGEN  4 fehlgeschlagen, 2 Fehler, 7 bestanden, 1 übersprungen  ·  Wertung 0,799 von dem, was" in told["de"]
    assert "✗ FALLIDO  4 fallidos, 2 errores, 7 superados, 1 omitidos  ·  puntuación 0,799 de lo que se decidió" in told["es"]
    cost = Cost(currency="USD", agent=1.5, judge=0.25, user=0.0)
    assert cost_words(cost, read_catalogue("de")) == "Kosten 1,5 USD und 0,25 für den Richter"
    assert cost_words(cost) == "cost 1.5 USD and 0.25 for the judge"
