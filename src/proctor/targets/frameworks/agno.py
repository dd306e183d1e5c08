"""Agno: the output of a run of an agent, a team or a workflow, and the events of a stream.

History is left out. A team member that was called has its own run, whose calls are added. A stream
shows calls if events were requested (`stream_events=True`), or ends with the output (`yield_run_output=True`).
The steps of a workflow are agents and teams, whose runs show their calls, and functions, which may do anything unseen. A step that failed
passes its error to the next step as if it were an answer; the effect of that is unknown.

Tried with agno 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from proctor.evidence.messages.frameworks import is_waiting
from proctor.evidence.shared.calls import CONTENT_ERROR
from proctor.model.evidence import Json
from proctor.model.show import shorten
from proctor.targets.answers.plain_values import Unreadable
from proctor.targets.frameworks.base import (
    Framework,
    RunData,
    are_instances,
    call_member,
    find_entry,
    is_instance_of,
    join_texts,
    list_members,
    read_last,
    read_member,
)
from proctor.targets.frameworks.simplify import Budget, simplify

_RUNS = ("RunOutput", "RunResponse", "TeamRunOutput", "TeamRunResponse")
_RUN_KEYS = frozenset(("run_id", "session_id", "messages", "tools", "model", "status"))
_ENDED = ("COMPLETED", "completed")
_FAILED = ("ERROR", "error")
_NO_WORDS = "it does not say which"
_STARTED = ("RunStartedEvent", "TeamRunStartedEvent")
_COMPLETED = ("RunCompletedEvent", "TeamRunCompletedEvent")
_CALLED = ("ToolCallCompletedEvent", "TeamToolCallCompletedEvent", "ToolCallErrorEvent", "TeamToolCallErrorEvent")
_BEGUN = ("ToolCallStartedEvent", "TeamToolCallStartedEvent")
_MODEL_EVENTS = ("ModelRequestStartedEvent", "TeamModelRequestStartedEvent", "ModelRequestCompletedEvent", "TeamModelRequestCompletedEvent")
_CONTENT_EVENTS = ("RunContentEvent", "TeamRunContentEvent")
_ERRORS = ("RunErrorEvent", "TeamRunErrorEvent")
_CANCELLED = ("RunCancelledEvent", "TeamRunCancelledEvent")
_SEEN = ("agent", "team")
_PAUSED = ("RunPausedEvent", "TeamRunPausedEvent")


def read(value: object, budget: Budget) -> RunData | None:
    """Read the output of a run or a workflow."""
    if is_instance_of(value, "agno", "WorkflowRunOutput"):
        return _read_workflow(value, budget)
    return _read_run(value, budget) if is_instance_of(value, "agno", *_RUNS) else None


def _read_run(value: object, budget: Budget) -> RunData:
    fields = simplify(call_member(value, "to_dict"), budget, "$")
    if not isinstance(fields, dict):
        raise Unreadable("to_dict() gives no object")
    document: dict[str, Any] = {key: member for key, member in fields.items() if key in _RUN_KEYS}
    document.setdefault("session_id", None)
    messages = document.get("messages") or []
    new_messages = [message for message in messages if not (isinstance(message, dict) and message.get("from_history") is True)]
    document["messages"] = [_name_calls(message) for message in new_messages]
    content, status = read_member(value, "content"), document.get("status")
    has_ended = status is None or status in _ENDED
    if not document["messages"]:
        run = RunData(document={"text": content if isinstance(content, str) and has_ended else None})
        run.mark_calls("this output of a run keeps no messages")
    else:
        run = RunData(document=document, format="agno")
    if has_ended:
        run.add_body(content, budget, "$.content")
    if status in _FAILED:
        # A guard may reject the model's answer; then its text replaces the error.
        texts = {find_entry(message, "content") for message in new_messages if find_entry(message, "role") == "assistant"}
        run.failed = content if isinstance(content, str) and content and content not in texts else _NO_WORDS
    elif not has_ended:
        run.mark_all(f"the run was not over: its status is {status!r}")
    for member in list_members(value, "member_responses"):
        _add_inner_run(member, run, budget, "a member of the team")
    return run


def _name_calls(message: Any) -> Any:
    """Return a message with one id per call: in the Responses API the item and the call have different ids, and results use the latter."""
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    calls = [
        {**{key: member for key, member in call.items() if key != "call_id"}, "id": call["call_id"]}
        if isinstance(call, dict) and call.get("call_id")
        else call
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _add_inner_run(output: object, run: RunData, budget: Budget, label: str) -> None:
    inner = _read_run(output, budget) if is_instance_of(output, "agno", *_RUNS) else None
    if inner is None or inner.format != "agno":
        run.mark_calls(f"{label} keeps no messages, so its calls are unknown")
    else:
        run.add_run(inner, label)


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read a stream that ends with the output of the run, or its events, or a list of messages."""
    if are_instances(items, "agno", "Message"):
        written = [simplify(call_member(item, "to_dict"), budget, f"$[{at}]") for at, item in enumerate(items)]
        new_messages = [_name_calls(message) for message in written if find_entry(message, "from_history") is not True]
        return RunData(document=new_messages, format="agno", needs_message=True)
    if items and is_instance_of(items[-1], "agno", "WorkflowRunOutput", *_RUNS):
        return read_last(items, read, budget)
    if not are_instances(items, "agno", "BaseRunOutputEvent", "BaseAgentRunEvent", "BaseTeamRunEvent"):
        return None
    is_workflow = any(is_instance_of(item, "agno", "BaseWorkflowRunOutputEvent") for item in items)
    return _read_workflow_events(items, budget) if is_workflow else _read_events(items, budget)


def _read_events(events: list[object], budget: Budget) -> RunData:
    ended = [event for event in events if is_instance_of(event, "agno", *_COMPLETED)]
    pieces = [event for event in events if is_instance_of(event, "agno", *_CONTENT_EVENTS)]
    run = _write_answer(read_member(ended[-1], "content") if ended else join_texts(pieces, "content", budget), budget)
    _check_end(events, run)
    if not any(is_instance_of(event, "agno", *_STARTED) for event in events):
        run.mark_calls("this stream has content events only: use `stream_events=True`, or for `yield_run_output=True`")
        return run
    # A tool that raised ends twice: with its error, and like any other.
    ended_tools = [read_member(event, "tool") for event in events if is_instance_of(event, "agno", *_CALLED)]
    done = list({read_member(tool, "tool_call_id"): tool for tool in ended_tools}.values())
    begun = [read_member(event, "tool") for event in events if is_instance_of(event, "agno", *_BEGUN)]
    ids = {read_member(tool, "tool_call_id") for tool in done}
    open_calls = [tool for tool in begun if read_member(tool, "tool_call_id") not in ids]
    run.document["tool_calls"] = [_write_call(tool, budget) for tool in [*done, *open_calls]]
    if not ended:
        run.mark_all("the run did not come to its end")
    # After a tool call the model would be called again.
    requests = [type(event).__name__ for event in events if is_instance_of(event, "agno", *_MODEL_EVENTS)]
    if not done and not begun and (not requests or len(set(requests)) < len(requests)):
        run.mark_calls("model requests are missing from these events, so tool events may be missing too: yield all events")
    return run


def _write_answer(content: object, budget: Budget) -> RunData:
    run = RunData(document={"text": content if isinstance(content, str) else None})
    run.add_body(content, budget, "$.content")
    return run


def _check_end(events: list[object], run: RunData) -> None:
    """Mark the unknown parts of a run that paused, was cancelled or had an error; if the error comes last, the run failed."""
    paused = [event for event in events if is_instance_of(event, "agno", *_PAUSED)]
    if paused:
        waits = [
            str(read_member(tool, "tool_name")) for tool in list_members(paused[-1], "tools") if is_waiting(partial(read_member, tool))
        ]
        run.mark_all(f"the run is paused: it waits before it calls {', '.join(waits)}" if waits else "the run is paused")
    if any(is_instance_of(event, "agno", *_CANCELLED) for event in events):
        run.mark_all("the run was cancelled")
    final_events = [event for event in events if is_instance_of(event, "agno", *_ERRORS, *_CONTENT_EVENTS, *_COMPLETED)]
    errors = [event for event in final_events if is_instance_of(event, "agno", *_ERRORS)]
    error = str(read_member(errors[-1], "content") or _NO_WORDS) if errors else ""
    if errors and final_events[-1] is errors[-1]:
        run.failed = error
    elif errors:
        run.mark_all(f"a run in it ended in an error: {shorten(error, 200)}")
    if run.unknowns and not run.document["text"]:
        # No content so far is not an empty answer.
        run.document["text"] = None


def _write_call(tool: object, budget: Budget) -> Json:
    result = simplify(read_member(tool, "result"), budget, "$.tool.result")
    arguments = simplify(read_member(tool, "tool_args"), budget, "$.tool.tool_args")
    call: dict[str, Json] = {"name": read_member(tool, "tool_name"), "arguments": arguments, "id": read_member(tool, "tool_call_id")}
    if read_member(tool, "tool_call_error") is True:
        return {**call, "error": result or "the tool failed", "error_kind": CONTENT_ERROR}
    return {**call, "result": result}


# --- workflows ----------------------------------------------------------------------------------------------------------


def _read_workflow(value: object, budget: Budget) -> RunData:
    content = read_member(value, "content")
    run = _write_answer(content, budget)
    status = read_member(value, "status")
    word = str(getattr(status, "value", status)).upper()
    if word == "ERROR":
        run.failed = content if isinstance(content, str) and content else _NO_WORDS
    elif word != "COMPLETED":
        run.mark_all(f"the workflow was not over: its status is {word!r}")
        run.document["text"] = None
    steps = list(_list_steps(list_members(value, "step_results")))
    _check_steps(steps, run)
    outputs = [*list_members(value, "step_executor_runs"), read_member(value, "workflow_agent_run")]
    for output in (output for output in outputs if output is not None):
        inner = _read_workflow(output, budget) if is_instance_of(output, "agno", "WorkflowRunOutput") else None
        if inner is None:
            _add_inner_run(output, run, budget, "a step")
            continue
        for part, why in inner.unknowns:
            run.mark((part,), f"a workflow in it: {why}")
        run.calls = (*(run.calls or ()), *(inner.calls or ()))
    ids = {read_member(output, "run_id") for output in outputs}
    if not steps or any(read_member(step, "executor_type") in _SEEN and read_member(step, "step_run_id") not in ids for step in steps):
        run.mark_calls("this output of a workflow does not keep the runs of all its steps")
    run.calls = run.calls or ()
    return run


def _read_workflow_events(items: list[object], budget: Budget) -> RunData:
    run = _read_events(items, budget)
    ended = [event for event in items if is_instance_of(event, "agno", "WorkflowCompletedEvent")]
    broken = [event for event in items if is_instance_of(event, "agno", "WorkflowErrorEvent")]
    if ended:
        # An error of an agent in it is an error of that step; the workflow continued.
        _mark_failure(run)
        answer = _write_answer(read_member(ended[-1], "content"), budget)
        run.document["text"], run.body = answer.document["text"], answer.body
    elif broken:
        run.failed = str(read_member(broken[-1], "error") or _NO_WORDS)
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
    return f"the step {read_member(step, 'step_name')!r} failed: {shorten(str(read_member(step, 'error') or _NO_WORDS), 200)}"


FRAMEWORK = Framework(name="Agno", page="agno", packages=("agno",), read=read, read_stream=read_stream, has_stop_reason=False)
