"""Agents with given answers, and short constructors for results."""

from __future__ import annotations

from typing import Any

from proctor.evals.agents.prompt_result import PromptResult
from proctor.evals.agents.test_agent import MockAgent, TestAgent
from proctor.llm.ports import ChatReply, ModelCall
from proctor.llm.scripted import ScriptedModel
from proctor.model.evidence import ToolCall, Usage


def result(*tools: str, text: str = "Done.", **more: Any) -> PromptResult:
    """A result with calls of these tools."""
    return PromptResult(prompt="Do it", text=text, tool_calls=[ToolCall(name=tool) for tool in tools], **more)


def saying(answer: PromptResult) -> MockAgent:
    return TestAgent.mock(lambda message: answer)


def calling(*wanted: tuple[str, Any], text: str = "", tokens: tuple[int, int] = (10, 2)) -> ChatReply:
    """A reply that wants tools called."""
    made = tuple(ModelCall(id=f"call_{number}", name=name, arguments=arguments) for number, (name, arguments) in enumerate(wanted))
    return ChatReply(text=text, tool_calls=made, usage=Usage(input_tokens=tokens[0], output_tokens=tokens[1]))


def answering(text: str, tokens: tuple[int, int] = (20, 5)) -> ChatReply:
    return ChatReply(text=text, usage=Usage(input_tokens=tokens[0], output_tokens=tokens[1]))


def scripted(*lines: Any) -> ScriptedModel:
    return ScriptedModel(list(lines), name="script")
