"""smolagents: the full result of a run, the memory of an agent, and the steps of a stream.

`agent.run(task)` returns the bare answer, which shows no calls; `agent.run(task, return_full_result=True)` returns the steps as well. An
agent that writes code calls its tools inside the code, where calls are not recorded.

Tried with smolagents 1.26: `ToolCallingAgent` and `CodeAgent`.
"""

from __future__ import annotations

from typing import Any, cast

from proctor.model.evidence import Json
from proctor.targets.frameworks.base import Framework, RunData, call_member, find_entry, is_instance_of, list_members, read_member
from proctor.targets.frameworks.simplify import Budget, simplify

_MANAGED = "Here is the final answer from your managed agent"
_RUN_KEYS = {"output", "state", "steps", "token_usage", "timing"}
_CUT_OFF = "the run was stopped at max_steps (max_steps_error): what it would have done then is unknown"
# The model's input grows with every step; the provider's answer is already in the step; pictures have no JSON form.
_LEFT_OUT = frozenset(("model_input_messages", "raw", "observations_images", "task_images"))


def read(value: object, budget: Budget) -> RunData | None:
    """Read a full result, or a memory."""
    if is_instance_of(value, "smolagents", "RunResult"):
        steps = list_members(value, "steps") or list_members(value, "messages")
        return _read_result(steps, read_member(value, "output"), read_member(value, "state"), budget)
    if _is_written_run(value):
        return _read_result(find_entry(value, "steps"), find_entry(value, "output"), find_entry(value, "state"), budget)
    if is_instance_of(value, "smolagents", "FinalAnswerStep"):
        return _read_answer(value, budget)
    if is_instance_of(value, "smolagents", "AgentMemory"):
        return _read_steps(cast("list[Any]", call_member(value, "get_full_steps")), budget)
    return None


def _is_written_run(value: object) -> bool:
    """Return whether this is the output of `RunResult.dict()`."""
    if not isinstance(find_entry(value, "steps"), list) or not isinstance(find_entry(value, "state"), str):
        return False
    return isinstance(find_entry(value, "timing"), dict) and set(cast("dict[str, Any]", value)) == _RUN_KEYS


def _read_result(steps: list[Any], output: object, state: object, budget: Budget) -> RunData:
    run = _read_steps(steps, budget)
    run.add_body(output, budget, "$.output")
    if state == "max_steps_error":
        run.mark_all(_CUT_OFF)
    elif state != "success":
        run.mark_all(f"the run ended with the state {state!r}")
    return run


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the steps of a run."""
    if not any(is_instance_of(item, "smolagents", "MemoryStep", "FinalAnswerStep") for item in items):
        return None
    steps = [item for item in items if is_instance_of(item, "smolagents", "ActionStep", "TaskStep", "PlanningStep")]
    ended = [item for item in items if is_instance_of(item, "smolagents", "FinalAnswerStep")]
    once = list({id(step): step for step in steps}.values())
    run = _read_steps(once, budget) if steps else _read_answer(ended[-1], budget)
    if len(once) < len(steps):
        # At max_steps the stream repeats its last step in place of the final one.
        run.mark_all(_CUT_OFF)
    if steps and not ended:
        run.mark_all("the stream did not come to its end")
    return run


def _read_answer(step: object, budget: Budget) -> RunData:
    output = simplify(read_member(step, "output"), budget, "$.output")
    why = "the last step shows no calls: return `agent.run(task, return_full_result=True)`, or all steps"
    return RunData(document={"text" if isinstance(output, str) else "body": output}).mark_calls(why)


def _read_steps(steps: list[Any], budget: Budget) -> RunData:
    written = [_write_step(step, budget, f"$[{at}]") for at, step in enumerate(steps)]
    run = RunData(document=[step for step in written if step], format="smolagents")
    if not run.document:
        run = RunData(document={"text": ""}).mark_calls("the result keeps no steps")
    if not _counts_on(written):
        run.mark_calls("the steps are not all of the run: their numbers do not begin with 1, or one is missing")
    if any(_MANAGED in str(find_entry(step, "observations") or "") for step in written):
        run.mark_calls("a managed agent works out of sight: its calls are not in the steps")
    return run


def _counts_on(steps: list[Json]) -> bool:
    """Return whether the steps are numbered without a gap; another run in the same memory starts at 1 again."""
    previous = 0
    for number in (find_entry(step, "step_number") for step in steps):
        if isinstance(number, int) and number not in (1, previous + 1):
            return False
        previous = number if isinstance(number, int) else previous
    return True


def _write_step(step: object, budget: Budget, path: str) -> Json:
    # `dict()` writes errors and calls in the stored form of a memory.
    fields = call_member(step, "dict") if callable(read_member(step, "dict")) else step
    written = simplify(fields, budget, path, without=_LEFT_OUT)
    if isinstance(written, dict) and "task" in written:
        written["task_images"] = None  # identifies a task
    return written


FRAMEWORK = Framework(name="smolagents", page="smolagents", packages=("smolagents",), read=read, read_stream=read_stream)
