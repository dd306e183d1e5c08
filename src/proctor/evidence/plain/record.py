"""Plain evidence: one JSON object is one observed run, in our own names or in the usual ones.

    answer   text, answer, response, output, reply, message, content, result (text)
    input    input, question, prompt, query
    calls    tool_calls, toolCalls, tools_called; actions and steps if they have the shape of calls

What is filled in when it is not written:

- `text` from `body` by the lookup order of an HTTP response; `body` from `text` when that is JSON.
- `usage` and `tool_calls` from `body`, when the record has none.
- From `turns`: all their tool calls, nodes and tokens in order; text, body and HTTP status of the last; input of the first; the
  sum of their durations when every turn has one. If one turn records its calls and another does not, the calls of the run are unknown.
- An n8n expression in the `parameters` of a node (`={{ $json.url }}`) is resolved against the outputs of the other nodes, as in n8n's own
  documents; one that cannot be stays as it is written, and the verdict reports it.
- A tool call that names its `node` is nested in that node; a node that is not listed is added, as the call shows that it ran.

What is written at several places must agree (`unknowns.conflicts`). Unrecognised fields are kept in `metadata`, ignored and listed
(`unknowns.unrecognised`); those that report data loss or a failed run count as such (`unknowns.markers`, `unknowns.endings`). A recognised
field of the wrong type is an error that names its path. A body that contains the answer under a usual name is a response, whose other
fields report on the run; every other body is the agent's own document, in which a `status` is the status of an order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.plain.nodes import nest_calls_in_nodes, read_names, read_nodes, read_renders, read_usage_at
from proctor.evidence.shared.calls import read_calls
from proctor.evidence.shared.state import read_state
from proctor.evidence.shared.usage import HOLDERS, add_usage, find_usage
from proctor.evidence.shared.workflow import with_resolved_parameters
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.conflicts import mark_difference, take_agreeing, unite_calls, unite_nodes
from proctor.evidence.unknowns.endings import find_failure
from proctor.evidence.unknowns.markers import check_markers
from proctor.evidence.unknowns.unrecognised import check_object, find_near_miss, is_call, list_calls, list_unrecognised, name_call
from proctor.evidence.values.access import dict_or_empty, list_at, list_of, number_at, read_integer, read_object, read_text
from proctor.evidence.values.json_bytes import decode_container
from proctor.evidence.values.text import HTTP_KEYS, as_text, find_text, parse_json
from proctor.model.account import CALL_PARTS, NO_CALLS_IN_TURN, PARTS, Account, Part
from proctor.model.evidence import Evidence, EvidenceTurn, Json, Node, ToolCall, Usage, UserEnding
from proctor.model.show import kind_of, shorten, show
from proctor.model.typed import convert_to

_Read = TypeVar("_Read")

ANSWERS = ("text", "answer", "response", "output", "reply", "message", "content", "result")
INPUTS = ("input", "question", "prompt", "query")
CALLS = ("tool_calls", "toolCalls", "tools_called")
_MAYBE_CALLS = ("actions", "steps")
_USUAL = frozenset((*ANSWERS, *CALLS, *_MAYBE_CALLS)) - {"text", "tool_calls"}
"""Usual names that are not our own."""
_ALIASES = ("httpStatus", "durationMs", "availableTools")

KEYS = (frozenset(Evidence.__struct_fields__) | {"toolCalls", *_ALIASES}) - {"cost"}
"""Every key of plain evidence in our own names."""

CARRYING = frozenset(("text", "body", "tool_calls", "toolCalls", "nodes", "turns", "state", "renders", "http_status", "httpStatus"))
"""Keys that make an object evidence whatever else is in it."""

_Fields = dict[str, Part | tuple[Part, ...] | None]
_SHARED: _Fields = {
    **dict.fromkeys(INPUTS, "input"),
    **dict.fromkeys(("text", "body"), "answer"),
    **dict.fromkeys(CALLS, "tool_calls"),
    **dict.fromkeys(("http_status", "httpStatus", "duration_ms", "durationMs", "metadata"), None),
    "nodes": ("nodes", *CALL_PARTS),
    "usage": "usage",
}
_RUN: _Fields = {**dict.fromkeys(KEYS, None), **_SHARED, "turns": PARTS, "state": "state"}
_ACCOUNT = frozenset(Account.__struct_fields__)
_CALL_EVENT = re.compile(
    r"(?:\w+[._:-])?(?:tool|function|mcp)[._:-]?(?:call|use|invo|request|execut|result|start|end|output|response)\w*$|tool$", re.IGNORECASE
)
"""Kinds of entries in a log that record a call."""
_MAX_SEARCHED = 1_000
"""Entries of a log in which calls are looked for."""
_DEPTH = 4
"""Levels of a usage object in which a count of calls is looked for."""


def sniff(document: Json) -> bool:
    """Return whether an object has keys of ours that carry something, or nothing but known keys."""
    return isinstance(document, dict) and (not CARRYING.isdisjoint(document) or KEYS.issuperset(document))


def has_usual_names(document: dict[str, Any]) -> bool:
    """Return whether an object has an answer or calls under a usual name, or the error of a case."""
    if isinstance(document.get("case"), str) and document.get("error"):
        return True
    return any(isinstance(document.get(key), str) for key in ANSWERS) or bool(_list_call_fields(document))


def read(document: Json) -> list[Evidence]:
    """Return one plain object as evidence."""
    return [read_plain(document)]


def lists_calls_and_answer(document: dict[str, Any]) -> bool:
    """Return whether a record has an answer and a list of calls under usual names."""
    return any(isinstance(document.get(key), list) for key in CALLS) and any(isinstance(document.get(key), str) for key in ANSWERS)


def read_plain(document: Json, path: str = "$", *, check_ending: bool = True) -> Evidence:
    """Return one plain object as evidence; `path` is its place in the file.

    Without `check_ending` the body of a response does not decide whether the run failed.
    """
    entry = read_object(document, path)
    stored = _convert(entry.get("account"), Account, f"{path}.account")
    unknowns = Unknowns()
    turns, failure = _read_turns(entry.get("turns"), f"{path}.turns", unknowns)
    inside = [call for turn in turns or () for call in turn_calls(turn)]
    observed = _observe(entry, _RUN, path, unknowns, inside, check_ending=check_ending)
    observed = _compare_turns(observed, turns, path, unknowns)
    state, other_families = read_state(entry["state"], f"{path}.state", unknowns) if entry.get("state") is not None else (None, {})
    metadata = {key: entry[key] for key in observed.unrecognised}
    _reject_lost_account(metadata, path)
    if not isinstance(entry.get("model"), (str, type(None))):
        metadata["model"] = entry["model"]  # a description instead of a name
    if other_families:
        metadata["state"] = other_families
    metadata.update(_read_metadata(entry, path))
    evidence = Evidence(
        case=read_text(entry.get("case"), f"{path}.case"),
        input=observed.input,
        text=observed.text,
        body=observed.body,
        tool_calls=observed.tool_calls,
        nodes=nest_calls_in_nodes(observed.nodes, observed.tool_calls),
        http_status=observed.http_status,
        duration_ms=observed.duration_ms,
        usage=observed.usage,
        turns=turns,
        context=None if entry.get("context") is None else read_object(entry["context"], f"{path}.context"),
        available_tools=read_names(_read_alias(entry, "available_tools", "availableTools", path), f"{path}.available_tools"),
        renders=read_renders(entry.get("renders"), f"{path}.renders"),
        now=read_text(entry.get("now"), f"{path}.now"),
        timezone=read_text(entry.get("timezone"), f"{path}.timezone"),
        state=state,
        # What a run stored with its account was judged when it was recorded.
        error=_read_error(entry.get("error"), f"{path}.error") or (None if stored is not None else observed.failure or failure),
        no_run=read_text(entry.get("no_run"), f"{path}.no_run"),
        model=entry["model"] if isinstance(entry.get("model"), str) else None,
        simulated_user=_convert(entry.get("simulated_user"), UserEnding, f"{path}.simulated_user"),
        account=_close_account(unknowns, stored),
        metadata=metadata,
    )
    return with_turn_defaults(evidence)


class _Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What a run and a single turn have in common."""

    input: Json
    text: str | None
    body: Json
    tool_calls: tuple[ToolCall, ...] | None
    nodes: tuple[Node, ...] | None
    http_status: int | None
    duration_ms: float | None
    usage: Usage | None
    failure: str | None
    unrecognised: list[str]


def _observe(
    entry: dict[str, Any],
    fields: _Fields,
    path: str,
    unknowns: Unknowns,
    inside: Sequence[ToolCall] = (),
    *,
    check_ending: bool = True,
) -> _Observed:
    """Read what a run and a turn have in common; `inside` are the calls of the turns of a run."""
    body, text = entry.get("body"), _read_answer(entry, path, unknowns)
    call_fields = _list_call_fields(entry)
    calls = _read_calls(entry, call_fields, path, unknowns)
    usage = read_usage_at(entry.get("usage"), f"{path}.usage", unknowns) or find_usage(body, unknowns)
    nodes = None if entry.get("nodes") is None else read_nodes(entry["nodes"], f"{path}.nodes", unknowns)
    if calls is None and nodes == () and not inside:
        unknowns.mark("tool_calls", f"{path}.nodes is empty, and no tool_calls are recorded")
    elif calls is not None and nodes:
        in_nodes = [call for node in nodes for call in node.tool_calls]
        calls = unite_calls(calls, in_nodes, (f"{path}.tool_calls", f"{path}.nodes"), unknowns)
    taken = fields
    if not _USUAL.isdisjoint(entry):
        answers = (key for key in ANSWERS if isinstance(entry.get(key), str))
        names: _Fields = dict.fromkeys((*answers, *call_fields), None)
        taken = fields | names
    listed = calls if calls is not None else inside or None
    failure = None
    if not taken.keys() >= entry.keys():
        _check_unrecognised(entry, taken, listed, path, unknowns, has_answer=text is not None or body is not None)
        failure = find_failure({key: entry[key] for key in entry if key not in fields})
    for holder in HOLDERS:
        if isinstance(entry.get(holder), dict):
            _check_counts(entry[holder], listed, f"{path}.{holder}", unknowns, _DEPTH)
    if text is None and check_ending and isinstance(body, dict):
        failure = failure or _check_body(body, listed, has_calls=bool(call_fields), path=f"{path}.body", unknowns=unknowns)
    status = read_integer(_read_alias(entry, "http_status", "httpStatus", path), f"{path}.http_status")
    return _Observed(
        input=take_agreeing(entry, INPUTS, "input", path, unknowns),
        text=text if text is not None else find_text(body),
        body=body if body is not None else parse_json(text),
        tool_calls=calls,
        nodes=None if nodes is None else with_resolved_parameters(nodes),
        http_status=status,
        duration_ms=number_at(_read_alias(entry, "duration_ms", "durationMs", path), f"{path}.duration_ms"),
        usage=usage,
        failure=failure or (f"http_status: {status}" if status is not None and status >= 400 else None),
        unrecognised=[key for key in entry if key not in taken],
    )


def _read_alias(entry: dict[str, Any], name: str, alias: str, path: str) -> Json:
    """Return a value under either of two names. Raises `EvidenceError` if they differ, as it is no part that could be unknown."""
    own, other = entry.get(name), entry.get(alias)
    if own is not None and other is not None and own != other:
        raise EvidenceError(f"{path}: {name!r} and {alias!r} record the same thing and differ")
    return other if own is None else own


def _read_answer(entry: dict[str, Any], path: str, unknowns: Unknowns) -> str | None:
    """Return the answer under one of its usual names; two that differ are a contradiction."""
    text = read_text(entry.get("text"), f"{path}.text")
    if _USUAL.isdisjoint(entry):
        return text
    texts = {key: entry[key] for key in ANSWERS if isinstance(entry.get(key), str)}
    if len(texts) > 1 and len({value.strip() for value in texts.values()}) > 1:
        first = next(iter(texts))
        mark_difference("answer", path, (first, next(key for key in texts if texts[key].strip() != texts[first].strip())), unknowns)
    if not texts and entry.get("body") is None:
        for key in ANSWERS:
            if entry.get(key):
                why = f"{key!r} at {path} is {kind_of(entry[key])} instead of text; move it to body, or map the answer"
                unknowns.mark_unrecognised(("answer",), why)
    return text if text is not None else next(iter(texts.values()), None)


def _list_call_fields(entry: dict[str, Any]) -> list[str]:
    if _USUAL.isdisjoint(entry):
        return ["tool_calls"] if entry.get("tool_calls") is not None else []
    found = [key for key in CALLS if entry.get(key) is not None]
    if not found and entry.get("actions") == []:
        return ["actions"]
    return found + [key for key in _MAYBE_CALLS if isinstance(entry.get(key), list) and entry[key] and all(map(is_call, entry[key]))]


def _read_calls(entry: dict[str, Any], keys: list[str], path: str, unknowns: Unknowns) -> tuple[ToolCall, ...] | None:
    """Return the calls that a record lists; an explicit list is complete, and two that differ are a contradiction."""
    calls: tuple[ToolCall, ...] | None = None
    for key in keys:
        listed = entry[key]
        if key != "tool_calls" and isinstance(listed, list):
            # Logs often name the tools only.
            decoded = map(decode_container, listed)
            listed = [{"name": call, "arguments": None} if isinstance(call, str) else call for call in decoded]
        found = read_calls(listed, f"{path}.{key}", unknowns)
        places = (f"{path}.{keys[0]}", f"{path}.{key}")
        calls = found if calls is None else unite_calls(calls, found, places, unknowns, both_complete=True)
    body = dict_or_empty(entry.get("body"))
    for key in CALLS:
        # A field of the answer that only shares the name is no mistake, as the body belongs to the agent.
        if isinstance(body.get(key), list) and all(isinstance(call, dict) for call in body[key]):
            found = _read_calls_in_body(body[key], f"{path}.body.{key}", unknowns)
            calls = found if calls is None else unite_calls(calls, found or (), (f"{path}.tool_calls", f"{path}.body"), unknowns)
        elif body.get(key) and calls is None:
            unknowns.mark_unrecognised(CALL_PARTS, f"{path}.body.{key} is no list of calls")
    messages = entry.get("messages")
    if calls is not None and isinstance(messages, list):
        inside = _read_calls_in_body([call for call in list_calls(messages) if call.get("role") is None], f"{path}.messages", unknowns)
        calls = unite_calls(calls, inside or (), (f"{path}.tool_calls", f"{path}.messages"), unknowns)
    return calls


def _read_calls_in_body(listed: Json, path: str, unknowns: Unknowns) -> tuple[ToolCall, ...] | None:
    try:
        return read_calls(listed, path, unknowns)
    except EvidenceError as error:
        unknowns.mark("tool_calls", f"the tool calls in the answer cannot be read: {error.message}")
        return None


def _check_unrecognised(
    entry: dict[str, Any],
    taken: _Fields,
    calls: Sequence[ToolCall] | None,
    path: str,
    unknowns: Unknowns,
    *,
    has_answer: bool,
) -> None:
    """Apply the rules for unrecognised fields and for fields that report data loss."""
    listed = {name for call in calls or () for name in (call.name, *call.aliases)}
    rest = {key: value for key, value in entry.items() if not (key == "messages" and calls is not None)}
    check_object(rest, taken, path, unknowns, listed=listed, has_answer=has_answer)
    unrecognised = list_unrecognised(entry, taken)
    check_markers(entry, unrecognised, calls, path, unknowns)
    _check_logs(entry, unrecognised, calls, path, unknowns)


def _check_logs(entry: dict[str, Any], keys: list[str], calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns) -> None:
    """Mark the calls if a log next to the list of calls has another one."""
    listed = {name for call in calls or () for name in (call.name, *call.aliases)}
    for key in keys if calls is not None else ():
        if any(_is_unlisted_call(item, listed) for item in list_of(decode_container(entry[key]))[:_MAX_SEARCHED]):
            unknowns.mark("tool_calls", f"{show(shorten(key, 60))} at {path} has a call that is not in the list of calls")


def _is_unlisted_call(item: Json, listed: set[str]) -> bool:
    """Return whether an entry of a log is a call that the record does not list."""
    kinds = [dict_or_empty(item).get(key) for key in ("type", "event", "kind", "event_type", "role")]
    if not any(isinstance(kind, str) and _CALL_EVENT.match(kind) for kind in kinds):
        return False
    name = name_call(item)
    return not listed if name is None else name not in listed


def _check_counts(entry: dict[str, Any], calls: Sequence[ToolCall] | None, path: str, unknowns: Unknowns, depth: int) -> None:
    """Mark the calls if more are counted next to the tokens than are listed."""
    if calls is None:
        return
    check_markers(entry, [key for key, value in entry.items() if not isinstance(value, dict)], calls, path, unknowns)
    for key, value in entry.items():
        if isinstance(value, dict) and depth:
            _check_counts(value, calls, f"{path}.{shorten(key, 60)}", unknowns, depth - 1)


def _check_body(body: dict[str, Any], calls: Sequence[ToolCall] | None, *, has_calls: bool, path: str, unknowns: Unknowns) -> str | None:
    """Apply the rules for loss and failure to a response, and return how it reports failure; the agent's own document reports none."""
    for holder in HOLDERS:
        if isinstance(body.get(holder), dict):
            _check_counts(body[holder], calls, f"{path}.{holder}", unknowns, _DEPTH)
    if all(body.get(key) is None for key in HTTP_KEYS):
        # The answer of a provider, as it came.
        for index, choice in enumerate(list_of(body.get("choices"))):
            check_markers(dict_or_empty(choice), dict_or_empty(choice), calls, f"{path}.choices[{index}]", unknowns)
        return None
    fields = [key for key in list_unrecognised(body, HTTP_KEYS) if key not in CALLS and key not in HOLDERS]
    check_markers(body, fields, calls, path, unknowns)
    _check_logs(body, fields, calls, path, unknowns)
    for key in fields:
        if not has_calls and body[key] and isinstance(body[key], (list, dict)) and find_near_miss(key) == "tool_calls":
            unknowns.mark_unrecognised(CALL_PARTS, f"{show(shorten(key, 60))} at {path} is not read; did you mean tool_calls?")
    return find_failure({key: body[key] for key in fields})


def _compare_turns(observed: _Observed, turns: tuple[EvidenceTurn, ...] | None, path: str, unknowns: Unknowns) -> _Observed:
    """Return the calls of the root together with those of the turns, and mark a part in which they differ."""
    if not turns:
        return observed
    here, calls, nodes, last = f"{path}.turns", observed.tool_calls, observed.nodes, turns[-1]
    if calls is not None and any(turn.tool_calls is not None or turn.nodes is not None for turn in turns):
        inside = [call for turn in turns for call in turn_calls(turn)]
        complete = all(turn.tool_calls is not None or turn.nodes is not None for turn in turns)
        calls = unite_calls(calls, inside, (f"{path}.tool_calls", here), unknowns, both_complete=complete)
    if nodes is not None:
        nodes = unite_nodes(nodes, [node for turn in turns for node in turn.nodes or ()], (f"{path}.nodes", here), unknowns)
    if observed.text is not None and last.text is not None and last.text.strip() not in observed.text:
        unknowns.mark("answer", f"{path}.text and the answer of the last turn differ")
    if (
        observed.text is None
        and observed.body is None
        and last.text is None
        and last.body is None
        and not last.tool_calls
        and not last.nodes
    ):
        unknowns.mark_parts(("answer", *CALL_PARTS), f"{here}[{len(turns) - 1}] has no answer: the record ends before the agent finished")
    usage, spent = observed.usage, add_usage(turn.usage for turn in turns)
    # The root may count what no turn counts (a planner, a retry), never less than the turns.
    if usage is not None and spent is not None and (usage.total() or 0) < (spent.total() or 0):
        unknowns.mark("usage", f"{here} count more tokens than {path}.usage")
    status = observed.http_status
    if status is not None and last.http_status not in (None, status):
        raise EvidenceError(f"{path}.http_status: the last turn has the status {last.http_status}, the run {status}")
    return msgspec.structs.replace(observed, tool_calls=calls, nodes=nodes)


def with_turn_defaults(evidence: Evidence) -> Evidence:
    """Return the evidence with what its root leaves out, read from its turns."""
    turns = evidence.turns
    if not turns:
        return evidence
    calls, nodes, account = evidence.tool_calls, evidence.nodes, evidence.account
    if calls is None:
        turns, account = _complete_turns(turns, account)
    last = turns[-1]
    if calls is None and any(turn.tool_calls is not None for turn in turns):
        calls = tuple(call for turn in turns for call in turn_calls(turn))
    if nodes is None and any(turn.nodes is not None for turn in turns):
        nodes = tuple(node for turn in turns for node in turn.nodes or ())
    durations = [turn.duration_ms for turn in turns if turn.duration_ms is not None]
    return msgspec.structs.replace(
        evidence,
        turns=turns,
        input=evidence.input if evidence.input is not None else turns[0].input,
        text=evidence.text if evidence.text is not None else last.text,
        body=evidence.body if evidence.body is not None else last.body,
        tool_calls=calls,
        nodes=nodes,
        http_status=evidence.http_status if evidence.http_status is not None else last.http_status,
        duration_ms=evidence.duration_ms if evidence.duration_ms is not None or len(durations) < len(turns) else sum(durations),
        usage=evidence.usage or add_usage(turn.usage for turn in turns),
        account=account,
    )


def _complete_turns(turns: tuple[EvidenceTurn, ...], account: Account | None) -> tuple[tuple[EvidenceTurn, ...], Account | None]:
    """Return turns and account, with turns that record no calls while others do.

    A recorder that writes calls only where there are some leaves the list out where there are none. But one that writes an empty list for
    one turn writes a list for every turn that it observed, so a turn without one was not observed.
    """
    recorded = [turn.tool_calls is not None or turn.nodes is not None for turn in turns]
    if all(recorded) or not any(recorded) or (account is not None and "tool_calls" in account.unknown):
        return turns, account
    if not any(turn.tool_calls == () for turn in turns):
        return tuple(
            turn if seen else msgspec.structs.replace(turn, tool_calls=()) for turn, seen in zip(turns, recorded, strict=True)
        ), account
    known = account or Account("plain")
    why = f"$.turns[{recorded.index(False)}] {NO_CALLS_IN_TURN}"
    return turns, msgspec.structs.replace(known, unknown={**known.unknown, "tool_calls": why})


def turn_calls(turn: EvidenceTurn) -> tuple[ToolCall, ...]:
    """Return the calls of a turn: its own, else those nested in its nodes."""
    if turn.tool_calls is not None:
        return turn.tool_calls
    return tuple(call for node in turn.nodes or () for call in node.tool_calls)


def _read_turns(value: Json, path: str, unknowns: Unknowns) -> tuple[tuple[EvidenceTurn, ...] | None, str | None]:
    """Return the turns, and how the last one reports failure."""
    if value is None:
        return None, None
    turns: list[EvidenceTurn] = []
    failure: str | None = None
    not_recorded: list[int] = []
    entries = list_at(value, path)
    for index, given in enumerate(entries):
        at = f"{path}[{index}]"
        entry = read_object(given, at)
        observed = _observe(entry, _SHARED, at, unknowns)
        failure = observed.failure
        # A conversation goes on after an HTTP error, which is tried again; any other failure cuts a turn off.
        if failure is not None and index < len(entries) - 1 and not failure.startswith("http_status"):
            unknowns.mark_parts(("answer", *CALL_PARTS), f"{at} did not finish: {failure}")
        metadata = {key: entry[key] for key in observed.unrecognised}
        if entry and len(metadata) == len(entry):
            unknowns.mark_unrecognised(PARTS, f"{at} has no field that is read; expected input, text, tool_calls")
        turns.append(
            EvidenceTurn(
                input=as_text(observed.input),
                text=observed.text,
                body=observed.body,
                tool_calls=observed.tool_calls,
                nodes=nest_calls_in_nodes(observed.nodes, observed.tool_calls),
                http_status=observed.http_status,
                duration_ms=observed.duration_ms,
                usage=observed.usage,
                metadata={**metadata, **_read_metadata(entry, at)},
            )
        )
        if turns[-1].tool_calls is None and turns[-1].nodes is None and "tool_calls" in entry:
            not_recorded.append(index)
    if not_recorded and any(turn.tool_calls for turn in turns):
        unknowns.mark("tool_calls", f"{path}[{not_recorded[0]}] {NO_CALLS_IN_TURN}")
    reported = [turn.usage is not None for turn in turns]
    if any(reported) and not all(reported):
        unknowns.mark("usage", f"{path}[{reported.index(False)}] reports no tokens, and others do")
    return tuple(turns), failure


def _read_metadata(entry: dict[str, Any], path: str) -> dict[str, Json]:
    return {} if entry.get("metadata") is None else read_object(entry["metadata"], f"{path}.metadata")


def _read_error(value: Json, path: str) -> str | None:
    if (
        value is None
        or value is False
        or (isinstance(value, (str, list, dict)) and not value)
        or (isinstance(value, str) and value.isspace())
    ):
        return None
    if isinstance(value, dict):
        return as_text(value.get("message")) or as_text(value)
    return "the run ended in an error" if value is True else read_text(value, path)


def _convert(value: Json, kind: type[_Read], path: str) -> _Read | None:
    """Read what a run of ours stored. Raises `EvidenceError` if it cannot be read, as what it reports would be lost."""
    if value is None:
        return None
    try:
        return convert_to(value, kind)
    except msgspec.ValidationError as error:
        raise EvidenceError(f"{path}: {error}") from None


def _reject_lost_account(fields: dict[str, Any], path: str) -> None:
    """Reject evidence whose stored account has a name that is not read."""
    for key, value in fields.items():
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        unknown = dict_or_empty(value).get("unknown")
        if len(_ACCOUNT & dict_or_empty(value).keys()) > 1 or not dict_or_empty(unknown).keys().isdisjoint(PARTS):
            raise EvidenceError(f"{path}.{key}: expected the name 'account' for an account of evidence, found {show(key)}")


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
