"""A run that its framework calls failed, paused, cancelled or cut off has no answer, even if its result contains text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import proctor
from tests.targets.frameworks import shapes
from tests.targets.frameworks.test_frameworks import drive, fault_of, not_known

WORDS = "Potential jailbreaking or prompt injection detected."
ASKS = {"id": "c", "function": {"arguments": '{"id": 17}', "name": "lookup_order"}, "type": "function"}
WAITS = {"tool_call_id": "c", "tool_name": "lookup_order", "tool_args": {"id": 17}, "requires_confirmation": True, "result": None}


def agno_run(status: str, content: Any = WORDS, *, kind: str = "RunOutput", **more: Any) -> Any:
    run = {"run_id": "r", "session_id": "s", "model": "gpt-4o-mini", "status": status, **more}
    return shapes.make(f"agno.run.agent:{kind}", (), {"to_dict": lambda self: run}, content=content, member_responses=[], **run)


def agno_messages(*more: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": shapes.QUESTION, "from_history": False}, *more]


def agno_step(name: str, kind: str | None = "agent", **more: Any) -> Any:
    known: dict[str, Any] = {"step_name": name, "step_id": name, "executor_type": kind, "step_run_id": name, "success": True, "error": None}
    return shapes.make("agno.workflow.types:StepOutput", **{**known, "is_paused": False, "steps": None, **more})


def agno_workflow(*steps: Any, status: str = "COMPLETED", runs: tuple[Any, ...] = ()) -> Any:
    fields = {"content": shapes.TEXT, "status": status, "step_results": list(steps), "step_executor_runs": list(runs)}
    return shapes.make("agno.run.workflow:WorkflowRunOutput", **fields)


def agno_member(name: str) -> Any:
    run = shapes.agno_run()
    run.run_id = name
    return run


def workflow_event(name: str, **fields: Any) -> Any:
    return shapes.make(f"agno.run.workflow:{name}", ("BaseWorkflowRunOutputEvent", "BaseRunOutputEvent"), **fields)


def workflow_events(*steps: Any, completed: bool = True, error: str | None = None) -> list[Any]:
    tool = shapes.make("agno.models.response:ToolExecution", tool_call_id="c", tool_name="lookup_order", tool_args={"id": 17}, result="ok")
    events = [workflow_event("WorkflowStartedEvent")]
    for step in steps:
        if step.executor_type == "agent":
            events += [shapes.agno_event("RunStartedEvent", step_id=step.step_id), shapes.agno_event("ToolCallCompletedEvent", tool=tool)]
            events.append(shapes.agno_event("RunCompletedEvent", content=shapes.TEXT))
        events.append(workflow_event("StepCompletedEvent", step_response=step))
    if error is not None:
        events.append(workflow_event("WorkflowErrorEvent", error=error))
    return [*events, workflow_event("WorkflowCompletedEvent", content=shapes.TEXT, step_results=list(steps))] if completed else events


def smol_run(state: str) -> Any:
    run = shapes.smol_run()
    run.state = state
    return run


def adk_error() -> Any:
    return shapes.make("google.adk.events.event:Event", author="agent", content=None, error_code="SAFETY", error_message=WORDS)


def adk_interrupted() -> Any:
    last = shapes.adk_events()[-1]
    last.interrupted = True
    return last


def framework_response(**more: Any) -> Any:
    response = shapes.framework_response()
    for name, value in more.items():
        setattr(response, name, value)
    return response


def out_of_steps() -> Any:
    messages = shapes.lc_conversation()
    messages[-1].content = "Sorry, need more steps to process this request."
    return {"messages": messages}


def stopped_executor() -> Any:
    action = shapes.make("langchain_core.agents:AgentAction", tool="lookup_order", tool_input={"id": 17}, log="")
    return {"output": "Agent stopped due to iteration limit or time limit.", "intermediate_steps": [(action, "shipped")]}


def smol_stream() -> list[Any]:
    """The stream of smolagents 1.26 at max_steps: the last step comes twice, then an answer that the model gave without tools."""
    step = shapes.make("smolagents.memory:ActionStep", ("MemoryStep",), {"dict": lambda self: shapes.smol_run().steps[1]})
    return [step, step, shapes.make("smolagents.memory:FinalAnswerStep", ("MemoryStep",), output=shapes.TEXT)]


def smol_memory() -> Any:
    error = {"type": "AgentMaxStepsError", "message": "Reached max steps."}
    last = {"step_number": 2, "timing": {}, "error": error, "action_output": shapes.TEXT}
    return shapes.make("smolagents.memory:AgentMemory", (), {"get_full_steps": lambda self: [*shapes.smol_run().steps[:2], last]})


# --- failed -------------------------------------------------------------------------------------------------------------------

FAILED: dict[str, Callable[[], Any]] = {
    "Agno, before the model was called": lambda: agno_run("ERROR"),
    "Agno, with messages": lambda: agno_run("ERROR", messages=agno_messages()),
    "Agno, a team": lambda: agno_run("ERROR", kind="TeamRunOutput"),
    "Agno, a stream": lambda: iter([shapes.agno_event("RunStartedEvent"), shapes.agno_event("RunErrorEvent", content=WORDS)]),
    "Agno, a stream of content only": lambda: iter(
        [shapes.agno_event("RunContentEvent", content="Order"), shapes.agno_event("RunErrorEvent", content=WORDS)]
    ),
    "Google ADK, the last event": lambda: iter([*shapes.adk_events()[:-1], adk_error()]),
    "Agno, a workflow": lambda: shapes.make("agno.run.workflow:WorkflowRunOutput", content=WORDS, status="ERROR", step_results=[]),
    "Agno, a stream of a workflow": lambda: iter(workflow_events(agno_step("one"), completed=False, error=WORDS)),
}


@pytest.mark.parametrize("name", FAILED)
def test_the_text_of_an_error_is_reported_as_the_error_and_is_no_answer(name: str) -> None:
    fault = fault_of(lambda message: FAILED[name]())
    assert fault.code == "agent_failed" and WORDS in fault.message
    assert fault.evidence is not None and fault.evidence.text is None
    assert {"tool_calls", "answer"} <= not_known(fault.evidence)


def test_an_answer_refused_by_a_guardrail_is_not_reported_as_the_error() -> None:
    messages = agno_messages({"role": "assistant", "content": shapes.TEXT})
    fault = fault_of(lambda message: agno_run("ERROR", shapes.TEXT, messages=messages))
    assert fault.code == "agent_failed" and shapes.TEXT not in fault.message
    assert fault.evidence is not None and fault.evidence.text is None


def test_a_failed_run_passes_no_claim(tmp_path: Path) -> None:
    suite = proctor.parse_suite(
        """
        proctor: 1
        cases:
          - {id: polite, input: hello, expect: [response_not_empty, {response_not_contains: hunter2}, {that: len(text) > 3}]}
        """
    )
    (case,) = proctor.run(suite, target=lambda message: agno_run("ERROR"), home=tmp_path).cases
    assert (case.outcome, case.code) == ("error", "agent_failed") and WORDS in str(case.reason)


# --- not finished -----------------------------------------------------------------------------------------------------------

OPEN: dict[str, tuple[Callable[[], Any], str]] = {
    "Agno, paused": (
        lambda: agno_run("PAUSED", messages=agno_messages({"role": "assistant", "tool_calls": [ASKS]}), tools=[WAITS]),
        "lookup",
    ),
    "Agno, paused without messages": (lambda: agno_run("PAUSED"), "PAUSED"),
    "Agno, cancelled without messages": (lambda: agno_run("CANCELLED"), "CANCELLED"),
    "Agno, still running": (lambda: agno_run("RUNNING", {"a": 1}), "RUNNING"),
    "Agno, a paused stream": (
        lambda: iter(
            [
                shapes.agno_event("RunStartedEvent"),
                shapes.agno_event("RunPausedEvent", content=WORDS, tools=[shapes.make("agno.models.response:ToolExecution", **WAITS)]),
            ]
        ),
        "waits before it calls lookup_order",
    ),
    "Agno, a cancelled stream": (lambda: iter([shapes.agno_event("RunCancelledEvent")]), "cancelled"),
    "Agno, a member of a team that failed": (
        lambda: iter(
            [
                shapes.agno_event("TeamRunStartedEvent"),
                shapes.agno_event("RunErrorEvent", content=WORDS),
                shapes.agno_event("TeamRunCompletedEvent", content=shapes.TEXT),
            ]
        ),
        WORDS,
    ),
    "Agno, a workflow with a step that failed": (
        lambda: agno_workflow(agno_step("one", success=False, error=WORDS), agno_step("two"), runs=(agno_member("two"),)),
        WORDS,
    ),
    "Agno, a workflow with a failed step inside of another": (
        lambda: agno_workflow(agno_step("all", None, steps=[agno_step("one", success=False, error=WORDS)])),
        WORDS,
    ),
    "Agno, a workflow that waits": (lambda: agno_workflow(agno_step("one"), status="PAUSED", runs=(agno_member("one"),)), "PAUSED"),
    "Agno, a stream of a workflow with a step that failed": (
        lambda: iter(workflow_events(agno_step("one", None, success=False, error=WORDS), agno_step("two"))),
        WORDS,
    ),
    "Agno, a stream of a workflow without its end": (lambda: iter(workflow_events(agno_step("one"), completed=False)), "end"),
    "smolagents, stopped at max_steps": (lambda: smol_run("max_steps_error"), "max_steps"),
    "Strands, stopped by a limit": (lambda: shapes.strands_run(stop_reason="limit_turns"), "limit_turns"),
    "Strands, cancelled": (lambda: shapes.strands_run(stop_reason="cancelled"), "cancelled"),
    "OpenAI Agents, cancelled": (lambda: shapes.openai_run(_cancel_mode="immediate"), "cancelled"),
    "OpenAI Agents, stopped at max_turns": (lambda: shapes.openai_run(current_turn=3, max_turns=2), "max_turns"),
    "LangGraph, out of steps": (lambda: out_of_steps(), "recursion_limit"),
    "LangChain, an executor that stopped its agent": (lambda: stopped_executor(), "max_iterations"),
    "DSPy, stopped at max_iters": (
        lambda: shapes.dspy_prediction({"tool_name_0": "lookup_order", "tool_args_0": {"id": 17}, "observation_0": "shipped"}),
        "max_iters",
    ),
    "Agent Framework, waits": (lambda: framework_response(user_input_requests=[object()]), "user_input_requests"),
    "Agent Framework, goes on elsewhere": (lambda: framework_response(continuation_token={"id": 1}), "continuation_token"),
    "Google ADK, interrupted": (lambda: iter([*shapes.adk_events()[:-1], adk_interrupted()]), "interrupted"),
    "smolagents, in a state of its own": (lambda: smol_run("odd"), "odd"),
    "smolagents, a stream that hands out its last step again": (lambda: iter(smol_stream()), "max_steps"),
    "smolagents, a memory that ends at max_steps": (lambda: smol_memory(), "max_steps"),
}


@pytest.mark.parametrize("name", OPEN)
def test_an_unfinished_run_has_unknown_answer_and_calls(name: str) -> None:
    evidence = drive(lambda message: OPEN[name][0]())
    assert {"tool_calls", "answer"} <= not_known(evidence)
    assert evidence.account is not None and OPEN[name][1] in " ".join(evidence.account.unknown.values())


@pytest.mark.parametrize("name", ["Agno, paused", "Agno, a paused stream"])
def test_a_tool_that_waits_for_a_confirmation_was_not_called(name: str) -> None:
    assert not drive(lambda message: OPEN[name][0]()).tool_calls


def test_a_step_that_a_stream_repeats_counts_once() -> None:
    assert len(drive(lambda message: iter(smol_stream())).tool_calls or ()) == 1


def test_a_tool_that_was_confirmed_was_called() -> None:
    done = {**WAITS, "confirmed": True, "result": "shipped"}
    more = [{"role": "tool", "content": "shipped", "tool_call_id": "c", "tool_call_error": False}, {"role": "assistant", "content": "Yes."}]
    messages = agno_messages({"role": "assistant", "tool_calls": [ASKS]}, *more)
    evidence = drive(lambda message: agno_run("COMPLETED", "Yes.", messages=messages, tools=[done]))
    assert [call.name for call in evidence.tool_calls or ()] == ["lookup_order"] and "tool_calls" not in not_known(evidence)


# --- workflows of Agno --------------------------------------------------------------------------------------------------------


def test_the_output_of_a_workflow_shows_the_calls_of_its_steps() -> None:
    evidence = drive(lambda message: agno_workflow(agno_step("one"), runs=(agno_member("one"),)))
    assert evidence.text == shapes.TEXT and [call.name for call in evidence.tool_calls or ()] == ["lookup_order"]
    assert not {"tool_calls", "answer"} & not_known(evidence)


def test_the_events_of_a_workflow_show_the_calls_of_its_steps() -> None:
    evidence = drive(lambda message: iter(workflow_events(agno_step("one"))))
    assert evidence.text == shapes.TEXT and [call.name for call in evidence.tool_calls or ()] == ["lookup_order"]
    assert not {"tool_calls", "answer"} & not_known(evidence)


UNSEEN: dict[str, Callable[[], Any]] = {
    "a step that is a function": lambda: agno_workflow(agno_step("one", "function")),
    "a step without its run": lambda: agno_workflow(agno_step("one")),
    "a workflow without steps": lambda: agno_workflow(),
    "events of a step that is a function": lambda: iter(workflow_events(agno_step("one", "function"), agno_step("two"))),
    "events without those of the agents": lambda: iter(
        [event for event in workflow_events(agno_step("one")) if "Run" not in type(event).__name__.removeprefix("Workflow")]
    ),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_calls_of_workflow_code_are_unknown(name: str) -> None:
    evidence = drive(lambda message: UNSEEN[name]())
    assert evidence.text == shapes.TEXT
    assert "tool_calls" in not_known(evidence) and "answer" not in not_known(evidence)


# --- other forms of the same results ----------------------------------------------------------------------------------------


def test_a_list_of_agno_messages_is_read() -> None:
    written = shapes.agno_run().to_dict()["messages"]
    messages = [shapes.make("agno.models.message:Message", (), {"to_dict": lambda self, one=one: one}) for one in written]
    evidence = drive(lambda message: messages)
    assert evidence.text == shapes.TEXT and [call.name for call in evidence.tool_calls or ()] == ["lookup_order"]
    assert "tool_calls" not in not_known(evidence)


def test_a_serialised_smolagents_result_is_read_like_the_result() -> None:
    run = shapes.smol_run()
    written = {"output": run.output, "state": run.state, "steps": run.steps, "token_usage": None, "timing": {"duration": 1.0}}
    evidence = drive(lambda message: written)
    assert evidence.text == shapes.TEXT and [call.name for call in evidence.tool_calls or ()] == ["lookup_order"]
    assert {"tool_calls", "answer"} <= not_known(drive(lambda message: {**written, "state": "max_steps_error"}))


def test_framework_results_are_read_as_evidence_in_python() -> None:
    assert proctor.read_evidence(shapes.agno_run()).text == shapes.TEXT
    assert proctor.read_evidence(
        [shapes.make("agno.models.message:Message", (), {"to_dict": lambda self: {"role": "user", "content": "x"}})]
    )
    failed = proctor.read_evidence(agno_run("ERROR"))
    assert failed.text is None and WORDS in str(failed.error)
    with pytest.raises(proctor.EvidenceError, match="object"):
        proctor.read_evidence(object())
