"""Which cases a record answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proctor
from proctor.decide.matching import REFUSED_CODE, CaseIndex
from proctor.decide.other_input import OTHER_INPUT, OtherInputs, has_other_input
from proctor.decide.prepare import PreparedSuite
from proctor.errors import EvidenceError, InputError
from proctor.model.case import Case, Suite, Turn
from proctor.model.evidence import Evidence
from tests.tables import rows


def case_of(row: dict[str, Any]) -> Case:
    turns = [{"input": text} for text in row.pop("turns", [])]
    return msgspec.convert({**row, "turns": turns}, Case)


@rows("decide/cases/matching.yaml")
def test_a_record_answers_the_cases_it_means_or_is_refused(row: dict[str, Any]) -> None:
    setup, wanted = row["given"], row["expect"]
    cases = tuple(case_of(dict(each)) for each in setup["cases"])
    left_out = tuple(case_of(dict(each)) for each in setup.get("left_out", []))
    suite = PreparedSuite(Suite(name="s", cases=cases, unselected=left_out))
    record = proctor.read_evidence(setup["record"])
    if "refused" in wanted:
        with pytest.raises(EvidenceError) as caught:
            suite.find(record)
        assert wanted["refused"] in caught.value.message and caught.value.code == wanted.get("code", REFUSED_CODE)
        return
    found = suite.find(record)
    assert (found is None) == wanted.get("unknown", False)
    assert [cases[position].id for position in found or ()] == wanted.get("cases", [])
    differs = any(has_other_input(cases[position], record) for position in found or ())
    assert differs == wanted.get("other_input", False)
    quick = suite.lookup.get(record.case)
    assert not quick or (quick == tuple(suite.decides[position] for position in found or ()) and not differs)


def test_records_with_another_input_are_counted_by_case_with_one_example() -> None:
    refund, greet = Case(id="refund", input="refund me"), Case(id="greet", input="hello")
    one, two = OtherInputs(), OtherInputs()
    for counted, case, recorded in ((one, refund, "a"), (one, refund, "b"), (two, refund, "c"), (two, greet, "d"), (two, greet, "hello")):
        counted.note(case, Evidence(input=recorded))
    one.merge(msgspec.json.decode(msgspec.json.encode(two), type=OtherInputs))
    assert one.records == 4
    assert [(problem.code, problem.level, problem.message) for problem in one.list_warnings()] == [
        (OTHER_INPUT, "warning", _warn("3 records were decided although their", "refund", "refund me", "a")),
        (OTHER_INPUT, "warning", _warn("1 record was decided although its", "greet", "hello", "d")),
    ]


def _warn(count: str, case: str, expected: str, recorded: str) -> str:
    return f'{count} input differs from that of the case {case!r}: the case has "{expected}", the record has "{recorded}"'


def test_beyond_a_hundred_cases_records_with_another_input_are_counted_together() -> None:
    counted, other = OtherInputs(), OtherInputs()
    for number in range(102):
        counted.note(Case(id=f"c{number}", input="x"), Evidence(input="y"))
    for number in range(200, 203):
        other.note(Case(id=f"c{number}", input="x"), Evidence(input="y"))
    counted.merge(other)
    warnings = [problem.message for problem in counted.list_warnings()]
    assert (counted.records, len(warnings), warnings[-1].split(" were")[0]) == (105, 101, "5 records")


@given(case=st.text(max_size=5), recorded=st.text(max_size=5))
def test_inputs_differ_only_if_they_differ_in_more_than_white_space(case: str, recorded: str) -> None:
    found = has_other_input(Case(id="a", input=case), Evidence(input=recorded))
    assert not found or "".join(case.split()) != "".join(recorded.split())
    assert not has_other_input(Case(id="a", input=case), Evidence(input=f" {case}\n"))


def test_two_cases_with_one_id_are_refused_also_where_no_file_was_read() -> None:
    with pytest.raises(InputError, match="two cases have the id 'a'"):
        proctor.check(Suite(name="s", cases=(Case(id="a"), Case(id="a"))), {"text": "hi"})


MESSAGES = st.sampled_from(["x", "y", "z", "", "\ud800"])


@given(
    inputs=st.lists(st.one_of(st.none(), MESSAGES, st.lists(MESSAGES, min_size=2, max_size=3)), min_size=1, max_size=5),
    recorded=st.one_of(st.none(), MESSAGES, st.lists(MESSAGES, min_size=1, max_size=3), st.dictionaries(MESSAGES, st.floats())),
)
def test_no_case_with_an_input_of_its_own_is_answered_by_another_input(inputs: list[Any], recorded: Any) -> None:
    cases = [
        Case(id=f"c{number}", turns=tuple(Turn(input=text) for text in each))
        if isinstance(each, list)
        else Case(id=f"c{number}", input=each)
        for number, each in enumerate(inputs)
    ]
    index = CaseIndex(cases)
    try:
        found = index.find(Evidence(input=recorded)) or ()
    except EvidenceError:
        return
    if len(cases) > 1 and (any(isinstance(each, str) for each in inputs) or None not in inputs):
        assert found
        first = recorded[0] if isinstance(recorded, list) else recorded
        assert all(
            inputs[position] == recorded or inputs[position] == [recorded] or _first(inputs[position]) == first for position in found
        )


def _first(recorded: Any) -> Any:
    return recorded[0] if isinstance(recorded, list) else recorded
