"""Operations on any JSON value."""

from __future__ import annotations

import contextlib

import pytest

from proctor.checks.registry import default_registry
from proctor.checks.tools.tool_arguments import ToolInputPath
from proctor.codecs.json_patch import apply_patch
from proctor.errors import SpecError
from proctor.expressions.text_form import NO_SCOPE
from proctor.matchers.call_arguments import build_argument_rule
from proctor.matchers.mismatch import find_difference
from proctor.model.evidence import Json, ToolCall
from proctor.model.json_values import drop_nulls, equal, join_surrogates, write_as_text, write_document
from proctor.simulators.exchange import Refused
from proctor.simulators.kinds.records import Collection, check_row
from proctor.simulators.rows import Draft
from tests.builders import evidence


@pytest.mark.parametrize(
    ("value", "expected"), [("as it is", "as it is"), ("", ""), (True, "true"), (None, "null"), ({"a": [1]}, '{"a":[1]}')]
)
def test_only_what_is_no_text_becomes_json(value: Json, expected: str) -> None:
    assert write_as_text(value) == expected


def test_null_members_go_at_every_depth_and_null_items_stay() -> None:
    assert drop_nulls({"a": None, "b": [{"c": None, "d": 0}, None], "e": ""}) == {"b": [{"d": 0}, None], "e": ""}


def test_halves_of_a_character_side_by_side_become_one_and_a_lone_half_is_replaced() -> None:
    assert join_surrogates("a\ud83d\ude00b\ud83dc") == "a\U0001f600b\ufffdc"


def test_a_document_is_indented_and_ends_its_last_line() -> None:
    assert write_document({"a": [1]}) == b'{\n  "a": [\n    1\n  ]\n}\n'


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (1, "1", False),
        ("", None, False),
        (2**60, 2**60 + 1, False),
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1, 2], [2, 1], False),
        ([], {}, False),
        ({"a": {"b": [True]}}, {"a": {"b": [1]}}, False),
    ],
)
def test_patches_checks_matchers_and_rules_agree_on_equality(one: Json, other: Json, same: bool) -> None:
    assert equal(one, other) is same
    assert equal(other, one) is same
    assert (find_difference(one, other) is None) is same
    rule = build_argument_rule({"value": one})
    assert rule is not None
    assert rule.fits({"value": other}, NO_SCOPE) is same
    path = default_registry().prepare("tool_input_path", ToolInputPath(tool="t", path="$.value", equals=one))
    assert path(evidence(None, ToolCall(name="t", arguments={"value": other}))).passed is same
    with contextlib.nullcontext() if same else pytest.raises(SpecError):
        apply_patch({"value": other}, [{"op": "test", "path": "/value", "value": one}])
    rows = Draft({"system/rows": {"1": {"id": "1", "value": other}}}, "system")
    with contextlib.nullcontext() if same is False else pytest.raises(Refused):
        check_row(Collection(name="rows", unique=("value",)), {"id": "2", "value": one}, rows, replaces=None)
