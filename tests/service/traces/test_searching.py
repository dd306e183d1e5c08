"""Search ignores case in every script."""

from __future__ import annotations

from proctor.service.access.callers import LOCAL
from proctor.service.access.projects import search_everywhere
from proctor.service.hub import Hub
from proctor.service.runs.requests import NewRun, RunSearch, list_runs, start_run
from proctor.service.traces.cases import NewCase, create_case, list_cases
from proctor.service.traces.evaluator import evaluate_all
from proctor.service.traces.search import TraceSearch, count_facets, list_failing_cases, list_traces
from proctor.service.traces.span_trees import find_spans, read_span_tree
from tests.service.agents import suite
from tests.service.trace_world import SUITE, new_trace, post, request, root, send, span, world

TEXT = 'ÄRGER mit Спор, Refund: 50% "off"'
FOUND = {"Ärger": 1, "ärger": 1, "ÄRGER MIT": 1, "спор": 1, "СПОР, r": 1, "refund": 1, '50% "OFF"': 1, "Ärgern": 0, "50_": 0}


async def test_names_and_questions_are_found_in_whatever_case(hub: Hub) -> None:
    project, agent = await world(hub, suite=None)
    await create_case(hub, LOCAL, NewCase(project_id=project, document=SUITE, name=TEXT))
    target = {"type": "http", "url": "https://shop.example.com"}
    await start_run(hub, LOCAL, NewRun(project_id=project, suite=suite("a"), target=target, note=TEXT))
    flow = {"span_id": "a", "name": "flow", "attributes": {"openinference.span.kind": "AGENT", "input.value": TEXT, "output.value": "x"}}
    await post(hub, {"spans": [flow], "platformId": agent})
    await evaluate_all(hub)
    for word, count in FOUND.items():
        pages = [
            await list_cases(hub, LOCAL, query=word),
            await list_runs(hub, LOCAL, RunSearch(query=word)),
            await list_traces(hub, LOCAL, TraceSearch(query=word)),
        ]
        assert [len(page["data"]) for page in pages] == [count] * 3, word
        everywhere = (await search_everywhere(hub, LOCAL, word))["data"]
        assert [one["kind"] for one in everywhere] == ["case", "run", "trace"] * count, word
        assert [one["name"] for one in everywhere if one["kind"] == "run"] == [f"greetings · {TEXT}"] * count


async def test_spans_are_found_in_whatever_case(hub: Hub) -> None:
    _, agent = await world(hub, suite=None)
    trace = new_trace()
    (stored,) = await send(hub, request(root(trace, text="x"), span(trace, "bbbbbbbbbbbbbbbb", "aaaaaaaaaaaaaaaa", note=TEXT)))
    spans = [{"span_id": "a", "name": "x"}, {"span_id": "b", "name": "y", "events": [{"name": "e", "attributes": {"said": TEXT}}]}]
    whole = await post(hub, {"spans": spans, "platformId": agent})
    for id in (stored.id, whole.id):
        tree = await read_span_tree(hub, LOCAL, id)
        assert {word: (await find_spans(hub, LOCAL, id, tree, word))[1] for word in FOUND} == FOUND


async def test_a_row_has_the_answer_and_figures_and_traces_are_found_by_a_called_tool(hub: Hub) -> None:
    project, agent = await world(hub)
    model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 2,
    }
    answer = 'I did not call "look_up".'
    spans = [
        {
            "span_id": "a",
            "name": "shop",
            "attributes": {"openinference.span.kind": "AGENT", "input.value": "again", "output.value": answer},
        },
        {"span_id": "b", "parent_span_id": "a", "name": "chat", "attributes": model},
        {"span_id": "c", "parent_span_id": "a", "name": "execute_tool refund", "attributes": {"gen_ai.tool.name": "refund"}},
    ]
    await post(hub, {"spans": spans, "platformId": agent})
    await evaluate_all(hub)
    (found,) = (await list_traces(hub, LOCAL, TraceSearch(project_id=project, tool="refund")))["data"]
    digest = found["digest"]
    assert (digest.answer, digest.model, digest.tools) == (answer, "small", ("refund",))
    assert digest.usage is not None and digest.usage.total() == 5
    for other in ("refun", "look_up"):
        assert not (await list_traces(hub, LOCAL, TraceSearch(project_id=project, tool=other)))["data"]
    facets = await count_facets(hub, LOCAL, TraceSearch(project_id=project))
    assert [(one.count, one.failed) for one in facets.agents] == [(1, 1)] == [(one.count, one.failed) for one in facets.cases]
    assert [key for _, key in (await list_failing_cases(hub, LOCAL, [found["id"]]))[found["id"]]] == ["refund"]
