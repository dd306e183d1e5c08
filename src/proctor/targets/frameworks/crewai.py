"""CrewAI: the output of a crew, of a task, or of a single agent.

Since version 1 each task keeps the messages of its agent, which show the calls; without them, the calls are unknown. The work of a coworker
that a task is delegated to is not recorded, and a conversation that grew too long is replaced by a summary.

Tried with crewai 1.15: `kickoff` of a crew, streamed too, and of an agent.
"""

from __future__ import annotations

from collections.abc import Iterable

from proctor.evidence.reading import read_document
from proctor.model.evidence import Json, ToolCall
from proctor.targets.answers.account import UNFINISHED, trust_start
from proctor.targets.frameworks.base import (
    Framework,
    RunData,
    add_usage,
    are_instances,
    find_entry,
    is_instance_of,
    join_texts,
    list_members,
    read_member,
)
from proctor.targets.frameworks.simplify import Budget, simplify
from proctor.targets.frameworks.streams import is_crew_stream

_OUTPUTS = ("CrewOutput", "LiteAgentOutput", "TaskOutput")
_DELEGATE = ("delegate work to coworker", "ask question to coworker", "delegate_work_to_coworker", "ask_question_to_coworker")
_FORCED = "Now it's time you MUST give your absolute best final answer"
_RAISED = ("Error executing tool",)
_NO_MESSAGES = "this output of CrewAI keeps no messages, and its text shows no calls"


def read(value: object, budget: Budget) -> RunData | None:
    """Read an output."""
    if is_crew_stream(value):
        value = read_member(value, "result")
    if not is_instance_of(value, "crewai", *_OUTPUTS):
        return None
    tasks = list_members(value, "tasks_output") if is_instance_of(value, "crewai", "CrewOutput") else [value]
    run = RunData(document={"text": read_member(value, "raw")})
    body = read_member(value, "json_dict")
    if body is None:
        body = read_member(value, "pydantic")
    run.add_body(body, budget, "$.pydantic")
    if not tasks:
        run.mark_calls(_NO_MESSAGES)
    run.calls = tuple(call for task in tasks for call in _read_task(task, run, budget))
    spent = read_member(value, "token_usage") or read_member(value, "usage_metrics")
    totals = simplify(spent, budget, "$.token_usage") if spent is not None else None
    answers = sum(1 for task in tasks for message in list_members(task, "messages") if find_entry(message, "role") == "assistant")
    if isinstance(totals, dict) and totals.get("successful_requests") == answers:
        # The count continues over all work of an agent; it applies to this run only if it covers exactly these messages.
        run.usage = add_usage((totals,), "prompt_tokens", "completion_tokens")
    return run


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the chunks of a stream without its result: the text of the last task, without tool results."""
    if not are_instances(items, "crewai", "StreamChunk", "StreamFrame"):
        return None
    last = read_member(items[-1], "task_id")
    pieces = [item for item in items if read_member(item, "task_id") == last and not read_member(item, "tool_call")]
    run = RunData(document={"text": join_texts(pieces, "content", budget)})
    run.mark_calls("chunks of a stream show no calls as they were made: return the stream itself, or its `result`")
    return run


def _read_task(task: object, run: RunData, budget: Budget) -> Iterable[ToolCall]:
    written: Json = [simplify(message, budget, "$.messages") for message in list_members(task, "messages")]
    if not written:
        run.mark_calls(_NO_MESSAGES)
        return ()
    evidence = trust_start(read_document(written, format="openai")[0])
    account = evidence.account
    for part, why in account.unknown.items() if account is not None else ():
        # The output shows whether the run ended with the result of a tool.
        if part != "answer" and why not in UNFINISHED:
            run.mark((part,), why)

    # The agent was forced to answer if the messages contain that instruction, or end with a tool and another answer.
    texts = [text for message in written if isinstance(text := message.get("content"), str)]
    ends_with_tool = account is not None and account.unknown.get("answer") in UNFINISHED
    answer, last = read_member(task, "raw"), written[-1].get("content")
    is_other = ends_with_tool and isinstance(answer, str) and isinstance(last, str) and answer.strip() != last.strip()
    if any(text.startswith("<summary>") for text in texts):
        run.mark_calls("messages were replaced by a summary")
    if is_other or any(_FORCED in text for text in texts):
        run.mark_all("the agent was stopped at `max_iter` and made to answer without tools: what it would have done is unknown")
    for call in evidence.tool_calls or ():
        if call.name.strip().lower().replace("-", "_") in _DELEGATE:
            run.mark_calls(f"{call.name} has another agent work, whose calls are not in the output")
    return evidence.tool_calls or ()


FRAMEWORK = Framework(
    name="CrewAI", page="crewai", packages=("crewai",), read=read, read_stream=read_stream, raised=_RAISED, has_stop_reason=False
)
