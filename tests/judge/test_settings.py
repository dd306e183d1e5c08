"""What a judge may be told, and what no judge may be."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.actions.judging.judge_settings import JudgeOptions, apply_options
from proctor.errors import InputError, SpecError
from proctor.judge.settings import JudgeSettings


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("samples", 0, "at least 1"),
        ("samples", 102, "at most 101"),
        ("concurrency", 1_001, "at most 1000"),
        ("retries", 101, "at most 100"),
        ("retries", -1, "at least 0"),
        ("timeout_s", float("inf"), "a number of seconds"),
    ],
)
def test_what_no_judge_may_be_told_is_refused_with_its_field(field: str, value: Any, told: str) -> None:
    with pytest.raises(SpecError, match=told) as refused:
        JudgeSettings(**{field: value})
    assert refused.value.field == field


def test_the_most_that_a_judge_may_be_told_is_taken() -> None:
    settings = JudgeSettings(samples=101, concurrency=1_000, retries=100)
    assert (settings.samples, settings.concurrency, settings.retries) == (101, 1_000, 100)


def test_an_option_that_is_refused_is_named() -> None:
    with pytest.raises(InputError, match="samples of the judge: expected at most 101, found 200"):
        apply_options(JudgeSettings(), JudgeOptions(samples=200))
