"""Valid and invalid settings of a judge."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.actions.judging.judge_settings import JudgeOptions, apply_options
from proctor.errors import InputError, SpecError
from proctor.judge.settings import JudgeSettings


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("samples", 0, "at least 1"),
        ("samples", 102, "at most 101"),
        ("concurrency", 1_001, "at most 1000"),
        ("retries", 101, "at most 100"),
        ("retries", -1, "at least 0"),
        ("timeout_s", float("inf"), "a number of seconds"),
    ],
)
def test_invalid_settings_are_refused_with_their_field(field: str, value: Any, problem: str) -> None:
    with pytest.raises(SpecError, match=problem) as refused:
        JudgeSettings(**{field: value})
    assert refused.value.field == field


def test_the_highest_settings_are_accepted() -> None:
    settings = JudgeSettings(samples=101, concurrency=1_000, retries=100)
    assert (settings.samples, settings.concurrency, settings.retries) == (101, 1_000, 100)


def test_a_refused_option_is_named() -> None:
    with pytest.raises(InputError, match="samples of the judge: expected at most 101, found 200"):
        apply_options(JudgeSettings(), JudgeOptions(samples=200))
