"""Numbers as JSON and as JavaScript have them."""

from __future__ import annotations

import pytest

from proctor.model.json_values import is_number, read_digits, to_whole_numbers


@pytest.mark.parametrize(("value", "expected"), [(0, True), (1.5, True), (10**30, True), (True, False), ("1", False), (None, False)])
def test_true_and_texts_are_no_numbers(value: object, expected: bool) -> None:
    assert is_number(value) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("007", 7), ("999", 999), ("1000", None), ("", None), (None, None), ("-1", None), ("²", None), ("1.0", None)],
)
def test_only_short_texts_of_plain_digits_are_read(text: str | None, expected: int | None) -> None:
    assert read_digits(text, 3) == expected


def test_whole_numbers_lose_their_fraction_at_every_depth_and_no_others_do() -> None:
    found = to_whole_numbers({"a": [1.0, 1.5, (2.0,)], "b": {"c": 2.0**53}, "d": "1.0"})
    assert found == {"a": [1, 1.5, [2]], "b": {"c": 2.0**53}, "d": "1.0"}
    assert isinstance(found["a"][0], int) and isinstance(found["b"]["c"], float)
