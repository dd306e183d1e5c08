"""Plain evidence: one JSON object is one observed run, in our own names or in the usual ones.

A body with an answer under a usual name is a response, whose other fields report on the run; any other body is the agent's own document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.shared.call_identity import unite_calls, unite_nodes
from proctor.evidence.shared.calls import read_calls
from proctor.evidence.shared.state import read_state
from proctor.evidence.shared.usage import HOLDERS, add_usage, find_usage, read_usage
from proctor.evidence.shared.workflow import with_resolved_parameters
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.markers import check_markers, is_redacted, mark_removed
from proctor.evidence.unknowns.statuses import find_failure, is_error
from proctor.evidence.unknowns.unrecognised import (
    ANSWERS,
    DEFINING,
    FieldTable,
    check_object,
    find_answers,
    find_near_miss,
    is_call,
    is_made,
    list_calls,
    list_unrecognised,
    mark_difference,
    name_call,
    take_agreeing,
)
from proctor.evidence.values.access import (
    SHOWN,
    dict_or_empty,
    duration_at,
    find_first,
    is_misspelt,
    list_at,
    list_of,
    list_texts,
    number_at,
    read_integer,
    read_object,
    read_text,
    wrong_kind_error,
)
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import HTTP_KEYS, as_text, find_text, parse_json
from proctor.model.account import CALL_PARTS, NO_CALLS_IN_TURN, PARTS, Account, Part
from proctor.model.evidence import Evidence, EvidenceTurn, Json, Node, Render, ToolCall, UserEnding
from proctor.model.show import kind_of, shorten, show
from proctor.model.typed import convert_to

# --- the nodes of plain evidence, one for each run of a step with its calls, and renders

NODE_CALLS = ("tool_calls", "tools_called", "toolCalls")
_NODE: FieldTable = {
    **dict.fromkeys(NODE_CALLS, "tool_calls"),
    **dict.fromkeys(("output", "status", "parameters", "type", "items"), "nodes"),
    **dict.fromkeys(("name", "input", "more_parameters", "duration_ms", "durationMs", "error", "notes"), None),
    "usage": "usage",
}
_RENDER = frozenset(("tool", "toolName", "status", "elapsed_ms", "elapsedMs", "console_errors", "consoleErrors"))


def read_names(value: Json, path: str) -> tuple[str, ...] | None:
    """Read a list of texts or of tools with names, or None if it is null."""
    if isinstance(value, list):
        value = [name_call(entry) or entry if isinstance(entry, dict) else entry for entry in value]
    return None if value is None else list_texts(value, path)


def read_node(entry: dict[str, Any], path: str, unknowns: Unknowns) -> Node:
    """Read one node."""
    name = _require_text(entry, path, "name")
    calls = take_agreeing(entry, NODE_CALLS, "tool_calls", path, unknowns)
    own = () if calls is None else read_calls(calls, f"{path}.tool_calls", unknowns)
    items, spent = read_integer(entry.get("items"), f"{path}.items"), entry.get("usage")
    status = read_text(entry.get("status"), f"{path}.status")
    # Every other status means that the node ran.
    if status is not None and is_misspelt(status.lower(), ("skipped",)):
        unknowns.mark("nodes", f"the status {show(status, SHOWN)} at {path} is unrecognised; expected success, error or skipped")
    check_object(entry, _NODE, path, unknowns)
    return Node(
        name=name,
        type=read_text(entry.get("type"), f"{path}.type"),
        status=status or "success",
        input=entry.get("input"),
        output=entry.get("output"),
        parameters=entry.get("parameters"),
        more_parameters=() if entry.get("more_parameters") is None else tuple(list_at(entry["more_parameters"], f"{path}.more_parameters")),
        tool_calls=tuple(call if call.node is not None else msgspec.structs.replace(call, node=name) for call in own),
        duration_ms=number_at(find_first(entry, "duration_ms", "durationMs"), f"{path}.duration_ms"),
        error=entry.get("error"),
        items=1 if items is None else items,
        usage=(None if spent is None else read_usage(read_object(spent, f"{path}.usage"), unknowns))
        or find_usage(entry.get("output"), unknowns),
        notes=read_names(entry.get("notes"), f"{path}.notes") or (),
    )


def _require_text(entry: dict[str, Any], path: str, *keys: str) -> str:
    text = read_text(find_first(entry, *keys), f"{path}.{keys[0]}")
    if text is None:
        raise wrong_kind_error(f"{path}.{keys[0]}", "text", None)
    return text


def list_nested_calls(nodes: Iterable[Node]) -> tuple[ToolCall, ...]:
    """Return all calls of all nodes, in order."""
    return tuple(call for node in nodes for call in node.tool_calls)


def nest_calls_in_nodes(nodes: tuple[Node, ...] | None, calls: tuple[ToolCall, ...] | None) -> tuple[Node, ...] | None:
    """Return the nodes with the root calls that name them, except nodes that list calls; a node that is not listed is added."""
    by_node: dict[str, list[ToolCall]] = {}
    for call in calls or ():
        if call.node is not None:
            by_node.setdefault(call.node, []).append(call)
    if not by_node:
        return nodes
    complete: list[Node] = []
    for node in nodes or ():
        inner = by_node.pop(node.name, None)
        complete.append(node if inner is None or node.tool_calls else msgspec.structs.replace(node, tool_calls=tuple(inner)))
    complete.extend(Node(name=name, tool_calls=tuple(inner)) for name, inner in by_node.items())
    return tuple(complete)


def _read_renders(listed: list[Json]) -> tuple[Render, ...]:
    renders: list[Render] = []
    for index, given in enumerate(listed):
        at = f"$.renders[{index}]"
        entry = read_object(given, at)
        # Rejected, because renders are not a part that could be marked unknown.
        for key in list_unrecognised(entry, _RENDER):
            if is_misspelt(key, _RENDER):
                raise EvidenceError(f"{at}: unrecognised field {show(key, SHOWN)}; expected tool, status, elapsed_ms, console_errors")
        tool, status = _require_text(entry, at, "tool", "toolName"), _require_text(entry, at, "status")
        elapsed = number_at(find_first(entry, "elapsed_ms", "elapsedMs"), f"{at}.elapsed_ms")
        errors = read_names(find_first(entry, "console_errors", "consoleErrors"), f"{at}.console_errors")
        renders.append(Render(tool=tool, status=status, elapsed_ms=elapsed, console_errors=errors or ()))
    return tuple(renders)


_Read = TypeVar("_Read")

INPUTS = ("input", "question", "prompt", "query")
CALLS = ("tool_calls", "toolCalls", "tools_called")
_MAYBE_CALLS = ("actions", "steps", *DEFINING)
_USUAL = frozenset((*ANSWERS, *CALLS, *_MAYBE_CALLS)) - {"text", "tool_calls"}
KEYS = (frozenset(Evidence.__struct_fields__) | {"toolCalls", "httpStatus", "durationMs", "availableTools"}) - {"cost"}
CARRYING = frozenset(("text", "body", "tool_calls", "toolCalls", "nodes", "turns", "state", "renders", "http_status", "httpStatus"))
"""Keys that always make an object evidence."""
_TYPES: dict[str, type] = {"state": dict, "turns": list, "nodes": list, "renders": list}
_TURN: FieldTable = {
    **dict.fromkeys(INPUTS, "input"),
    **dict.fromkeys(("text", "body"), "answer"),
    **dict.fromkeys(CALLS, "tool_calls"),
    **dict.fromkeys(("http_status", "httpStatus", "duration_ms", "durationMs", "metadata"), None),
    "nodes": ("nodes", *CALL_PARTS),
    "usage": "usage",
}
_RUN: FieldTable = {**dict.fromkeys(KEYS, None), **_TURN, "turns": PARTS, "state": "state"}
_ACCOUNT = frozenset(Account.__struct_fields__)
EVENT_KEYS = ("type", "event", "kind", "event_type", "role")
CALL_EVENT = re.compile(
    r"(?:\w+[._:-])?(?:tool|function|mcp)[._:-]?(?:call|use|invo|request|execut|result|start|end|output|response)\w*$|tool$", re.IGNORECASE
)
_MAX_SEARCHED = 1_000


def sniff(document: Json) -> bool:
    """Return whether an object has keys of ours with content, or only known keys."""
    return isinstance(document, dict) and (bool(list_carrying(document)) or KEYS.issuperset(document))


def list_carrying(document: dict[str, Any]) -> set[str]:
    """Return the keys that make an object evidence; `state: "CA"` and `turns: 3` do not."""
    return {key for key in CARRYING & document.keys() if isinstance(document[key], _TYPES.get(key, object))}


def has_usual_names(document: dict[str, Any]) -> bool:
    """Return whether an object has an answer or calls under a usual name, or the error of a case."""
    if isinstance(document.get("case"), str) and document.get("error"):
        return True
    return any(isinstance(document.get(key), str) for key in ANSWERS) or bool(_list_call_fields(document))


def lists_calls_and_answer(document: dict[str, Any]) -> bool:
    """Return whether a record has an answer and a list of calls under usual names."""
    return any(isinstance(document.get(key), list) for key in CALLS) and any(isinstance(document.get(key), str) for key in ANSWERS)


def read_plain(document: Json) -> Evidence:
    """Return one plain object as evidence."""
    entry = read_object(document, "$")
    unknowns = Unknowns()
    account = entry.get("account")
    # An `account` without any of our fields is that of a customer.
    is_ours = any(key in _ACCOUNT or is_misspelt(key, _ACCOUNT) for key in dict_or_empty(account))
    stored = _convert(account, Account, "$.account") if is_ours else None
    if account is not None and stored is None:
        unknowns.ignore("account")
    fields = _Fields(entry, "$", unknowns)
    listed = fields.read(list_at, "turns")
    turns, turn_failure = _read_turns(listed, unknowns) if listed is not None else (None, None)
    turn_calls_found = [call for turn in turns or () for call in turn_calls(turn)]
    root, failure = _read_exchange(entry, _RUN, "$", unknowns, turn_calls_found)
    if turns:
        root = _compare_turns(root, turns, turn_calls_found, unknowns)
    # A word is the status of the run, or a federal state.
    end_state = None if isinstance(entry.get("state"), str) else fields.read(read_object, "state")
    state, other_families = read_state(end_state, "$.state", unknowns) if end_state is not None else (None, {})
    renders = fields.read(list_at, "renders")
    _reject_lost_account(entry)
    metadata, model = root.metadata, entry.get("model")
    if not isinstance(model, (str, type(None))):
        metadata = {"model": model, **metadata}  # a description instead of a name
    if other_families:
        metadata = {"state": other_families, **metadata}
    evidence = Evidence(
        case=as_text(entry.get("case")),
        now=fields.read(read_text, "now"),
        timezone=fields.read(read_text, "timezone"),
        no_run=fields.read(read_text, "no_run"),
        input=take_agreeing(entry, INPUTS, "input", "$", unknowns),
        text=root.text,
        body=root.body,
        tool_calls=root.tool_calls,
        nodes=nest_calls_in_nodes(root.nodes, root.tool_calls),
        http_status=root.http_status,
        duration_ms=root.duration_ms,
        usage=root.usage,
        turns=turns,
        context=fields.read(read_object, "context"),
        available_tools=fields.read(read_names, "available_tools", alias="availableTools"),
        renders=None if renders is None else _read_renders(renders),
        state=state,
        # The account stored with a run was decided when it was recorded.
        error=_read_error(entry.get("error")) or (None if stored is not None else failure or turn_failure),
        model=model if isinstance(model, str) else None,
        simulated_user=_convert(fields.read(read_object, "simulated_user"), UserEnding, "$.simulated_user"),
        account=_close_account(unknowns, stored),
        metadata=metadata,
    )
    return with_turn_defaults(evidence)


def _read_exchange(
    entry: dict[str, Any], fields: FieldTable, path: str, unknowns: Unknowns, inside: Sequence[ToolCall] = ()
) -> tuple[EvidenceTurn, str | None]:
    """Return the fields that a run and a turn share, and how it reports failure; `inside` are the calls of the turns of a run."""
    entry = _take_structured_answer(entry)
    body, text = entry.get("body"), _read_answer(entry, path, unknowns)
    call_fields, side = _list_call_fields(entry), _Fields(entry, path, unknowns)
    calls = _read_calls(entry, call_fields, path, unknowns)
    nodes = side.read(side.read_nodes, "nodes", part="nodes")
    if calls is None and nodes == () and not inside:
        unknowns.mark("tool_calls", f"{path}.nodes is empty, and no tool_calls are recorded")
    elif calls is not None and nodes:
        calls = unite_calls(calls, list_nested_calls(nodes), (f"{path}.tool_calls", f"{path}.nodes"), unknowns)
    listed = calls if calls is not None else inside or None
    taken: FieldTable = fields
    if not _USUAL.isdisjoint(entry):
        answers = (key for key in ANSWERS if isinstance(entry.get(key), str))
        usual: FieldTable = dict.fromkeys((*answers, *call_fields), None)
        taken = {**fields, **usual}
    failure = _find_failure(entry, ("state",), unknowns)
    metadata: dict[str, Json] = {}
    if not taken.keys() >= entry.keys():
        metadata = {key: value for key, value in entry.items() if key not in taken}
        if others := list_unrecognised(metadata, ()):
            # Listed calls only have to agree with the messages.
            rest = {key: value for key, value in entry.items() if key != "messages" or calls is None}
            names = None if listed is None else {name for call in listed for name in (call.name, *call.aliases)}
            check_object(rest, taken, path, unknowns, listed=names, has_answer=text is not None or body is not None)
            check_markers(entry, others, listed, path, unknowns)
            check_events(entry, others, listed, path, unknowns)
            failure = failure or _find_failure(entry, (key for key in entry if key not in fields), unknowns, listed)
    _check_counts(entry, listed, path, unknowns)
    if text is None and isinstance(body, dict):
        failure = failure or _check_body(body, listed, has_calls=bool(call_fields), path=f"{path}.body", unknowns=unknowns)
    status = side.read(read_integer, "http_status", alias="httpStatus")
    metadata |= side.read(read_object, "metadata") or {}
    text = text if text is not None else find_text(body)
    if mark_removed(text, "answer", "the answer", unknowns) and is_redacted(text):
        text = None
    exchange = EvidenceTurn(
        text=text,
        body=body if body is not None else parse_json(text),
        tool_calls=calls,
        nodes=None if nodes is None else with_resolved_parameters(nodes),
        http_status=status,
        duration_ms=side.read(duration_at, "duration_ms", alias="durationMs"),
        usage=side.read(lambda value, at: read_usage(read_object(value, at), unknowns), "usage", part="usage")
        or find_usage(body, unknowns),
        metadata=metadata,
    )
    return exchange, failure or (f"http_status: {status}" if status is not None and status >= 400 else None)


class _Fields:
    """The fields of a run or a turn other than its answer and its calls."""

    def __init__(self, entry: dict[str, Any], path: str, unknowns: Unknowns) -> None:
        self._entry, self._path, self._unknowns = entry, path, unknowns

    def read(self, read: Callable[[Json, str], _Read | None], name: str, *, alias: str = "", part: Part | None = None) -> _Read | None:
        """Return a field; a value of another type is ignored and listed, or makes its part unknown."""
        value, other = self._entry.get(name), self._entry.get(alias)
        if value is not None and other is not None and value != other:
            # It is not a part that could be unknown.
            raise EvidenceError(f"{self._path}: {name!r} and {alias!r} record the same thing and differ")
        value = other if value is None else value
        try:
            return None if value is None else read(value, f"{self._path}.{name}")
        except EvidenceError as error:
            self._unknowns.ignore(name)
            if part is not None:
                self._unknowns.mark(part, error.message)
        return None

    def read_nodes(self, value: Json, path: str) -> tuple[Node, ...]:
        """Return a list of nodes."""
        entries = ((entry, f"{path}[{index}]") for index, entry in enumerate(list_at(value, path)))
        return tuple(read_node(read_object(entry, at), at, self._unknowns) for entry, at in entries)


def _find_failure(entry: dict[str, Any], keys: Iterable[str], unknowns: Unknowns, calls: Sequence[ToolCall] | None = ()) -> str | None:
    """Return how these fields report failure; the one that does is not ignored."""
    failure = find_failure({key: entry.get(key) for key in keys}, own=True, failed_call=any(call.failed() for call in calls or ()))
    if failure is not None:
        unknowns.use(failure.partition(":")[0])
    return failure


_STRUCTURED = ("answer", "response", "output", "reply", "final_output", "final_answer", "completion")
"""Names under which an answer may also be an object, a number or a list of blocks; `result` and `message` are often envelopes."""


def _take_structured_answer(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry whose only answer is not text with that answer in `body`, or as the text of its blocks."""
    if _USUAL.isdisjoint(entry) or entry.get("body") is not None or find_answers(entry):
        return entry
    key = next((key for key in _STRUCTURED if entry.get(key) not in (None, "", [], {})), None)
    if key is None:
        return entry
    answer, rest = entry[key], {name: value for name, value in entry.items() if name != key}
    blocks = [block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None for block in list_of(answer)]
    texts = [text for text in blocks if isinstance(text, str)]
    return {**rest, "text": "".join(texts)} if texts and len(texts) == len(blocks) else {**rest, "body": answer}


def _read_answer(entry: dict[str, Any], path: str, unknowns: Unknowns) -> str | None:
    """Return the answer under one of its usual names; two that differ are a contradiction."""
    text = read_text(entry.get("text"), f"{path}.text")
    if _USUAL.isdisjoint(entry):
        return text
    texts = find_answers(entry)
    if not texts and entry.get("body") is None:
        for key in ANSWERS:
            if entry.get(key):
                why = f"{key!r} at {path} is {kind_of(entry[key])} instead of text; move it to body, or map the answer"
                unknowns.mark_unrecognised(("answer",), why)
    first = next(iter(texts), "text")
    other = next((key for key in texts if texts[key].strip() != texts[first].strip()), None)
    if other is not None:
        mark_difference("answer", path, (first, other), unknowns)
    return texts.get(first)


def _list_call_fields(entry: dict[str, Any]) -> list[str]:
    if _USUAL.isdisjoint(entry):
        return ["tool_calls"] if entry.get("tool_calls") not in (None, "") else []
    found = [key for key in CALLS if entry.get(key) not in (None, "")]
    if not found and entry.get("actions") == []:
        return ["actions"]
    return found + [key for key in _MAYBE_CALLS if lists_calls(key, list_of(entry.get(key)), listed_elsewhere=bool(found))]


def lists_calls(key: str, entries: list[Json], *, listed_elsewhere: bool) -> bool:
    """Return whether a field lists calls; next to a list of calls (`listed_elsewhere`), steps with a name and an input are not calls."""
    if not entries or not all(map(is_made if key in DEFINING else is_call, entries)):
        return False
    is_step = key == "steps" and listed_elsewhere
    return not is_step or any("name" not in entry or "arguments" in entry or "args" in entry for entry in entries)


def _read_calls(entry: dict[str, Any], keys: list[str], path: str, unknowns: Unknowns) -> tuple[ToolCall, ...] | None:
    """Return the calls that a record lists; an explicit list is complete, and two that differ are a contradiction."""
    calls: tuple[ToolCall, ...] | None = None
    for key in keys:
        listed = entry[key]
        if not isinstance(decode_container(listed), list):
            unknowns.mark_parts(CALL_PARTS, f"{path}.{key}: expected a list of calls, found {kind_of(listed)}")
            continue
        found = read_calls(listed, f"{path}.{key}", unknowns)
        places = (f"{path}.{keys[0]}", f"{path}.{key}")
        calls = found if calls is None else unite_calls(calls, found, places, unknowns, both_complete=True)
    body = dict_or_empty(entry.get("body"))
    for key in CALLS if body else ():
        # A field of the answer that only shares the name is not an error, because the body belongs to the agent.
        if isinstance(body.get(key), list) and all(isinstance(call, dict) for call in body[key]):
            found = _read_calls_in_body(body[key], f"{path}.body.{key}", unknowns)
            calls = found if calls is None else unite_calls(calls, found or (), (f"{path}.tool_calls", f"{path}.body"), unknowns)
        elif body.get(key) and calls is None:
            unknowns.mark_unrecognised(CALL_PARTS, f"{path}.body.{key} is no list of calls")
    if calls is not None and isinstance(messages := decode_container(entry.get("messages")), list):
        requested = [call for call in list_calls(messages) if call.get("role") is None]
        found = _read_calls_in_body(requested, f"{path}.messages", unknowns) or ()
        calls = unite_calls(calls, found, (f"{path}.tool_calls", f"{path}.messages"), unknowns)
    return calls


def _read_calls_in_body(listed: Json, path: str, unknowns: Unknowns) -> tuple[ToolCall, ...] | None:
    try:
        return read_calls(listed, path, unknowns)
    except EvidenceError as error:
        unknowns.mark("tool_calls", f"the tool calls in the answer cannot be read: {error.message}")
        return None


def check_events(entry: dict[str, Any], keys: list[str], calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns) -> None:
    """Mark the calls if a log next to their list has another one."""
    listed = {name for call in calls or () for name in (call.name, *call.aliases)}
    for key in keys if calls is not None else ():
        items = map(dict_or_empty, list_of(decode_container(entry[key]))[:_MAX_SEARCHED])
        events = [item for item in items if any(isinstance(kind := item.get(name), str) and CALL_EVENT.match(kind) for name in EVENT_KEYS)]
        if any(not listed if (name := name_call(item)) is None else name not in listed for item in events):
            unknowns.mark("tool_calls", f"{show(shorten(key, 60))} at {path} has a call that is not in the list of calls")


def _check_counts(
    entry: dict[str, Any], calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns, keys: Iterable[str] = HOLDERS, depth: int = 4
) -> None:
    """Mark the calls if the count next to the tokens is higher than the number of listed calls."""
    for key in keys if calls is not None else ():
        count_value = entry.get(key)
        if isinstance(count_value, dict):
            at = f"{path}.{shorten(key, 60)}"
            check_markers(count_value, [name for name, value in count_value.items() if not isinstance(value, dict)], calls, at, unknowns)
            if depth:
                _check_counts(count_value, calls, at, unknowns, count_value, depth - 1)


def _check_body(body: dict[str, Any], calls: Sequence[ToolCall] | None, *, has_calls: bool, path: str, unknowns: Unknowns) -> str | None:
    """Apply the rules for loss and failure to a response, and return how it reports failure; the agent's own document reports none."""
    _check_counts(body, calls, path, unknowns)
    if all(body.get(key) is None for key in HTTP_KEYS):
        # The answer of a provider, as it came.
        for index, choice in enumerate(list_of(body.get("choices"))):
            check_markers(dict_or_empty(choice), dict_or_empty(choice), calls, f"{path}.choices[{index}]", unknowns)
        return None
    fields = [key for key in list_unrecognised(body, HTTP_KEYS) if key not in CALLS and key not in HOLDERS]
    check_markers(body, fields, calls, path, unknowns)
    check_events(body, fields, calls, path, unknowns)
    for key in fields:
        if not has_calls and body[key] and isinstance(body[key], (list, dict)) and find_near_miss(key) == "tool_calls":
            unknowns.mark_unrecognised(CALL_PARTS, f"{show(shorten(key, 60))} at {path} is not read; did you mean tool_calls?")
    return _find_failure(body, fields, unknowns, calls)


def _compare_turns(root: EvidenceTurn, turns: tuple[EvidenceTurn, ...], inside: list[ToolCall], unknowns: Unknowns) -> EvidenceTurn:
    """Return the calls and nodes of the root together with those of the turns, and mark a part in which they differ."""
    calls, nodes, last = root.tool_calls, root.nodes, turns[-1]
    recorded = [_records_calls(turn) for turn in turns]
    if calls is not None and any(recorded):
        calls = unite_calls(calls, inside, ("$.tool_calls", "$.turns"), unknowns, both_complete=all(recorded))
    if nodes is not None:
        nodes = unite_nodes(nodes, [node for turn in turns for node in turn.nodes or ()], ("$.nodes", "$.turns"), unknowns)
    if root.text is not None and last.text is not None and last.text.strip() not in root.text:
        unknowns.mark("answer", "$.text and the answer of the last turn differ")
    answered = [turn.text is not None or turn.body is not None for turn in turns]
    # A recorder that writes answers into turns also writes the last one there.
    has_answer = answered[-1] or (not any(answered) and (root.text is not None or root.body is not None))
    if not has_answer and not last.tool_calls and not last.nodes:
        why = f"$.turns[{len(turns) - 1}] has no answer: the record ends before the agent finished"
        unknowns.mark_parts(("answer", *CALL_PARTS), why)
    spent = add_usage(turn.usage for turn in turns)
    # The root may count more than the turns (a planner, a retry), never less.
    if root.usage is not None and spent is not None and (root.usage.total() or 0) < (spent.total() or 0):
        unknowns.mark("usage", "$.turns count more tokens than $.usage")
    if root.http_status is not None and last.http_status not in (None, root.http_status):
        raise EvidenceError(f"$.http_status: the last turn has the status {last.http_status}, the run {root.http_status}")
    return msgspec.structs.replace(root, tool_calls=calls, nodes=nodes)


def with_turn_defaults(evidence: Evidence) -> Evidence:
    """Return the evidence with fields missing at its root filled in from its turns."""
    turns, account = evidence.turns, evidence.account
    if not turns:
        return evidence
    defaults: dict[str, Any] = {name: getattr(turns[-1], name) for name in ("text", "body", "http_status")}
    defaults |= {"input": turns[0].input, "usage": add_usage(turn.usage for turn in turns)}
    recorded = [_records_calls(turn) for turn in turns]
    is_known = account is None or "tool_calls" not in account.unknown
    # A recorder that writes calls only where there are some leaves the list out where there are none. But one that writes an empty list
    # for one turn writes a list for every turn that it observed, so a turn without one was not observed.
    if evidence.tool_calls is None and is_known and any(recorded) and not all(recorded) and any(turn.tool_calls == () for turn in turns):
        known = account or Account("plain")
        why = f"$.turns[{recorded.index(False)}] {NO_CALLS_IN_TURN}"
        account = msgspec.structs.replace(known, unknown={**known.unknown, "tool_calls": why})
    # An explicit empty list of the run is one of each of its turns.
    elif is_known and (evidence.tool_calls == () or (evidence.tool_calls is None and any(recorded))):
        turns = tuple(turn if _records_calls(turn) else msgspec.structs.replace(turn, tool_calls=()) for turn in turns)
    if any(turn.tool_calls is not None for turn in turns):
        defaults["tool_calls"] = tuple(call for turn in turns for call in turn_calls(turn))
    if any(turn.nodes is not None for turn in turns):
        defaults["nodes"] = tuple(node for turn in turns for node in turn.nodes or ())
    durations = [turn.duration_ms for turn in turns if turn.duration_ms is not None]
    if len(durations) == len(turns):
        defaults["duration_ms"] = sum(durations)
    missing = {name: value for name, value in defaults.items() if getattr(evidence, name) is None}
    return msgspec.structs.replace(evidence, turns=turns, account=account, **missing)


def _records_calls(turn: EvidenceTurn) -> bool:
    return turn.tool_calls is not None or turn.nodes is not None


def turn_calls(turn: EvidenceTurn) -> tuple[ToolCall, ...]:
    """Return the calls of a turn: its own, else those nested in its nodes."""
    return turn.tool_calls if turn.tool_calls is not None else list_nested_calls(turn.nodes or ())


def _read_turns(value: Json, unknowns: Unknowns) -> tuple[tuple[EvidenceTurn, ...], str | None]:
    """Return the turns, and how the last one reports failure."""
    turns: list[EvidenceTurn] = []
    failure: str | None = None
    not_recorded: list[int] = []
    entries = list_of(value)
    for index, given in enumerate(entries):
        at, entry = f"$.turns[{index}]", dict_or_empty(given)
        if not isinstance(given, dict):
            unknowns.mark_parts(PARTS, f"{at}: expected an object, found {kind_of(given)}")
        turn, failure = _read_exchange(entry, _TURN, at, unknowns)
        # A conversation continues after an HTTP error, which is retried; any other failure ends the turn.
        if failure is not None and index < len(entries) - 1 and not failure.startswith("http_status"):
            unknowns.mark_parts(("answer", *CALL_PARTS), f"{at} did not finish: {failure}")
        if entry and turn.metadata.keys() >= entry.keys():
            unknowns.mark_unrecognised(PARTS, f"{at} has no field that is read; expected input, text, tool_calls")
        question = as_text(take_agreeing(entry, INPUTS, "input", at, unknowns))
        turns.append(msgspec.structs.replace(turn, input=question, nodes=nest_calls_in_nodes(turn.nodes, turn.tool_calls)))
        if not _records_calls(turns[-1]) and "tool_calls" in entry:
            not_recorded.append(index)
    if not_recorded and any(turn.tool_calls for turn in turns):
        unknowns.mark("tool_calls", f"$.turns[{not_recorded[0]}] {NO_CALLS_IN_TURN}")
    reported = [turn.usage is not None for turn in turns]
    if any(reported) and not all(reported):
        unknowns.mark("usage", f"$.turns[{reported.index(False)}] reports no tokens, and others do")
    return tuple(turns), failure


def _read_error(value: Json) -> str | None:
    if not is_error(value):
        return None
    return "the run ended in an error" if value is True else as_text(dict_or_empty(value).get("message") or value)


def _convert(value: Json, kind: type[_Read], path: str) -> _Read | None:
    """Decode a value that a run of ours stored. Raises `EvidenceError` if it cannot be decoded, because its content would be lost."""
    if value is None:
        return None
    try:
        return convert_to(value, kind)
    except msgspec.ValidationError as error:
        raise EvidenceError(f"{path}: {error}") from None


def _reject_lost_account(entry: dict[str, Any]) -> None:
    """Reject evidence whose stored account has a key that is not read."""
    for key in entry.keys() - KEYS:
        value = entry[key]
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        fields = dict_or_empty(value)
        if len(_ACCOUNT & fields.keys()) > 1 or not dict_or_empty(fields.get("unknown")).keys().isdisjoint(PARTS):
            raise EvidenceError(f"$.{key}: expected the name 'account' for an account of evidence, found {show(key)}")


def _close_account(unknowns: Unknowns, stored: Account | None) -> Account | None:
    """Return the account of plain evidence, or None if there is nothing to report."""
    if stored is None:
        return unknowns.close_account("plain") if unknowns.unknown or unknowns.notes or unknowns.ignored else None
    now = unknowns.close_account("plain")
    # The stored reasons win: they were written with the original, of which this record is a copy.
    return msgspec.structs.replace(
        stored,
        unknown={**now.unknown, **stored.unknown},
        notes=tuple(dict.fromkeys((*stored.notes, *now.notes))),
        ignored=tuple(dict.fromkeys((*stored.ignored, *now.ignored))),
        overridable=(*stored.overridable, *(part for part in now.overridable if part not in stored.unknown)),
    )
