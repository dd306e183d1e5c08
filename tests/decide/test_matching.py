"""Which cases a record answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proctor
from proctor.decide.matching import REFUSED_CODE, CaseIndex
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
    asked, wanted = row["given"], row["expect"]
    cases = tuple(case_of(dict(each)) for each in asked["cases"])
    left_out = tuple(case_of(dict(each)) for each in asked.get("left_out", []))
    suite = PreparedSuite(Suite(name="s", cases=cases, unselected=left_out))
    record = proctor.read_evidence(asked["record"])
    if "refused" in wanted:
        with pytest.raises(EvidenceError) as caught:
            suite.find(record)
        assert wanted["refused"] in caught.value.message and caught.value.code == wanted.get("code", REFUSED_CODE)
        return
    found = suite.find(record)
    assert (found is None) == wanted.get("unknown", False)
    assert [cases[position].id for position in found or ()] == wanted.get("cases", [])
    quick = suite.lookup.get(record.case)
    assert not quick or quick == tuple(suite.decides[position] for position in found or ())


def test_two_cases_with_one_id_are_refused_also_where_no_file_was_read() -> None:
    with pytest.raises(InputError, match="two cases have the id 'a'"):
        proctor.check(Suite(name="s", cases=(Case(id="a"), Case(id="a"))), {"text": "hi"})


MESSAGES = st.sampled_from(["x", "y", "z", "", "\ud800"])


@given(
    inputs=st.lists(st.one_of(st.none(), MESSAGES, st.lists(MESSAGES, min_size=2, max_size=3)), min_size=1, max_size=5),
    said=st.one_of(st.none(), MESSAGES, st.lists(MESSAGES, min_size=1, max_size=3), st.dictionaries(MESSAGES, st.floats())),
)
def test_no_case_with_an_input_of_its_own_is_answered_by_another_input(inputs: list[Any], said: Any) -> None:
    cases = [
        Case(id=f"c{number}", turns=tuple(Turn(input=text) for text in each))
        if isinstance(each, list)
        else Case(id=f"c{number}", input=each)
        for number, each in enumerate(inputs)
    ]
    index = CaseIndex(cases)
    try:
        found = index.find(Evidence(input=said)) or ()
    except EvidenceError:
        return
    if len(cases) > 1 and (any(isinstance(each, str) for each in inputs) or None not in inputs):
        assert found
        first = said[0] if isinstance(said, list) else said
        assert all(inputs[position] == said or inputs[position] == [said] or _first(inputs[position]) == first for position in found)


def _first(said: Any) -> Any:
    return said[0] if isinstance(said, list) else said
