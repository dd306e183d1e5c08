"""What the original systems read from a trace, by the rows of their documentation."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.reading import read_document
from proctor.evidence.shared.usage import find_usage
from tests.evidence.test_readers import compare
from tests.tables import rows


@rows("conformance/mibo/usage.yaml")
def test_usage_is_found_where_mibo_finds_it(row: dict[str, Any]) -> None:
    assert msgspec.to_builtins(find_usage(row["given"])) == row["expect"]


@rows("conformance/mibo/evidence.yaml")
def test_trace_bodies_are_read_as_mibo_reads_them(row: dict[str, Any]) -> None:
    compare(read_document(row["given"]), row["expect"])


@rows("conformance/mcpjam/tool_errors.yaml")
def test_failed_calls_are_read_as_mcpjam_reports_them(row: dict[str, Any]) -> None:
    part = {"type": "tool-result", "toolCallId": "c", "toolName": "t", **row["given"]["part"]}
    messages = [
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "t", "input": {}}]},
        {"role": "tool", "content": [part]},
    ]
    (evidence,) = read_document({"messages": messages, "spans": row["given"].get("spans", [])})
    (call,) = evidence.tool_calls or ()
    assert (call.error_kind or "none") == row["expect"]
    assert call.failed() == (row["expect"] != "none")


CALL = {"type": "tool-call", "toolCallId": "c", "toolName": "t", "input": {}}
RESULT = {
    "role": "tool",
    "content": [{"type": "tool-result", "toolCallId": "c", "toolName": "t", "output": {"type": "text", "value": "r"}}],
}


def spelled_out(message: Any) -> Any:
    if message == "RESULT":
        return RESULT
    content = message["content"]
    return {**message, "content": [CALL if part == "CALL" else part for part in content] if isinstance(content, list) else content}


@rows("conformance/mcpjam/final_message.yaml")
def test_the_final_message_is_the_one_mcpjam_takes(row: dict[str, Any]) -> None:
    (evidence,) = read_document([spelled_out(message) for message in row["given"]])
    assert (evidence.text or "none") == row["expect"]
