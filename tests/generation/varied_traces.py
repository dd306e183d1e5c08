"""Traces of real frameworks with other orders, amounts and wording: the recordings of `tests/evidence/frameworks`, varied.

The structure of each trace is what the framework sent. Only texts change, everywhere in the same way, as another conversation of the same
agent would differ.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from proctor.evidence.reading import read_document
from proctor.generation.trace_cases import Generated, TraceGrouping
from proctor.model.evidence import Evidence

RECORDINGS = Path(__file__).parents[1] / "evidence" / "frameworks"
FRAMEWORKS = (
    *("openai-agents-openai-genai", "langchain-laminar", "pydantic-ai-v2", "strands-latest", "google-genai-automatic-oi", "ai-sdk-6"),
    *("autogen-oi", "agno2-oi", "dspy-logfire", "smolagents-oi", "crewai-openai-oi", "langgraph-oi"),
)
_WORDINGS = {
    "Order 17 was charged twice, please refund it.": (
        "Order 17 was charged twice, please refund it.",
        "I paid twice for order 17. I want the money back.",
        "Please refund order 17, it was charged two times.",
    ),
    "Compare orders 17 and 23 and tell me the return policy.": (
        "Compare orders 17 and 23 and tell me the return policy.",
        "What is the return policy? And how do the orders 17 and 23 differ?",
    ),
    "Refund of 42.5 processed for order 17.": (
        "Refund of 42.5 processed for order 17.",
        "I have processed a refund of 42.5 for your order 17.",
        "Done: order 17 gets a refund of 42.5.",
    ),
    "Order 99 could not be refunded: it was not found.": (
        "Order 99 could not be refunded: it was not found.",
        "I could not find order 99, so nothing was refunded.",
    ),
    "Where is order 17?": ("Where is order 17?", "Has order 17 been sent?"),
}
_ORDERS = tuple(range(100, 990))


def list_traces(name: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the traces of a recording by id: the scenario, and a request with only this trace."""
    truth = {}
    for file in ("truth.json", "truth-js.json"):
        truth |= json.loads((RECORDINGS / file).read_text())
    document = json.loads((RECORDINGS / f"{name}.json").read_text())
    found = {}
    for trace, facts in truth[name]["traces"].items():
        if facts["run"]:
            found[trace] = facts["scenario"], {"resourceSpans": list(_pick(document, trace))}
    return found


def _pick(requests: list[dict[str, Any]], trace: str) -> Iterator[dict[str, Any]]:
    for request in requests:
        for resource in request["resourceSpans"]:
            scopes = [
                {**scope, "spans": spans}
                for scope in resource["scopeSpans"]
                if (spans := [span for span in scope["spans"] if span["traceId"] == trace])
            ]
            if scopes:
                yield {**resource, "scopeSpans": scopes}


def vary(document: dict[str, Any], trace: str, seed: str) -> dict[str, Any]:
    """Return a trace of another conversation."""
    source = random.Random(seed)
    first, second, third = source.sample(_ORDERS, 3)
    total = source.randint(1000, 9000) / 10 + 0.05
    numbers = {
        "17": str(first),
        "23": str(second),
        "99": str(third),
        "42.5": f"{total:.2f}",
        "425.0": f"{total * 10:.1f}",
        "425": f"{total * 10:.1f}",
    }
    numbers |= {"10": str(source.randint(11, 98)), "5": str(source.randint(2, 9)), "9.0": f"{source.randint(1000, 9000) / 10 + 0.07:.2f}"}
    wordings = {text: source.choice(others) for text, others in _WORDINGS.items()}
    pattern = re.compile(r"(?<![\w.-])(" + "|".join(map(re.escape, sorted(numbers, key=len, reverse=True))) + r")(?![\w-]|\.\d)")

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: change_text(item) if key == "stringValue" else change(item) for key, item in value.items()}
        return [change(item) for item in value] if isinstance(value, list) else value

    def change_text(text: str) -> str:
        for before, after in wordings.items():
            text = text.replace(before, after)
        return pattern.sub(lambda found: numbers[found[1]], text) if len(text) < 20_000 else text

    renamed = json.dumps(change(document)).replace(trace, hashlib.md5(f"{trace}{seed}".encode()).hexdigest())
    return json.loads(renamed)


def read_varied(name: str, count: int, *, start: int = 0, scenarios: frozenset[str] | None = None) -> Iterator[tuple[str, Evidence]]:
    """Yield scenario and evidence of several variations of each trace."""
    traces = list_traces(name)
    for number in range(start, start + count):
        for trace, (scenario, document) in traces.items():
            if scenarios is None or scenario in scenarios:
                for evidence in read_document(vary(document, trace, f"{name} {number}")):
                    yield scenario, evidence


def group_evidence(runs: Iterable[tuple[str, Evidence]]) -> Generated:
    """Return the cases of these runs, each with the name of its source."""
    grouping = TraceGrouping()
    for source, evidence in runs:
        grouping.add(evidence, source)
    return grouping.finish()
