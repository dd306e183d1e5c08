from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from proctor.decide.selection import compile_selection, select
from proctor.errors import InputError
from proctor.model.case import Case, Suite

REFUND = Case(id="refund-1", name="Slow refund", tags={"test_dimension": "billing", "smoke": True, "area": ["pay", "back"]})
LOGIN = Case(id="login", name="Log in", tags={"area": "sign in"})


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("refund", "refund-1"),
        ("REFUND", "refund-1"),
        ("login or refund", "refund-1 login"),
        ("not refund", "login"),
        ("refund and not slow", ""),
        ("(login or refund) and smoke", "refund-1"),
        ("test_dimension=billing", "refund-1"),
        ("test_dimension=bill", ""),
        ("'Slow refund'", "refund-1"),
        ('"log in"', "login"),
        ("not (refund or login)", ""),
        ("not not login", "login"),
        ("id=refund-1", "refund-1"),
        ("id=REFUND-1 or id=login", "refund-1 login"),
        ("id=refund", ""),
        ('name="slow refund"', "refund-1"),
        ("name='Log in' and not id=refund-1", "login"),
        ("not id=login", "refund-1"),
        ('test_dimension="billing"', "refund-1"),
        ("area=pay", "refund-1"),
        ("area='sign in'", "login"),
    ],
)
def test_cases_are_chosen_by_id_name_and_tags(expression: str, chosen: str) -> None:
    suite = Suite(name="s", cases=(REFUND, LOGIN))
    assert " ".join(case.id for case in select(suite, expression).cases) == chosen


@pytest.mark.parametrize(("expression", "column"), [("refund and", 11), ("(refund", 8), ("refund login", 8), ("'open", 1), (")", 1)])
def test_a_bad_expression_names_the_column(expression: str, column: int) -> None:
    with pytest.raises(InputError) as caught:
        compile_selection(expression)
    assert caught.value.problems[0].origin.column == column


@given(st.text(max_size=60))
def test_any_text_selects_or_is_refused(expression: str) -> None:
    try:
        compile_selection(expression or "x")(REFUND)
    except InputError:
        pass
