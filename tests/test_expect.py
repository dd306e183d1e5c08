"""Expectations in test code: passing chains, and failures with full reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.errors import SpecError
from proctor.expectations import ExpectationFailed, Expectations, expect
from proctor.model.evidence import Evidence, EvidenceTurn, ToolCall, Usage
from tests.builders import call, evidence

SEEN = Evidence(
    text='Found 3 shoes: {"count": 3}',
    body={"count": 3, "items": [{"sku": "s1"}]},
    tool_calls=(call("search", {"q": "shoes", "limit": 10}), call("lookup", {"id": 17}), call("search", {"q": "boots"})),
    http_status=200,
    duration_ms=120.0,
    usage=Usage(input_tokens=100, output_tokens=50),
    turns=(EvidenceTurn(input="hi", http_status=200, duration_ms=120.0),),
)


def test_a_chain_of_expectations_that_hold() -> None:
    chain = expect(SEEN)
    found = (
        chain.called("search")
        .called("search", q="shoes")
        .called("search", arguments={"q": {"$contains": "boo"}})
        .called_with_exactly("lookup", id=17)
        .not_called("pay")
        .not_called("search", q="hats")
        .called_times("search", 2)
        .called_in_order("search", "lookup")
        .called_exactly(["search", "lookup", "search"])
        .called_all("lookup", "search")
        .called_any("pay", "lookup")
        .first_tool("search")
        .says("found 3")
        .does_not_say("sorry")
        .matches(r"^Found \d+")
        .json("$.items[0].sku", equals="s1")
        .json("$.error", exists=False)
        .field("items.0.sku", "s1")
        .conforms_to({"type": "object", "required": ["count"]})
        .status(200)
        .within_ms(200)
        .within_tokens(200, input=100)
        .within_turns(1)
        .check("tool_called", name="search", at_least=2)
    )
    assert found is chain
    expect(evidence("hi")).no_tools()


FAILING: list[tuple[Callable[[Expectations], Any], str]] = [
    (lambda e: e.called("pay"), '"pay" was never called'),
    (lambda e: e.called("lookup", id=18), "expected 18, found 17"),
    (lambda e: e.called_with_exactly("search", q="shoes"), "limit"),
    (lambda e: e.not_called("lookup"), "it was called once"),
    (lambda e: e.not_called("lookup", id=17), "it was called once"),
    (lambda e: e.called_times("search", 1), "it was called twice"),
    (lambda e: e.called_in_order("lookup", "lookup"), "lookup -> lookup"),
    (lambda e: e.called_exactly(["search"]), "one too many"),
    (lambda e: e.called_all("search", "pay"), '"pay" never called'),
    (lambda e: e.called_any("pay", "refund"), "at least one of"),
    (lambda e: e.no_tools(), "expected no tool call at all"),
    (lambda e: e.first_tool("lookup"), "the first tool"),
    (lambda e: e.says("boots"), "boots"),
    (lambda e: e.does_not_say("shoes"), "shoes"),
    (lambda e: e.matches("^shoes"), "shoes"),
    (lambda e: e.json("$.count", equals=4), "4"),
    (lambda e: e.field("count", 4), "4"),
    (lambda e: e.conforms_to({"type": "array"}), "array"),
    (lambda e: e.status(404), "404"),
    (lambda e: e.within_ms(100), "100"),
    (lambda e: e.within_tokens(100), "100"),
    (lambda e: e.within_turns(0), "0"),
    (lambda e: e.check("tool_call_count", name="search", count=3), "3 times"),
]


@pytest.mark.parametrize(("claim", "words"), FAILING)
def test_a_failed_expectation_reports_expected_and_found(claim: Callable[[Expectations], Any], words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        claim(expect(SEEN))
    assert isinstance(caught.value, ExpectationFailed)
    message = str(caught.value)
    assert message.startswith("expected: ") and "\n   found: " in message and words in message
    assert caught.value.verdict.outcome == "fail" and caught.value.verdict.reason in message


def test_the_message_points_to_the_closest_call() -> None:
    with pytest.raises(ExpectationFailed) as caught:
        expect(SEEN).called("search", q="hats", limit=10)
    assert str(caught.value) == (
        'expected: "search" called with {"q":"hats","limit":10}\n'
        '   found: expected a call of "search" with {"q":"hats","limit":10}; "search" was called twice, closest: '
        '$.tool_calls[0].arguments.q is different: expected "hats", found "shoes"\n'
        "      at: $.tool_calls[0].arguments.q"
    )


def test_unrecorded_parts_fail_with_a_reason() -> None:
    with pytest.raises(ExpectationFailed, match="missing_evidence"):
        expect(Evidence(text="hi")).not_called("pay")


def test_a_claim_that_cannot_be_decided_fails_with_its_code() -> None:
    with pytest.raises(ExpectationFailed) as caught:
        expect(SEEN).called("search", q={"$expr": "UNKNOWN_NAME"})
    assert caught.value.verdict.outcome == "error" and caught.value.verdict.code in str(caught.value)


def test_a_plain_mapping_is_read_as_evidence() -> None:
    plain = {"text": "Done", "tool_calls": [{"toolName": "search", "args": {"q": "x"}}]}
    expect(plain).called("search", q="x").says("done")


def test_mistakes_in_the_test_are_not_failed_expectations() -> None:
    with pytest.raises(SpecError) as caught:
        expect(SEEN).check("tool_called", nme="search")
    assert caught.value.nearest == ("name",)
    with pytest.raises(SpecError, match="unknown check 'tool_caled'"):
        expect(SEEN).check("tool_caled", name="x")
    with pytest.raises(SpecError, match="tool_call_count"):
        expect(SEEN).check("tool_call_count", name="search", count="many")
    with pytest.raises(SpecError):
        expect(SEEN).matches("(")
    with pytest.raises(TypeError, match="not both"):
        expect(SEEN).called("search", arguments={"q": "x"}, q="x")
    with pytest.raises(TypeError, match="list of names"):
        expect(SEEN).called_exactly("search")


def test_that_no_call_failed_needs_to_be_known() -> None:
    ended = ToolCall(name="search", arguments={}, result="ok")
    expect(Evidence(tool_calls=(ended,))).no_tool_errors()
    with pytest.raises(ExpectationFailed, match="not recorded"):
        expect(Evidence(tool_calls=(ended, call("lookup", {})))).no_tool_errors()


@pytest.mark.parametrize(
    "claim",
    [
        lambda chain: chain.says(""),
        lambda chain: chain.matches(""),
        lambda chain: chain.does_not_say(""),
        lambda chain: chain.called_all(),
        lambda chain: chain.called_in_order(),
        lambda chain: chain.check("response_starts_with", text=""),
        lambda chain: chain.check("tool_called", name="search", at_least=0),
    ],
)
def test_a_claim_whose_outcome_is_known_beforehand_is_a_mistake_in_the_test(claim: Callable[[Expectations], Any]) -> None:
    with pytest.raises(SpecError):
        claim(expect(SEEN))


@pytest.mark.parametrize("failure", [{"success": False}, {"error": "boom"}, {"http_status": 500}, {"exit_code": 1}, {"errors": ["boom"]}])
def test_no_expectation_holds_of_a_run_that_failed(failure: dict[str, Any]) -> None:
    run = {"text": "done", "tool_calls": [{"name": "search", "arguments": {}}], **failure}
    for claim in (lambda: expect(run).not_called("refund"), lambda: expect(run).says("done"), lambda: expect(run).called("search")):
        with pytest.raises(ExpectationFailed) as caught:
            claim()
        assert (caught.value.verdict.outcome, caught.value.verdict.code) == ("error", "run_error")


def test_the_status_of_a_refused_request_may_be_expected() -> None:
    expect({"text": "no", "tool_calls": [], "http_status": 500}).status(500)
