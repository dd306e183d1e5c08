"""Cases that got worse, by cause, and which changes may be chance."""

from __future__ import annotations

from collections.abc import Mapping

from proctor.actions.history.compare import RunComparison, compare_tallies
from proctor.actions.history.compare_several import list_changed_cases, split_by_cause
from proctor.actions.workspace.run_tally import RunTally, restore_tally, shorten_tally
from proctor.model.case import Case, Suite
from proctor.model.run import RunEntry, RunHeader


def make_tally(outcomes: Mapping[str, str]) -> RunTally:
    """A tally of cases whose attempts are written as letters: `.` passed, others failed for the reason of their letter."""
    reasons = {"t": 'expected a call of "track" for order 17', "r": "expected the answer to contain refunded", ".": None}
    entries = [
        RunEntry(case=case, attempt=number, outcome="pass" if letter == "." else "fail", reason=reasons[letter])
        for case, letters in outcomes.items()
        for number, letter in enumerate(letters)
    ]
    return RunTally.of(entries)


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> RunComparison:
    suite = Suite(name="shop", dialect="native", cases=tuple(Case(id=case) for case in before))
    header = RunHeader(run_id="a", suite_name="shop", dialect="native", target="t", started_at="", repeat=3)
    return compare_tallies((header, make_tally(before)), (header, make_tally(after)), suite)


BEFORE = {f"track-{number}": "..." for number in range(5)} | {f"refund-{number}": "..." for number in range(15)}


def test_a_cause_that_is_new_in_many_attempts_is_more_than_chance_and_a_single_failure_is_not() -> None:
    after = BEFORE | {f"track-{number}": "ttt" for number in range(4)} | {"track-4": "t..", "refund-3": "r..", "refund-9": ".r."}
    found = compare(BEFORE, after)
    first, second = found.causes
    assert (first.before, first.after, first.more_than_chance, len(first.cases)) == (0, 13, True, 5)
    assert first.cases[-1] == "track-4" and "track" in first.reason
    assert (second.after, second.more_than_chance, set(second.cases)) == (2, False, {"refund-3", "refund-9"})
    assert set(found.within_chance) == {"refund-3", "refund-9"}
    groups = {group.title: group.cases for group in list_changed_cases(found)}
    assert [case.case for case in groups["newly failing"]] == [*first.cases]
    assert {case.case for case in groups["within chance"]} == {"refund-3", "refund-9"}
    assert [len(cases) for _, cases in split_by_cause(groups["newly failing"])] == [5]


def test_a_stored_run_has_the_same_causes() -> None:
    tally = make_tally(BEFORE | {"track-1": "t.t"})
    again = restore_tally(shorten_tally(tally))
    assert again.cases["track-1"].causes == tally.cases["track-1"].causes == {"expected a call of … for order …": 2}


def test_a_drop_over_many_causes_is_significant_though_none_is() -> None:
    after = {case: "r.." if number % 2 else "t.." for number, case in enumerate(BEFORE)}
    found = compare(BEFORE, after)
    assert found.comparison.verdict == "regressed" and found.within_chance == ()


def test_a_change_from_always_to_never_is_listed_for_any_number_of_attempts() -> None:
    found = compare({"a": ".", "b": "."}, {"a": "r", "b": "."})
    assert found.within_chance == ("a",)
    assert [(group.title, len(group.cases)) for group in list_changed_cases(found)] == [("newly failing", 1)]


def test_a_case_that_is_as_flaky_as_before_or_changed_within_chance_is_listed_once() -> None:
    before = BEFORE | {"steady": "..r", "shaky": "...", "same": "..r"}
    found = compare(before, before | {"shaky": "..r", "same": ".r."})
    (group,) = list_changed_cases(found)
    assert group.title == "within chance" and sorted(case.case for case in group.cases) == ["same", "shaky", "steady"]
