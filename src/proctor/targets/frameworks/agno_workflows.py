"""Agno: the output of a workflow, and the events of one.

The steps of a workflow are agents and teams, whose runs show their calls, and functions, which may do anything unseen. A step that failed
passes its error to the next step as if it were an answer; the effect of that is unknown.

Tried with agno 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from proctor.model.show import shorten
from proctor.targets.frameworks.agno import NO_WORDS, add_inner_run, read_events, write_answer
from proctor.targets.frameworks.base import Framework, RunData, is_instance_of, list_members, read_last, read_member
from proctor.targets.frameworks.simplify import Budget

_SEEN = ("agent", "team")


def read(value: object, budget: Budget) -> RunData | None:
    """Read the output of a workflow."""
    if not is_instance_of(value, "agno", "WorkflowRunOutput"):
        return None
    content = read_member(value, "content")
    run = write_answer(content, budget)
    status = read_member(value, "status")
    word = str(getattr(status, "value", status)).upper()
    if word == "ERROR":
        run.failed = content if isinstance(content, str) and content else NO_WORDS
    elif word != "COMPLETED":
        run.mark_all(f"the workflow was not over: its status is {word!r}")
        run.document["text"] = None
    steps = list(_list_steps(list_members(value, "step_results")))
    _check_steps(steps, run)
    outputs = [*list_members(value, "step_executor_runs"), read_member(value, "workflow_agent_run")]
    for output in (output for output in outputs if output is not None):
        inner = read(output, budget)
        if inner is None:
            add_inner_run(output, run, budget, "a step")
        else:
            for part, why in inner.unknowns:
                run.mark((part,), f"a workflow in it: {why}")
            run.calls = (*(run.calls or ()), *(inner.calls or ()))
    ids = {read_member(output, "run_id") for output in outputs}
    if not steps or any(read_member(step, "executor_type") in _SEEN and read_member(step, "step_run_id") not in ids for step in steps):
        run.mark_calls("this output of a workflow does not keep the runs of all its steps")
    run.calls = run.calls or ()
    return run


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read a stream that ends with the output of the workflow, or its events."""
    if not items:
        return None
    if is_instance_of(items[-1], "agno", "WorkflowRunOutput"):
        return read_last(items, read, budget)
    if not all(is_instance_of(item, "agno", "BaseRunOutputEvent") for item in items):
        return None
    if not any(is_instance_of(item, "agno", "BaseWorkflowRunOutputEvent") for item in items):
        return None
    run = read_events(items, budget)
    ended = [event for event in items if is_instance_of(event, "agno", "WorkflowCompletedEvent")]
    broken = [event for event in items if is_instance_of(event, "agno", "WorkflowErrorEvent")]
    if ended:
        # An error of an agent in it is an error of that step; the workflow continued.
        _mark_failure(run)
        answer = write_answer(read_member(ended[-1], "content"), budget)
        run.document["text"], run.body = answer.document["text"], answer.body
    elif broken:
        run.failed = str(read_member(broken[-1], "error") or NO_WORDS)
    else:
        _mark_failure(run)
        run.mark_all("the workflow did not come to its end")
        run.document["text"] = run.document["text"] or None
    for event in items:
        if is_instance_of(event, "agno", "StepErrorEvent"):
            run.mark_all(_describe_failed_step(event))
    results = [step for event in ended for step in list_members(event, "step_results")]
    responses = [read_member(event, "step_response") for event in items if is_instance_of(event, "agno", "StepCompletedEvent")]
    steps = list(_list_steps([*results, *responses]))
    _check_steps(steps, run)
    begun = {read_member(event, "step_id") for event in items if is_instance_of(event, "agno", "RunStartedEvent", "TeamRunStartedEvent")}
    if not steps or any(read_member(step, "executor_type") in _SEEN and read_member(step, "step_id") not in begun for step in steps):
        run.mark_calls("these events do not show the runs of all steps: ask for `stream_events=True`")
    return run


def _mark_failure(run: RunData) -> None:
    if run.failed is not None:
        run.mark_all(f"a run in it ended in an error: {shorten(run.failed, 200)}")
        run.failed = None


def _list_steps(results: list[Any]) -> Iterator[object]:
    """Yield the steps that acted themselves: steps may contain others, and be in lists."""
    for result in results:
        inner = cast("list[Any]", result) if isinstance(result, list) else list_members(result, "steps") if result is not None else []
        if inner:
            yield from _list_steps(inner)
        if not isinstance(result, list) and result is not None and (not inner or read_member(result, "success") is False):
            yield result


def _check_steps(steps: list[object], run: RunData) -> None:
    for step in steps:
        name = read_member(step, "step_name") or "without a name"
        if read_member(step, "success") is False or read_member(step, "error"):
            run.mark_all(_describe_failed_step(step))
        elif read_member(step, "is_paused") is True:
            run.mark_all(f"the step {name!r} is paused")
        if read_member(step, "executor_type") not in _SEEN:
            run.mark_calls(f"what the step {name!r} does is not seen: it runs no agent and no team, but code of its own")


def _describe_failed_step(step: object) -> str:
    return f"the step {read_member(step, 'step_name')!r} failed: {shorten(str(read_member(step, 'error') or NO_WORDS), 200)}"


FRAMEWORK = Framework(name="Agno", page="agno", packages=("agno",), read=read, read_stream=read_stream, has_stop_reason=False)
