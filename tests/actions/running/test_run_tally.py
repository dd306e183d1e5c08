"""A tally of single attempts equals the summary of all attempts."""

from __future__ import annotations

import random

import pytest

from proctor.actions.history.compare import compare_tallies, find_reason, how_much
from proctor.actions.workspace.run_history import unmet_of
from proctor.actions.workspace.run_tally import RunTally
from proctor.formats.suites import read_suite
from proctor.model.evidence import Cost, Evidence, Usage
from proctor.model.run import RunEntry, RunHeader
from proctor.model.verdict import Verdict
from proctor.scoring.intervals import Counts

SUITE = read_suite(
    "proctor: 1\nname: s\ncases:\n" + "".join(f"  - {{id: {id}, input: hi, expect: [{{response_contains: x}}]}}\n" for id in "abcd"),
    name="s",
)
HEADER = RunHeader(run_id="r", started_at="2031-01-01T00:00:00Z", repeat=3)


def make_entry(case: str, attempt: int, outcome: str, **more: object) -> RunEntry:
    verdict = Verdict(outcome, 0.0 if outcome == "fail" else 1.0, f"{case}{attempt} {outcome}")  # type: ignore[arg-type]
    seen = Evidence(text="x" * 1_000, duration_ms=10.0 * attempt + 5, usage=Usage(input_tokens=attempt, output_tokens=1))
    fields = {"verdicts": (verdict,), "evidence": seen, **more}
    return RunEntry(case=case, attempt=attempt, outcome=outcome, **fields)  # type: ignore[arg-type]


ENTRIES = [
    *(make_entry("a", number, "pass") for number in range(3)),
    make_entry("b", 0, "pass"),
    make_entry("b", 1, "fail", verdicts=()),
    make_entry("b", 2, "fail"),
    make_entry("c", 0, "error", code="no_answer", verdicts=(), evidence=None),
    make_entry("c", 1, "skip", cost=Cost(agent=0.5, judge=0.25)),
    make_entry("unknown", 0, "fail", verdicts=(Verdict("fail", 0.0, "lacks it", "missing_evidence"),)),
]


def test_a_tally_agrees_with_the_attempts() -> None:
    tally = RunTally.of(ENTRIES)
    assert tally.count_by_case() == {"a": Counts(3, 3), "b": Counts(3, 1), "c": Counts(1, 0), "unknown": Counts(1, 0)}
    assert tally.find_unmet(SUITE) == unmet_of(SUITE, ENTRIES)
    attempts = [(case, attempt) for case, one in tally.cases.items() for attempt in one.attempts]
    assert sorted(attempts) == sorted((entry.case, entry.attempt) for entry in ENTRIES)
    assert tally.cases["b"].times_ms == [entry.find_agent_ms() for entry in ENTRIES if entry.case == "b"]
    assert (tally.cases["a"].tokens, tally.cases["c"].costs, tally.has_costs) == ([1, 2, 3], [0.75], True)
    found = how_much(HEADER, SUITE, tally, "interrupted")
    assert found is not None and (found.attempts_finished, found.attempts_planned, found.missing) == (8, 12, ("c", "d"))


def test_the_reason_is_the_first_one_and_no_evidence_is_held() -> None:
    tally = RunTally.of(ENTRIES)
    failed = tally.cases["b"].failed
    assert [find_reason(entry, None) for entry in failed] == ["", "b2 fail"] and all(entry.evidence is None for entry in failed)
    silent = RunTally.of(make_entry("a", number, "fail", verdicts=()) for number in range(100))
    assert len(silent.cases["a"].failed) < 10


@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_which_cases_ended_makes_no_difference(seed: int) -> None:
    by_case = [[entry for entry in ENTRIES if entry.case == case] for case in ("a", "b", "c", "unknown")]
    random.Random(seed).shuffle(by_case)
    shuffled = RunTally.of(entry for entries in by_case for entry in entries)
    better = RunTally.of(make_entry(entry.case, entry.attempt, "pass") for entry in ENTRIES)
    found = compare_tallies((HEADER, better), (HEADER, shuffled), SUITE)
    assert found == compare_tallies((HEADER, better), (HEADER, RunTally.of(ENTRIES)), SUITE)
    assert (found.lacking, found.failing, found.reasons["b"]) == (("unknown",), ("b", "c", "unknown"), "response_contains · x: b2 fail")
    assert found.tokens.cases == 4 and found.cost is not None
