"""Percentiles from buckets: within one in a hundred of the sorted amounts, however they were split."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.scoring.amounts import find_percentile
from tests.scoring.references import count_amounts

AMOUNTS = st.one_of(st.just(0.0), st.floats(1e-6, 1e12))


@given(first=st.lists(AMOUNTS), second=st.lists(AMOUNTS), share=st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_near_that_of_the_sorted_amounts(first: list[float], second: list[float], share: float) -> None:
    buckets: dict[int, int] = {}
    count_amounts(first, buckets)
    count_amounts(second, buckets)
    both = sorted(first + second)
    found = find_percentile(buckets, share)
    if not both:
        assert found is None
    else:
        assert found == pytest.approx(both[math.ceil(share * len(both)) - 1], rel=0.011)


def test_invalid_amounts_are_left_out() -> None:
    buckets: dict[int, int] = {}
    count_amounts([-1.0, math.nan, math.inf, 5.0], buckets)
    assert sum(buckets.values()) == 1 and find_percentile(buckets, 0.5) == pytest.approx(5, rel=0.011)
