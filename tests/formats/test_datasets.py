"""Datasets of pydantic-evals and DeepEval as suites; the files under `datasets/` were written by the libraries themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.errors import InputError
from tests.tables import rows

FOLDER = Path(__file__).parent / "datasets"


@rows("formats/cases/datasets.yaml")
def test_an_evaluator_decides_as_in_pydantic_evals(row: dict[str, Any]) -> None:
    case = {"inputs": "go", "expected_output": row.get("expected_output"), "evaluators": [row["evaluator"]]}
    suite = proctor.parse_suite(json.dumps({"cases": [case]}))
    found = [assertion.check for assertion in suite.cases[0].assertions]
    assert found == row["checks"]
    for evidence, outcome in row.get("decides", []):
        result = proctor.check(suite, proctor.read_evidence(evidence))
        assert (evidence, result.cases[0].outcome) == (evidence, outcome)


def test_files_of_the_libraries_are_recognised() -> None:
    orders = proctor.load_suite(FOLDER / "pydantic_evals.yaml")
    assert (orders.dialect, orders.name, [case.id for case in orders.cases]) == ("pydantic-evals", "Orders", ["where", "case-2"])
    assert len(orders.cases[0].assertions) == 12 and orders.cases[0].tags == {"team": "shop"}
    goldens = proctor.load_suite(FOLDER / "deepeval.json")
    assert (goldens.dialect, [case.id for case in goldens.cases]) == ("deepeval", ["where", "golden-2"])
    assert [assertion.check for assertion in goldens.cases[0].assertions] == ["tool_calls_match", "judged"]
    assert goldens.cases[0].context == {"context": ["c"], "retrieval_context": ["r"]}


def test_converted_datasets_are_native_suites(tmp_path: Path) -> None:
    from proctor.actions.checking.convert import convert

    for name in ("pydantic_evals.yaml", "deepeval.json"):
        text, _ = convert(FOLDER / name)
        again = proctor.parse_suite(text)
        assert [case.id for case in again.cases] == [case.id for case in proctor.load_suite(FOLDER / name).cases]


@pytest.mark.parametrize(
    ("evaluator", "message"),
    [
        ({"Contains": {"text": "x"}}, "Contains: expected the arguments value"),
        (["x"], "an evaluator: expected a name"),
        (7, "an evaluator"),
    ],
)
def test_a_wrong_evaluator_is_reported(evaluator: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        proctor.parse_suite(json.dumps({"cases": [{"inputs": "x", "evaluators": [evaluator]}]}))
    assert message in str(caught.value)
