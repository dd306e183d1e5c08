"""Records which parts of the evidence are unknown and why; the first reason that no declaration overrides is shown."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import msgspec

from proctor.model.account import CALL_PARTS, NO_CALLS_IN_TURN, PART_NAMES, PARTS, Account, Known, Part, PartState
from proctor.model.evidence import Evidence, EvidenceTurn, Json
from proctor.model.show import shorten

_MAX_NOTES = 20
_MAX_CHARACTERS = 300
"""Characters of a reason or a note, so that a record cannot fill results with its own text."""
_CUT_OFF: tuple[Part, ...] = ("tool_calls", "answer", "nodes")
"""The parts that would have grown if the run had continued."""
_EMPTY = Account()
_OF_THE_RUN = dict.fromkeys(("turns", "error", "no_run", "cost", "simulated_user"))


class Unknowns:
    """Collects unknown parts while a reader reads."""

    __slots__ = ("_firm", "ignored", "notes", "seen_tools", "unknown")

    def __init__(self) -> None:
        self.unknown: dict[Part, str] = {}
        self.notes: list[str] = []
        self.ignored: list[str] = []
        self.seen_tools: tuple[str, ...] = ()
        self._firm: set[Part] = set()

    def mark(self, part: Part, why: str) -> None:
        """Mark a part, or some of it, as unknown."""
        if part == "tool_calls":
            self.seen_tools = ()  # This reason does not concern hosted tools.
        if part not in self._firm:
            self._firm.add(part)
            self.unknown[part] = shorten(why, _MAX_CHARACTERS)

    def mark_parts(self, parts: Iterable[Part], why: str) -> None:
        """Mark several parts as unknown."""
        for part in parts:
            self.mark(part, why)

    def mark_unrecognised(self, parts: Iterable[Part], why: str) -> None:
        """Mark parts as unknown because an item is unrecognised; a declaration of completeness overrides it."""
        for part in parts:
            if part == "tool_calls":
                self.seen_tools = ()
            self.unknown.setdefault(part, shorten(why, _MAX_CHARACTERS))

    def mark_other_tools(self, why: str, seen: tuple[str, ...]) -> None:
        """Mark calls of all other tools as unknown."""
        # Only a first reason can be narrowed to other tools: an earlier one may concern any call.
        is_first = "tool_calls" not in self.unknown
        self.mark_unrecognised(("tool_calls",), why)
        if is_first:
            self.seen_tools = seen

    def note(self, text: str) -> None:
        """Add a note that makes no part unknown; the same text is added once."""
        if len(self.notes) < _MAX_NOTES and text not in self.notes:
            self.notes.append(shorten(text, _MAX_CHARACTERS))

    def ignore(self, name: str) -> None:
        """List an unrecognised field or kind that has no effect."""
        if len(self.ignored) < _MAX_NOTES and name not in self.ignored:
            self.ignored.append(shorten(name, 60))

    def use(self, name: str) -> None:
        """Remove a field that had an effect from the ignored ones."""
        if name in self.ignored:
            self.ignored.remove(name)

    def close_account(self, reader: str) -> Account:
        """Return the account of everything marked."""
        overridable: tuple[Part, ...] = tuple(part for part in self.unknown if part not in self._firm)
        return Account(reader, self.unknown, tuple(self.notes), self.seen_tools, (), tuple(self.ignored), overridable)

    def add(self, other: Unknowns) -> None:
        """Add the marks of another reader."""
        for part, why in other.unknown.items():
            if part in other._firm:
                self.mark(part, why)
            else:
                self.mark_unrecognised((part,), why)
        for note in other.notes:
            self.note(note)
        for name in other.ignored:
            self.ignore(name)


def turn_evidence(evidence: Evidence, turn: int) -> Evidence | None:
    """Return the evidence of turn `turn` (from 0), or None if there is no such turn; evidence without turns is its own turn 0."""
    turns, account = evidence.turns, evidence.account
    if turns is None:
        return evidence if turn == 0 else None
    if turn >= len(turns):
        return None
    observed = turns[turn]
    # Calls missing from another turn do not make this turn's parts unknown.
    why = account.unknown.get("tool_calls", "") if account is not None else ""
    if account is not None and why.endswith(NO_CALLS_IN_TURN) and (observed.tool_calls is not None or observed.nodes is not None):
        unknown: dict[Part, str] = {part: why for part, why in account.unknown.items() if part != "tool_calls"}
        account = msgspec.structs.replace(account, unknown=unknown)
    # The end state, the renders and the offered tools belong to the whole run; no turn has its own.
    fields = {name: getattr(observed, name) for name in EvidenceTurn.__struct_fields__}
    metadata = observed.metadata or evidence.metadata
    return msgspec.structs.replace(evidence, **{**fields, **_OF_THE_RUN, "account": account, "metadata": metadata})


def with_break(evidence: Evidence) -> Evidence:
    """Return evidence in which everything after a failure is unknown, or the evidence unchanged if it has no error."""
    if evidence.error is None:
        return evidence
    account = evidence.account or _EMPTY
    # A reader's own reason wins: it describes the part, while the failure only explains that nothing followed.
    why = shorten(f"the run did not finish: {evidence.error}", _MAX_CHARACTERS)
    unknown: dict[Part, str] = {**dict.fromkeys(_CUT_OFF, why), **account.unknown}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown, overridable=()))


def declare_complete(evidence: Evidence, parts: tuple[Part, ...], source: str) -> Evidence:
    """Return evidence whose declared parts are known, if a declaration applies; `source` is where it is written.

    Lost data, contradictions, a record that ends early and a failed run stay unknown. Calls that are not recorded next to an answer count
    as none made.
    """
    account = evidence.account or _EMPTY
    declared = {*parts, *(CALL_PARTS if "tool_calls" in parts else ())}
    lifted = declared.intersection(account.overridable)
    changes: dict[str, object] = {}
    # `nodes` record calls as completely as a list of calls.
    has_answer = evidence.text is not None or evidence.body is not None
    unrecorded = "tool_calls" in parts and evidence.tool_calls is None and evidence.nodes is None and has_answer
    if unrecorded and ("tool_calls" not in account.unknown or "tool_calls" in lifted) and evidence.error is None:
        changes["tool_calls"] = ()
    if not lifted and not changes:
        return evidence
    changes["account"] = msgspec.structs.replace(
        account,
        unknown={part: why for part, why in account.unknown.items() if part not in lifted},
        overridable=tuple(part for part in account.overridable if part not in lifted),
        seen_tools=() if "tool_calls" in lifted else account.seen_tools,
        notes=(*account.notes, f"{', '.join(PART_NAMES[part] for part in parts)} complete: declared in {source}"),
    )
    return msgspec.structs.replace(evidence, **changes)


_RECORDED, _NONE = PartState("recorded"), PartState("none")
_NOT_RECORDED = PartState("unknown", "not recorded in this evidence")
_NOT_IN_CALLS = PartState("unknown", "no recorded call has them")


def find_part_states(evidence: Evidence) -> dict[Part, PartState]:
    """Return for each part whether it was recorded, is known to be empty, or is unknown and why."""
    return dict(zip(PARTS, _find_states(evidence), strict=True))


def _find_states(evidence: Evidence) -> tuple[PartState, ...]:
    account, calls = evidence.account or _EMPTY, evidence.tool_calls
    # Workflow platforms list calls inside their nodes only; that records them as well as a list at the root would.
    if calls is None and (evidence.nodes is not None or "nodes" in account.unbuilt):
        calls = tuple(call for node in evidence.nodes or () for call in node.tool_calls)
    answer = evidence.text if evidence.text is not None else evidence.body
    # Evidence without turns is one exchange, if it has any content.
    exchange = "one exchange" if evidence.input is not None or answer is not None else None
    # None is not recorded, an empty value none.
    contents: dict[Part, Json] = {
        "tool_calls": calls,
        "tool_arguments": calls if not calls or any(call.arguments is not None for call in calls) else None,
        "tool_results": calls if not calls or any(call.result is not None or call.error is not None for call in calls) else None,
        "answer": answer,
        "input": evidence.input,
        "turns": evidence.turns if evidence.turns is not None else exchange,
        "usage": evidence.usage and "reported",
        "nodes": evidence.nodes,
        "state": evidence.state and "captured",
    }
    states: list[PartState] = []
    for part, content in contents.items():
        if part in account.unbuilt:
            states.append(_RECORDED)
        elif part in account.unknown:
            states.append(PartState("unknown", account.unknown[part]))
        elif content is None:
            states.append(_NOT_IN_CALLS if calls and part in CALL_PARTS else _NOT_RECORDED)
        else:
            # An agent may answer with the JSON value `false` or `0`, which is an answer.
            states.append(_RECORDED if content or content is False or content == 0 else _NONE)
    if states[0].status == "unknown":
        # If calls may be missing, so may their arguments and results.
        states[1:3] = [states[0] if state.status == "none" else state for state in states[1:3]]
    return tuple(states)


def find_known(evidence: Evidence, reader: str = "plain") -> Known:
    """Return the state of every part; `reader` is used if the evidence does not name its reader."""
    evidence = with_break(evidence)
    account = evidence.account or _EMPTY
    return _share_known(account.reader or reader, _find_states(evidence), account.notes, account.ignored)


@functools.lru_cache(maxsize=1024)
def _share_known(reader: str, states: tuple[PartState, ...], notes: tuple[str, ...], ignored: tuple[str, ...]) -> Known:
    # Nearly all of a million records share one account.
    return Known(reader, dict(zip(PARTS, states, strict=True)), notes, ignored)


def write_known(known: Known) -> dict[str, Json]:
    """Return the state of every part as plain data, in the shape of `cases[].evidence.account` in results."""
    written = {"notes": list(known.notes), "ignored": list(known.ignored)}
    return {"reader": known.reader, "parts": msgspec.to_builtins(known.parts), **{key: value for key, value in written.items() if value}}
