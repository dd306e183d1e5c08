"""Claims about the text of the answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.checks.answer import text, text_pattern
from proctor.checks.registry import collect
from proctor.errors import CheckFault, SpecError
from proctor.model.verdict import Verdict
from tests.builders import evidence
from tests.tables import rows

REGISTRY = collect([text, text_pattern])


def decide(name: str, fields: dict[str, Any], answer: str | None) -> Verdict:
    spec = msgspec.convert(fields, REGISTRY.get(name).spec)
    return REGISTRY.prepare(name, spec)(evidence(answer))


@rows("checks/cases/text.yaml")
def test_a_claim_about_the_text_is_decided(row: dict[str, Any]) -> None:
    verdict = decide(row["check"], row["given"], row["answer"])
    assert (verdict.outcome, verdict.code) == (row["expect"], row.get("code"))
    assert row.get("reason", "") in verdict.reason
    if verdict.outcome == "pass" or verdict.code is None:
        assert verdict.pointers == ("$.text",)


def test_a_pass_is_one_object_again_and_again() -> None:
    for name, fields in (
        ("response_contains", {"text": "a"}),
        ("response_not_contains", {"text": "z"}),
        ("response_starts_with", {"text": "a"}),
        ("response_ends_with", {"text": "c"}),
        ("response_equals", {"text": "abc"}),
        ("response_matches", {"pattern": "b"}),
        ("response_not_empty", {}),
    ):
        prepared = REGISTRY.prepare(name, msgspec.convert(fields, REGISTRY.get(name).spec))
        assert prepared(evidence("abc")) is prepared(evidence("ABC".lower()))


def test_an_invalid_pattern_is_an_error_of_the_suite_with_its_place() -> None:
    with pytest.raises(SpecError) as caught:
        decide("response_matches", {"pattern": "ab[", "flags": "i"}, "x")
    assert (caught.value.field, caught.value.offset) == ("pattern", 2)


def test_the_place_counts_the_flags_that_were_dropped() -> None:
    with pytest.raises(SpecError) as caught:
        decide("response_matches", {"pattern": "(?i)ab[", "drop_inline_flags": True}, "x")
    assert caught.value.offset == 6


@pytest.mark.timeout(60)
def test_a_pattern_that_runs_away_is_a_fault_and_no_verdict() -> None:
    with pytest.raises(CheckFault) as caught:
        decide("response_matches", {"pattern": "(a+)+$"}, "a" * 40 + "!")
    assert caught.value.code == "regex_timeout"


def test_a_reason_stays_short_however_long_the_answer() -> None:
    for name in ("response_contains", "response_equals", "response_starts_with", "response_ends_with"):
        assert len(decide(name, {"text": "needle"}, "hay " * 100_000).reason) < 500
    assert len(decide("response_not_contains", {"text": "x" * 10_000}, "x" * 100_000).reason) < 1_000


@given(st.text(max_size=12), st.text(max_size=4), st.booleans())
@settings(max_examples=150, deadline=None)
def test_containing_and_not_containing_never_agree(answer: str, needle: str, ignore_case: bool) -> None:
    fields = {"text": needle, "ignore_case": ignore_case}
    assert decide("response_contains", fields, answer).passed != decide("response_not_contains", fields, answer).passed


@given(st.text(max_size=12), st.sampled_from(["a", r"\d+", "^x", "(b)?$", "é"]))
@settings(max_examples=100, deadline=None)
def test_matching_and_not_matching_never_agree(answer: str, pattern: str) -> None:
    there = decide("response_matches", {"pattern": pattern}, answer).passed
    assert there != decide("response_matches", {"pattern": pattern, "should_match": False}, answer).passed
