"""JSON Patch and JSON Merge Patch; the rows are from RFC 6902 (appendix A) and RFC 7386 (appendix A)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from proctor.codecs.json_patch import apply_patch, merge_patch
from proctor.errors import SpecError


@pytest.mark.parametrize(
    ("document", "operations", "expected"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        ({"foo": [1, 2]}, [{"op": "replace", "path": "/foo/0", "value": 3}], {"foo": [3, 2]}),
        ({"foo": {"bar": 1}, "qux": {}}, [{"op": "move", "from": "/foo/bar", "path": "/qux/thud"}], {"foo": {}, "qux": {"thud": 1}}),
        ({"foo": ["a", "b", "c"]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": ["b", "c", "a"]}),
        ({"foo": [1]}, [{"op": "copy", "from": "/foo", "path": "/bar"}], {"foo": [1], "bar": [1]}),
        ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "qux"}], {"baz": "qux"}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({}, [{"op": "replace", "path": "", "value": {"b": []}}, {"op": "add", "path": "/b/-", "value": 1}], {"b": [1]}),
        ({}, [{"op": "add", "path": "", "value": {"b": []}}, {"op": "add", "path": "/b/-", "value": 1}], {"b": [1]}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": {"b": 1}}),
    ],
)
def test_a_patch_is_applied_to_a_copy(document: Any, operations: Any, expected: Any) -> None:
    before = copy.deepcopy((document, operations))
    assert apply_patch(document, operations) == expected
    assert (document, operations) == before


def test_moving_copies_nothing() -> None:
    # Otherwise this would take minutes, and no limit of `copy` would stop it.
    large = {"a": [[number] for number in range(50_000)]}
    operations = [{"op": "move", "from": f"/{one}", "path": f"/{two}"} for one, two in [("a", "b"), ("b", "a")] * 500]
    assert apply_patch(large, operations) == large


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ({}, "list of operations"),
        ([1], "op: expected one of"),
        ([{"op": "addd", "path": "/a"}], "addd"),
        ([{"op": "add", "path": "a", "value": 1}], "JSON pointer"),
        ([{"op": "add", "path": "/x/y", "value": 1}], 'no "x"'),
        ([{"op": "add", "path": "/list/5", "value": 1}], "from 0 to 1"),
        ([{"op": "add", "path": "/list/01", "value": 1}], "position"),
        ([{"op": "add", "path": "/a"}], "needs a value"),
        ([{"op": "remove", "path": ""}], "whole document"),
        ([{"op": "replace", "path": "/x", "value": 1}], 'no "x"'),
        ([{"op": "test", "path": "/a", "value": True}], "is not true"),
        ([{"op": "move", "from": "/deep", "path": "/deep/er"}], "into itself"),
        ([{"op": "copy", "path": "/b"}], "JSON pointer"),
        ([{"op": "test", "path": "/a", "value": 1}] * 1_001, "the maximum is 1000"),
        ([{"op": "copy", "from": "", "path": "/list/-"}] * 40, "too large"),
    ],
)
def test_inapplicable_operations_are_refused(operations: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        apply_patch({"a": 1, "list": [1], "deep": {}}, operations)


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": 1}, ["c"], ["c"]),
    ],
)
def test_a_merge_patch_replaces_and_removes(document: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy(document)
    assert merge_patch(document, patch) == expected
    assert document == before
