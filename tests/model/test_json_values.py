"""What is done with any JSON value."""

from __future__ import annotations

import pytest

from proctor.model.evidence import Json
from proctor.model.json_values import drop_nulls, join_surrogates, write_as_text, write_document


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
