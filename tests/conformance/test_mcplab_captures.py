"""MCPLab's `extract`: the text it captures from a final text, and the type it gives the text."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

import proctor
from proctor.decide.prepare import prepare_captures
from proctor.formats.suites import read_suite
from proctor.model.case import Capture
from proctor.model.evidence import Evidence, Json
from tests.tables import rows


def captured(text: str, regex: str) -> Json:
    return prepare_captures([Capture(name="it", pattern=regex)])(Evidence(text=text)).values["it"]


@rows("conformance/mcplab/captures.yaml")
def test_a_value_is_captured_as_in_mcplab(row: dict[str, Any]) -> None:
    value = captured(**row["given"])
    assert value == row["expect"] and isinstance(value, bool) == isinstance(row["expect"], bool)
    assert row["original"] == row["expect"] or row.get("why")


def test_a_number_with_thousands_of_digits_is_not_a_number() -> None:
    for literal in ("0x" + "f" * 5000, "0b" + "1" * 5000, "9" * 5000):
        assert captured(literal, ".*") is None


@pytest.mark.timeout(60)
def test_a_capture_that_times_out_is_reported_and_decides_nothing() -> None:
    suite = read_suite(
        "{proctor: 1, cases: [{id: c, expect: [response_contains: aaa], extract: {slow: '^(?=(a+)+$)a', quick: '(a)'}}]}", name="s"
    )
    [case] = proctor.check(suite, {"text": "a" * 5000 + "!"}).cases
    assert (case.outcome, case.extracted, case.code) == ("pass", {"slow": None, "quick": "a"}, "regex_timeout")
    assert case.reason is not None and case.reason.startswith("extract 'slow' could not be read: ")


def test_captured_values_are_in_the_result() -> None:
    suite = read_suite(
        textwrap.dedent("""
        id: only
        prompt: hi
        eval: {response_assertions: [{type: contains, value: total}]}
        extract:
          - {name: total, from: final_text, regex: 'total (?<value>\\d+)'}
          - {name: absent, from: final_text, regex: zzz}
        """)
    )
    [case] = proctor.check(suite, {"text": "total 12"}).cases
    assert case.outcome == "pass" and case.extracted == {"total": 12, "absent": None}
