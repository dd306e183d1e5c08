from __future__ import annotations

import itertools
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import CheckFault, SpecError
from proctor.expressions.text_form import NO_SCOPE, Scope
from proctor.matchers.compile import MATCHERS, compile_expected
from proctor.matchers.lists import DEEPEST, find_maximum_pairing
from proctor.matchers.mismatch import find_difference
from proctor.model.evidence import Evidence
from proctor.model.json_values import MISSING, equal
from tests.tables import rows

NOW = "2026-11-15T09:30:00Z"
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.sampled_from(["", "a", "b", "1"]))
JSON = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("abc"), inner, max_size=3))
)


def nested(depth: int) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = [value]
    return value


def compared(given: dict[str, Any]) -> str | bool:
    scope = Scope.read_from(Evidence(context=given.get("context"), now=NOW, timezone=given.get("zone")))
    found = compile_expected(given["expected"]).find_mismatch(given.get("actual", MISSING), scope)
    return True if found is None else found.describe()


@rows("matchers/cases/fits.yaml")
def test_a_value_matches_or_the_reason_is_given(row: dict[str, Any]) -> None:
    found = compared(row["given"])
    if row["expect"] is True:
        assert found is True
    else:
        assert isinstance(found, str)
        assert row["expect"] in found


@rows("matchers/cases/dates.yaml")
def test_a_date_matches_or_the_reason_is_given(row: dict[str, Any]) -> None:
    found = compared(row["given"])
    if row["expect"] is True:
        assert found is True
    else:
        assert isinstance(found, str)
        assert row["expect"] in found


@rows("matchers/cases/spec_errors.yaml")
def test_a_matcher_that_cannot_be_used_is_reported_at_its_field(row: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        compile_expected(row["given"])
    wanted = row["expect"]
    assert wanted.get("message", "") in caught.value.message
    assert caught.value.field == wanted["field"]
    if "nearest" in wanted:
        assert wanted["nearest"] in caught.value.nearest
    if "offset" in wanted:
        assert caught.value.offset == wanted["offset"]


@pytest.mark.parametrize("name", MATCHERS)
def test_the_examples_of_every_matcher_can_be_used(name: str) -> None:
    entry = MATCHERS[name]
    assert entry.example["matcher"] == name
    assert set(entry.example) - {"matcher"} <= set(entry.keys)
    compile_expected(entry.example)
    compile_expected(entry.short)
    assert entry.summary.endswith(".")


def test_a_matcher_declares_whether_it_needs_a_scope() -> None:
    assert not compile_expected({"a": [1, {"matcher": "regex", "value": "x"}]}).dynamic
    assert compile_expected({"a": [1, {"matcher": "exact", "expression": "TODAY"}]}).dynamic
    assert compile_expected({"$date": "2026-11-15"}).dynamic


def test_variables_are_listed_with_field_and_place() -> None:
    expected = compile_expected({"a": [{"matcher": "exact", "expression": "CONCAT('x', A)"}], "b": {"$expr": "B"}}, field="arguments")
    assert [(use.field, use.name, use.offset) for use in expected.uses] == [
        ("arguments.a.0.expression", "A", 12),
        ("arguments.b.$expr", "B", 0),
    ]


def test_an_expression_without_a_value_is_a_fault() -> None:
    with pytest.raises(CheckFault, match="unknown variable 'A'"):
        compile_expected({"$expr": "A"}).find_mismatch(1, NO_SCOPE)


def test_an_expression_that_is_no_date_is_a_fault() -> None:
    with pytest.raises(CheckFault, match="which is not a date"):
        compile_expected({"$date": {"$expr": "A"}}).find_mismatch("2026-11-15", Scope(context={"A": 5}))


def test_a_mismatch_has_a_record_for_machines() -> None:
    found = compile_expected({"a": 1}).find_mismatch({"a": 2}, NO_SCOPE, "$.body")
    assert found is not None
    assert found.to_record() == {"path": "$.body.a", "why": "is different", "expected": "1", "actual": "2"}


# --- hostile values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", ["x", ["x"], {"a": 1}, ["*", "x"], {"$not": "x"}, {"$type": "text"}])
def test_a_deeply_nested_actual_value_is_decided(expected: Any) -> None:
    compile_expected(expected).find_mismatch(nested(30_000), NO_SCOPE)


def test_a_deeply_nested_list_is_not_equal_to_a_shallow_one() -> None:
    assert compile_expected(nested(3)).find_mismatch(nested(30_000), NO_SCOPE) is not None
    assert compile_expected(["a", nested(50)]).find_mismatch([nested(50), "a"], NO_SCOPE) is None


def test_a_deeply_nested_value_as_text_is_a_fault() -> None:
    with pytest.raises(CheckFault) as caught:
        compile_expected({"$contains": "x"}).find_mismatch(nested(30_000), NO_SCOPE)
    assert caught.value.code == "value_too_deep"


def test_a_deeply_nested_expected_value_is_refused() -> None:
    with pytest.raises(SpecError, match="nested more than"):
        compile_expected(nested(DEEPEST + 1))
    compile_expected(nested(DEEPEST))


def test_a_deeply_nested_variable_is_a_fault() -> None:
    with pytest.raises(CheckFault) as caught:
        compile_expected({"$expr": "A"}).find_mismatch("x", Scope(context={"A": nested(DEEPEST + 1)}))
    assert caught.value.code == "value_too_deep"


def test_too_many_matchers_in_any_order_are_a_fault() -> None:
    with pytest.raises(CheckFault) as caught:
        compile_expected(["*"] * 2_000).find_mismatch(["x"] * 2_000, NO_SCOPE)
    assert caught.value.code == "too_much_work"


def test_long_plain_lists_are_compared_quickly() -> None:
    values = [str(number) for number in range(50_000)]
    expected = compile_expected(values)
    started = time.process_time()
    assert expected.find_mismatch(values[::-1], NO_SCOPE) is None
    assert expected.find_mismatch([*values[:-1], "x"], NO_SCOPE) is not None
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("expected", "actual", "fits"),
    [([10**5000, 1], [1, 10**5000], True), ([10**5000, 1], [1, 10**5000 + 1], False), ([1e300, 1], [1, int(1e300)], True)],
    ids=["the same", "one more", "whole and broken"],
)
def test_lists_of_very_large_numbers_are_compared(expected: list[float], actual: list[float], fits: bool) -> None:
    assert (compile_expected(expected).find_mismatch(actual, NO_SCOPE) is None) == fits


def test_a_hard_pairing_is_found_quickly() -> None:
    # Every matcher fits all numbers from its own on, so the first free partner is nearly always wrong.
    expected = compile_expected([{"$gte": number} for number in range(100)])
    started = time.process_time()
    assert expected.find_mismatch(list(range(100)), NO_SCOPE) is None
    assert expected.find_mismatch([0, *range(99)], NO_SCOPE) is not None
    assert time.process_time() - started < 3


# --- equality --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (None, False, False),
        ("1", 1, False),
        (float("nan"), float("nan"), False),
        (2**63, float(2**63), True),
        (2**63 + 1, float(2**63), False),
        ([1, 2], [2, 1], False),
        ([1, [2, {"a": None}]], [1, [2, {"a": None}]], True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": None}, {}, False),
        ({}, [], False),
        ([], None, False),
        ((1, 2), [1, 2], True),
    ],
)
def test_json_values_are_equal_or_not(a: Any, b: Any, same: bool) -> None:
    assert equal(a, b) is same
    assert equal(b, a) is same
    assert (find_difference(a, b) is None) is same


@pytest.mark.timeout(60)
def test_deep_values_are_compared_without_exhausting_the_stack() -> None:
    assert equal(nested(100_000), nested(100_000))
    assert find_difference(nested(20_000), nested(20_000)) is None
    assert not equal(nested(100_000), nested(99_999))


@pytest.mark.parametrize(
    ("expected", "actual", "description"),
    [
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "$.a.b[1] is different: expected 2, found 3"),
        ({"a": 1}, {}, "$.a is missing: expected 1, found nothing"),
        ({}, {"a": 1}, "$.a is not expected: expected nothing, found 1"),
        ([1], [1, 2], "$ has 2 elements instead of 1: expected [1], found [1,2]"),
        ({"a": 1, "b": 1}, {"b": 2, "a": 2}, "$.a is different: expected 1, found 2"),
        ({"a": []}, {"a": {}}, "$.a is object instead of list: expected [], found {}"),
    ],
)
def test_the_first_difference_is_reported(expected: Any, actual: Any, description: str) -> None:
    found = find_difference(expected, actual)
    assert found is not None
    assert found.describe() == description


# --- properties ------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(JSON, JSON)
@pytest.mark.timeout(60)
def test_equality_is_symmetric_and_agrees_with_the_explanation(a: Any, b: Any) -> None:
    assert equal(a, b) == equal(b, a)
    assert equal(a, b) == (find_difference(a, b) is None)
    assert equal(a, a)


def shuffled(value: Any, source: random.Random) -> Any:
    if isinstance(value, list):
        mixed = [shuffled(item, source) for item in value]
        source.shuffle(mixed)
        return mixed
    return {key: shuffled(item, source) for key, item in value.items()} if isinstance(value, dict) else value


@settings(max_examples=150, deadline=None)
@given(JSON, st.randoms(use_true_random=False))
@pytest.mark.timeout(60)
def test_the_order_of_lists_never_matters(value: Any, source: random.Random) -> None:
    assert compile_expected(value).find_mismatch(shuffled(value, source), NO_SCOPE) is None


@settings(max_examples=150, deadline=None)
@given(JSON, JSON)
@pytest.mark.timeout(60)
def test_equal_values_match_and_the_answer_repeats_exactly(expected: Any, actual: Any) -> None:
    compiled = compile_expected(expected)
    first = compiled.find_mismatch(actual, NO_SCOPE)
    if equal(expected, actual):
        assert first is None
    assert compiled.find_mismatch(actual, NO_SCOPE) == first
    assert compile_expected({"matcher": "not", "value": expected}).find_mismatch(actual, NO_SCOPE) is None or first is None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["*", "a", "b", {"$one_of": ["a", "b"]}, {"$one_of": ["b", "c"]}]), max_size=4),
    st.lists(st.sampled_from("abc"), max_size=4),
)
def test_lists_with_matchers_fit_exactly_when_some_order_of_them_fits(expected: list[Any], actual: list[str]) -> None:
    single = [compile_expected(entry) for entry in expected]
    some_order = len(expected) == len(actual) and any(
        all(one.find_mismatch(value, NO_SCOPE) is None for one, value in zip(single, order, strict=True))
        for order in itertools.permutations(actual)
    )
    assert (compile_expected(expected).find_mismatch(actual, NO_SCOPE) is None) == some_order


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 4), unique=True, max_size=5), max_size=5))
def test_a_pairing_is_valid_and_as_large_as_possible(edges: list[list[int]]) -> None:
    pairing = find_maximum_pairing(edges, 5)
    partners = [right for right in pairing if right >= 0]
    assert len(partners) == len(set(partners))
    assert all(right < 0 or right in edges[left] for left, right in enumerate(pairing))
    best = 0
    for choice in itertools.product(*[[*options, -1] for options in edges]):
        used = [right for right in choice if right >= 0]
        if len(used) == len(set(used)):
            best = max(best, len(used))
    assert len(partners) == best
