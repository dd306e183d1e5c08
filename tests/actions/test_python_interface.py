"""Wrong arguments from Python code are refused with an error that names what was found."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import proctor
from proctor.errors import EvidenceError, InputError
from proctor.report.data.json_text import render_json

SUITE = proctor.parse_suite("proctor: 1\ncases: [{id: a, expect: [{response_contains: a}]}]")
LONG = "x" * 5_000


def test_in_a_running_loop_the_error_names_what_to_await(recwarn: pytest.WarningsRecorder) -> None:
    async def call_in_a_notebook() -> None:
        with pytest.raises(InputError, match=r"as in a notebook .*write `await proctor\.run_async\(\.\.\.\)`"):
            proctor.run(SUITE, target=lambda message: "a")
        with pytest.raises(InputError, match=r"write `await proctor\.check_async\(\.\.\.\)`"):
            proctor.check(SUITE, {"text": "a"}, judge=lambda question: True)

    asyncio.run(call_in_a_notebook())
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


def test_a_result_is_printed_on_one_short_line() -> None:
    suite = proctor.parse_suite(
        "proctor: 1\nname: Shop\ncases: [{id: a, expect: [{response_contains: a}]}, {id: b, expect: [{response_contains: x}]}]"
    )
    result = proctor.check(suite, [{"case": "a", "text": "a"}, {"case": "b", "text": LONG[:10].replace("x", "\x1by")}])
    reason = 'expected the answer to contain "x", found'
    assert repr(result).startswith(f"<RunResult 'Shop' fail: 1 pass, 1 fail, score 0.50; 'b': {reason}"), repr(result)
    assert repr(result["a"]) == "<CaseResult 'a' pass, score 1.00>"
    assert repr(result["b"]).startswith(f"<CaseResult 'b' fail, score 0.00: {reason}") and len(repr(result)) < 400
    assert "\x1b" not in f"{result} {result['b']}"


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({"text": "a"}, "pass"),
        ({"text": "b"}, "fail"),
        ({"tool_calls": []}, "fail"),
        ([], "skip"),
        ([{"case": "a"}, {"case": "a"}], "fail"),
    ],
)
def test_only_a_result_that_passed_is_true(given: Any, outcome: str) -> None:
    result = proctor.check(SUITE, given)
    assert (result.outcome, bool(result)) == (outcome, outcome == "pass")
    assert all(bool(case) == (case.outcome == "pass") for case in result.cases)


def test_a_run_that_failed_is_not_true(tmp_path: Any) -> None:
    suite = proctor.parse_suite("proctor: 1\ncases: [{id: a, input: hi, expect: [{response_contains: a}]}]")
    assert proctor.run(suite, target=lambda message: "a", home=tmp_path)
    assert not proctor.run(suite, target=lambda message: "b", home=tmp_path)


@pytest.mark.parametrize("found", [5, 1e308, None, True, object(), b"{}"])
def test_invalid_evidence_is_refused(found: Any) -> None:
    with pytest.raises(EvidenceError, match="expected an object, a list or the path of a file"):
        proctor.read_evidence(found)


@pytest.mark.parametrize("found", [5, None, True, object(), b"{}", [5], ["evidence.json"], [None]])
def test_uncheckable_values_are_refused(found: Any) -> None:
    with pytest.raises(InputError, match="expected evidence"):
        proctor.check(SUITE, found)


def test_a_name_that_no_file_can_have_is_refused() -> None:
    for use in (proctor.load_suite, proctor.read_evidence):
        with pytest.raises(InputError, match="File name too long"):
            use(LONG)


def test_a_lone_surrogate_in_an_object_is_read_as_from_a_file() -> None:
    document = {"data": {"text": {"output": {"text": "half \ud83d", "\ud83d": [1, "\udc00"]}}}}
    read = proctor.read_evidence(document)
    assert read.text is not None and "half \ufffd" in read.text
    assert proctor.check(SUITE, document).cases[0].outcome == "pass"
    assert document["data"]["text"]["output"]["text"] == "half \ud83d", "what was handed over is not changed"


@pytest.mark.parametrize(
    "document",
    [
        {"case": "\ud83d", "text": "a"},
        {"text": "b\ud83d"},
        {"text": "b", "tool_calls": [{"name": "sea\ud83drch"}]},
        {"spans": [{"span_id": "t", "name": "Tool", "attributes": {"gen_ai.tool.name": "T\ud83dl"}}]},
    ],
)
def test_a_lone_surrogate_in_a_record_is_written_into_the_report(document: Any) -> None:
    suite = proctor.parse_suite("proctor: 1\ncases: [{id: a, expect: [{response_contains: a}, {tool_called: x}, {response_equals: a}]}]")
    written = render_json(proctor.check(suite, document))
    written.encode()
    assert json.loads(written)["schema"]


@pytest.mark.parametrize(("option", "nearest"), [("repeats", "repeat"), ("replai", "replay"), ("timeout", "timeout_s")])
def test_an_option_that_a_run_does_not_have_is_refused_with_the_nearest(option: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=f"a run has no option '{option}'; nearest: '{nearest}'"):
        proctor.run(SUITE, target=lambda message: "a", **{option: 2})


def test_a_run_is_recorded_or_replayed() -> None:
    with pytest.raises(InputError, match="recorded or replayed, not both"):
        proctor.run(SUITE, target=lambda message: "a", record="a.jsonl", replay="a.jsonl")
