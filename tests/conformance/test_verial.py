"""Criteria from Verial's documentation, decided on a state.

The original is closed: `original` is the documented result, not an observed one.
"""

from __future__ import annotations

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.formats.suites import read_suite
from proctor.model.evidence import Evidence
from tests.tables import load, rows


@rows("conformance/verial/criteria.yaml")
def test_a_criterion_is_decided(row):
    suite = read_suite(row["document"], file="criteria.json")
    assert suite.dialect == "verial"
    [assertion] = suite.cases[0].assertions
    verdict = default_registry().prepare(assertion.check, assertion.spec)(msgspec.convert({"state": row["state"]}, Evidence))
    expect = row["expect"]
    assert (verdict.outcome, verdict.score, verdict.code) == (expect["outcome"], expect["score"], expect.get("code")), verdict.reason
    for key, value in expect.get("evidence", {}).items():
        assert verdict.details[key] == value


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in load("conformance/verial/criteria.yaml")])
def test_every_difference_has_a_reason(row):
    original, expect = row["original"], row["expect"]
    ours = {"passed": expect["outcome"] == "pass", "score": expect["score"], "evidence": expect.get("evidence")}
    same = original is not None and all(ours[key] == value for key, value in original.items())
    assert same is ("why" not in row)
