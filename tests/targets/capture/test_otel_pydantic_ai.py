"""A real framework with its real instrumentation: Pydantic AI with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from proctor.actions.running.run import drive, read_run_options
from proctor.cassettes.ports import LIVE
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence
from proctor.targets.local.callable import CallableTarget
from tests.targets.loopback import attempt


@pytest.fixture(autouse=True)
def instrumented(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every agent writes spans to a provider of the process, as with `Agent.instrument_all()` in an agent's module."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(shutdown_on_exit=False))
    before = Agent._instrument_default
    Agent.instrument_all()
    yield
    Agent.instrument_all(before)


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"It is {last.content}.")])
    assert isinstance(last, UserPromptPart)
    order = int(str(last.content))
    return ModelResponse(parts=[ToolCallPart("lookup_order", {"id": order}, tool_call_id=f"call-{order}")])


def make_agent(model: Any) -> Agent[None, str]:
    agent = Agent(model)

    @agent.tool_plain
    def lookup_order(id: int) -> str:
        return f"shipped {id}"

    return agent


def capture(function: Any, message: str = "17") -> Evidence:
    return asyncio.run(CallableTarget("agent", function, capture="otel").run(attempt(message), LIVE))


def test_concurrent_cases_have_the_calls_of_their_own_agents(tmp_path: Path) -> None:
    agent = make_agent(FunctionModel(scripted))

    async def answer(message: str) -> str:
        return (await agent.run(message)).output

    suite = Suite(name="many", cases=tuple(Case(id=str(number), input=str(number)) for number in range(60)))
    run = asyncio.run(drive(suite, read_run_options({"concurrency": 20, "capture": "otel"}), target=answer, home=tmp_path))
    for (case, _), entry in run.entries.items():
        evidence = entry.evidence
        assert evidence is not None and evidence.account is not None and evidence.account.unknown == {}
        assert evidence.text == f"It is shipped {case}."
        assert [(call.name, call.arguments, call.result) for call in evidence.tool_calls or ()] == [
            ("lookup_order", {"id": int(case)}, f"shipped {case}")
        ]


def test_a_synchronous_agent_is_captured_in_its_thread() -> None:
    agent = make_agent(FunctionModel(scripted))
    # Not `run_sync`: in a thread it leaves a loop open, which is a warning.
    evidence = capture(lambda message: asyncio.run(agent.run(message)).output)
    assert [call.arguments for call in evidence.tool_calls or ()] == [{"id": 17}]
    assert evidence.account is not None and evidence.account.reader.startswith("callable and otlp (")


def test_calls_that_are_also_returned_are_not_doubled() -> None:
    agent = make_agent(FunctionModel(scripted))

    def answer(message: str) -> dict[str, Any]:
        done = asyncio.run(agent.run(message))
        requested = [part for each in done.all_messages() for part in each.parts if isinstance(part, ToolCallPart)]
        return {"text": done.output, "tool_calls": [{"name": call.tool_name, "arguments": call.args_as_dict()} for call in requested]}

    evidence = capture(answer)
    assert [(call.name, call.result) for call in evidence.tool_calls or ()] == [("lookup_order", "shipped 17")]
    assert evidence.account is not None and evidence.account.unknown == {}


def test_an_agent_without_tool_calls_is_known_to_have_none() -> None:
    agent = make_agent(TestModel(call_tools=[], custom_output_text="Hello."))
    evidence = capture(lambda message: asyncio.run(agent.run(message)).output)
    assert evidence.tool_calls == () and evidence.account is not None and evidence.account.unknown == {}


def test_an_uninstrumented_agent_has_unknown_calls() -> None:
    agent = make_agent(FunctionModel(scripted))
    agent.instrument = False
    evidence = capture(lambda message: asyncio.run(agent.run(message)).output)
    assert evidence.tool_calls is None
    assert evidence.account is not None and "install an OpenTelemetry instrumentation" in evidence.account.unknown["tool_calls"]


def test_a_remembered_conversation_counts_the_calls_of_each_turn_once() -> None:
    agent = make_agent(FunctionModel(scripted))
    remembered: list[ModelMessage] = []

    async def answer(message: str) -> str:
        done = await agent.run(message, message_history=list(remembered))
        remembered[:] = done.all_messages()
        return done.output

    evidence = asyncio.run(CallableTarget("agent", answer, capture="otel").run(attempt("1", "2"), LIVE))
    assert evidence.turns is not None and evidence.account is not None and evidence.account.unknown == {}
    assert [[call.arguments for call in turn.tool_calls or ()] for turn in evidence.turns] == [[{"id": 1}], [{"id": 2}]]
