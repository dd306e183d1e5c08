"""Traces with cycles of parents are read in linear time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import proctor

KINDS = ("chat", "invoke_agent", "execute_tool", "invoke_workflow")


def span(number: int, parent: int | None, kind: str) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": kind,
        "gen_ai.agent.name": f"a{number}",
        "gen_ai.tool.name": "search",
        "gen_ai.request.model": "m",
    }
    return {
        "traceId": "0" * 31 + "1",
        "spanId": f"{number + 1:016x}",
        "parentSpanId": "" if parent is None else f"{parent + 1:016x}",
        "name": kind,
        "startTimeUnixNano": str(number),
        "endTimeUnixNano": str(number + 5),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }


def request(spans: list[dict[str, Any]]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {"name": "x"}, "spans": spans}]}]}


@st.composite
def tangled_spans(draw: st.DrawFn) -> list[dict[str, Any]]:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=7))
    parents = [draw(st.none() | st.integers(0, len(kinds) - 1)) for _ in kinds]
    return [span(number, parent, kind) for number, (kind, parent) in enumerate(zip(kinds, parents, strict=True))]


@given(spans=tangled_spans())
def test_any_parents_of_spans_are_read_to_the_end(spans: list[dict[str, Any]]) -> None:
    proctor.read_evidence(request(spans))


def test_requests_and_agents_in_a_circle_above_another_are_read_to_the_end() -> None:
    requests = [span(0, 1, "chat"), span(1, 0, "chat"), span(2, 0, "chat")]
    agents = [span(0, 1, "invoke_agent"), span(1, 0, "invoke_agent"), span(2, 0, "invoke_agent"), span(3, 2, "chat")]
    apart = [span(4, None, "invoke_agent"), span(5, 4, "chat")]
    for spans in (requests, [*agents, *apart]):
        assert proctor.read_evidence(request(spans)).account is not None
