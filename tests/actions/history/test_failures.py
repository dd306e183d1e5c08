"""Failures grouped by reason: alike but for numbers and quoted values is one group, anything else is another."""

from __future__ import annotations

import pytest

from proctor.actions.history.failures import MOST_GROUPS, MOST_RESULTS, group_failures
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict


def entry(reason: str, *, outcome: str = "fail", code: str | None = None, case: str = "a") -> RunEntry:
    verdict = Verdict(outcome="fail" if outcome == "fail" else "error", score=0.0, reason=reason, code=code)
    return RunEntry(case=case, outcome=outcome, verdicts=(verdict,))


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("expected 3 calls, found 1", "expected 3 calls, found 2", True),
        ('expected "a", found "b"', 'expected "a\\"x", found ""', True),
        ("expected 'a', found 'b'", "expected 'c', found 'd'", True),
        ("took 1.5 s", "took 12:30:01 s", True),
        ("the tool was not called", "the tool was called", False),
        ("", "no answer", False),
    ],
)
def test_reasons_are_alike_when_only_values_differ(one: str, other: str, alike: bool) -> None:
    found = group_failures([("1", entry(one)), ("2", entry(other))], {})
    assert len(found.groups) == (1 if alike else 2)
    assert found.groups[0].reason == one


def test_errors_failures_and_codes_are_separate() -> None:
    entries = [entry("x"), entry("x", outcome="error"), entry("x", code="regex_timeout")]
    found = group_failures([(str(number), one) for number, one in enumerate(entries)], {})
    assert [(group.outcome, group.code) for group in found.groups] == [("error", None), ("fail", None), ("fail", "regex_timeout")]


def test_the_largest_group_comes_first_and_lists_are_bounded() -> None:
    many = [(f"m{number}", entry("often", case=f"c{number}")) for number in range(MOST_RESULTS + 5)]
    words = [(f"w{number}", entry("seldom " + "x" * number)) for number in range(MOST_GROUPS + 3)]
    found = group_failures([*words, *many], {}, more=True)
    assert found.groups[0].count == found.groups[0].cases == MOST_RESULTS + 5 and len(found.groups[0].results) == MOST_RESULTS
    assert len(found.groups) == MOST_GROUPS and found.more_groups == 4 and found.more
    assert found.looked_at == len(many) + len(words)
