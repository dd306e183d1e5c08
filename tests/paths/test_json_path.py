"""JSONPath: what the suite of RFC 9535 does not cover, MCPLab's forms, errors and limits."""

from __future__ import annotations

from typing import Any

import jsonpath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import CheckFault, SpecError
from proctor.paths.json_path import PathError, compile_path
from tests.paths.test_dotted import JSON
from tests.tables import rows

LOOSE = {
    "a": None, "d": "", "c": [], "f": {"g": [1, 2, {"h": 3}]}, "s": "12", "e": "😀", "order-id": 7, "length": 9,
    "o": {"length": 4, "0": "zero"}, "arr": [{"k": True, "v": 1}, {"k": False, "v": 2}, {"v": 3}, {"k": [], "v": 4}],
}  # fmt: skip


@rows("paths/cases/loose.yaml")
def test_forms_of_mcplab_are_read(row: dict[str, Any]) -> None:
    found = compile_path(row["path"], "mcplab").find(LOOSE)
    assert (found if row.get("order", True) else sorted(found)) == (row["expect"] if row.get("order", True) else sorted(row["expect"]))


@rows("paths/cases/errors.yaml")
def test_a_bad_path_is_refused_with_its_place(row: dict[str, Any]) -> None:
    with pytest.raises(PathError) as caught:
        compile_path(row["path"], row.get("syntax", "rfc9535"))
    assert row["message"] in caught.value.message
    assert (caught.value.field, caught.value.offset) == ("path", row["offset"])
    assert row.get("hint", "") in (caught.value.hint or "")


def nested(depth: int) -> Any:
    value: Any = {"leaf": 1}
    for _ in range(depth):
        value = {"a": [value]}
    return value


@pytest.mark.timeout(60)
def test_a_document_nested_thousands_deep_is_walked() -> None:
    document = nested(50_000)
    assert compile_path("$..leaf").find(document) == [1]
    assert compile_path("$[?@ == @]").find(document) == [document["a"]]


@pytest.mark.timeout(60)
def test_a_path_that_visits_too_much_is_given_up() -> None:
    document = [[[[0] * 10] * 10] * 10] * 10
    for path in ("$..*..*..*..*", "$..[?count(@..*) == count($..*)]"):
        with pytest.raises(CheckFault) as caught:
            compile_path(path).find([document] * 10)
        assert caught.value.code == "path_limit"


def test_deeply_nested_expressions_are_refused_and_do_not_crash() -> None:
    for path in (
        "$[?" + "(" * 4_000 + "@" + ")" * 4_000 + "]",
        "$" + "[?@" * 2_000 + "]" * 2_000,
        "$[?" + "length(" * 1_200 + "@" + ")" * 1_200 + "==1]",
    ):
        with pytest.raises(PathError, match="too deeply"):
            compile_path(path)
    with pytest.raises(PathError, match="at most"):
        compile_path("$" + ".a" * 6_000)


def test_a_pattern_that_runs_away_inside_a_filter_is_stopped() -> None:
    with pytest.raises(CheckFault) as caught:
        compile_path("$[?search(@, '(a+)+b')]").find(["a" * 40])
    assert caught.value.code == "regex_timeout"


def test_numbers_compare_exactly_and_never_equal_booleans() -> None:
    assert compile_path("$[?@ == 9007199254740993]").find([9007199254740993, 9007199254740992]) == [9007199254740993]
    assert compile_path("$[?@ == 1]").find([True, 1, 1.0, "1"]) == [1, 1.0]
    assert compile_path("$[?@ == true]").find([True, 1]) == [True]
    assert compile_path("$[?@ == 1e2]").find([100, "100"]) == [100]


def test_very_long_numbers_are_refused() -> None:
    with pytest.raises(PathError, match="too long"):
        compile_path(f"$[?@ == {'9' * 5_000}]")


def test_straight_paths_and_walked_paths_agree() -> None:
    document = {"a": [{"b": None}, 2]}
    for path, walked in (
        ("$.a[0].b", "$['a'][0,9]['b']"),
        ("$.a[-1]", "$.a[-1:]"),
        ("$.a[5]", "$.a[5:6]"),
        ("$.a.b", "$.a['b','c']"),
        ("$", "$"),
    ):
        assert compile_path(path).find(document) == compile_path(walked).find(document)


@given(st.text(max_size=25), st.sampled_from(["rfc9535", "mcplab"]))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_path_or_a_spec_error(text: str, syntax: str) -> None:
    try:
        compile_path(text, syntax).find(LOOSE)
    except SpecError as error:
        assert error.offset is not None and 0 <= error.offset <= len(text)


PIECES = st.lists(
    st.sampled_from([
        "$", "@", ".a", "..b", "[0]", "[-1]", "[*]", "[1:2]", "['a','b']", "[?", "]", "(", ")", "==", "<", "1", "'x'", "&&", "||", "!",
        "length(", "match(", "count(", ",", "true", "null", " ", "^", "~", ".length", "[(@.length-1)]", "a",
    ]),
    max_size=9,
).map("".join)  # fmt: skip


@given(PIECES, st.sampled_from(["rfc9535", "mcplab"]), JSON)
@settings(max_examples=300, deadline=None)
@pytest.mark.timeout(60)
def test_path_like_text_is_a_path_or_a_spec_error(text: str, syntax: str, document: Any) -> None:
    try:
        found = compile_path(text, syntax).find(document)
    except SpecError:
        return
    assert isinstance(found, list)


SEGMENTS = st.sampled_from([
    ".a", ".b", "[0]", "[-1]", "[*]", ".*", "..a", "..*", "['a','b']", "[?@.a]", "[?@.a == 1]", "[?!@.b]", "[?@ > 1]", "[?length(@) >= 1]",
    "[?count(@.*) == 2]", "[?@.a == $.b]", "[?@ == @.a || @.b != null]", "[?match(@, '[a-c]+')]",
])  # fmt: skip
SMALL = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "abc", "z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=15,
)
# It takes slices of texts too, which RFC 9535 does not; so there are none among the segments.
ORACLE = jsonpath.JSONPathEnvironment(strict=True)


@given(st.lists(SEGMENTS, max_size=3).map(lambda parts: "$" + "".join(parts)), SMALL)
@settings(max_examples=300, deadline=None)
@pytest.mark.timeout(60)
def test_an_independent_implementation_selects_the_same(path: str, document: Any) -> None:
    if not isinstance(document, (dict, list)):
        document = [document]  # that implementation would read a text as JSON
    theirs = [match.obj for match in ORACLE.finditer(path, document)]
    ours = compile_path(path).find(document)
    if ".." in path:
        # The order among siblings below `..` is free.
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs))
    else:
        assert ours == theirs
