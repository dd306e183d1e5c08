"""Which cases changed between two runs, and which reasons are new."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.actions.history.overview import FailedResult, find_new_reasons, make_trend_point
from proctor.service.runs.run import find_previous


def fail(reason: str, *, code: str | None = None, outcome: str = "fail", id: str = "r") -> FailedResult:
    return FailedResult(id=id, trace_id=f"t{id}", outcome=outcome, code=code, reason=reason)


def test_a_reason_is_new_regardless_of_its_numbers() -> None:
    since = [fail("took 812 ms"), fail("no call of 'refund'", id="a"), fail("no call of 'lookup'", id="b"), fail("boom", outcome="error")]
    before = [fail("took 9 ms"), fail("boom")]
    found, total = find_new_reasons(since, before)
    assert total == 2 and [(one.reason, one.count, one.result_id) for one in found] == [("no call of 'refund'", 2, "a"), ("boom", 1, "r")]


def test_a_run_without_decisions_has_no_rate() -> None:
    run = {"id": "r", "suite_name": "s", "name": None, "created_at": "2031-01-01"}
    assert make_trend_point(run, {"skip": 3}).rate is None
    point = make_trend_point(run, {"pass": 3, "error": 1, "skip": 5})
    assert (point.runs, point.rate) == (4, 0.75) and point.low is not None and 0.2 < point.low < 0.75


def run(number: int, **more: Any) -> Any:
    usual = {"suite_name": "shop", "status": "completed", "repeat": 3, "selection": None, "target": "shop", "name": "nightly", "tags": []}
    return {"id": f"run_{number}", "created_at": f"2031-01-{number:02}", **usual, **more}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([run(8, repeat=50, name="soak"), run(7)], "run_7"),
        ([run(8, name="try"), run(7)], "run_7"),
        ([run(8, name="try"), run(7, name="other")], "run_8"),
        ([run(8, tags=["slow"]), run(7, tags=["slow"])], "run_8"),
        ([run(8, repeat=50, name="soak"), run(7, target="other")], "run_8"),
        ([run(8, suite_name="other"), run(7, status="cancelled"), run(10)], None),
    ],
)
def test_a_run_is_compared_with_the_last_one_of_its_kind(others: list[Any], expected: str | None) -> None:
    found = find_previous(run(9), others)
    assert (found and found["id"]) == expected
