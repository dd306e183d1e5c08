"""How a reader keeps account of what it could not see, and how the account of an evidence reads afterwards.

A reader makes one `Unknowns`, notes in it whatever it met and did not understand, and closes it with `account`. The first reason for
a part is kept: the others usually follow from it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import msgspec

from proctor.model.account import PARTS, Account, Known, Part, PartState
from proctor.model.evidence import Evidence, Json, ToolCall
from proctor.model.show import shorten

_MOST_NOTES = 20
"""How many notes an account keeps: a hostile trace can be strange in a million places."""
_LONGEST = 300
"""Characters of a doubt or a note: a record may not fill results with its own words."""
_CUT_OFF: tuple[Part, ...] = ("tool_calls", "answer", "nodes")
"""The parts that more would have been of, had the run gone on."""


class Unknowns:
    """Collects what a reader does not know while it reads."""

    __slots__ = ("notes", "seen_tools", "unknown")

    def __init__(self) -> None:
        self.unknown: dict[Part, str] = {}
        self.notes: list[str] = []
        self.seen_tools: tuple[str, ...] = ()

    def mark(self, part: Part, why: str) -> None:
        """Note that a part is not known, or not wholly known."""
        if part == "tool_calls":
            self.seen_tools = ()  # This is another doubt than that about tools a provider runs.
        self.unknown.setdefault(part, shorten(why, _LONGEST))

    def mark_parts(self, parts: Iterable[Part], why: str) -> None:
        """Note that several parts are not known, for one reason."""
        for part in parts:
            self.mark(part, why)

    def mark_other_tools(self, why: str, seen: tuple[str, ...]) -> None:
        """Note that calls of other tools than these are not known."""
        # Only a first doubt can be narrowed to other tools: an earlier one may concern any call, and a list of tools seen would hide that.
        alone = "tool_calls" not in self.unknown
        self.mark("tool_calls", why)
        if alone:
            self.seen_tools = seen

    def note(self, text: str) -> None:
        """Note something that leaves no part unknown; the same words are kept once."""
        if len(self.notes) < _MOST_NOTES and text not in self.notes:
            self.notes.append(shorten(text, _LONGEST))

    def close_account(self, reader: str) -> Account:
        """Return the account that these unknowns make."""
        return Account(reader, self.unknown, tuple(self.notes), self.seen_tools)


def with_break(evidence: Evidence) -> Evidence:
    """Mark what a run that broke off had not come to as not known; return any other evidence as it is."""
    if evidence.error is None:
        return evidence
    account = evidence.account or Account()
    # A reader's own doubt wins over the break (it is spread last): it names what was wrong with the part, the break only what came after.
    why = shorten(f"the run broke off: {evidence.error}", _LONGEST)
    return msgspec.structs.replace(
        evidence, account=msgspec.structs.replace(account, unknown={**dict.fromkeys(_CUT_OFF, why), **account.unknown})
    )


def find_part_states(evidence: Evidence) -> dict[Part, PartState]:
    """Return for each part of an evidence whether it was recorded, is known to be none, or is not known and why."""
    return dict(zip(PARTS, _find_states(evidence), strict=True))


def _find_states(evidence: Evidence) -> tuple[PartState, ...]:
    unknown = evidence.account.unknown if evidence.account is not None else {}
    calls = evidence.tool_calls
    # Workflow platforms list calls inside their nodes only; that records them as well as a list at the root would.
    if calls is None and evidence.nodes is not None:
        calls = tuple(call for node in evidence.nodes for call in node.tool_calls)
    states = [_find_state(evidence, part, calls, unknown.get(part)) for part in PARTS]
    if states[0].status == "not known":
        # Of calls that nobody saw nothing is known either.
        states[1:3] = [states[0] if state.status == "none" else state for state in states[1:3]]
    return tuple(states)


def _find_state(evidence: Evidence, part: Part, calls: tuple[ToolCall, ...] | None, why: str | None) -> PartState:
    if why is not None:
        return PartState("not known", why)
    held = _find_content(evidence, part, calls)
    if held is None:
        return _NOT_TOLD if calls and part in ("tool_arguments", "tool_results") else _NOT_RECORDED
    # An agent may answer with the JSON value `false` or `0`: that is an answer, and not the absence of one.
    return _RECORDED if held or held is False or held == 0 else _NONE


_RECORDED, _NONE = PartState("recorded"), PartState("none")
_NOT_RECORDED = PartState("not known", "not recorded in this evidence")
_NOT_TOLD = PartState("not known", "no call in this evidence tells them")


def _find_content(evidence: Evidence, part: Part, calls: tuple[ToolCall, ...] | None) -> Json:
    """Return what the evidence holds of a part: None if it was not recorded, an empty value if there was none."""
    match part:
        case "tool_calls":
            return calls
        case "tool_arguments":
            return calls if not calls or any(call.arguments is not None for call in calls) else None
        case "tool_results":
            return calls if not calls or any(call.result is not None or call.error is not None for call in calls) else None
        case "answer":
            return evidence.text if evidence.text is not None else evidence.body
        case "turns":
            return evidence.turns if evidence.turns is not None else _find_one_exchange(evidence)
        case "usage":
            return evidence.usage and "reported"
        case "state":
            return evidence.state and "captured"
        case "input":
            return evidence.input
        case "nodes":
            return evidence.nodes


def _find_one_exchange(evidence: Evidence) -> str | None:
    # Evidence without turns is one exchange, as far as anything was exchanged.
    return "one exchange" if evidence.input is not None or evidence.text is not None or evidence.body is not None else None


def find_known(evidence: Evidence, reader: str = "plain") -> Known:
    """Return what is known of an evidence, part by part; `reader` is used if the evidence does not name its reader."""
    evidence = with_break(evidence)
    account = evidence.account
    if account is None:
        return _share_known(reader, _find_states(evidence))
    return Known(account.reader or reader, find_part_states(evidence), account.notes)


@functools.lru_cache(maxsize=1024)
def _share_known(reader: str, states: tuple[PartState, ...]) -> Known:
    # Of a million plain records all but a few are known alike: their results hold one and the same account.
    return Known(reader, dict(zip(PARTS, states, strict=True)))


def write_known(known: Known) -> dict[str, Json]:
    """Return what is known of an evidence as plain data, in the shape of `cases[].evidence.account` in results."""
    written: dict[str, Json] = {"reader": known.reader, "parts": msgspec.to_builtins(known.parts)}
    if known.notes:
        written["notes"] = list(known.notes)
    return written


def write_account(evidence: Evidence, reader: str = "plain") -> dict[str, Json]:
    """Return the account of an evidence as results show it."""
    return write_known(find_known(evidence, reader))
