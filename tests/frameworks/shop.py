"""The shop that the agent of every framework works for: three tools, seven conversations, and the script that the model follows.

Imported in the recorder's environment and in every framework's own, so only the standard library is used here.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

SYSTEM = "You are a shop support agent. Use the tools to help the customer."
AGENT = "shop_agent"
MODEL = "gpt-4o-mini"
ANTHROPIC_MODEL = "claude-sonnet-4-5"
GEMINI_MODEL = "gemini-2.5-flash"
TOTALS = {17: 42.5, 23: 9.0}


@dataclass(frozen=True)
class Step:
    """One step of the model: tool calls, or a text."""

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    text: str = ""
    end: str = ""
    """Why it stops early, as an OpenAI finish reason: `length`, `content_filter`."""


@dataclass(frozen=True)
class Turn:
    """The customer's message, and the model's steps until the answer."""

    input: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Scenario:
    """A conversation."""

    name: str
    turns: tuple[Turn, ...]
    streamed: bool = False


def call(*calls: tuple[str, dict[str, Any]]) -> Step:
    return Step(calls=calls)


def refund_of(amount: float) -> tuple[Turn, ...]:
    steps = (
        call(("lookup_order", {"id": 17})),
        call(("refund", {"id": 17, "amount": amount})),
        Step(text="Refund of 42.5 processed for order 17."),
    )
    return (Turn("Order 17 was charged twice, please refund it.", steps),)


PARALLEL = call(("lookup_order", {"id": 17}), ("lookup_order", {"id": 23}), ("search_docs", {"query": "return policy"}))
SCENARIOS = (
    Scenario("sequential", refund_of(42.5)),
    Scenario(
        "parallel",
        (
            Turn(
                "Compare orders 17 and 23 and tell me the return policy.",
                (PARALLEL, Step(text="Both orders have shipped; returns are free within 30 days.")),
            ),
        ),
    ),
    Scenario(
        "error",
        (
            Turn(
                "Refund order 99 please, 10 dollars.",
                (call(("refund", {"id": 99, "amount": 10})), Step(text="Order 99 could not be refunded: it was not found.")),
            ),
        ),
    ),
    Scenario(
        "multi",
        (
            Turn("Where is order 17?", (call(("lookup_order", {"id": 17})), Step(text="Order 17 has shipped."))),
            Turn("Then refund 5 of it.", (call(("refund", {"id": 17, "amount": 5})), Step(text="Refunded 5 for order 17."))),
        ),
    ),
    Scenario(
        "streamed",
        (
            Turn(
                "What do the docs say about returns?",
                (call(("search_docs", {"query": "returns"})), Step(text="Returns are free within 30 days.")),
            ),
        ),
        streamed=True,
    ),
    Scenario("sabotage", refund_of(425.0)),
    Scenario("plain", (Turn("Hello, who are you?", (Step(text="I am the support agent of this shop."),)),)),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def note(name: str, arguments: dict[str, Any], **outcome: Any) -> None:
    """Log what a tool received, for the truth."""
    with open(os.environ["SHOP_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps({"scenario": os.environ.get("SHOP_SCENARIO"), "name": name, "arguments": arguments, **outcome}) + "\n")


def find_order(id: int) -> dict[str, Any]:
    return {"id": id, "total": TOTALS.get(id, 0.0), "status": "shipped"}


def pay_back(id: int, amount: float) -> dict[str, Any]:
    if id not in TOTALS:
        raise ValueError(f"order {id} not found")
    return {"refunded": amount, "id": id}


def read_docs(query: str) -> list[dict[str, Any]]:
    return [{"title": "Returns", "text": "Returns are free within 30 days."}]


# The tools without their duration and the log.
PURE = {"lookup_order": find_order, "refund": pay_back, "search_docs": read_docs}


def lookup_order(id: int) -> dict[str, Any]:
    """Look up an order by its number."""
    time.sleep(0.02)
    result = find_order(id)
    note("lookup_order", {"id": id}, result=result)
    return result


def refund(id: int, amount: float) -> dict[str, Any]:
    """Refund an amount of an order."""
    time.sleep(0.02)
    try:
        result = pay_back(id, amount)
    except ValueError as error:
        note("refund", {"id": id, "amount": amount}, error=str(error))
        raise
    note("refund", {"id": id, "amount": amount}, result=result)
    return result


def search_docs(query: str) -> list[dict[str, Any]]:
    """Search the documents of the shop."""
    time.sleep(0.006)
    result = read_docs(query)
    note("search_docs", {"query": query}, result=result)
    return result


TOOLS = {"lookup_order": lookup_order, "refund": refund, "search_docs": search_docs}
PARAMETERS: dict[str, dict[str, Any]] = {
    "lookup_order": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    "refund": {"type": "object", "properties": {"id": {"type": "integer"}, "amount": {"type": "number"}}, "required": ["id", "amount"]},
    "search_docs": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}


def use(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """Call a tool as a hand-written loop does: the result as JSON, or the error's text and True."""
    try:
        return json.dumps(TOOLS[name](**arguments)), False
    except ValueError as error:
        return f"Error: {error}", True


def describe(name: str) -> str:
    return str(TOOLS[name].__doc__)
