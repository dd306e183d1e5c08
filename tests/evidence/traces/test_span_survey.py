"""Surveys of traces: counts, names, and first what was not understood."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.evidence.otlp import spans
from proctor.evidence.otlp.spans import Span, SpanEvent
from proctor.evidence.traces.attribute_shapes import find_near_parts, is_recognised
from proctor.evidence.traces.survey import MOST_NAMED, Counted, TraceSurvey, survey_trace


def span(id: str, parent: str | None = None, scope: str = "", **attributes: Any) -> Span:
    return Span(
        id=id, parent_id=parent, name=id, scope=scope, attributes={key.replace("__", "."): value for key, value in attributes.items()}
    )


def counts(entries: list[Counted]) -> dict[str, int]:
    return {entry.name: entry.count for entry in entries}


AGENT = span("a", scope="openinference.instrumentation.x", openinference__span__kind="AGENT", session__id="s-1", agno__run__id="r")
CHAT = span("m", "a", gen_ai__operation__name="chat", gen_ai__output__messages='[{"role":"assistant","content":"hello"}]')
BLIND = span("n", "a", gen_ai__operation__name="chat", gen_ai__conversation__id="s-2")
TOOL = span("t", "a", gen_ai__operation__name="execute_tool", gen_ai__tool__name="refund", gen_ai__tool__verdict="ok", http__method="GET")


def surveyed() -> TraceSurvey:
    return survey_trace([AGENT, CHAT, BLIND, TOOL])


def test_spans_are_counted_by_what_they_are() -> None:
    assert counts(surveyed().kinds) == {"model": 2, "agent": 1, "tool": 1}
    assert counts(surveyed().tools) == {"refund": 1}


def test_conventions_and_the_scopes_that_wrote_the_spans_are_named() -> None:
    assert counts(surveyed().conventions) == {"OpenInference": 1, "OpenTelemetry GenAI": 3}
    assert counts(surveyed().scopes) == {"openinference.instrumentation.x": 1, "(not named)": 3}


def test_requests_with_and_without_content_are_distinguished() -> None:
    assert (surveyed().requests, surveyed().requests_with_content) == (2, 1)


def test_conversations_are_named() -> None:
    assert surveyed().conversations == ["s-1", "s-2"]


def test_attributes_not_understood_are_listed_agents_first() -> None:
    assert list(counts(surveyed().not_understood)) == ["gen_ai.tool.verdict", "agno.run.id"]


def test_an_unknown_vocabulary_is_counted() -> None:
    assert counts(surveyed().vocabularies) == {"agno": 1}


def test_a_span_that_may_be_work_and_is_not_understood_is_named() -> None:
    found = survey_trace([span("a", gen_ai__operation__nom="chat"), span("b", http__method="GET")])
    assert counts(found.kinds) == {"not understood": 1, "other": 1}
    assert counts(found.not_understood) == {"gen_ai.operation.nom": 1}


def test_an_event_that_may_be_a_call_is_named_unless_a_tool_reports_it() -> None:
    model, tool = (msgspec.structs.replace(one, events=(SpanEvent(f"{one.id}.tool_call.update", {}),)) for one in (CHAT, TOOL))
    found = counts(survey_trace([AGENT, model, tool]).not_understood)
    assert [name for name in found if name.startswith("event ")] == ['event "m.tool_call.update"']


def test_thousands_of_unrecognised_attributes_are_summarised() -> None:
    found = survey_trace([span("a", **{f"odd{number}__{'x' * 500}": 1 for number in range(1000)})])
    assert len(found.not_understood) == MOST_NAMED
    assert all(len(entry.name) < 200 for entry in found.not_understood)
    assert found.left_out == 2 * (1000 - MOST_NAMED)


def test_the_names_that_readers_use_are_recognised() -> None:
    for key in (
        "gen_ai.tool.call.arguments",
        "llm.output_messages.0.message.role",
        "ai.toolCall.name",
        "http.method",
        "gen_ai.request.top_p",
    ):
        assert is_recognised(key), key
    for key in ("gen_ai.tool.call.argumentz", "ai.toolCall.nam", "langfuse.observation.inputs", "gen_ai.output.message"):
        assert find_near_parts(key), key


def test_losses_in_transit_are_reported() -> None:
    cut = '[{"role":"user","parts":[{"type":"text","content":"' + "x" * 100
    found = survey_trace([msgspec.structs.replace(span("a", llm__model_name="m"), dropped=3), span("b", gen_ai__input__messages=cut)])
    assert found.lost == [
        '3 attributes or events of the span "a" were dropped',
        f'"gen_ai.input.messages" of the span "b" breaks off after {len(cut)} characters',
    ]


def test_dropped_counts_do_not_cancel_each_other() -> None:
    entry = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "x", "droppedAttributesCount": 2, "droppedEventsCount": -2}
    assert spans._count_dropped(entry) == 4  # pyright: ignore[reportPrivateUsage]
