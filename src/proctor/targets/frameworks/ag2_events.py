"""AG2 since version 1: the events of an agent's stream, from the history of a reply or as they were emitted.

A request begins an exchange; a response of the model names the calls, whose results follow. A subtask or another agent that is used as a
tool works on its own stream. A history that was compacted has lost its beginning. Pieces of text alone show no calls. The history of
an `AgentReply` is fetched where streams are read (`streams.py`): it has to be awaited.

Tried with ag2 1.2: `tests/frameworks/returns.yaml`.
"""

from __future__ import annotations

from typing import Any

from proctor.evidence.shared.calls import PROTOCOL_ERROR
from proctor.model.evidence import Json
from proctor.model.show import exception_text
from proctor.targets.frameworks.base import Framework, RunData, are_instances, is_instance_of, join_texts, list_members, read_member
from proctor.targets.frameworks.simplify import Budget, simplify
from proctor.targets.frameworks.streams import ReplyHistory

_PACKAGE = "ag2"


def read(value: object, budget: Budget) -> RunData | None:
    """Read the history of a reply."""
    return _read_events(value.events, budget) if isinstance(value, ReplyHistory) else None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the events of an agent's stream."""
    if not are_instances(items, _PACKAGE, "BaseEvent"):
        return None
    run = _read_events(items, budget)
    if not any(exchange["tool_calls"] for exchange in run.document.get("turns", ())):
        # A request is emitted again after its consequences, so it is also among the last events.
        run.mark_calls("these events show no call, so they may be the last ones only: return the `AgentReply`")
    return run


def _read_events(events: list[object], budget: Budget) -> RunData:
    exchanges: list[dict[str, Any]] = []
    run = RunData(document={"turns": exchanges})
    # A stream emits an event when all its consequences are done: a request arrives last.
    in_order = sorted(events, key=lambda event: float(read_member(event, "created_at") or 0))
    recorded = [event for event in in_order if is_instance_of(event, _PACKAGE, "ModelRequest", "ModelResponse", *_OTHER_EVENTS)]
    if not recorded or not is_instance_of(recorded[0], _PACKAGE, "ModelRequest"):
        run.mark_calls("these events do not begin with a request: what was done before them is unknown")
    for event in recorded:
        if is_instance_of(event, _PACKAGE, "ModelRequest") and not is_instance_of(event, _PACKAGE, "DrainedModelRequest"):
            inputs = [read_member(part, "content") for part in list_members(event, "parts") if is_instance_of(part, _PACKAGE, "TextInput")]
            written = "\n".join(text for text in inputs if isinstance(text, str)) or None
            exchanges.append({"input": written, "text": None, "tool_calls": [], "spent": []})
            continue
        if not exchanges:
            exchanges.append({"input": None, "text": None, "tool_calls": [], "spent": []})
        _add_event(exchanges[-1], event, run, budget)
    if not exchanges:
        chunks = [event for event in events if is_instance_of(event, _PACKAGE, "ModelMessageChunk")]
        run.document = {"text": join_texts(chunks, "content", budget)}
    for exchange in exchanges:
        spent, responses = exchange.pop("spent"), exchange.pop("spent_by_response", [])
        counts = [(read_member(usage, "prompt_tokens"), read_member(usage, "completion_tokens")) for usage in spent or responses]
        if counts and all(isinstance(count, (int, float)) for pair in counts for count in pair):
            exchange["usage"] = {
                "input_tokens": int(sum(pair[0] for pair in counts)),
                "output_tokens": int(sum(pair[1] for pair in counts)),
            }
    if exchanges and (
        exchanges[-1]["text"] is None or any("result" not in call and "error" not in call for call in exchanges[-1]["tool_calls"])
    ):
        run.mark_all("the run did not come to its end")
    answers = [event for event in recorded if is_instance_of(event, _PACKAGE, "ModelResponse")]
    run.mark_end(read_member(answers[-1], "finish_reason") if answers else None)
    return run


_OTHER_EVENTS = ("ToolCallEvent", "ToolCallsEvent", "ToolResultEvent", "ToolResultsEvent", "TaskStarted", "UsageEvent", "CompactionSummary")


def _add_event(exchange: dict[str, Any], event: object, run: RunData, budget: Budget) -> None:
    if is_instance_of(event, _PACKAGE, "ModelResponse"):
        text = read_member(event, "content")
        exchange["text"] = text if isinstance(text, str) else exchange["text"]
        exchange["spent_by_response"] = [*exchange.get("spent_by_response", []), read_member(event, "usage")]
        event = read_member(event, "tool_calls")
    if is_instance_of(event, _PACKAGE, "ToolCallsEvent", "ToolCallEvent"):
        several = is_instance_of(event, _PACKAGE, "ToolCallsEvent")
        for call in list_members(event, "calls") if several else [event]:
            # A call is in the response of the model, in the list after it, and in its own event.
            id = read_member(call, "id")
            if all(known["id"] != id for known in exchange["tool_calls"]):
                exchange["tool_calls"].append({"name": read_member(call, "name"), "arguments": read_member(call, "arguments"), "id": id})
    elif is_instance_of(event, _PACKAGE, "ToolResultsEvent", "ToolResultEvent"):
        several = is_instance_of(event, _PACKAGE, "ToolResultsEvent")
        for result in list_members(event, "results") if several else [event]:
            _add_result(exchange, result, budget)
    elif is_instance_of(event, _PACKAGE, "UsageEvent"):
        exchange["spent"].append(read_member(event, "usage"))
    elif is_instance_of(event, _PACKAGE, "TaskStarted"):
        run.mark_calls(f"{read_member(event, 'agent_name') or 'a subtask'} works on a stream of its own, whose calls are not here")
    elif is_instance_of(event, _PACKAGE, "CompactionSummary"):
        run.mark_calls("events were replaced by a summary")


def _add_result(exchange: dict[str, Any], result: object, budget: Budget) -> None:
    id = read_member(result, "parent_id")
    call = next((known for known in exchange["tool_calls"] if known["id"] == id), None)
    if call is None:
        call = {"name": read_member(result, "name") or "?", "id": id}
        exchange["tool_calls"].append(call)
    raised = read_member(result, "error")
    if isinstance(raised, BaseException):
        call |= {"error": f"{type(raised).__name__}: {exception_text(raised)}", "error_kind": PROTOCOL_ERROR}
        return
    parts = [_read_part(part, budget) for part in list_members(read_member(result, "result"), "parts")]
    call["result"] = parts[0] if len(parts) == 1 else parts


def _read_part(part: object, budget: Budget) -> Json:
    if is_instance_of(part, _PACKAGE, "TextInput"):
        return simplify(read_member(part, "content"), budget, "$.content")
    if is_instance_of(part, _PACKAGE, "DataInput"):
        return simplify(read_member(part, "data"), budget, "$.data")
    return f"({type(part).__name__})"


FRAMEWORK = Framework(name="AG2", page="ag2", packages=(_PACKAGE,), read=read, read_stream=read_stream)
