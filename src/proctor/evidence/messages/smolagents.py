"""smolagents: the steps of an agent's memory, as `memory.get_full_steps()` writes them.

A step has the calls that the model asked for and one text of what was observed, which the calls of one step share. `final_answer` is
how such an agent answers: what it is given is the answer, and no tool was called. An agent that writes code calls tools inside of it,
which nobody records.

Tried with smolagents 1.2x: `ToolCallingAgent`, and the code of a `CodeAgent`.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.builder import Draft, Entries, Fields, not_a_message_error
from proctor.evidence.messages.openai import add_call
from proctor.evidence.shared.calls import PROTOCOL_ERROR, says_error
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import mark_later
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import dict_or_empty
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS

_STEP_KEYS = frozenset(
    (
        *("step_number", "timing", "model_input_messages", "model_output", "observations_images", "is_final_answer"),
        *("task_images", "duration", "start_time", "end_time", "plan", "facts"),
    )
)


def is_own_message(step: dict[str, Any]) -> bool:
    """Return whether an entry can only be a step of smolagents."""
    if "role" in step or "type" in step:
        return False
    return ("step_number" in step and "timing" in step) or ("task" in step and "task_images" in step) or set(step) == {"system_prompt"}


def read(entries: Entries, unknowns: Unknowns) -> list[Message]:
    """Read the steps of a memory."""
    found: list[Message] = []
    for at, entry in entries:
        fields = Fields(entry, at, unknowns)
        if "task" in entry:
            draft = Draft("user", at, unknowns)
            draft.add_text(fields.take("task"), f"{at}.task")
            fields.close(_STEP_KEYS, role="user")
            found.append(draft.build())
        elif "step_number" in entry:
            found.append(_step(fields))
        elif "system_prompt" in entry or "plan" in entry:
            fields.close((*_STEP_KEYS, "system_prompt", "token_usage"))
        elif set(entry) <= {"output", "final_answer"}:
            draft = Draft("assistant", at, unknowns)
            draft.add_text(as_text(fields.take("output", "final_answer")), at)
            found.append(draft.build())
        else:
            raise not_a_message_error(at, "smolagents steps", "it is neither a task nor a step")
    return found


def _step(fields: Fields) -> Message:
    draft = Draft("assistant", fields.at, fields.unknowns)
    asked = Draft("assistant", fields.at, fields.unknowns)
    # A call that failed stands only in what the model wrote.
    wrote = fields.take_object("model_output_message")
    if wrote is not None:
        for index, value in enumerate(wrote.take_list("tool_calls")):
            add_call(asked, value, f"{wrote.at}.tool_calls[{index}]")
        wrote.close(("role", "content", "raw", "token_usage"))
    for index, value in enumerate(fields.take_list("tool_calls")):
        add_call(asked, value, f"{fields.at}.tool_calls[{index}]")
    observed, output, error = fields.take("observations"), fields.take("action_output"), fields.take("error")
    if fields.take("code_action") is not None or any(call.name == "python_interpreter" for call in asked.calls):
        fields.unknowns.mark_parts(
            CALL_PARTS,
            f"{fields.at}.code_action: this agent calls its tools inside of code, which is not read",
        )
    tools = [call for call in asked.calls if call.name != "final_answer"]
    draft.calls.extend(tools)
    if dict_or_empty(error).get("type") == "AgentMaxStepsError":
        mark_later(fields.unknowns, f"{fields.at}.error: the run was stopped at max_steps (max_steps_error), so it was not over")
    told = (dict_or_empty(error).get("message") or as_text(error)) if says_error(error) else None
    for call in tools:
        draft.add_result(decode_container(observed), fields.at, id=call.id, name=call.name, error=told, kind=PROTOCOL_ERROR)
    if len(tools) > 1:
        fields.unknowns.note(f"{fields.at}.observations: {len(tools)} calls share what was observed")
    for call in asked.calls:
        if call.name == "final_answer":
            draft.add_text(as_text(dict_or_empty(call.arguments).get("answer", call.arguments)), fields.at)
    if not asked.calls and told is None and output is not None:
        draft.add_text(as_text(output), fields.at)
    draft.usage = fields.take_usage("token_usage")
    fields.close(_STEP_KEYS)
    return draft.build()
