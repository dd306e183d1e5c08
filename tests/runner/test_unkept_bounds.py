"""A bound on spending that nobody can keep, since nobody tells what was spent, is told at the end."""

from __future__ import annotations

from proctor.errors import TargetError
from proctor.model.attempt import Attempt
from proctor.model.evidence import Evidence
from proctor.runner.limits import Budget
from tests.runner.test_run import cases, drive


def test_a_bound_that_nobody_can_keep_is_told() -> None:
    async def answer(attempt: Attempt) -> Evidence:
        return Evidence(text="hi")

    async def fails(attempt: Attempt) -> Evidence:
        raise TargetError("down", code="unreachable")

    assert drive(cases(3), answer, concurrency=3, budget=Budget(max_tokens=5))[0].unkept == (
        "the tokens of 3 attempts are not known, so the limit of 5 could not be kept"
    )
    assert drive(cases(1), answer, budget=Budget(max_cost=2))[0].unkept == (
        "the cost of an attempt is not known (there are no prices), so the limit of 2 could not be kept"
    )
    # Nothing was spent where nobody answered, and nothing is said where nobody asked.
    assert drive(cases(1), fails, budget=Budget(max_tokens=5))[0].unkept == ""
    assert drive(cases(1), answer, budget=Budget(max_seconds=5))[0].unkept == ""
