"""Forms are generated from declared fields, and their input is read as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proctor.pages.inputs import make_inputs, read_inputs, sort_problems, write_typed
from proctor.service.refusals import Refusal
from proctor.service.verification.shared.fields import FLAG, OBJECT, OBJECT_OR_LIST, TEXTS, Field, number, one_of, text, whole

ROWS: list[dict[str, Any]] = yaml.load((Path(__file__).parent / "cases" / "inputs.yaml").read_bytes(), Loader=yaml.CSafeLoader)["rows"]
KINDS = {"number": number(), "whole": whole(), "text": text(), "long": text(4000), "texts": TEXTS, "flag": FLAG, "object": OBJECT}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_input_is_read(row: dict[str, Any]) -> None:
    table = {"it": Field(KINDS[row["kind"]])}
    if "problem" in row:
        with pytest.raises(Refusal) as refused:
            read_inputs(table, {"it": row["typed"]})
        assert row["problem"] in refused.value.fields["it"][0]
    else:
        assert read_inputs(table, {"it": row["typed"]}).get("it") == row["value"]


def test_only_newly_typed_fields_of_a_change_are_read() -> None:
    table = {"name": Field(text()), "note": Field(text()), "on": Field(FLAG)}
    before = {"name": "a", "note": "b", "on": "on"}
    assert read_inputs(table, {"name": "a", "note": "", "on": "on"}, before=before) == {"note": None}
    assert read_inputs(table, {"name": "a", "note": "b"}, before=before) == {"on": False}


def test_each_kind_of_field_gets_its_input() -> None:
    table = {
        "name": Field(text(), required=True), "story": Field(text(2000)), "hook_url": Field(text(2000)), "tags": Field(TEXTS),
        "count": Field(whole()), "ok": Field(FLAG), "word": Field(one_of("a", "b", exact=True)), "data": Field(OBJECT_OR_LIST),
        "ends_at": Field(text()), "token": Field(text()),
    }  # fmt: skip
    found = make_inputs(table, {})
    controls = ["line", "area", "line", "area", "number", "tick", "choice", "json", "time", "secret"]
    assert [one.control for one in found] == controls and found[0].required and found[6].options == (("a", "a"), ("b", "b"))


def test_problems_are_next_to_their_input() -> None:
    table = {"assertion": Field(OBJECT), "name": Field(text())}
    problems = {"assertion.fields[0].path": ["unknown"], "name": ["required"], "elsewhere": ["odd"]}
    assert sort_problems(table, problems) == {"assertion": ["fields[0].path: unknown"], "name": ["required"], "": ["elsewhere: odd"]}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), VALUES, max_size=5))
def test_an_object_is_the_same_after_it_was_shown_and_sent_again(value: dict[str, Any]) -> None:
    field = Field(OBJECT)
    assert read_inputs({"it": field}, {"it": write_typed(field, value)})["it"] == value


@given(st.text(max_size=200), st.sampled_from(sorted(KINDS)))
def test_any_input_is_read_or_refused(typed: str, kind: str) -> None:
    try:
        read_inputs({"it": Field(KINDS[kind])}, {"it": typed})
    except Refusal as refusal:
        assert list(refusal.fields) == ["it"]
