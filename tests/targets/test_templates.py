"""Placeholders: which exist, how their types are converted, and which are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import SpecError
from proctor.model.case import Case
from proctor.targets.shared.templates import BUILT_IN, Template, unknown_placeholders, values_for
from proctor.targets.shared.wire import json_bytes
from tests.tables import rows


@rows("targets/cases/templates.yaml")
def test_a_template_becomes_the_body(row: dict[str, Any]) -> None:
    values = values_for(row.get("context", {}), message=row.get("message", "hello"), request_id="req-1", session_id="ses-1")
    if "error" in row:
        with pytest.raises(SpecError, match=row["error"]) as caught:
            Template(row["template"])
        assert caught.value.field == row["field"]
        assert caught.value.offset == row.get("offset")
    else:
        filled = Template(row["template"]).fill(values)
        assert filled == row["expect"]
        assert json.dumps(filled, sort_keys=True) == json.dumps(row["expect"], sort_keys=True), "types do not change"


def test_a_missing_variable_is_a_problem_of_the_case_with_the_nearest_name() -> None:
    template = Template({"user": "{USER_ID}", "say": "{user_message}"})
    cases = [
        Case(id="has", input="hi", context={"USER_ID": 1}),
        Case(id="lacks", input="hi", context={"USERID": 1}),
        Case(id="own", custom_body={"a": 1}),
    ]
    problems = unknown_placeholders(template.placeholders, cases, "shop")
    assert [problem.message for problem in problems] == [
        "target 'shop' sends {USER_ID}, but case 'lacks' has no variable of that name in its context"
    ]
    assert problems[0].nearest[0] == "USERID"


def test_built_in_names_win_over_variables() -> None:
    values = values_for({"input": "mine", "session_id": "mine"}, message="hi", request_id="r", session_id="s", messages=["hi"])
    assert {name: values[name] for name in BUILT_IN} == {
        "user_message": "hi",
        "input": "hi",
        "request_id": "r",
        "external_id": "r",
        "session_id": "s",
        "messages": ["hi"],
    }


def test_a_variable_named_messages_keeps_its_value() -> None:
    assert values_for({"messages": "mine"}, message="hi", request_id="r", session_id="s", messages=["hi"])["messages"] == "mine"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(message=st.text(), value=JSON)
def test_filled_in_values_keep_the_body_valid_json(message: str, value: Any) -> None:
    template = Template({"a": "{user_message}", "b": ["{V}", "x{V}y"], "c": "{{V}}"})
    filled = template.fill(values_for({"V": value}, message=message, request_id="r", session_id="s"))
    try:
        sent = json.loads(json_bytes(filled))
    except Exception:
        # A lone surrogate cannot be encoded as UTF-8.
        assert any(0xD800 <= ord(c) <= 0xDFFF for c in json.dumps([message, value], ensure_ascii=False))
        return
    assert sent["a"] == message
    assert sent["b"][0] == value
    assert isinstance(sent["b"][1], str) and sent["c"] == "{V}"


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_doubled_braces_are_literal(text: str) -> None:
    doubled = text.replace("{", "{{").replace("}", "}}")
    # As a member, so that a text that happens to be JSON is not read as a template.
    assert Template({"a": doubled}).fill({}) == {"a": text}
