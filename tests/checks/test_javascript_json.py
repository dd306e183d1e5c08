"""Compact JSON text as JavaScript writes it, against a JavaScript engine."""

from __future__ import annotations

import json
from typing import Any

import pytest
import quickjs
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.shared.places import write_javascript_json
from proctor.errors import CheckFault
from proctor.model.json_values import write_javascript_number

ENGINE = quickjs.Context()


def by_javascript(value: Any) -> str:
    ENGINE.set("source", json.dumps(value))
    return ENGINE.eval("JSON.stringify(JSON.parse(source))")


# Floats of up to 15 digits: this engine does not always find the shortest text of those that need 17.
FLOATS = st.builds(lambda digits, power: float(f"{digits}e{power}"), st.integers(-(10**15), 10**15), st.integers(-300, 290))
# Integers beyond 2^53 are left out: there we keep the digits that JavaScript loses.
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FLOATS | st.text()
KEYS = st.text(max_size=4) | st.integers(0, 2**33).map(str) | st.sampled_from(["00", "01", "-1", "1.0", "4294967294", "4294967295", ""])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12)


@settings(max_examples=200, deadline=None)
@given(VALUES)
@pytest.mark.timeout(60)
def test_it_writes_what_javascript_writes(value: Any) -> None:
    assert write_javascript_json(value) == by_javascript(value)


@settings(max_examples=200, deadline=None)
@given(FLOATS)
def test_numbers_print_as_in_javascript(value: float) -> None:
    assert write_javascript_number(value) == by_javascript(value)


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_number_reads_back(value: float) -> None:
    assert float(write_javascript_number(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "null"),
        (float("inf"), "null"),
        (10**20, "100000000000000000000"),
        (12345678901234567890, "12345678901234567890"),
        (10**21, "1e+21"),
        (-(10**22), "-1e+22"),
        (10**400, "null"),
        ("\ud800", '"\\ud800"'),
        ((1, 2), "[1,2]"),
    ],
)
def test_values_without_a_plain_json_form(value: Any, text: str) -> None:
    assert write_javascript_json(value) == text


def test_invalid_json_is_a_fault() -> None:
    with pytest.raises(CheckFault) as caught:
        write_javascript_json({"a": object()})
    assert caught.value.code == "not_json"


def test_nesting_without_end_is_a_fault() -> None:
    value: list[Any] = []
    for _ in range(20_000):
        value = [value]
    with pytest.raises(CheckFault) as caught:
        write_javascript_json(value)
    assert caught.value.code == "value_too_deep"
