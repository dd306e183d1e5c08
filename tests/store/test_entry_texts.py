from __future__ import annotations

import pytest

from proctor.model.evidence import Evidence, EvidenceTurn
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict
from proctor.store.runs.entry_previews import MOST_ANSWERED, MOST_INPUT, MOST_REASONS, fold_text, make_search_text

TURNS = (EvidenceTurn(input="Where is it?", text="At the Depot."), EvidenceTurn(input="And now?", text="On its way."))
VERDICTS = (Verdict("pass", 1.0, "it was Polite"), Verdict("fail", 0.0, "no refund in 'STRASSE'"))


@pytest.mark.parametrize(
    ("evidence", "found"),
    [
        (Evidence(input="Hello", text="The ANSWER"), ["hello", "the answer"]),
        (Evidence(input={"question": "Hello"}, body={"Said": "bye"}), ['{"question":"hello"}', '{"said":"bye"}']),
        (Evidence(turns=TURNS, text="On its way."), ["where is it?", "at the depot.", "and now?", "on its way."]),
        (Evidence(text="a\0b \ud800 STRA\u00dfE"), ["a\ufffdb ? strasse"]),
        (None, []),
    ],
)
def test_input_answer_and_verdicts_are_found(evidence: Evidence | None, found: list[str]) -> None:
    text = make_search_text(RunEntry(case="c", outcome="fail", reason="Timed OUT", verdicts=VERDICTS, evidence=evidence))
    for piece in (*found, "timed out", "it was polite", "no refund in 'strasse'"):
        assert piece in text, piece


def test_a_text_is_bounded_and_has_the_reasons_that_decided_however_long_the_others_are() -> None:
    passed = tuple(Verdict("pass", 1.0, f"fine {number} " + "x" * 1_000) for number in range(50))
    entry = RunEntry(
        case="c",
        outcome="fail",
        verdicts=(*passed, Verdict("fail", 0.0, "here it broke")),
        evidence=Evidence(input="q" * 10_000_000, text="a" * 10_000_000),
    )
    text = make_search_text(entry)
    assert len(text) <= MOST_ANSWERED + MOST_INPUT + MOST_REASONS + 60 and "here it broke" in text


def test_queries_are_folded_like_stored_texts() -> None:
    assert fold_text("Stra\u00dfe \0 \ud800") == "strasse \ufffd ?"
