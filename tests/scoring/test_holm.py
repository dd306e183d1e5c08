"""Holm's adjustment: as published, and never below the adjusted value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.scoring.paired import adjust_by_holm


@pytest.mark.parametrize(
    ("given_values", "expected"),
    [([], []), ([0.03], [0.03]), ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]), ([0.6, 0.7], [1.0, 1.0])],
)
def test_p_values_are_adjusted_step_by_step(given_values: list[float], expected: list[float]) -> None:
    assert adjust_by_holm(given_values) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), max_size=10))
def test_an_adjusted_value_is_never_smaller_and_keeps_the_order(values: list[float]) -> None:
    adjusted = adjust_by_holm(values)
    assert all(before <= after <= 1 for before, after in zip(values, adjusted, strict=True))
    ranked = sorted(range(len(values)), key=lambda index: values[index])
    assert [adjusted[index] for index in ranked] == sorted(adjusted)
