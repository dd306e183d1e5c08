"""`argument_copied` and `answer_repeats` by table."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.checks.registry import default_registry
from proctor.decide.prepare import PreparedCase
from proctor.errors import SpecError
from proctor.evidence.reading import read_document
from proctor.model.case import Assertion, Case
from tests.tables import rows


@rows("checks/cases/data_flow.yaml")
def test_a_claim_about_the_source_of_a_value_decides(row: dict[str, Any]) -> None:
    registry = default_registry()
    spec = registry.get(row["check"]).spec(**row["spec"])
    case = PreparedCase(Case(id="a", assertions=(Assertion(check=row["check"], spec=spec),)), registry)
    (verdict,) = case.decide(read_document(row["evidence"])[0]).verdicts
    assert verdict.outcome == row["expect"], verdict.reason
    assert verdict.code == row.get("code")
    assert row.get("reason", "") in verdict.reason


@pytest.mark.parametrize(
    ("check", "spec"),
    [
        ("argument_copied", {"tool": "", "argument": "a"}),
        ("argument_copied", {"tool": "a", "argument": "a", "path": "b"}),
        ("answer_repeats", {"tool": "a"}),
        ("answer_repeats", {"tool": "a", "argument": "b", "path": "c"}),
    ],
)
def test_an_incomplete_claim_is_rejected(check: str, spec: dict[str, Any]) -> None:
    registry = default_registry()
    with pytest.raises(SpecError):
        registry.prepare(check, registry.get(check).spec(**spec))
