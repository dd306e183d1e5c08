"""Rules a, b and d of evidence coverage: unrecognised kinds and fields, and places of a record that disagree, make a part unknown."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.values.access import is_misspelt, list_of, split_words
from proctor.evidence.values.json_bytes import decode_container
from proctor.model.account import CALL_PARTS, Part
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.show import kind_of, shorten, show

CONTENT_PARTS: tuple[Part, ...] = (*CALL_PARTS, "answer", "input", "turns", "usage")
TOOL_NAMES = ("name", "tool", "tool_name", "toolName", "function", "action")
_OTHER_NAMES = frozenset(("name", "action"))
"""Names that objects of other kinds have as well."""
PASSED = ("arguments", "args", "input", "parameters", "params", "kwargs", "tool_input", "toolInput", "tool_args", "action_input")
_DECLARED = frozenset(("description", "inputSchema", "input_schema", "json_schema", "schema", "parameters_json_schema"))
CALL_FIELDS = split_words(
    "tool_calls toolCalls tools_called toolsCalled tools_used toolsUsed used_tools usedTools calledTools function_call functionCall "
    "tool_results toolResults tool_outputs toolOutputs tools_invoked toolsInvoked invoked_tools invokedTools functions_called "
    "functionsCalled called_functions calledFunctions"
)
ANSWERS = ("text", "answer", "response", "output", "reply", "content", "result", "final_output", "final_answer", "completion", "message")
"""Fields with the answer; `message` often belongs to a logger or an envelope, and counts if there is no other."""
ANSWER_FIELDS = frozenset(ANSWERS)
DEFINING = frozenset(("tools", "functions"))
_NOT_NEAR = frozenset(("context", "contents", "messages", "outputs", "results", "responses", "answers", "texts", "replay", "next", "test"))
"""Distinct words that are one letter away from an answer field."""
_SUGGESTS = lazy_pattern(r"tool|call|action|function|invocation|command", re.IGNORECASE)
"""Keys that suggest calls: next to a list of calls only these are examined."""
_ACTING = lazy_pattern(r"tool|function|call|action|command|computer|code", re.IGNORECASE)
_TEXT_FIELDS = ("text", "content", "output_text", "value", "message", "transcript", "markdown", "html", "caption", "body")
_DEPTH, _MAX_SEARCHED = 3, 1_000
_ENVELOPES = frozenset(("choices", "message"))
"""Fields of a provider's own response, which are no level of their own."""

# Identity, time, labels and settings. What a data set expects of a run (`expected_tool_calls`, `ground_truth`) does not report what it did.
HARMLESS = split_words("""
    id uuid run_id runId trace_id traceId span_id spanId parent_id parentId request_id requestId response_id message_id messageId
    session session_id sessionId conversation_id conversationId thread_id threadId chat_id user user_id userId tenant tenant_id
    organization organization_id project project_id environment env region host hostname service agent agent_id agentId agent_name
    agentName assistant_id model model_name modelName provider version agent_version release build commit revision branch schema
    schema_version $schema source origin channel platform locale language lang object
    timestamp timestamps time ts ts_start ts_end date created created_at createdAt updated_at updatedAt started_at startedAt
    start_time startTime ended_at endedAt end_time endTime finished_at finishedAt completed_at completedAt recorded_at recordedAt
    duration latency latency_ms latencyMs elapsed elapsed_ms cost cost_usd
    index idx step position order sequence seq turn attempt attempts run_index retry retries
    tag tags label labels title description comment comments note notes score rating feedback category group dataset split
    temperature seed top_p max_tokens expected expected_output expected_answer expected_tools expected_tool_calls reference ground_truth
    metadata meta annotations tools tool_choice
    """)
"""Fields that are neither listed nor examined, whatever their value."""


def is_call(value: Json) -> bool:
    """Return whether an object has the shape of a call: a name or a function, and arguments. A tool that is only declared has a schema."""
    if not isinstance(value, dict):
        return False
    function = value.get("function")
    if isinstance(function, dict):
        # Some frameworks add a null description of the tool to its calls.
        is_declared = not _DECLARED.isdisjoint(function) or _is_schema(function.get("parameters"))
        return "name" in function and ("arguments" in function or not is_declared)
    if not any(isinstance(value.get(key), str) for key in TOOL_NAMES):
        return False
    return _DECLARED.isdisjoint(value) and any(key in value and not _is_schema(value[key]) for key in PASSED)


def _is_schema(value: Json) -> bool:
    return isinstance(value, dict) and ("properties" in value or "$schema" in value or value.get("type") == "object")


def is_made(value: Json) -> bool:
    """Return whether an entry under `tools` or `functions` is a call; an entry with only parameters is a definition."""
    inner = value["function"] if isinstance(value, dict) and isinstance(value.get("function"), dict) else value
    return is_call(value) and any(key in inner for key in PASSED if key != "parameters")


def names_tool(value: Json) -> bool:
    """Return whether an object with the shape of a call names a `tool`, or has a kind named after tools or calls."""
    if not is_call(value):
        return False
    kinds = (value.get(key) for key in ("type", "event", "kind", "event_type"))
    is_tool = any(key in value for key in TOOL_NAMES if key not in _OTHER_NAMES)
    return is_tool or any(isinstance(kind, str) and _SUGGESTS.search(kind) for kind in kinds)


def list_calls(value: Json, *, suggested: bool = True, depth: int = _DEPTH) -> list[dict[str, Any]]:
    """Return the objects with the shape of a call inside a value, at most `depth` levels down; JSON text is decoded.

    Unless `suggested`, only those count that `names_tool` accepts, or that are under a key that suggests calls.
    """
    value = decode_container(value)
    if not isinstance(value, (dict, list)) or not value:
        return []
    found: list[dict[str, Any]] = []
    waiting: list[tuple[Any, int, bool]] = [(value, depth, suggested)]
    for _ in range(_MAX_SEARCHED):
        if not waiting:
            break
        current, depth, counts = waiting.pop()
        if isinstance(current, dict):
            if is_call(current):
                if counts or names_tool(current):
                    found.append(current)
            elif counts and "arguments" in current and isinstance(current.get("type"), str):
                found.append(current)  # Groq uses the type as the name of a tool that it ran itself.
            elif depth:
                # Entries of a list of calls need no arguments. Those with arguments are found at the next level, if there is one.
                listed = [
                    member for key in CALL_FIELDS.intersection(current) for member in list_of(current[key]) if isinstance(member, dict)
                ]
                found.extend(member for member in listed if name_call(member) and (depth == 1 or not is_call(member)))
                for key, member in current.items():
                    if isinstance(member, (dict, list)) and (suggested or key not in HARMLESS):
                        waiting.append((member, depth - (key not in _ENVELOPES), counts or _SUGGESTS.search(key) is not None))
        elif isinstance(current, list) and depth:
            waiting.extend((member, depth - 1, counts) for member in current if isinstance(member, (dict, list)))
    return found


def name_call(call: Mapping[str, Any]) -> str | None:
    """Return the name of the tool in an object with the shape of a call."""
    for key in TOOL_NAMES:
        value = call.get(key)
        name = value.get("name") if isinstance(value, dict) else value
        if isinstance(name, str):
            return name
    return None


@functools.lru_cache(maxsize=4096)
def find_near_miss(key: str) -> Part | None:
    """Return the part that a key nearly names: `tool_callz` the calls, `anwser` the answer."""
    plain = key.lower().replace("-", "_")
    if any(name in CALL_FIELDS or is_misspelt(name, CALL_FIELDS) for name in (key, plain)):
        return "tool_calls"
    if plain in _NOT_NEAR or key in ANSWER_FIELDS:
        return None
    return "answer" if is_misspelt(plain, ANSWER_FIELDS) or plain in ANSWER_FIELDS else None


def _place(key: str, at: str) -> str:
    return f"{show(shorten(key, 60))} at {at}"


def check_field(
    key: str, value: Json, at: str, unknowns: Unknowns, *, listed: Collection[str] | None = (), has_answer: bool = False
) -> None:
    """Apply rule b to one unrecognised field; `listed` are the tools of the listed calls, None if the record lists none."""
    near = find_near_miss(key) if isinstance(value, (dict, list, str)) and value else None
    suggested = listed is None or near == "tool_calls" or _SUGGESTS.search(key) is not None
    calls = list_calls(value, suggested=suggested, depth=_DEPTH if listed is not None else _DEPTH + 2)
    if key in DEFINING:
        calls = [call for call in calls if is_made(call)]
    named = [name for name in value if isinstance(name, str)] if near == "tool_calls" and isinstance(value, list) else ()
    if any(name not in (listed or ()) for name in (*map(name_call, calls), *named)):
        unknowns.mark_unrecognised(CALL_PARTS, f"{_place(key, at)} looks like tool calls; map it, or move it to metadata")
    elif near == "tool_calls" and not listed and not isinstance(value, str):
        unknowns.mark_unrecognised(CALL_PARTS, f"{_place(key, at)} is not read; did you mean tool_calls?")
    elif near == "answer" and isinstance(value, str) and not has_answer:
        unknowns.mark_unrecognised(("answer",), f"{_place(key, at)} is not read; is it the answer? Map it")
    else:
        unknowns.ignore(key)


FieldTable = Mapping[str, Part | tuple[Part, ...] | None]
"""The recognised fields of an object, each with the parts that a near miss of its name leaves unknown."""
_NO_TYPES: Mapping[str, type] = {}
_TYPE_NAMES = {str: "text", list: "a list", dict: "an object", bool: "true or false", float: "a number"}


def check_object(
    entry: Mapping[str, Json],
    fields: FieldTable | frozenset[str] | tuple[str, ...],
    at: str,
    unknowns: Unknowns,
    types: Mapping[str, type] = _NO_TYPES,
    *,
    listed: Collection[str] | None = (),
    has_answer: bool = False,
) -> None:
    """Apply rule b to the unrecognised fields of an object; near misses of recognised ones count if `fields` is a `FieldTable`.

    Recognised fields that have another type are lost data, which marks their parts.
    """
    if isinstance(fields, frozenset) and fields.issuperset(entry):
        return  # nearly always
    table: FieldTable = {} if isinstance(fields, (frozenset, tuple)) else fields
    for key in table.keys() & types.keys() & entry.keys() if types else ():
        value, expected, parts = entry[key], types[key], table[key] or ()
        if value is not None and not (is_number(value) if expected is float else isinstance(value, expected)):
            why = f"{at}.{key}: expected {_TYPE_NAMES[expected]}, found {kind_of(value)}"
            unknowns.mark_parts((parts,) if isinstance(parts, str) else parts, why)
    if table.keys() >= entry.keys():
        return  # nearly always
    for key in list_unrecognised(entry, fields):
        value = entry[key]
        meant: FieldTable = table
        if table and isinstance(value, str) and isinstance(decode_container(value), str):
            # A text is not a list of nodes or turns.
            meant = {name: parts for name, parts in table.items() if not isinstance(parts, tuple)}
        if not mark_near_miss(key, value, meant, at, unknowns, entry) or list_calls(value, suggested=listed is None):
            check_field(key, value, at, unknowns, listed=listed, has_answer=has_answer)


def mark_near_miss(key: str, value: Json, fields: FieldTable, at: str, unknowns: Unknowns, entry: Mapping[str, Json] = _NO_TYPES) -> bool:
    """Mark the parts of the field that an unrecognised key nearly names, unless `entry` has that field; return whether there is one."""
    near = _find_meant(key, tuple(fields)) if value is not None else ()
    missing = next((name for name in near if fields[name] is not None and entry.get(name) is None), None)
    parts = None if missing is None else fields[missing]
    if parts is None:
        return False
    carried = CALL_PARTS if parts == "tool_calls" else (parts,) if isinstance(parts, str) else parts
    unknowns.mark_unrecognised(carried, f"{_place(key, at)} is not read; did you mean {missing!r}?")
    return True


@functools.lru_cache(maxsize=4096)
def _find_meant(key: str, names: tuple[str, ...]) -> tuple[str, ...]:
    # Words of three letters are one letter away from too many others.
    return tuple(name for name in names if (len(name) > 3 or key.startswith(name)) and is_misspelt(key, (name,)))


def list_unrecognised(entry: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the keys of an object that are neither known nor harmless."""
    return [key for key in entry if key not in known and key not in HARMLESS and not key.startswith("x-")]


def mark_kind(item: Json, kind: str, at: str, unknowns: Unknowns, *, speaks: Part | None = "answer") -> None:
    """Apply rule a to an item of an unrecognised kind; `speaks` is the part that its text would belong to."""
    reason = f"{at}: unrecognised kind {show(shorten(kind, 60))}"
    acts = _ACTING.search(kind) is not None or bool(list_calls(item))
    if acts:
        unknowns.mark_unrecognised(CALL_PARTS, f"{reason}, which may be a tool call")
    if speaks is not None and holds_text(item):
        unknowns.mark_unrecognised((speaks,), f"{reason}, which contains text")
    elif not acts:
        unknowns.ignore(kind)


def holds_text(item: Json) -> bool:
    """Return whether an item contains text."""
    if isinstance(item, str):
        return bool(item.strip())
    inner = [item[key] for key in _TEXT_FIELDS if key in item] if isinstance(item, dict) else list_of(item)[:100]
    return any(map(holds_text, inner))


def list_objects(value: Json, parts: tuple[Part, ...], at: str, unknowns: Unknowns) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects in a list with their paths; any other entry that is not null is lost data."""
    found: list[tuple[str, dict[str, Any]]] = []
    for index, entry in enumerate(list_of(value)):
        if isinstance(entry, dict):
            found.append((f"{at}[{index}]", entry))
        elif entry is not None:
            unknowns.mark_parts(parts, f"{at}[{index}]: expected an object, found {kind_of(entry)}")
    return found


# --- rule d: if two places of a record disagree, the part is unknown


def take_agreeing(entry: Mapping[str, Json], keys: Sequence[str], part: Part, at: str, unknowns: Unknowns) -> Json:
    """Return the first value under these keys that is not null; if two of them differ, the part is unknown."""
    given = [(key, entry[key]) for key in keys if entry.get(key) is not None]
    if len(given) > 1:
        first = decode_container(given[0][1])
        for key, value in given[1:]:
            # Empty text is how exporters write "not recorded".
            if value != "" and first != "" and decode_container(value) != first:
                mark_difference(part, at, (given[0][0], key), unknowns)
    return next((value for _, value in given if value != ""), given[0][1] if given else None)


def find_answers(entry: Mapping[str, Json]) -> dict[str, str]:
    """Return the texts under the usual answer fields, which must agree; a blank text or a `message` counts if there is no other."""
    # Few answers have several of these fields, and asking for each takes as long as reading the rest of the answer.
    if ANSWER_FIELDS.isdisjoint(entry):
        return {}
    texts = {key: value for key in ANSWERS if isinstance(value := entry.get(key), str)}
    if len(texts) < 2:
        return texts
    written = {key: text for key, text in texts.items() if text.strip()} or texts
    return {key: text for key, text in written.items() if key != "message"} or written


def mark_difference(part: Part, at: str, keys: tuple[str, str], unknowns: Unknowns) -> None:
    """Mark a part that two fields record differently."""
    unknowns.mark(part, f"{keys[0]!r} and {keys[1]!r} at {at} record the same thing and differ; map the right one, or move one to metadata")
