"""How arguments are read, and names turned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.mcp_server.arguments import camel, camel_path, read_arguments, to_camel, to_snake
from proctor.mcp_server.tool import amount, text
from proctor.service.refusals import Refusal
from tests.tables import rows

PROPERTIES = {
    "taskId": text(""),
    "inputEntityId": {**text(""), "type": ["string", "null"]},
    "weight": {**amount(""), "type": ["number", "null"]},
    "item": {"type": "object"},
    "limit": amount("", least=1, whole=True),
    "kind": text("", "full", "failures"),
    "id": text(""),
}
ALLOWED = tuple(name for name in PROPERTIES if name != "id")


def read(given: dict[str, Any], *, clears: bool = False) -> dict[str, Any]:
    return read_arguments(given, PROPERTIES, allowed=ALLOWED, required=("taskId",), clears=clears, what="things create")


@rows("mcp_server/cases/arguments.yaml")
def test_arguments_are_read_as_in_the_table(row: dict[str, Any]) -> None:
    if "expect" in row:
        found = read(row["given"])
        assert found == row["expect"]
        assert [type(value) for value in found.values()] == [type(value) for value in row["expect"].values()]
        return
    path, part = row["refused"]
    with pytest.raises(Refusal) as raised:
        read(row["given"])
    assert part in raised.value.fields[path][0]
    assert "things create" in raised.value.message


def test_null_clears_only_where_it_is_a_value() -> None:
    assert read({"taskId": "t", "weight": None}, clears=True) == {"task_id": "t", "weight": None}
    with pytest.raises(Refusal, check=lambda error: list(error.fields) == ["item"]):
        read({"taskId": "t", "item": None}, clears=True)


@given(st.lists(st.text("abcdefghij", min_size=1, max_size=5), min_size=1, max_size=4))
def test_names_turned_twice_are_the_same(parts: list[str]) -> None:
    name = "_".join(parts)
    assert to_snake(to_camel(name)) == name


def test_only_names_of_ours_are_turned() -> None:
    record = {
        "task_id": "t",
        "assertion": {"resource_type": "X"},
        "data": {"some_key": {"a_b": 1}},
        "criterion_runs": [{"evidence": {"field_results": []}, "task_run_id": "r"}],
        "axes": {"my_axis": {"score": 1}},
    }
    assert camel({"data": [record], "_meta": {"next": None}}) == {
        "data": [
            {
                "taskId": "t",
                "assertion": {"resource_type": "X"},
                "data": {"some_key": {"a_b": 1}},
                "criterionRuns": [{"evidence": {"field_results": []}, "taskRunId": "r"}],
                "axes": {"my_axis": {"score": 1}},
            }
        ],
        "_meta": {"next": None},
    }


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("input_entity_id", "inputEntityId"),
        ("assertion.resource_type", "assertion.resource_type"),
        ("task_item[0].a_b", "taskItem[0].a_b"),
        ("", ""),
    ],
)
def test_paths_are_turned_up_to_what_the_author_wrote(path: str, shown: str) -> None:
    assert camel_path(path) == shown
