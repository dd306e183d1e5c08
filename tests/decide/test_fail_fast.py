"""`--fail-fast` skips the judge only if the verdict of the case can no longer change."""

from __future__ import annotations

from typing import Any

import msgspec

import proctor
from proctor.decide.prepare import PreparedSuite
from proctor.model.judgement import Opinion
from tests.builders import evidence
from tests.tables import rows


@rows("decide/cases/fail_fast.yaml")
def test_fail_fast_spares_the_judge_only_what_cannot_change_the_verdict(row: dict[str, Any]) -> None:
    suite = proctor.parse_suite(msgspec.json.encode({"proctor": 1, **row["suite"]}).decode())
    deliberation = PreparedSuite(suite).cases[0].deliberate(evidence("hi"), fail_fast=True)
    called = False
    try:
        questions = next(deliberation)
        while True:
            called = True
            questions = deliberation.send([Opinion(outcome="fail", reason="no")] * len(questions))
    except StopIteration as end:
        result: proctor.CaseResult = end.value
    assert (called, result.outcome) == (row["judge_called"], row["outcome"])
