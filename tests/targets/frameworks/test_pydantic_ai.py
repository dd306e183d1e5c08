"""The results of the real Pydantic AI, which is in the development environment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pydantic_ai = pytest.importorskip("pydantic_ai")

from pydantic_ai.models.test import TestModel  # noqa: E402 - only where the package is there

from proctor.cassettes.ports import LIVE  # noqa: E402
from proctor.targets.local.callable import CallableTarget  # noqa: E402
from tests.targets.loopback import attempt  # noqa: E402


def make_agent() -> Any:
    agent = pydantic_ai.Agent(TestModel(custom_output_text="Order 17 has shipped."))

    @agent.tool_plain
    def lookup_order(id: int) -> dict[str, Any]:
        return {"id": id, "status": "shipped"}

    return agent


async def run(message: str) -> Any:
    return await make_agent().run(message)


async def stream(message: str) -> Any:
    async with make_agent().run_stream(message) as result:
        async for _ in result.stream_text():
            pass
        return result


async def events(message: str) -> AsyncIterator[Any]:
    async with make_agent().run_stream_events(message) as found:
        async for event in found:
            yield event


async def messages(message: str) -> Any:
    return (await make_agent().run(message)).all_messages()


@pytest.mark.parametrize("function", [run, stream, events, messages], ids=lambda one: one.__name__)
def test_the_real_results_show_answer_and_calls(function: Any) -> None:
    evidence = asyncio.run(CallableTarget("agent", function).run(attempt("Where is order 17?"), LIVE))
    assert evidence.text == "Order 17 has shipped."
    assert [(call.name, call.result) for call in evidence.tool_calls or ()] == [("lookup_order", {"id": 0, "status": "shipped"})]
    assert evidence.account is not None and not evidence.account.unknown
