"""What turned between two runs, and which reasons are new."""

from __future__ import annotations

import pytest

from proctor.actions.history.overview import FailedResult, find_new_reasons, find_turned, make_trend_point
from proctor.scoring.intervals import Counts


@pytest.mark.parametrize(
    ("before", "after", "threshold", "expected"),
    [
        ((4, 4), (4, 0), None, "failing"),
        ((4, 4), (4, 3), None, "failing flaky"),
        ((4, 3), (4, 4), None, "passing"),
        ((4, 0), (4, 4), None, "passing"),
        ((4, 0), (4, 2), None, "flaky"),
        ((4, 4), (4, 3), 0.5, "flaky"),
        ((4, 1), (4, 3), 0.5, "passing"),
        ((4, 4), (4, 4), None, ""),
        ((0, 0), (4, 0), None, ""),
        ((4, 4), (0, 0), None, ""),
    ],
)
def test_a_case_turns_as_a_comparison_would_say(
    before: tuple[int, int], after: tuple[int, int], threshold: float | None, expected: str
) -> None:
    thresholds = {} if threshold is None else {"a": threshold}
    found = find_turned({"a": Counts(*before)}, {"a": Counts(*after)}, thresholds)
    assert " ".join(name for name, turned in zip(("failing", "passing", "flaky"), found, strict=True) if turned.total) == expected


def test_of_many_cases_the_first_are_named_and_all_are_counted() -> None:
    before = {f"c{number}": Counts(1, 1) for number in range(50)}
    failing, passing, flaky = find_turned(before, {case: Counts(1, 0) for case in before}, {})
    assert (failing.total, len(failing.cases), failing.cases[0].case) == (50, 20, "c0") and passing.total == flaky.total == 0


def fail(reason: str, *, code: str | None = None, outcome: str = "fail", id: str = "r") -> FailedResult:
    return FailedResult(id=id, trace_id=f"t{id}", outcome=outcome, code=code, reason=reason)


def test_a_reason_is_new_that_was_not_there_before_whatever_numbers_it_has() -> None:
    since = [fail("took 812 ms"), fail("no call of 'refund'", id="a"), fail("no call of 'lookup'", id="b"), fail("boom", outcome="error")]
    before = [fail("took 9 ms"), fail("boom")]
    found, total = find_new_reasons(since, before)
    assert total == 2 and [(one.reason, one.count, one.result_id) for one in found] == [("no call of 'refund'", 2, "a"), ("boom", 1, "r")]


def test_a_run_of_which_nothing_was_decided_has_no_rate() -> None:
    run = {"id": "r", "suite_name": "s", "name": None, "created_at": "2031-01-01"}
    assert make_trend_point(run, {"skip": 3}).rate is None
    point = make_trend_point(run, {"pass": 3, "error": 1, "skip": 5})
    assert (point.runs, point.rate) == (4, 0.75) and point.low is not None and 0.2 < point.low < 0.75
