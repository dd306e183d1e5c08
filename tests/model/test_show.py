"""Values in messages: always short, and no more work than the shown part needs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.model.show import ENOUGH, LIMIT, count_rest, show


class Pair(msgspec.Struct, frozen=True):
    """Two of the same, to be nested."""

    left: Any
    right: Any


def doubled(levels: int, join: Any) -> Any:
    """A value of `levels` small objects that is 2^levels large when it is written out."""
    value: Any = ["bottom"]
    for _ in range(levels):
        value = join(value)
    return value


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    "join",
    [
        lambda value: [value, value],
        lambda value: (value, value),
        lambda value: {"a": value, "b": value},
        lambda value: Pair(value, value),
        lambda value: [value, {1, 2}, value],
        lambda value: {(1, 2): value, "b": value},
    ],
    ids=["list", "tuple", "object", "struct", "with what JSON has not", "with keys JSON has not"],
)
def test_a_value_that_shares_its_parts_is_shown_without_being_written_out(join: Any) -> None:
    text = show(doubled(60, join))
    assert len(text) <= 2 * LIMIT and text.endswith("…(more than can be shown)")
    assert text[0] in "[({P"


@pytest.mark.timeout(5)
def test_a_long_text_that_is_repeated_is_not_copied_for_each_time() -> None:
    text = show(["x" * 1_000_000] * 100_000)
    assert len(text) <= 2 * LIMIT and text.startswith('["xxx')
    assert show([b"x" * ENOUGH * 2]).startswith('["eHh4')
    assert show({"a": [list(range(100_000))] * 100_000}).startswith('{"a":[[0,1,')


def test_a_value_inside_itself_is_shown_as_such() -> None:
    inside: list[Any] = [1]
    inside.append(inside)
    assert show(inside) == "[1,[...]]"
    value: dict[str, Any] = {"a": 1}
    value["self"] = value
    assert show(value) == '{"a":1,"self":{...}}'


def test_a_value_of_many_parts_still_shows_its_beginning() -> None:
    assert show(list(range(ENOUGH * 2))).startswith("[0,1,2,3,")
    assert show({"first": list(range(ENOUGH * 2)), "second": 1}).startswith('{"first":[0,1,2,3,')


def test_nesting_of_any_depth_is_shown() -> None:
    value: Any = []
    for _ in range(ENOUGH * 2):
        value = [value]
    assert show(value).startswith("[[[[")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


@given(_JSON)
@settings(max_examples=100, deadline=None)
@pytest.mark.timeout(60)
def test_a_small_value_is_its_json(value: Any) -> None:
    text = show(value, 10_000)
    try:
        assert json.loads(text) == value
    except UnicodeEncodeError:  # lone surrogates are shown as escapes of escapes
        assert "\\" in text


@pytest.mark.parametrize(("count", "expected"), [(0, ""), (3, ""), (4, " and 1 more"), (10, " and 7 more")])
def test_only_what_is_not_shown_is_counted(count: int, expected: str) -> None:
    assert count_rest(count, 3) == expected
