"""The result of a prompt."""

from __future__ import annotations

import json

import pytest

import proctor
from proctor.evals.agents.prompt_result import PromptResult, join_evidence
from proctor.evals.grading.results import LatencyBreakdown
from proctor.model.evidence import ToolCall, Usage

FULL = PromptResult.from_(
    {
        "prompt": "Where is order 17?",
        "text": "Shipped.",
        "toolCalls": [
            {"toolName": "lookup", "arguments": {"id": 17}, "result": {"status": "shipped"}},
            {"toolName": "search", "arguments": {"q": "x"}},
            {"toolName": "lookup", "arguments": {"id": 18}},
        ],
        "usage": {"inputTokens": 100, "outputTokens": 20, "totalTokens": 999},
        "latency": {"e2eMs": 300, "llmMs": 200, "mcpMs": 90},
        "provider": "openai",
        "model": "some-model",
    }
)


def test_tools() -> None:
    assert FULL.tools_called() == ["lookup", "search", "lookup"]
    assert FULL.has_tool_call("lookup") and not FULL.has_tool_call("Lookup")
    assert FULL.get_tool_arguments("lookup") == {"id": 17} and FULL.get_tool_arguments("pay") is None
    assert all(isinstance(call, ToolCall) for call in FULL.get_tool_calls())
    FULL.get_tool_calls().clear()
    assert len(FULL.get_tool_calls()) == 3


def test_times_and_tokens() -> None:
    assert (FULL.e2e_latency_ms(), FULL.llm_latency_ms(), FULL.mcp_latency_ms()) == (300, 200, 90)
    assert FULL.get_latency() == LatencyBreakdown(e2e_ms=300, llm_ms=200, mcp_ms=90)
    # The total is always input plus output, whatever the provider reports.
    assert (FULL.input_tokens(), FULL.output_tokens(), FULL.total_tokens()) == (100, 20, 120)
    assert FULL.get_usage() == Usage(input_tokens=100, output_tokens=20, total_tokens=120)
    assert PromptResult(usage=Usage(total_tokens=7)).total_tokens() == 7
    # A count that is unknown is not 0.
    assert PromptResult(usage=Usage(input_tokens=3, total_tokens=7)).total_tokens() == 7
    assert PromptResult(usage=Usage(output_tokens=3)).total_tokens() == 3
    assert PromptResult().total_tokens() == 0


def test_messages_by_role_are_copies() -> None:
    assert FULL.get_prompt() == "Where is order 17?" and FULL.get_text() == FULL.text == "Shipped."
    assert [message["role"] for message in FULL.get_messages()] == ["user", "assistant", "tool", "assistant"]
    assert FULL.get_user_messages() == [{"role": "user", "content": "Where is order 17?"}]
    assert len(FULL.get_assistant_messages()) == 2 and len(FULL.get_tool_messages()[0]["content"]) == 3
    FULL.get_messages().clear()
    assert json.loads(FULL.format_trace()) == FULL.get_messages() and FULL.get_messages()
    assert '\n  {\n    "role"' in FULL.format_trace()


def test_an_error() -> None:
    failed = PromptResult.error("boom", 12, "Hello", provider="openai", model="m")
    assert failed.has_error() and failed.get_error() == "boom" and failed.get_stop_reason() == "error"
    assert failed.get_latency() == LatencyBreakdown(e2e_ms=12)
    assert (failed.get_provider(), failed.get_model(), failed.prompt, failed.text) == ("openai", "m", "Hello", "")
    assert failed.get_messages() == [] and failed.tools_called() == [] and failed.total_tokens() == 0
    assert failed.get_spans() == [] and failed.get_widget_snapshots() == []
    assert not FULL.has_error() and FULL.get_error() is None
    assert PromptResult(error="").has_error(), "an empty message counts"
    assert "boom" in repr(failed) and "lookup" in repr(FULL)


def test_the_row_of_the_service() -> None:
    row = FULL.to_eval_result(caseTitle="order", passed=False)
    assert (row["caseTitle"], row["passed"], row["durationMs"]) == ("order", False, 300)
    assert row["tokens"] == {"input": 100, "output": 20, "total": 120}
    assert row["actualToolCalls"][0] == {"toolName": "lookup", "arguments": {"id": 17}}
    assert "error" not in row and FULL.to_eval_result()["passed"] is True
    assert PromptResult.error("boom").to_eval_result()["caseTitle"] == "PromptResult"
    assert PromptResult.error("boom").to_eval_result()["passed"] is False
    failing = PromptResult(prompt="x", tool_calls=[ToolCall(name="a", error="no")])
    assert failing.to_eval_result()["passed"] is False


def test_evidence_goes_into_a_suite() -> None:
    suite = proctor.parse_suite(
        "proctor: 1\nname: s\ncases:\n  - id: c\n    expect:\n"
        "      - tool_called: lookup\n      - response_contains: Shipped\n      - tokens_within: {total: 120}\n"
    )
    assert proctor.check(suite, FULL.evidence).outcome == "pass"
    assert FULL.evidence.duration_ms == 300 and FULL.evidence.metadata["provider"] == "openai"


def test_several_prompts_are_one_conversation() -> None:
    both = join_evidence([FULL, PromptResult.error("boom", 5, "And 18?")])
    assert both.turns is not None and len(both.turns) == 2 and both.input == ["Where is order 17?", "And 18?"]
    assert both.text == "" and both.error == "boom" and both.duration_ms == 305
    assert both.tool_calls is not None and len(both.tool_calls) == 3
    nothing = join_evidence([])
    assert nothing.tool_calls == () and nothing.text is None


def test_an_invalid_result_is_refused() -> None:
    with pytest.raises(TypeError, match="tool_call"):
        PromptResult.from_(tool_call=[])
    with pytest.raises(TypeError, match="expected calls"):
        PromptResult(tool_calls=["a"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        PromptResult(tool_calls=[{"arguments": {}}])
