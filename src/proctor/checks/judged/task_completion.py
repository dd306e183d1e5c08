"""Task completion: whether the agent completed its task.

The task is the input of the run, or `task`. The judge sees the answer, the conversation, and the tool calls with their results where these
are known: an action counts as done only if a call shows it, so an agent that merely claims to have booked does not pass. `goal_reached`
asks whether the user of a conversation got what they wanted.
"""

from __future__ import annotations

import msgspec

from proctor.checks.registry import Decide, check
from proctor.checks.shared.calls import describe_call, list_recorded_calls
from proctor.checks.shared.missing_evidence import Reads
from proctor.checks.shared.quotes import locate_quoted_answer
from proctor.checks.shared.rubric import (
    ask_rubric,
    find_answer,
    find_conversation,
    find_question,
    load_rubric,
    require_filled,
    require_threshold,
)
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import Material
from proctor.model.verdict import Verdict


class TaskCompletion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent completed the task, in the opinion of a judge."""

    task: str | None = None
    """The task, where it is not the input of the run."""
    threshold: float | None = None
    """The least score from 0 to 1 that passes; if left out, the judge answers yes or no."""


def _declare_reads(spec: TaskCompletion) -> Reads:
    return Reads(("answer",) if spec.task is not None else ("answer", "input"), "exact", "fail")


@check(
    "task_completion",
    shorthand="task",
    judged=True,
    example="task_completion: {task: Book a table for two on Friday at seven.}",
    reads=_declare_reads,
    locate_by=locate_quoted_answer,
)
def task_completion(spec: TaskCompletion) -> Decide:
    """The agent completed the task, in the opinion of a judge."""
    require_filled(spec.task, "task")
    require_threshold(spec.threshold)
    rubric = load_rubric("task_completion")

    def decide(evidence: Evidence) -> Verdict:
        answer = find_answer(evidence)
        if isinstance(answer, Verdict):
            return answer
        task = find_question(evidence, spec.task)
        if isinstance(task, Verdict):
            return task
        shown: dict[str, Json] = {"task": task, **find_conversation(evidence)}
        calls = list_recorded_calls(evidence)
        if calls is not None:
            shown["tool_calls"] = [describe_call(call) for call in calls]
        material = Material(subject=answer.value, context=shown)
        return ask_rubric(rubric, material, threshold=spec.threshold, pointers=(answer.pointer,))

    return decide
