"""Pydantic AI: the result of a run, a streamed result, the event that ends a stream, or a list of messages.

The messages are those of this run, without its history. A run that ends with deferred tools (to be run or approved elsewhere) is not over.

Tried with pydantic-ai 1 and 2: `run`, `run_sync`, `run_stream`, `run_stream_events`, `iter`.
"""

from __future__ import annotations

import json

from proctor.targets.answers.plain_values import Unreadable, type_name
from proctor.targets.frameworks.base import Framework, RunData, are_instances, call_member, is_instance_of, read_member
from proctor.targets.frameworks.simplify import Budget, simplify

_RESULTS = ("AgentRunResult", "StreamedRunResult", "StreamedRunResultSync", "RunResult")
_NODES = ("UserPromptNode", "ModelRequestNode", "CallToolsNode", "SetFinalResult")
_INNER = frozenset(("otel_metadata",))


def read(value: object, budget: Budget) -> RunData | None:
    """Read a result, or an object that contains one."""
    if is_instance_of(value, "pydantic_ai", "AgentRunResultEvent", "AgentRun"):
        result = read_member(value, "result")
        if result is None:
            raise Unreadable("the run has no result: read it to its end before you return it")
        value = result
    if not is_instance_of(value, "pydantic_ai", *_RESULTS):
        return None
    written = call_member(value, "new_messages_json")
    budget.spend(len(written) if isinstance(written, (bytes, str)) else 0)
    try:
        document = json.loads(written)
    except (TypeError, ValueError):
        raise Unreadable(f"{type_name(value)}.new_messages_json() is no JSON") from None
    run = RunData(document=document, format="pydantic-ai")
    if is_instance_of(value, "pydantic_ai", "StreamedRunResult", "StreamedRunResultSync"):
        if read_member(value, "is_complete") is not True:
            run.mark_all("the stream of the run was not read to its end")
        return run
    output = read_member(value, "output")
    if is_instance_of(output, "pydantic_ai", "DeferredToolRequests"):
        run.mark_all("the run waits for tools that are run or approved elsewhere (`DeferredToolRequests`)")
    else:
        run.add_body(output, budget, "$.output")
    return run


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read the events of a run, which end with its result, or a list of messages."""
    if are_instances(items, "pydantic_ai", "ModelRequest", "ModelResponse"):
        return _read_messages(items, budget, needs_message=True)
    if items and all(is_instance_of(item, "pydantic_ai", *_NODES) or is_instance_of(item, "pydantic_graph", "End") for item in items):
        return _read_nodes(items, budget)
    return None


def _read_messages(messages: list[object], budget: Budget, *, needs_message: bool = False) -> RunData:
    written = [simplify(message, budget, f"$[{at}]", without=_INNER) for at, message in enumerate(messages)]
    return RunData(document=written, format="pydantic-ai", needs_message=needs_message)


def _read_nodes(nodes: list[object], budget: Budget) -> RunData:
    """Read the nodes of `iter`: requests to the model alternate with its responses."""
    entries = [read_member(node, "request") or read_member(node, "model_response") for node in nodes]
    messages = [message for message in entries if message is not None]
    run = _read_messages(messages, budget)
    ended = nodes[-1] if is_instance_of(nodes[-1], "pydantic_graph", "End") else None
    kinds = [is_instance_of(message, "pydantic_ai", "ModelResponse") for message in messages]
    if ended is None or not kinds or kinds != [place % 2 == 1 for place in range(len(kinds))]:
        run.mark_all("these are not all nodes of the run")
    run.add_body(read_member(read_member(ended, "data"), "output"), budget, "$.output")
    return run


FRAMEWORK = Framework(name="Pydantic AI", page="pydantic-ai", packages=("pydantic_ai",), read=read, read_stream=read_stream)
