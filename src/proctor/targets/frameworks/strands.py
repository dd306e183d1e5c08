"""Strands Agents: the result of an agent, of a graph or of a swarm.

A result holds the last message, and its metrics the traces of the agent's cycles, each with the message of the model and those of the
tools. Traces accumulate over invocations: the cycles of this run are the last ones, as many as its invocation counts.
What an agent inside of a tool does, and a tool that the program calls itself (`agent.tool.name()`), are not among them.

Tried with strands-agents 1.62: a call of the agent, `stream_async`, and a graph.
"""

from __future__ import annotations

from typing import cast

from proctor.model.evidence import Json
from proctor.targets.frameworks.base import Framework, RunData, add_usage, find_entry, is_instance_of, list_members, read_last, read_member
from proctor.targets.frameworks.simplify import Budget, simplify

# A guard's text is what the user sees. A filter cuts the answer; any other reason is not a normal end.
_ENDED = (None, "end_turn", "stop_sequence", "tool_use", "guardrail_intervened", "content_filtered")


def read(value: object, budget: Budget) -> RunData | None:
    """Read the result of an agent, or of several."""
    if is_instance_of(value, "strands", "AgentResult"):
        return _read_result(value, budget)
    return _read_several(value, budget) if is_instance_of(value, "strands", "MultiAgentResult") else None


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the events of `stream_async`, the last of which has the result."""
    return read_last([result for item in items if (result := find_entry(item, "result")) is not None], read, budget)


def _read_result(value: object, budget: Budget) -> RunData:
    last = simplify(read_member(value, "message"), budget, "$.message")
    messages = _list_messages(read_member(value, "metrics"), budget)
    if messages is None:
        run = RunData(document=[_clean(last)], format="bedrock").mark_calls("the metrics of this result keep no messages of its cycles")
    else:
        run = RunData(document=messages, format="bedrock")
    run.add_body(read_member(value, "structured_output"), budget, "$.structured_output")
    reason = read_member(value, "stop_reason")
    if read_member(value, "interrupts") or reason == "interrupt":
        run.mark_all("the agent waits for a human (`interrupts`): what it would do then is unknown")
    elif reason not in _ENDED:
        run.mark_all(f"the agent stopped before its end ({reason})")
    elif reason == "content_filtered":
        run.mark_end(reason)
    invocations = list_members(read_member(value, "metrics"), "agent_invocations")
    if len(invocations) > 1:
        repeated = f"this agent was invoked {len(invocations)} times, in turns or cases before or in the same function"
        run.notes = [*run.notes, f"{repeated}: the result shows the last invocation only"]
    spent = simplify(read_member(invocations[-1], "usage"), budget, "$.usage") if invocations else None
    if isinstance(spent, dict):
        run.usage = add_usage((spent,), "inputTokens", "outputTokens")
    return run


def _list_messages(metrics: object, budget: Budget) -> list[Json] | None:
    """Return the messages of this run's cycles; None if one is missing."""
    invocations, traces = list_members(metrics, "agent_invocations"), list_members(metrics, "traces")
    cycles = len(list_members(invocations[-1], "cycles")) if invocations else 0
    if not cycles or len(traces) < cycles:
        return None
    messages: list[Json] = []
    for trace in traces[-cycles:]:
        results: list[Json] = []
        for child in list_members(trace, "children"):
            name, message = read_member(child, "name"), read_member(child, "message")
            if name == "stream_messages" and message is None:
                return None
            if message is None:
                continue
            written = _clean(simplify(message, budget, "$.metrics.traces"))
            if name == "stream_messages":
                messages.append(written)
            elif isinstance(written, dict):
                # If several tools ran in parallel, each trace has its own result, or the message with all results.
                results.extend(part for part in written.get("content") or () if part not in results)
        if results:
            messages.append({"role": "user", "content": results})
    return messages


def _clean(message: Json) -> Json:
    return {key: member for key, member in message.items() if key != "tracking_id"} if isinstance(message, dict) else message


def _read_several(value: object, budget: Budget) -> RunData:
    results = read_member(value, "results")
    order = [read_member(node, "node_id") or node for node in list_members(value, "execution_order") or list_members(value, "node_history")]
    names = [name for name in order if find_entry(results, cast(str, name)) is not None] or list(results or ())
    run = RunData(document={"text": None, "tool_calls": []}, calls=())
    if len(set(order)) < len(order):
        run.mark_calls("a node ran several times, and the result keeps the last of them")
    for name in dict.fromkeys(names):
        node = find_entry(results, name)
        inner = read(read_member(node, "result"), budget)
        if inner is None or read_member(node, "execution_count") not in (None, 0, 1):
            run.mark_calls(f"what node {name!r} did is not wholly in the result")
        if inner is not None:
            run.document["text"] = run.add_run(inner, f"node {name!r}").text
    status = read_member(value, "status")
    if str(getattr(status, "value", status)) not in ("completed", "None"):
        run.mark_all(f"the run ended as {getattr(status, 'value', status)!r}")
    return run


FRAMEWORK = Framework(name="Strands", page="strands", packages=("strands",), read=read, read_stream=read_stream)
