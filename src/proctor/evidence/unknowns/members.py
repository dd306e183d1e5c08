"""Which members of an object a reader understands, and what is said of the others.

Only what was understood may count as "there was none". A member that nobody here knows could be the very thing a claim is about
under another name: the tool calls, the answer, the tokens. So each reader declares what it knows, and a member beyond that makes
the parts it could have carried *unknown*. Free are the members listed here (identity, time, labels, settings), those that begin
with `x-`, and everything under `metadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from proctor.evidence.values.access import split_words
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.evidence import Json
from proctor.model.show import nearest, shorten, show

# What a data set expects of a run (`expected_tool_calls`, `ground_truth`) is here as well: it tells nothing of what the run did.
HARMLESS = split_words(
    """
    id uuid run_id runId trace_id traceId span_id spanId parent_id parentId request_id requestId response_id message_id messageId
    session session_id sessionId conversation_id conversationId thread_id threadId chat_id user user_id userId tenant tenant_id
    organization organization_id project project_id environment env region host hostname service agent agent_id agentId agent_name
    agentName assistant_id model model_name modelName provider version agent_version release build commit revision branch schema
    schema_version $schema source origin channel platform locale language lang
    timestamp timestamps time ts ts_start ts_end date created created_at createdAt updated_at updatedAt started_at startedAt
    start_time startTime ended_at endedAt end_time endTime finished_at finishedAt completed_at completedAt recorded_at recordedAt
    duration latency latency_ms latencyMs elapsed elapsed_ms cost cost_usd
    index idx step position order sequence seq turn attempt attempts run_index retry retries
    tag tags label labels title description comment comments note notes score rating feedback category group dataset split
    temperature seed top_p max_tokens expected expected_output expected_answer expected_tools expected_tool_calls reference ground_truth
    metadata meta annotations
    """
)
"""Members that tell of a run and carry nothing of it, whatever their value."""

_NAMES = ("name", "toolName", "tool_name", "tool", "function")
_CALL_WORDS = ("tool", "call", "function", "action")
CALL_LISTS = split_words("tool_calls toolCalls tools_called toolsCalled usedTools calledTools function_call functionCall")
"""Members that list calls, in other people's words."""
MOST_LOOKED_AT = 10_000
"""How many values inside a member are looked at."""


def list_unknown_members(entry: Mapping[str, Json], known: Collection[str]) -> list[str]:
    """Return the members of an object that are neither known nor free, without those that are null."""
    if isinstance(known, frozenset) and known.issuperset(entry):
        return []  # nearly always, and found without a look at each of them
    return [key for key, value in entry.items() if value is not None and not (key in known or key in HARMLESS or key.startswith("x-"))]


def holds_more(value: Json) -> bool:
    """Return whether a value could carry calls, nodes or turns: a list or an object that is not empty, or the JSON text of one."""
    return bool(value) and isinstance(decode_container(value), (list, dict))


def may_hold_call(key: str, value: Json, names: tuple[str, ...] = _NAMES) -> bool:
    """Return whether a member of somebody's own document could be a record of tool calls.

    Where a document belongs to the agent its members are free, and few of them are calls. One could be if its name speaks of tools, or
    if an object anywhere inside has a name as tool calls have, or a list of them.
    """
    value = decode_container(value)
    if not value or not isinstance(value, (list, dict)):
        return False
    return speaks_of_calls(key) or has_object_with(value, lambda entry: _is_named(entry, names))


def speaks_of_calls(key: str) -> bool:
    """Return whether the name of a member speaks of tools."""
    lowered = key.lower()
    return any(word in lowered for word in _CALL_WORDS)


def _is_named(entry: dict[str, Any], names: tuple[str, ...]) -> bool:
    return any(isinstance(entry.get(name), (str, dict)) for name in names) or not CALL_LISTS.isdisjoint(entry)


def has_object_with(value: Json, fits: Callable[[dict[str, Any]], bool]) -> bool:
    """Return whether an object at any depth of a value is of a kind; also where there is too much to look at it all."""
    waiting: list[Any] = [decode_container(value)]
    for _ in range(MOST_LOOKED_AT):
        if not waiting:
            return False
        current = waiting.pop()
        if isinstance(current, dict):
            if fits(current):
                return True
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)
    return True


def describe_unknown_member(path: str, key: str, known: Collection[str], advice: str = "; put what is yours under metadata") -> str:
    """Return the words about a member that is not understood."""
    close = nearest(key, known, most=1)
    hint = f"; nearest: {close[0]!r}" if close else ""
    return f"{show(shorten(key, 60))} at {path} is not understood{hint}{advice}"
