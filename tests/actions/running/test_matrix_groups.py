"""Which cases go to one target, where the suites of a folder have different axes."""

from __future__ import annotations

from proctor.actions.running.run_builder import split_by_matrix
from proctor.formats.workspace_file import Section
from proctor.model.case import Case, Suite


def test_a_case_without_a_matrix_does_not_affect_those_with_one() -> None:
    section = Section.of({"type": "command", "command": "agent --model {model}"})
    cases = (
        Case(id="plain"),
        Case(id="a", settings={"matrix": {"model": "a"}}),
        Case(id="b", settings={"matrix": {"model": "b"}}),
        Case(id="c", settings={"matrix": {"prompt": "x"}}),
    )
    groups = split_by_matrix(Suite(name="s", cases=cases), None, lambda name: section)
    assert [[case.id for case in group.suite.cases] for group in groups] == [["plain", "c"], ["a"], ["b"]]
