from __future__ import annotations

import time as clock
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import CheckFault, SpecError
from proctor.expressions.expression import DEEPEST, MOST_TEXT, compile_expression
from proctor.expressions.functions import FUNCTIONS
from proctor.expressions.lexer import LONGEST
from proctor.expressions.moments import read_moment, shift_moment
from proctor.expressions.text_form import NO_SCOPE, Scope
from proctor.model.evidence import Evidence
from tests.tables import rows

NOW = "2026-11-15T09:30:00Z"


def scope_of(given: dict[str, Any]) -> Scope:
    return Scope.read_from(Evidence(context=given.get("context"), now=given.get("now", NOW), timezone=given.get("zone")))


def written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return f"date {value.isoformat()}" if isinstance(value, date) else value


@rows("expressions/cases/values.yaml")
def test_an_expression_has_its_value(row: dict[str, Any]) -> None:
    value = written(compile_expression(row["given"]["expression"]).evaluate(scope_of(row["given"])))
    assert value == row["expect"]
    assert type(value) is type(row["expect"])


@rows("expressions/cases/spec_errors.yaml")
def test_a_fault_in_the_text_is_reported_with_its_offset(row: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        compile_expression(row["given"], field="expression")
    assert row["expect"]["message"] in caught.value.message
    assert caught.value.offset == row["expect"]["offset"]
    assert caught.value.field == "expression"
    if "nearest" in row["expect"]:
        assert row["expect"]["nearest"] in caught.value.nearest


@rows("expressions/cases/faults.yaml")
def test_an_expression_without_a_value_names_the_cause(row: dict[str, Any]) -> None:
    expression = compile_expression(row["given"]["expression"])
    with pytest.raises(CheckFault) as caught:
        expression.evaluate(scope_of(row["given"]))
    assert caught.value.code == "expression_error"
    for part in row["expect"]:
        assert part in caught.value.message


def test_every_function_has_an_example_that_can_be_read() -> None:
    for function in FUNCTIONS.values():
        assert compile_expression(function.example).root
        assert function.signature.startswith(f"{function.name}(")
        assert function.summary.endswith(".")


def test_every_documented_function_is_there() -> None:
    assert set(FUNCTIONS) == {
        "TODAY", "NOW", "DATE_ADD", "DATE_SUB", "AT_TIME", "FORMAT_DATE", "CONCAT", "UPPER", "LOWER", "JSON_EXTRACT",
    }  # fmt: skip


def test_variables_are_listed_with_their_places() -> None:
    expression = compile_expression("CONCAT(A, UPPER(B), TODAY, 'C', true)")
    assert [(v.name, v.offset) for v in expression.list_variables()] == [("A", 7), ("B", 16), ("TODAY", 20)]


def test_nesting_is_bounded() -> None:
    deep = "UPPER(" * DEEPEST + "'a'" + ")" * DEEPEST
    assert compile_expression(deep).evaluate(NO_SCOPE) == "A"
    with pytest.raises(SpecError, match="nested more than"):
        compile_expression(f"UPPER({deep})")


def test_very_deep_text_does_not_exhaust_the_stack() -> None:
    with pytest.raises(SpecError):
        compile_expression("UPPER(" * 1_600)


def test_length_is_bounded() -> None:
    with pytest.raises(SpecError, match="at most"):
        compile_expression("'" + "a" * LONGEST + "'")


def test_text_cannot_grow_without_end() -> None:
    scope = Scope(context={"A": "x" * 1_000})
    expression = compile_expression("CONCAT(" + ", ".join(["A"] * 1_500) + ")")
    with pytest.raises(CheckFault, match=f"more than {MOST_TEXT} characters"):
        expression.evaluate(scope)


def test_large_json_text_is_not_read_again_and_again() -> None:
    scope = Scope(context={"A": '"' + "x" * 600_000 + '"'})
    expression = compile_expression("CONCAT(JSON_EXTRACT(CONCAT('[', A, ']'), 0), 'b')")
    with pytest.raises(CheckFault, match="more than"):
        expression.evaluate(scope)


def test_deep_json_text_is_a_fault() -> None:
    scope = Scope(context={"A": "[" * 50_000 + "]" * 50_000})
    with pytest.raises(CheckFault, match="expected JSON text"):
        compile_expression("JSON_EXTRACT(A, '0')").evaluate(scope)


def test_a_deep_value_as_text_is_a_fault() -> None:
    deep: Any = []
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(CheckFault) as caught:
        compile_expression("CONCAT(A)").evaluate(Scope(context={"A": deep}))
    assert caught.value.code == "value_too_deep"


def test_an_enormous_number_as_text_is_a_fault() -> None:
    with pytest.raises(CheckFault) as caught:
        compile_expression("CONCAT(A)").evaluate(Scope(context={"A": 10**5_000}))
    assert caught.value.code == "value_too_large"


def test_a_format_is_bounded() -> None:
    with pytest.raises(SpecError, match="at most"):
        compile_expression(f"FORMAT_DATE(TODAY, '{'%Y' * 600}')")


def test_the_variable_timezone_is_the_zone() -> None:
    evidence = Evidence(context={"timezone": "America/New_York"}, timezone="Europe/Berlin", now=NOW)
    assert Scope.read_from(evidence).zone == "America/New_York"
    assert Scope.read_from(Evidence(context={"timezone": 5}, timezone="Europe/Berlin")).zone == "Europe/Berlin"
    assert Scope.read_from(Evidence()).zone == "UTC"


def test_a_clock_without_an_offset_is_read_in_the_zone() -> None:
    scope = Scope.read_from(Evidence(now="2026-11-15T09:30:00", timezone="Europe/Berlin"))
    assert scope.now == datetime(2026, 11, 15, 8, 30, tzinfo=UTC)


def test_a_clock_that_is_a_day_is_its_midnight() -> None:
    assert Scope.read_from(Evidence(now="2026-11-15", timezone="Europe/Berlin")).now == datetime(2026, 11, 14, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-15",
        "2026-11-15T09:30",
        "2026-11-15 09:30:15",
        "2026-11-15t09:30:15.123456789z",
        "2026-11-15T09:30+0100",
        "2026-11-15T09:30 -05",
    ],
)
def test_iso_text_is_a_date(text: str) -> None:
    assert read_moment(text) is not None


@pytest.mark.parametrize(
    "text",
    ["", "15.11.2026", "2026-13-01", "2026-11-15T24:00", "2026-11-15T09", "2026-11-15x09:30", "2026-11-15T09:30+25:00",
     "2026-11-15T09:60", "٢٠٢٦-١١-١٥", "2026-11-15 ", "20261115", "2026-11-15T09:30:00+01:00[Europe/Berlin]" + "x" * 60],
)  # fmt: skip
def test_other_text_is_no_date(text: str) -> None:
    assert read_moment(text) is None


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="TODAYNWCUPERX_(),'\" 0123456789.-\\%dayshor", max_size=80))
def test_any_text_ends_in_a_value_or_a_known_fault(text: str) -> None:
    try:
        compile_expression(text).evaluate(scope_of({"context": {"X": 1}}))
    except (SpecError, CheckFault):
        pass


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.sampled_from(["TODAY", "NOW()", "'2026-01-31'", "A", "B", "5", "-3", "'days'", "'10:00'", "'%Y'", "null", "true", "'hours'"]),
        lambda inner: st.builds(
            lambda name, arguments: f"{name}({', '.join(arguments)})", st.sampled_from(sorted(FUNCTIONS)), st.lists(inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_any_nesting_of_functions_ends_and_repeats_exactly(text: str) -> None:
    scope = scope_of({"context": {"A": {"a": [1]}, "B": '{"b": 2}'}, "zone": "Europe/Berlin"})

    def outcome() -> object:
        try:
            return compile_expression(text).evaluate(scope)
        except (SpecError, CheckFault) as error:
            return type(error), error.message

    assert outcome() == outcome()


@settings(max_examples=100, deadline=None)
@given(st.dates(date(1970, 1, 1), date(2100, 1, 1)), st.integers(-1000, 1000))
def test_adding_and_subtracting_days_are_inverse(day: date, count: int) -> None:
    moved = shift_moment(day, count, "days", UTC)
    assert moved == day + timedelta(days=count)
    assert shift_moment(moved, -count, "days", UTC) == day


def test_a_hostile_expression_is_quick() -> None:
    started = clock.process_time()
    for text in ("(" * 9_000, "'" * 9_001, "-" * 9_000, "A," * 4_000, "UPPER(" * 1_500):
        with pytest.raises(SpecError):
            compile_expression(text)
    assert clock.process_time() - started < 1
