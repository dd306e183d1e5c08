"""smolagents: the steps of an agent's memory, as `memory.get_full_steps()` writes them.

A step has the calls that the model asked for and one text of what was observed, which the calls of one step share. `final_answer` is
how such an agent answers: what it is given is the answer, and no tool was called. An agent that writes code calls tools inside of it,
which are not recorded.

Tried with smolagents 1.2x: `ToolCallingAgent`, and the code of a `CodeAgent`.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.messages.envelope import Entries
from proctor.evidence.shared.blocks import Draft, read_counts
from proctor.evidence.shared.calls import PROTOCOL_ERROR, says_error
from proctor.evidence.shared.conversation import Message
from proctor.evidence.shared.truncated_conversations import mark_later
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.unrecognised import check_fields, mark_kind
from proctor.evidence.values.access import dict_or_empty
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import as_text
from proctor.model.account import CALL_PARTS

_KNOWN = frozenset(
    (
        *("step_number", "timing", "model_input_messages", "model_output", "model_output_message", "tool_calls", "observations", "error"),
        *("action_output", "code_action", "token_usage", "task", "is_final_answer", "observations_images", "task_images"),
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
        if "task" in entry:
            draft = Draft("user", at, unknowns)
            draft.add_text(entry["task"], f"{at}.task")
            check_fields(entry, _KNOWN, at, unknowns)
            found.append(draft.build())
        elif "step_number" in entry:
            found.append(_read_step(entry, at, unknowns))
        elif set(entry) <= {"output", "final_answer"}:
            draft = Draft("assistant", at, unknowns)
            draft.add_text(as_text(entry.get("output", entry.get("final_answer"))), at)
            found.append(draft.build())
        elif "system_prompt" not in entry and "plan" not in entry:
            draft = Draft("assistant", at, unknowns)
            draft.mark(at, "neither a task nor a step")
            mark_kind(entry, next(iter(entry), "entry"), at, unknowns)
    return found


def _read_step(entry: dict[str, Any], at: str, unknowns: Unknowns) -> Message:
    draft, asked = Draft("assistant", at, unknowns), Draft("assistant", at, unknowns)
    # A call that failed is only in what the model wrote.
    wrote = entry.get("model_output_message")
    if wrote is not None and not isinstance(wrote, dict):
        draft.mark(f"{at}.model_output_message", "expected an object", CALL_PARTS)
    asked.add_calls(dict_or_empty(wrote).get("tool_calls"), f"{at}.model_output_message.tool_calls")
    check_fields(dict_or_empty(wrote), ("role", "content", "tool_calls", "raw", "token_usage"), f"{at}.model_output_message", unknowns)
    asked.add_calls(entry.get("tool_calls"), f"{at}.tool_calls")
    observed, output, error = entry.get("observations"), entry.get("action_output"), entry.get("error")
    if entry.get("code_action") is not None or any(call.name == "python_interpreter" for call in asked.calls):
        unknowns.mark_parts(CALL_PARTS, f"{at}.code_action: this agent calls its tools inside of code, which is not read")
    tools = [call for call in asked.calls if call.name != "final_answer"]
    draft.calls.extend(tools)
    if dict_or_empty(error).get("type") == "AgentMaxStepsError":
        mark_later(unknowns, f"{at}.error: the run was stopped at max_steps (max_steps_error), so it was not over")
    told = (dict_or_empty(error).get("message") or as_text(error)) if says_error(error) else None
    if tools and observed is None and told is None:
        draft.mark(at, "what these calls returned is not recorded", ("tool_results",))
    for call in tools:
        draft.append_result(decode_container(observed), at, id=call.id, name=call.name, error=told, kind=PROTOCOL_ERROR)
    if len(tools) > 1:
        unknowns.note(f"{at}.observations: {len(tools)} calls share what was observed")
    for call in asked.calls:
        if call.name == "final_answer":
            draft.add_text(as_text(dict_or_empty(call.arguments).get("answer", call.arguments)), at)
    if not asked.calls and told is None and output is not None:
        draft.add_text(as_text(output), at)
    draft.usage = read_counts(entry.get("token_usage"), f"{at}.token_usage", unknowns)
    check_fields(entry, _KNOWN, at, unknowns, has_answer=True)
    return draft.build()
