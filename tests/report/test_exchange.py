"""Inputs and answers next to the verdicts, and results in a notebook."""

from __future__ import annotations

import msgspec

from proctor.actions.checking.check import check
from proctor.actions.workspace.suites import parse_suite
from proctor.model.case import Case
from proctor.model.evidence import Evidence, EvidenceTurn, ToolCall, Usage
from proctor.report.blocks.exchange import MOST_ARGUMENTS, MOST_CALLS, MOST_TEXT, describe_exchange, write_exchange

CASE = Case(id="a", input="hello")


def test_all_that_was_recorded_is_there() -> None:
    evidence = Evidence(
        text="hi",
        tool_calls=(ToolCall(name="search", arguments={"q": 1}), ToolCall(name="buy", arguments="x", error="no")),
        usage=Usage(input_tokens=3, output_tokens=4),
    )
    exchange = write_exchange(CASE, evidence)
    assert exchange == {
        "input": "hello",
        "answer": "hi",
        "tool_calls": [{"name": "search", "arguments": {"q": 1}, "failed": False}, {"name": "buy", "arguments": "x", "failed": True}],
        "tokens": {"input": 3, "output": 4, "total": 7},
    }
    lines = [("input", "hello"), ("answered", "hi"), ("called", 'search {"q":1}'), ("called", 'buy "x" (failed)'), ("tokens", "7")]
    assert describe_exchange(exchange) == lines


def test_unrecorded_parts_are_null_and_not_empty() -> None:
    exchange = write_exchange(CASE, Evidence())
    assert exchange == {"input": "hello", "answer": None, "tool_calls": None, "tokens": None}
    assert write_exchange(CASE, Evidence(tool_calls=()))["tool_calls"] == []


def test_turns_of_a_conversation_are_listed_in_order() -> None:
    turns = tuple(EvidenceTurn(input=text, tool_calls=(ToolCall(name=text),)) for text in ("one", "two"))
    exchange = write_exchange(CASE, Evidence(turns=turns))
    assert exchange["input"] == ["one", "two"] and [call["name"] for call in exchange["tool_calls"]] == ["one", "two"]


def test_nothing_in_it_grows_without_bound() -> None:
    long = "x" * 1_000_000
    calls = tuple(ToolCall(name=long, arguments={"deep": [long] * 3}) for _ in range(1000))
    exchange = write_exchange(Case(id="a", input=long), Evidence(text=long, tool_calls=calls))
    assert exchange["more_tool_calls"] == 1000 - MOST_CALLS
    assert len(msgspec.json.encode(exchange)) < 2 * (MOST_TEXT + 100) + MOST_CALLS * (MOST_ARGUMENTS + 500)


SUITE = """\
proctor: 1
name: "<script>alert(1)</script>"
cases:
  - {id: "<b>a</b>", expect: [response_contains: "<i>x</i>"]}
  - {id: fine, expect: [response_contains: hi]}
"""


def test_a_notebook_shows_a_run_with_failures_first_and_obeys_nothing() -> None:
    run = check(parse_suite(SUITE), [{"case": "<b>a</b>", "text": "hi"}, {"case": "fine", "text": "hi"}])
    page = run._repr_html_()
    assert page.index("&lt;b&gt;a") < page.index("fine") and "1 fail" in page
    shown = page + run["<b>a</b>"]._repr_html_()
    assert not any(tag in shown for tag in ("<script", "<i>", "<b>a"))
    assert "&lt;i&gt;x" in shown


def test_the_same_call_again_and_again_is_one_line_with_its_number() -> None:
    calls = (*(ToolCall(name="look", arguments={"id": 1}) for _ in range(20)), ToolCall(name="look", arguments={"id": 2}))
    lines = describe_exchange(write_exchange(CASE, Evidence(tool_calls=calls)))
    assert [text for label, text in lines if label == "called"] == ['look {"id":1}, 20 times', 'look {"id":2}']
