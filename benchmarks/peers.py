"""The same three checks in other systems, where they are installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def pydantic_evals_run(traces: list[dict[str, Any]]) -> Callable[[], int] | None:
    """A function that evaluates the traces with pydantic-evals and counts passing assertions; nothing without it."""
    try:
        from pydantic_evals import Case, Dataset
        from pydantic_evals.evaluators import Evaluator, EvaluatorContext
    except ImportError:
        return None
    from dataclasses import dataclass

    @dataclass
    class CalledWith(Evaluator[Any, Any, Any]):
        def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> bool:
            return any(
                call["name"] == "refund" and call["arguments"].get("order") == 17 and call["arguments"].get("currency") == "EUR"
                for call in ctx.output["tool_calls"]
            )

    @dataclass
    class InOrder(Evaluator[Any, Any, Any]):
        def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> bool:
            names = iter(call["name"] for call in ctx.output["tool_calls"])
            return all(name in names for name in ("lookup_order", "refund", "send_mail"))

    @dataclass
    class Mentions(Evaluator[Any, Any, Any]):
        def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> bool:
            return "refund processed" in ctx.output["text"].lower()

    cases = [Case(name=str(number), inputs=trace) for number, trace in enumerate(traces)]
    dataset = Dataset(name="bench", cases=cases, evaluators=[CalledWith(), InOrder(), Mentions()])

    async def task(trace: Any) -> Any:
        return trace

    def run() -> int:
        report = asyncio.run(dataset.evaluate(task, progress=False))
        return sum(bool(verdict.value) for case in report.cases for verdict in case.assertions.values())

    return run
