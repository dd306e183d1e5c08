"""The hot path: lines of JSONL decoded straight into evidence, and the lines that must not be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proctor.evidence.plain.fast_lines import decode_line
from proctor.evidence.reading import read_bytes, read_document
from proctor.model.evidence import Evidence

PLAIN = {
    "case": "refund-1",
    "input": "I was charged twice",
    "text": "Refund processed.",
    "body": {"status": "ok"},
    "tool_calls": [{"name": "lookup", "arguments": {"id": 17, "deep": {"a": [1, {"b": 2}]}}, "result": {"total": 9}, "duration_ms": 12}],
    "http_status": 200,
    "usage": {"input_tokens": 1, "output_tokens": 2},
    "metadata": {"run": 1},
}


def line(**changes: Any) -> bytes:
    return msgspec.json.encode({key: value for key, value in {**PLAIN, **changes}.items() if value is not ...})


def as_json(evidence: Evidence) -> Any:
    return msgspec.json.decode(msgspec.json.encode(evidence))


def test_a_result_is_read_on_demand() -> None:
    fast = decode_line(line(tool_calls=[{"name": "a", "result": {"isError": True, "content": [{"type": "text", "text": "no"}]}}]))
    assert fast is not None and fast.tool_calls is not None
    call = fast.tool_calls[0]
    assert (call.result["isError"], call.failure(), call.failure_kind(), call.failed()) == (True, "no", "content-error", True)
    assert call.result is call.result
    deep = decode_line(b'{"text": "x", "tool_calls": [{"name": "a", "result": ' + b"[" * 700 + b"]" * 700 + b"}]}")
    assert deep is not None and deep.tool_calls is not None
    assert isinstance(deep.tool_calls[0].result, str), "what is nested too deeply stays as it was written"


def test_canonical_lines_take_the_hot_path_and_give_the_same_evidence() -> None:
    fast = decode_line(line())
    assert isinstance(fast, Evidence)
    assert as_json(fast) == as_json(read_document(msgspec.json.decode(line()))[0])


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", "12", "true", '"quoted"'])
def test_an_answer_that_is_json_becomes_the_body_on_the_hot_path_too(text: str) -> None:
    fast = decode_line(line(text=text, body=...))
    assert fast is not None
    assert fast.body == msgspec.json.decode(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"colour": "red"},
        {"text": ...},
        {"body": {"usage": {"input_tokens": 5}}},
        {"body": {"tool_calls": []}},
        {"tool_calls": [{"toolName": "a"}]},
        {"tool_calls": [{"name": "a", "args": {}}]},
        {"tool_calls": [{"name": "a", "arguments": "{}"}]},
        {"tool_calls": [{"name": "a", "arguments": None}]},
        {"tool_calls": [{"name": "a", "node": "Agent"}]},
        {"tool_calls": [{"name": "a", "arguments": {"x": [[[[[[[[1]]]]]]]]}}]},
        {"nodes": [{"name": "N"}]},
        {"turns": [{"text": "a"}]},
        {"state": {"hl7": []}},
        {"usage": {"prompt_tokens": 1}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_lines_with_something_to_normalise_take_the_general_path(changes: dict[str, Any]) -> None:
    assert decode_line(line(**changes)) is None
    assert len(read_bytes(line(**changes))) == 1


@pytest.mark.parametrize(
    "written",
    [
        line(text="<masked>"),
        line(text="<masked>").replace(b"<", b"\\u003c").replace(b">", b"\\u003e"),  # as Go writes it
        line(text="[hidden]"),
        line(text="(Omitted for privacy)"),
        line(text="Dear Ann, ... [300 chars]"),
        line(tool_calls=[{"name": "a", "arguments": {"iban": "[ Filtered ]"}}]),
        line(tool_calls=[{"name": "a", "result": "{scrubbed}"}]),
        line(tool_calls=[{"name": "[REDACTED]"}]),
        line(text="[hidden]", account={"reader": "otlp", "unknown": {"usage": "not recorded"}}),
        line(text="The hidden fee was removed (not filtered)"),
    ],
)
def test_removed_data_is_found_when_the_account_is_read(written: bytes) -> None:
    fast, slow = decode_line(written), read_document(msgspec.json.decode(written))[0]
    assert (fast or slow).account == slow.account
    assert (slow.account is None) == (b"hidden fee" in written)


def test_lines_of_other_formats_are_read_too() -> None:
    assert read_bytes(b'{"type":"trace_meta","trace_version":3}') == []
    assert [run.case for run in read_bytes(b'{"type":"scenario_run","scenario_id":"s","messages":[]}')] == ["s"]
    assert [evidence.text for evidence in read_bytes(b'[{"text":"a"},{"text":"b"}]')] == ["a", "b"]


STORED = (
    {**PLAIN, "account": {"reader": "otlp", "unknown": {"tool_calls": "a span is not understood"}, "notes": ["x"]}},
    {
        "text": "a",
        "tool_calls": [{"name": "t", "arguments": None}],
        "account": {"reader": "x", "unknown": {"tool_arguments": "not captured"}},
    },
    {"turns": [{"text": "a", "tool_calls": []}, {"text": "b"}], "account": {"reader": "x", "unknown": {"tool_calls": "not captured"}}},
)


@pytest.mark.parametrize("document", STORED, ids=("fast", "arguments", "turns"))
def test_stored_evidence_reads_back_as_it_was(document: dict[str, Any]) -> None:
    (evidence,) = read_document(document)
    assert evidence.account is not None
    stored = msgspec.json.encode(evidence)
    (again,) = read_bytes(stored)
    assert as_json(again) == as_json(evidence)
    assert as_json(evidence)["account"] == document["account"]


def test_evidence_of_a_platform_reads_back_as_it_was() -> None:
    runs = {"T": [{"executionIndex": 1, "source": [{"previousNode": "A"}], "data": {"ai_tool": [[{"json": {"response": "x"}}]]}}]}
    (evidence,) = read_document({"data": {"resultData": {"runData": runs}}})
    (again,) = read_bytes(msgspec.json.encode(evidence))
    assert again.account == evidence.account
    assert again.tool_calls == evidence.tool_calls


def test_plain_evidence_in_our_own_spelling_needs_no_account() -> None:
    fast = decode_line(line())
    assert fast is not None and fast.account is None
    assert read_document(PLAIN)[0].account is None
    assert decode_line(line(account={"unknownz": {}})) is None
