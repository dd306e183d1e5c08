"""The fence round the FHIRPath library: nothing hangs, prints, changes the resource or reaches for the wall clock."""

from __future__ import annotations

import copy
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.systems._fhirpath import compile_fhirpath
from proctor.errors import CheckFault, MissingExtra, SpecError

PATIENT = {"resourceType": "Patient", "id": "p", "name": [{"family": "Chalmers", "given": ["Peter", "James"]}], "birthDate": "1974-12-25"}
NOW = datetime(2026, 11, 15, 9, tzinfo=UTC)


def evaluate(text: str, resource=PATIENT, now=NOW):
    return compile_fhirpath(text, field="fhirpath").evaluate(resource, now)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("name.given", ["Peter", "James"]),
        ("Patient.name.given.first()", ["Peter"]),
        ("name.family.matches('^Chal')", [True]),
        ("name.family.matches('^chal')", [False]),
        ("birthDate + 1 year", ["1975-12-25"]),
        ("today()", ["2026-11-15"]),
        ("now()", ["2026-11-15T09:00:00.000+00:00"]),
        ("timeOfDay()", ["09:00:00.000"]),
        ("1 / 4", [0.25]),
        ("2 * 3", [6]),
        ("name.repeat($this).count()", [1]),
        ("repeat(children()).where($this = 'James')", ["James"]),
        ("name.given.join('-')", ["Peter-James"]),
        ("nothing.here", []),
    ],
)
def test_an_expression_has_values(text, values):
    assert evaluate(text) == values


MANY = "(" + " | ".join(f"'{number}'" for number in range(21)) + ")"


@pytest.mark.parametrize(
    "text",
    [
        "name.given.repeat($this & 'a')",
        "name.given.repeat(%context.name.given | $this & 'x')",
        f"{MANY}.aggregate($total & $total, 'aa')",
        f"{MANY}.aggregate($total * $total, 9)",
        f"{MANY}.select({MANY}.select({MANY}.select({MANY}.count())))",
    ],
)
def test_an_expression_without_end_is_stopped(text):
    with pytest.raises(CheckFault) as caught:
        evaluate(text)
    assert caught.value.code == "fhirpath_limit"


def test_a_text_cannot_grow_out_of_bounds_in_one_step():
    long = {"resourceType": "Patient", "note": "x" * 100_000}
    with pytest.raises(CheckFault, match="a text of more than"):
        evaluate("note.replace('', note)", long)
    with pytest.raises(CheckFault, match="a text of more than"):
        evaluate("note.replace('x', note)", long)
    with pytest.raises(CheckFault, match="a text of more than"):
        evaluate("notes.join(%context.note)", {**long, "notes": ["x"] * 5_000})


def test_a_resource_nested_too_deeply_is_refused():
    deep: object = "x"
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(CheckFault, match="nested deeper than"):
        evaluate("descendants()", {"resourceType": "Patient", "a": deep})


def test_a_chain_of_many_steps_does_not_break_the_run():
    assert evaluate(".".join(["name"] * 200)) == []


def test_the_resource_is_left_as_it_is():
    before = copy.deepcopy(PATIENT)
    evaluate("descendants().where($this is string).count() + name.given.count()")
    assert before == PATIENT


def test_trace_prints_nothing(capsys):
    assert evaluate("name.given.trace('x')") == ["Peter", "James"]
    assert capsys.readouterr() == ("", "")


def test_messages_carry_no_memory_addresses():
    with pytest.raises(CheckFault) as caught:
        evaluate("name.given.upper()")
    assert "0x" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("", 0, "unexpected 'end'"),
        ("name.", 5, "unexpected 'end' at character 6"),
        ("name.given )", 11, "unexpected ')'"),
        ("name.\ngiven )", 12, "unexpected ')'"),
        ("'abc", 0, "token recognition error"),
        ("a.replaceMatches('a', 'b')", 2, "unknown function replaceMatches()"),
        ("x" * 2_000, None, "the longest allowed is 1000"),
        ("(" * 400 + "a" + ")" * 400, None, "brackets nested more than 50 deep"),
    ],
)
def test_unreadable_expressions_are_refused(text, offset, message):
    with pytest.raises(SpecError) as caught:
        compile_fhirpath(text, field="fhirpath")
    assert message in caught.value.message
    assert caught.value.offset == offset


def test_without_the_library_the_install_command_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("fhirpathpy")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fhirpathpy", None)
    with pytest.raises(MissingExtra, match=r"pip install 'proctor-evals\[health\]'"):
        compile_fhirpath("name", field="fhirpath")


PIECES = st.sampled_from(
    ["name", ".", "given", "(", ")", "where(", "'a'", "=", "1", " and ", "exists()", "$this", "|", "first()", "@2026", "%x", "{}", "-", "["]
)


@settings(max_examples=80, deadline=None)
@given(st.one_of(st.text(max_size=30), st.lists(PIECES, max_size=8).map("".join)))
def test_any_text_is_refused_or_evaluated_or_faults(text):
    try:
        assert isinstance(evaluate(text), list)
    except (SpecError, CheckFault):
        pass
