"""Values that agent frameworks return are read as evidence, and never as more than they show."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.cassettes.ports import LIVE
from proctor.evidence.unknowns.account import find_part_states
from proctor.model.evidence import Evidence
from proctor.targets.frameworks import base, recognise, streams
from proctor.targets.local.callable import CallableTarget
from proctor.targets.shared.faults import TargetFault
from tests.targets.frameworks import shapes
from tests.targets.loopback import attempt

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "frameworks"


def drive(function: Callable[..., Any], *messages: str, timeout_s: float = 5.0) -> Evidence:
    return asyncio.run(CallableTarget("agent", function, timeout_s=timeout_s).run(attempt(*(messages or (shapes.QUESTION,))), LIVE))


def fault_of(function: Callable[..., Any], **more: Any) -> TargetFault:
    with pytest.raises(TargetFault) as caught:
        drive(function, **more)
    return caught.value


def not_known(evidence: Evidence) -> set[str]:
    return {part for part, state in find_part_states(evidence).items() if state.status == "unknown"}


@pytest.mark.parametrize("name", shapes.RETURNED)
def test_framework_results_show_answer_calls_arguments_and_results(name: str) -> None:
    evidence = drive(lambda message: shapes.RETURNED[name]())
    assert evidence.text == shapes.TEXT
    (call,) = evidence.tool_calls or ()
    assert (call.name.removeprefix("Shop-"), call.arguments) == ("lookup_order", {"id": 17})
    assert call.result == shapes.RESULT and not call.failed()
    assert not_known(evidence) <= {"usage", "nodes", "state"}, evidence.account
    if name not in ("LlamaIndex", "AG2", "Semantic Kernel", "DSPy", "Haystack"):
        assert evidence.usage is not None and evidence.usage.total() == 220


def test_every_framework_has_a_guide_that_its_errors_name() -> None:
    pages = {framework.page for framework in recognise.FRAMEWORKS if framework.page}
    assert pages == {page.stem for page in DOCS.glob("*.md")}


SHOWS_NO_CALLS: dict[str, Callable[[], Any]] = {
    "the last message of LangChain": lambda: shapes.lc_conversation()[-1],
    "a state with only the last message": lambda: shapes.lc_conversation()[-1:],
    "an output of CrewAI without messages": lambda: shapes.crew_output([]),
    "a crew that delegated to a coworker": lambda: shapes.crew_output(shapes.openai_messages("Delegate work to coworker")),
    "a crew whose messages were summed up": lambda: shapes.crew_output(
        [{"role": "user", "content": "<summary>\nmuch\n</summary>"}, {"role": "assistant", "content": shapes.TEXT}]
    ),
    "a result of Strands without messages": lambda: shapes.strands_run(has_messages=False),
    "a thread of Semantic Kernel stored by a service": lambda: shapes.kernel_response(has_history=False),
    "a message of Semantic Kernel": lambda: shapes.kernel_response().message,
    "a prediction without a trajectory": lambda: (
        shapes.dspy_prediction(trajectory=None)
        and shapes.make("dspy.primitives.prediction:Prediction", (), {"items": lambda self: {"answer": shapes.TEXT}.items()})
    ),
    "a trajectory that lost its beginning": lambda: shapes.dspy_prediction(
        {"tool_name_3": "finish", "tool_args_3": {}, "observation_3": ""}
    ),
    "replies of Haystack": lambda: {"llm": {"replies": [shapes.haystack_message("assistant", [{"text": shapes.TEXT}])]}},
    "a message of AutoGen": lambda: shapes.autogen_messages()[-1],
    "an event of ADK": lambda: shapes.adk_events()[-1],
    "a message of LlamaIndex": lambda: shapes.llama_output().response,
    "text": lambda: shapes.TEXT,
    "a stream of text": lambda: iter(["Order 17 ", "has shipped."]),
    "a stream of Agno without events": lambda: iter(
        [shapes.agno_event("RunContentEvent", content="Order 17 "), shapes.agno_event("RunContentEvent", content="has shipped.")]
    ),
    "a tool of OpenAI Agents that is an agent": lambda: shapes.openai_run(
        new_items=[shapes.make("agents.items:ToolCallItem", tool_origin=shapes.make("agents.tool:ToolOrigin", type="agent_as_tool"))]
    ),
    "a subgraph with messages of its own": lambda: iter(
        [(("worker:1",), {"messages": shapes.lc_conversation(23)}), ((), {"messages": shapes.lc_conversation()})]
    ),
    "a state with messages under another key": lambda: {**shapes.langgraph_state(), "researcher": [shapes.lc_conversation()]},
}


@pytest.mark.parametrize("name", SHOWS_NO_CALLS)
def test_values_that_cannot_show_calls_leave_them_unknown(name: str) -> None:
    evidence = drive(lambda message: SHOWS_NO_CALLS[name]())
    assert "tool_calls" in not_known(evidence)
    assert evidence.text == shapes.TEXT


WAITS: dict[str, Callable[[], Any]] = {
    "a graph": lambda: {**shapes.langgraph_state(), "__interrupt__": [object()]},
    "a run of OpenAI Agents": lambda: shapes.openai_run(interruptions=[object()]),
    "a run of Pydantic AI": lambda: shapes.pydantic_run(shapes.make("pydantic_ai.tools:DeferredToolRequests")),
    "an agent of Strands": lambda: shapes.strands_run(interrupts=[object()]),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_run_that_waits_for_a_person_is_unfinished(name: str) -> None:
    assert {"tool_calls", "answer"} <= not_known(drive(lambda message: WAITS[name]()))


def test_a_failed_call_is_reported() -> None:
    (call,) = drive(lambda message: shapes.llama_output(failed=True)).tool_calls or ()
    assert call.error == "it broke"
    broken = {"tool_name_0": "lookup_order", "tool_args_0": {"id": 17}, "observation_0": "Execution error in lookup_order: no"}
    (call,) = drive(lambda message: shapes.dspy_prediction(broken)).tool_calls or ()
    assert call.failed() and call.result is None


def test_calls_of_team_members_are_added() -> None:
    evidence = drive(lambda message: shapes.agno_run(members=(shapes.agno_run(tool="refund"),)))
    assert [call.name for call in evidence.tool_calls or ()] == ["lookup_order", "refund"]


def test_an_object_as_the_answer_is_the_body() -> None:
    order = shapes.make("shop:Order", id=17)
    assert drive(lambda message: shapes.pydantic_run(order)).body == {"id": 17}
    assert drive(lambda message: shapes.openai_run(final_output=order)).body == {"id": 17}


# --- streams -----------------------------------------------------------------------------------------------------------------


def values(message: str) -> Iterator[Any]:
    conversation = shapes.lc_conversation()
    for end in range(1, len(conversation) + 1):
        yield {"messages": conversation[:end]}


def updates(message: str) -> Iterator[Any]:
    _, asks, result, answer = shapes.lc_conversation()
    yield {"model": {"messages": [asks]}}
    yield {"tools": {"messages": [result]}}
    yield {"model": {"messages": [answer]}}


def modes(message: str) -> Iterator[Any]:
    yield "updates", {"model": None}
    yield "values", shapes.langgraph_state()


def pairs(message: str) -> Iterator[Any]:
    for one in shapes.lc_conversation()[1:]:
        yield one, {"langgraph_node": "model"}


async def adk(message: str) -> AsyncIterator[Any]:
    for event in shapes.adk_events():
        yield event


async def autogen(message: str) -> AsyncIterator[Any]:
    for one in shapes.autogen_messages():
        yield one
    yield shapes.autogen_result()


async def strands(message: str) -> AsyncIterator[Any]:
    yield {"data": "Order"}
    yield {"result": shapes.strands_run()}


async def words_and_result(message: str) -> AsyncIterator[Any]:
    yield "Order 17"
    yield shapes.openai_run()


def agno(message: str) -> Iterator[Any]:
    tool = shapes.make(
        "agno.models.response:ToolExecution", tool_call_id="c", tool_name="lookup_order", tool_args={"id": 17}, result=dict(shapes.RESULT)
    )
    yield shapes.agno_event("RunStartedEvent")
    yield shapes.agno_event("ToolCallStartedEvent", tool=tool)
    yield shapes.agno_event("ToolCallCompletedEvent", tool=tool)
    yield shapes.agno_event("RunCompletedEvent", content=shapes.TEXT)


def llama(message: str) -> Iterator[Any]:
    yield shapes.llama_call()
    yield shapes.llama_output()


@pytest.mark.parametrize(
    "stream", [values, updates, modes, pairs, adk, autogen, strands, words_and_result, agno, llama], ids=lambda one: one.__name__
)
def test_a_stream_of_a_framework_is_read_to_its_end(stream: Callable[..., Any]) -> None:
    evidence = drive(stream)
    assert evidence.text == shapes.TEXT
    assert [(call.name, call.arguments, call.result) for call in evidence.tool_calls or ()] == [("lookup_order", {"id": 17}, shapes.RESULT)]
    assert "tool_calls" not in not_known(evidence)


def test_a_returned_stream_is_read_like_a_yielded_one() -> None:
    async def promised(message: str) -> Any:
        return values(message)

    for function in (lambda message: values(message), lambda message: adk(message), promised):
        assert drive(function).text == shapes.TEXT


def test_a_result_filled_in_by_its_stream_is_drained() -> None:
    result = shapes.make(
        "agents.result:RunResultStreaming",
        ("RunResultBase",),
        {"to_input_list": lambda self: shapes.openai_run().to_input_list(), "stream_events": lambda self: finish()},
        **{**vars(shapes.openai_run()), "is_complete": False},
    )

    async def finish() -> AsyncIterator[Any]:
        yield "an event"
        result.is_complete = True

    evidence = drive(lambda message: result)
    assert evidence.text == shapes.TEXT and "tool_calls" not in not_known(evidence)


def test_an_endless_stream_ends_at_the_time_limit() -> None:
    async def endless(message: str) -> AsyncIterator[str]:
        while True:
            await asyncio.sleep(0)
            yield ""

    assert fault_of(endless, timeout_s=0.05).code == "timeout"


def test_an_oversized_stream_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_ITEMS", 10)
    fault = fault_of(lambda message: itertools.repeat("x"))
    assert fault.code == "bad_answer" and "more than 10 items" in fault.message


def test_a_stream_that_raises_is_a_fault_of_the_agent() -> None:
    def broken(message: str) -> Iterator[str]:
        yield "Order"
        raise ValueError("no more")

    fault = fault_of(broken)
    assert fault.code == "agent_failed" and "ValueError: no more" in fault.message


def test_an_empty_stream_is_an_empty_answer() -> None:
    assert fault_of(lambda message: iter(())).code == "empty_answer"


# --- turns -------------------------------------------------------------------------------------------------------------------


def test_a_turn_has_only_the_messages_after_its_own() -> None:
    history: list[Any] = []

    def graph(message: str) -> Any:
        history.extend(shapes.lc_conversation(17 if "17" in message else 23))
        return {"messages": list(history)}

    evidence = drive(graph, "Where is order 17?", "Where is order 23?")
    assert evidence.turns is not None
    assert [[call.arguments for call in turn.tool_calls or ()] for turn in evidence.turns] == [[{"id": 17}], [{"id": 23}]]
    assert [turn.text for turn in evidence.turns] == ["Order 17 has shipped.", "Order 23 has shipped."]
    assert len(evidence.tool_calls or ()) == 2 and evidence.usage is not None and evidence.usage.total() == 440


def test_a_conversation_without_the_message_of_its_turn_is_unknown() -> None:
    history: list[Any] = []

    def graph(message: str) -> Any:
        history.extend(shapes.lc_conversation(17 if "first" in message else 23))
        return {"messages": list(history)}

    assert "tool_calls" in not_known(drive(graph, "the first", "the second"))


# --- unreadable values ------------------------------------------------------------------------------------------------------


class Trap:
    """A framework object that raises when it is read."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


Trap.__module__ = "crewai.crews.crew_output"
Trap.__name__ = Trap.__qualname__ = "CrewOutput"


def test_an_unreadable_value_is_reported_with_its_type_and_framework_guide() -> None:
    fault = fault_of(lambda message: Trap())
    assert fault.code == "bad_answer"
    assert "CrewOutput" in fault.message and fault.message.endswith("see docs/how-to/frameworks/crewai.md")
    unreadable = shapes.make("strands.agent.agent:Agent")
    assert "strands.agent.agent.Agent" in fault_of(lambda message: unreadable).message
    assert fault_of(lambda message: unreadable).message.endswith("see docs/how-to/frameworks/strands.md")
    assert fault_of(lambda message: object()).message.endswith("see docs/how-to/test-a-python-function.md")


def test_a_list_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_ITEMS", 3)
    assert "more than 3" in fault_of(lambda message: shapes.langgraph_state()).message


def test_an_unreadable_case_does_not_end_the_run(tmp_path: Path) -> None:
    suite = proctor.parse_suite(
        """
        proctor: 1
        cases:
          - {id: broken, input: trap, expect: [tool_called: lookup_order]}
          - {id: whole, input: Where is order 17?, expect: [{tool_called: {name: lookup_order, arguments: {id: 17}}}]}
        """
    )
    result = proctor.run(suite, target=lambda message: Trap() if message == "trap" else shapes.langgraph_state(), home=tmp_path)
    assert {case.id: case.outcome for case in result.cases} == {"broken": "error", "whole": "pass"}
