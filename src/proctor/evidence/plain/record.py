"""Plain evidence: one JSON object is one observed run, in our own words.

What is filled in when it is not written:

- `text` from `body` by the lookup order of an HTTP response; `body` from `text` when that is JSON.
- `usage` and `tool_calls` from `body`, when there are none beside it.
- From `turns`: all their tool calls, nodes and tokens in order; text, body and HTTP status of the last; input of the first; the
  sum of their durations when every turn has one. Where one turn records its calls and another does not, the calls of the run are unknown.
- An n8n expression in the `parameters` of a node (`={{ $json.url }}`) is resolved against the outputs of the other nodes, as in n8n's own
  documents; one that cannot be stays as it is written, and the verdict says so.
- A tool call that names its `node` is nested in that node; a node that is not listed is added, as the call shows that it ran.

What is written at several places must agree: see `proctor.evidence.unknowns.conflicts`.

Unknown keys are kept in `metadata`. A value of the wrong kind is an error that names its path. An unknown key whose value could be a
part under another name (the calls, the nodes, the answer) makes those parts unknown that are not written under their own:
`proctor.evidence.unknowns.members` says which keys are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.plain.markers import mark_answer, mark_members, mark_usage
from proctor.evidence.plain.nodes import read_names, read_nodes, read_renders, read_usage_at
from proctor.evidence.plain.stored_account import close_account, read_account, read_ending, refuse_lost_account
from proctor.evidence.shared.calls import read_calls
from proctor.evidence.shared.state import read_state
from proctor.evidence.shared.usage import add_usage, find_usage, holds_counts
from proctor.evidence.shared.workflow import with_resolved_parameters
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.conflicts import mark_difference, mark_other_calls, unify_spellings, unite_calls, unite_nodes
from proctor.evidence.unknowns.members import describe_unknown_member, holds_more, list_unknown_members, may_hold_call
from proctor.evidence.values.access import dict_or_empty, list_at, number_at, read_integer, read_object, read_text
from proctor.evidence.values.near_miss import is_misspelt
from proctor.evidence.values.text import HTTP_KEYS, as_text, find_misspelt_answer, find_text, may_be_json, parse_json
from proctor.model.account import NO_CALLS_IN_TURN, Account, Part
from proctor.model.evidence import Evidence, EvidenceTurn, Json, Node, ToolCall, Usage
from proctor.model.show import shorten, show

# Spellings of the dialects for our own keys.
ALIASES = {"toolCalls": "tool_calls", "httpStatus": "http_status", "durationMs": "duration_ms", "availableTools": "available_tools"}

KEYS = (frozenset(Evidence.__struct_fields__) | frozenset(ALIASES)) - {"cost"}
"""Every key of plain evidence that means something to us."""

CARRYING = frozenset(("text", "body", "tool_calls", "toolCalls", "nodes", "turns", "state", "renders", "http_status", "httpStatus"))
"""Keys that make an object evidence whatever else is in it."""

_TURN_KEYS = frozenset(EvidenceTurn.__struct_fields__)
_PARTS: tuple[Part, ...] = ("tool_calls", "nodes", "turns", "usage", "state")
"""Parts that have a key of their own name, and that only a list or an object can carry."""


def sniff(document: Json) -> bool:
    """Return whether an object has keys of ours that carry something, or nothing but known keys."""
    return isinstance(document, dict) and (not CARRYING.isdisjoint(document) or KEYS.issuperset(document))


def read(document: Json) -> list[Evidence]:
    """Return one plain object as evidence."""
    return [read_plain(document)]


def read_plain(document: Json, path: str = "$", *, weigh_answer: bool = True) -> Evidence:
    """Return one plain object as evidence; `path` is where it stands in the file.

    Without `weigh_answer` it does not matter what the body says about its own end.
    """
    entry = unify_spellings(read_object(document, path), ALIASES, path)
    stored = read_account(entry.get("account"), f"{path}.account")
    unknowns = Unknowns()
    turns = _read_turns(entry.get("turns"), f"{path}.turns", unknowns)
    observed = _compare_turns(_observe(entry, path, unknowns, weigh_answer=weigh_answer), turns, path, unknowns)
    state, other_families = read_state(entry["state"], f"{path}.state", unknowns) if entry.get("state") is not None else (None, {})
    if not KEYS.issuperset(entry):
        refuse_lost_account(entry, KEYS, path)
        _mark_strange(entry, KEYS, observed.tool_calls, path, unknowns, inside=[call for turn in turns or () for call in turn_calls(turn)])
    metadata = {key: value for key, value in entry.items() if key not in KEYS}
    if not isinstance(entry.get("model"), (str, type(None))):
        metadata["model"] = entry.pop("model")  # a model that is described rather than named
    if other_families:
        metadata["state"] = other_families
    metadata.update(_read_members(entry.get("metadata"), f"{path}.metadata"))
    nodes, calls = nest_calls_in_nodes(observed.nodes, observed.tool_calls)
    evidence = Evidence(
        case=read_text(entry.get("case"), f"{path}.case"),
        input=entry.get("input"),
        text=observed.text,
        body=observed.body,
        tool_calls=calls,
        nodes=nodes,
        http_status=observed.http_status,
        duration_ms=observed.duration_ms,
        usage=observed.usage,
        turns=turns,
        context=None if entry.get("context") is None else read_object(entry["context"], f"{path}.context"),
        available_tools=read_names(entry.get("available_tools"), f"{path}.available_tools"),
        renders=read_renders(entry.get("renders"), f"{path}.renders"),
        now=read_text(entry.get("now"), f"{path}.now"),
        timezone=read_text(entry.get("timezone"), f"{path}.timezone"),
        state=state,
        error=_read_error(entry.get("error"), f"{path}.error"),
        no_run=read_text(entry.get("no_run"), f"{path}.no_run"),
        model=read_text(entry.get("model"), f"{path}.model"),
        simulated_user=read_ending(entry.get("simulated_user"), f"{path}.simulated_user"),
        account=close_account(unknowns, stored),
        metadata=metadata,
    )
    return with_turn_defaults(evidence)


def _compare_turns(observed: _Observed, turns: tuple[EvidenceTurn, ...] | None, path: str, unknowns: Unknowns) -> _Observed:
    """Return the calls of the root together with those that only the turns tell, and doubt a part in which they differ."""
    if not turns:
        return observed
    here, calls, nodes, last = f"{path}.turns", observed.tool_calls, observed.nodes, turns[-1]
    if calls is not None and any(turn.tool_calls is not None or turn.nodes is not None for turn in turns):
        told = [call for turn in turns for call in turn_calls(turn)]
        complete = all(turn.tool_calls is not None or turn.nodes is not None for turn in turns)
        calls = unite_calls(calls, told, (f"{path}.tool_calls", here), unknowns, all_told=complete)
    if nodes is not None:
        nodes = unite_nodes(nodes, [node for turn in turns for node in turn.nodes or ()], (f"{path}.nodes", here), unknowns)
    if observed.text is not None and last.text is not None and last.text.strip() not in observed.text:
        mark_difference("answer", (f"{path}.text", here), "the last turn ends with another answer", unknowns)
    usage, spent = observed.usage, add_usage(turn.usage for turn in turns)
    # The root may count what no turn counts (a planner, a retry), never less than the turns.
    if usage is not None and spent is not None and (usage.total() or 0) < (spent.total() or 0):
        mark_difference("usage", (f"{path}.usage", here), "the turns count more tokens", unknowns)
    status = observed.http_status
    if status is not None and last.http_status not in (None, status):
        raise EvidenceError(f"{path}.http_status: the last turn has the status {last.http_status}, the run {status}")
    return msgspec.structs.replace(observed, tool_calls=calls, nodes=nodes)


def _mark_strange(
    entry: dict[str, Any],
    known: frozenset[str],
    calls: tuple[ToolCall, ...] | None,
    path: str,
    unknowns: Unknowns,
    inside: Sequence[ToolCall] = (),
) -> None:
    """Doubt the parts of a run or a turn that are missing under their own key and may be a member that is not understood.

    `inside` are the calls of its turns, which count where it lists none itself.
    """
    strange = list_unknown_members(entry, known)
    mark_members(entry, strange, calls if calls is not None else inside or None, path, unknowns)
    if strange and calls is not None:
        mark_other_calls({key: entry[key] for key in strange}, calls, path, unknowns)
    for key in strange:
        why = describe_unknown_member(path, key, known)
        carries = holds_more(entry[key])
        if carries:
            for part in _PARTS:
                if part in known and entry.get(part) is None:
                    unknowns.mark(part, why)
        if carries or isinstance(entry[key], str):
            if entry.get("input") is None and is_misspelt(key, ("input",)):
                unknowns.mark("input", why)
            if entry.get("text") is None or (carries and entry.get("body") is None and _may_be_body(entry["text"])):
                unknowns.mark("answer", why)


def _may_be_body(text: Json) -> bool:
    return isinstance(text, str) and (may_be_json(text) or text.lstrip().startswith("```"))


def with_turn_defaults(evidence: Evidence) -> Evidence:
    """Return the evidence with what its root leaves out, read from its turns."""
    turns = evidence.turns
    if not turns:
        return evidence
    calls, nodes, account = evidence.tool_calls, evidence.nodes, evidence.account
    if calls is None:
        turns, account = _judge_silent_turns(turns, account)
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


def _judge_silent_turns(turns: tuple[EvidenceTurn, ...], account: Account | None) -> tuple[tuple[EvidenceTurn, ...], Account | None]:
    """Return the turns and the account after weighing turns that record no calls while others do.

    Who writes down calls where there are some leaves the list out where there are none. But who writes an empty list for one turn writes a
    list for every turn that was looked at, so a turn without one was not seen.
    """
    recorded = [turn.tool_calls is not None or turn.nodes is not None for turn in turns]
    if all(recorded) or not any(recorded) or (account is not None and "tool_calls" in account.unknown):
        return turns, account
    # Nobody wrote an empty list, so leaving the list out is how this recorder says that there was no call.
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


def nest_calls_in_nodes(
    nodes: tuple[Node, ...] | None, calls: tuple[ToolCall, ...] | None
) -> tuple[tuple[Node, ...] | None, tuple[ToolCall, ...] | None]:
    """Put root calls that name a node into that node as well.

    A node that lists calls of its own already has them. Of several runs of a node the first gets them.
    """
    by_node: dict[str, list[ToolCall]] = {}
    for call in calls or ():
        if call.node is not None:
            by_node.setdefault(call.node, []).append(call)
    if not by_node:
        return nodes, calls
    complete: list[Node] = []
    for node in nodes or ():
        inner = by_node.pop(node.name, None)
        complete.append(node if inner is None or node.tool_calls else msgspec.structs.replace(node, tool_calls=tuple(inner)))
    complete.extend(Node(name=name, tool_calls=tuple(inner)) for name, inner in by_node.items())
    return tuple(complete), calls


class _Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What a run and a single turn have in common."""

    text: str | None
    body: Json
    tool_calls: tuple[ToolCall, ...] | None
    nodes: tuple[Node, ...] | None
    http_status: int | None
    duration_ms: float | None
    usage: Usage | None


def _observe(entry: dict[str, Any], path: str, unknowns: Unknowns, *, is_turn: bool = False, weigh_answer: bool = True) -> _Observed:
    text, body = read_text(entry.get("text"), f"{path}.text"), entry.get("body")
    calls = None if entry.get("tool_calls") is None else read_calls(entry["tool_calls"], f"{path}.tool_calls", unknowns)
    if calls is None:
        calls = _find_calls(body, entry.get("nodes") is not None or is_turn, f"{path}.body", unknowns)
    elif body:
        calls = _with_calls_in(body, calls, path, unknowns)
    usage = read_usage_at(entry.get("usage"), f"{path}.usage", unknowns) or find_usage(body, unknowns)
    _mark_body(text, body, usage, f"{path}.body", unknowns)
    nodes, inner = None, Unknowns()
    if entry.get("nodes") is not None:
        nodes = read_nodes(entry["nodes"], f"{path}.nodes", inner)
    for part, why in inner.unknown.items():
        # What is told of the whole run does not depend on its nodes; what is told of each of them does.
        told = (part == "tool_calls" and entry.get("tool_calls") is not None) or (part == "usage" and entry.get("usage") is not None)
        unknowns.mark("nodes" if told else part, why)
    if calls is None and nodes == () and not entry.get("turns"):
        unknowns.mark("tool_calls", f"{path}.nodes lists none, and no tool_calls are recorded")
    elif calls is not None and nodes:
        inside = [call for node in nodes for call in node.tool_calls]
        calls = unite_calls(calls, inside, (f"{path}.tool_calls", f"{path}.nodes"), unknowns)
    if entry.get("usage") is not None:
        mark_usage(entry, calls, path, unknowns)
    # A text beside the body was written down by the recorder on purpose; the body alone may be a provider's answer that was cut.
    if text is None and weigh_answer:
        mark_answer(body, calls, f"{path}.body", unknowns)
    return _Observed(
        text=text if text is not None else find_text(body),
        body=body if body is not None else parse_json(text),
        tool_calls=calls,
        nodes=None if nodes is None else with_resolved_parameters(nodes),
        http_status=read_integer(entry.get("http_status"), f"{path}.http_status"),
        duration_ms=number_at(entry.get("duration_ms"), f"{path}.duration_ms"),
        usage=usage,
    )


def _mark_body(text: str | None, body: Json, usage: Usage | None, path: str, unknowns: Unknowns) -> None:
    """Doubt what an answer may tell under a misspelt name, if it is needed."""
    if not isinstance(body, dict):
        return
    misspelt = find_misspelt_answer(body) if text is None else None
    if misspelt is not None:
        unknowns.mark("answer", describe_unknown_member(path, misspelt, HTTP_KEYS, advice=""))
    for key, value in body.items() if usage is None else ():
        if isinstance(value, (dict, list)) and holds_counts(value):
            unknowns.mark("usage", f"{show(shorten(key, 60))} at {path} counts tokens and is not understood")


def _find_calls(body: Json, others_record: bool, path: str, unknowns: Unknowns) -> tuple[ToolCall, ...] | None:
    """Return the calls an answer lists; a member that only shares our word is no mistake, as the body belongs to the agent."""
    document = dict_or_empty(body)
    if isinstance(document.get("tool_calls"), list):
        calls = _read_listed(document["tool_calls"], path, unknowns)
        mark_other_calls(document, calls, path, unknowns, free={"tool_calls"})
        return calls
    # Where nothing else records tools they are not recorded, and nobody needs to be told why.
    for key, value in document.items() if others_record else ():
        if may_hold_call(key, value) or (key == "tool_calls" and value is not None):
            unknowns.mark("tool_calls", f"{show(shorten(key, 60))} at {path} may tell of tool calls and is not understood")
    return None


def _read_listed(listed: Json, path: str, unknowns: Unknowns) -> tuple[ToolCall, ...] | None:
    try:
        return read_calls(listed, f"{path}.tool_calls", unknowns)
    except EvidenceError as error:
        unknowns.mark("tool_calls", f"what the answer lists as tool calls cannot be read: {error.message}")
        return None


def _with_calls_in(body: Json, calls: tuple[ToolCall, ...], path: str, unknowns: Unknowns) -> tuple[ToolCall, ...]:
    """Return the calls recorded beside an answer together with those that only the answer lists."""
    document = dict_or_empty(body) if not isinstance(body, list) else {"": body}
    if isinstance(document.get("tool_calls"), list):
        told = _read_listed(document["tool_calls"], f"{path}.body", unknowns) or ()
        calls = unite_calls(calls, told, (f"{path}.tool_calls", f"{path}.body"), unknowns)
    elif document.get("tool_calls") is not None:
        unknowns.mark("tool_calls", f'"tool_calls" at {path}.body may tell of tool calls and is not understood')
    if document:
        mark_other_calls(document, calls, f"{path}.body", unknowns, free={"tool_calls"})
    return calls


def _read_turns(value: Json, path: str, unknowns: Unknowns) -> tuple[EvidenceTurn, ...] | None:
    if value is None:
        return None
    turns: list[EvidenceTurn] = []
    unknown: list[int] = []
    for index, entry in enumerate(list_at(value, path)):
        own = Unknowns()
        turns.append(_turn(entry, f"{path}[{index}]", own))
        for part, why in own.unknown.items():
            unknowns.mark(part, why)
        if turns[-1].tool_calls is None and turns[-1].nodes is None and "tool_calls" in entry:
            unknown.append(index)
    if unknown and any(turn.tool_calls for turn in turns):
        unknowns.mark("tool_calls", f"{path}[{unknown[0]}] {NO_CALLS_IN_TURN}")
    reported = [turn.usage is not None for turn in turns]
    if any(reported) and not all(reported):
        unknowns.mark("usage", f"{path}[{reported.index(False)}] reports no tokens, and others do")
    return tuple(turns)


def _turn(value: Json, path: str, unknowns: Unknowns) -> EvidenceTurn:
    entry = unify_spellings(read_object(value, path), ALIASES, path)
    observed = _observe(entry, path, unknowns, is_turn=True)
    _mark_strange(entry, _TURN_KEYS, observed.tool_calls, path, unknowns)
    nodes, calls = nest_calls_in_nodes(observed.nodes, observed.tool_calls)
    metadata = {key: member for key, member in entry.items() if key not in _TURN_KEYS}
    metadata.update(_read_members(entry.get("metadata"), f"{path}.metadata"))
    return EvidenceTurn(
        input=as_text(entry.get("input")),
        text=observed.text,
        body=observed.body,
        tool_calls=calls,
        nodes=nodes,
        http_status=observed.http_status,
        duration_ms=observed.duration_ms,
        usage=observed.usage,
        metadata=metadata,
    )


def _read_members(value: Json, path: str) -> dict[str, Json]:
    return {} if value is None else read_object(value, path)


def _read_error(value: Json, path: str) -> str | None:
    if value is None or value is False or value == "":
        return None
    if isinstance(value, dict):
        return as_text(value.get("message")) or as_text(value)
    return "the run ended in an error" if value is True else read_text(value, path)
