"""LangChain and LangGraph: messages, the state of a graph, the steps of an `AgentExecutor`, and the chunks of a stream.

The messages and `structured_response` of a state are read; other fields are ignored, unless they contain messages: then
calls may be missing. A graph that waits for a human is not over. One message alone shows the last step only.

Tried with langchain 1.4, langgraph 1.2: `invoke`, `stream` in the modes values, updates and messages, `get_state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from proctor.model.evidence import Json
from proctor.targets.answers.plain_values import Unreadable, type_name
from proctor.targets.frameworks.base import Framework, RunData, find_entry, is_instance_of, read_member, take_items
from proctor.targets.frameworks.simplify import Budget, list_fields, simplify

_WAITS = "the graph waits for a human (`__interrupt__`): what it would do then is unknown"
_LAST_ONLY = "one message was returned, which shows the last step only: return the state to show the calls before it"


def is_message(value: object) -> bool:
    """Return whether a value is a message of LangChain."""
    return is_instance_of(value, "langchain_core", "BaseMessage")


def read(value: object, budget: Budget) -> RunData | None:
    """Read a message, a state, a snapshot or the result of an `AgentExecutor`."""
    if is_message(value):
        return RunData(document=[_write_message(value, budget)], format="langchain").mark_calls(_LAST_ONLY)
    if is_instance_of(value, "langgraph", "GraphOutput"):
        run = _read_state(read_member(value, "value"), budget)
        if run is not None and read_member(value, "interrupts"):
            run.mark_all(_WAITS)
        return run
    if is_instance_of(value, "langgraph", "StateSnapshot"):
        run = _read_state(read_member(value, "values"), budget)
        if run is not None and read_member(value, "next"):
            run.mark_all("the graph is not at its end (`next` names a node)")
        return run
    if not isinstance(value, Mapping):
        return None
    return _read_steps(value, budget) or _read_state(value, budget)


def read_stream(items: list[object], budget: Budget) -> RunData | None:
    """Read a list of messages, or the chunks of `stream`: states, updates of nodes, or messages with metadata."""
    if items and all(is_message(item) for item in items):
        return _read_messages(_join_chunks(items), budget, needs_message=True)
    outer = [item for item in items if not _is_of_subgraph(item)]
    states = [chunk for mode, chunk in map(_unwrap_chunk, outer) if mode in (None, "values") and _find_messages(chunk) is not None]
    if states:
        run = _read_state(states[-1], budget)
        known_ids = {read_member(message, "id") for message in _find_messages(states[-1]) or ()}
        inner = [message for item in items if _is_of_subgraph(item) for message in _find_messages(_unwrap_chunk(item)[1]) or ()]
        if run is not None and any(read_member(message, "id") not in known_ids for message in inner):
            run.mark_calls("a subgraph has messages of its own, which the state does not hold")
        return run
    chunks = [_unwrap_chunk(item) for item in items]
    if chunks and all(mode in (None, "messages") and _is_pair(chunk) for mode, chunk in chunks):
        joined = _join_chunks([message for _, (message, _) in chunks])
        # A filtered stream of text chunks may lack the one with the stop reason.
        has_ends = all(find_entry(read_member(message, "response_metadata"), "finish_reason") for message in joined)
        # The first chunk can begin the run unless its metadata has a later step.
        step = find_entry(chunks[0][1][1], "langgraph_step")
        return _read_messages(joined, budget, is_whole=has_ends and (not isinstance(step, int) or step <= 1))
    return _read_updates([chunk for mode, chunk in chunks if mode in (None, "updates")], budget)


def _write_message(message: object, budget: Budget) -> Json:
    fields = list_fields(message)
    if fields is None:
        raise Unreadable(f"a {type_name(message)} has no fields")
    # An artifact goes from a tool to the program and not to the model: it is not a result, and may be any object.
    return {str(name): simplify(member, budget, f"$.{name}") for name, member in fields if name != "artifact"}


def _read_messages(messages: list[Any], budget: Budget, *, is_whole: bool = False, needs_message: bool = False) -> RunData:
    """Read messages; if the list may be incomplete and has only messages of the model, earlier calls may be missing."""
    written = [_write_message(message, budget) for message in messages]
    run = RunData(document=written, format="langchain", needs_message=needs_message)
    # The type of a chunk is the type of its message with a suffix.
    types = {str(read_member(message, "type")).removesuffix("MessageChunk").lower() for message in messages}
    if not is_whole and types == {"ai"} and not any(read_member(message, "tool_calls") for message in messages):
        run.mark_calls(_LAST_ONLY)
    return run


def _find_messages(state: object) -> list[Any] | None:
    listed = find_entry(state, "messages")
    if not isinstance(listed, (list, tuple)) or not listed:
        return None
    messages = take_items(cast("list[object]", listed))
    return messages if any(is_message(message) for message in messages) else None


def _read_state(state: object, budget: Budget) -> RunData | None:
    messages = _find_messages(state)
    if messages is None:
        return None
    unknown = next((message for message in messages if not is_message(message)), None)
    if unknown is not None:
        raise Unreadable(f"a message of the state is of the type {type_name(unknown)}")
    document: dict[str, Json] = {"messages": [_write_message(message, budget) for message in messages]}
    structured = find_entry(state, "structured_response")
    if structured is not None:
        document["structured_response"] = simplify(structured, budget, "$.structured_response")
    run = RunData(document=document, format="langchain", needs_message=True)
    if find_entry(state, "__interrupt__"):
        run.mark_all(_WAITS)
    for key, member in list_fields(state) or ():
        if key not in ("messages", "__interrupt__", "structured_response") and _holds_messages(member):
            run.mark_calls(f"the state holds further messages under {str(key)!r}, which are not read")
    return run


def _holds_messages(value: object, depth: int = 0) -> bool:
    if is_message(value):
        return True
    # A state may contain anything, including itself, so the search is bounded.
    if depth > 4 or isinstance(value, (str, bytes)):
        return False
    if isinstance(value, Mapping):
        return any(_holds_messages(member, depth + 1) for _, member in list_fields(value) or ())
    return isinstance(value, (list, tuple)) and any(_holds_messages(member, depth + 1) for member in cast("list[object]", value))


# --- the steps of an AgentExecutor -------------------------------------------------------------------------------------------


def _read_steps(value: object, budget: Budget) -> RunData | None:
    """Read the result of an `AgentExecutor`; None for any other mapping."""
    steps, answer = find_entry(value, "intermediate_steps"), find_entry(value, "output")
    if not isinstance(steps, list) or answer is None:
        return None
    calls: list[Json] = []
    for step in cast("list[Any]", steps):
        if not (isinstance(step, tuple) and len(step) == 2 and is_instance_of(step[0], "langchain_core", "AgentAction")):
            return None
        action, observed = step
        arguments = simplify(read_member(action, "tool_input"), budget, "$.tool_input")
        calls.append({"name": read_member(action, "tool"), "arguments": arguments, "result": simplify(observed, budget, "$.observation")})
    answer = simplify(answer, budget, "$.output")
    return RunData(document={"text" if isinstance(answer, str) else "body": answer, "tool_calls": calls})


# --- streams -----------------------------------------------------------------------------------------------------------------


def _is_of_subgraph(item: Any) -> bool:
    # With subgraphs every chunk begins with the path of its graph, which is empty for the outermost.
    return isinstance(item, tuple) and bool(item) and isinstance(item[0], tuple) and bool(item[0])


def _unwrap_chunk(item: Any) -> tuple[str | None, Any]:
    """Return the mode of a chunk, if the stream names it, and the chunk."""
    if isinstance(item, tuple):
        # With subgraphs the path of the node comes first, with several modes the mode.
        parts = item[1:] if len(item) in (2, 3) and isinstance(item[0], tuple) else item
        if len(parts) == 2 and isinstance(parts[0], str):
            return parts[0], parts[1]
        return None, parts[0] if len(parts) == 1 else parts
    if isinstance(find_entry(item, "type"), str) and find_entry(item, "data") is not None and find_entry(item, "ns") is not None:
        return find_entry(item, "type"), find_entry(item, "data")
    return None, item


def _is_pair(chunk: Any) -> bool:
    """Return whether a chunk is a message with its metadata."""
    return isinstance(chunk, (tuple, list)) and len(chunk) == 2 and is_message(chunk[0])


def _join_chunks(messages: list[object]) -> list[object]:
    """Join the chunks of a message, which share an id, into the message."""
    joined: dict[object, Any] = {}
    for index, message in enumerate(messages):
        name = read_member(message, "id") or index
        is_chunk = name in joined and type(joined[name]).__name__.endswith("Chunk") and type(message).__name__.endswith("Chunk")
        try:
            joined[name] = joined[name] + message if is_chunk else message
        except Exception as error:
            raise Unreadable(f"chunks of a {type_name(message)} cannot be joined: {type(error).__name__}") from None
    return list(joined.values())


def _read_updates(chunks: list[object], budget: Budget) -> RunData | None:
    messages: dict[object, Any] = {}
    waits = False
    for chunk in chunks:
        for node, update in list_fields(chunk) or () if isinstance(chunk, Mapping) else ():
            waits = waits or node == "__interrupt__"
            updates = cast("list[object]", update) if isinstance(update, list) else [update]
            for one in updates:
                for message in _find_messages(one) or ():
                    messages[read_member(message, "id") or len(messages)] = message
    if not messages:
        return None
    # One update without a call is a complete run, or the rest of one whose other updates were dropped.
    run = _read_messages(list(messages.values()), budget, is_whole=len(messages) > 1)
    if waits:
        run.mark_all(_WAITS)
    return run


FRAMEWORK = Framework(
    name="LangGraph",
    page="langgraph",
    packages=("langchain_core", "langgraph", "langchain", "langchain_classic"),
    read=read,
    read_stream=read_stream,
)
