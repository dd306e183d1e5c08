"""How a reader keeps account of what it could not see, and how the account of an evidence reads afterwards.

A reader makes one `Doubts`, notes in it whatever it met and did not understand, and closes it with `account`. The first reason for
a part is kept: the others usually follow from it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.model.account import PARTS, Account, Part
from proctor.model.evidence import Evidence, Json
from proctor.model.show import shorten

_MOST_NOTES = 20
"""How many notes an account keeps: a hostile trace can be strange in a million places."""
_LONGEST = 300


class Doubts:
    """What a reader does not know, collected while it reads."""

    __slots__ = ("notes", "unknown")

    def __init__(self) -> None:
        self.unknown: dict[Part, str] = {}
        self.notes: list[str] = []

    def doubt(self, part: Part, why: str) -> None:
        """Say that a part is not known, or not wholly known."""
        self.unknown.setdefault(part, shorten(why, _LONGEST))

    def note(self, text: str) -> None:
        """Say something beside, once."""
        if len(self.notes) < _MOST_NOTES and text not in self.notes:
            self.notes.append(shorten(text, _LONGEST))

    def account(self, reader: str) -> Account:
        """Close the account."""
        return Account(reader, self.unknown, tuple(self.notes))


class PartState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one part of an evidence."""

    status: Literal["recorded", "none", "not known"]
    why: str | None = None


def part_states(evidence: Evidence) -> dict[Part, PartState]:
    """Return for each part of an evidence whether it was recorded, is known to be none, or is not known and why."""
    unknown = evidence.account.unknown if evidence.account is not None else {}
    states: dict[Part, PartState] = {part: _state(evidence, part, unknown.get(part)) for part in PARTS}
    calls = states["tool_calls"]
    if calls.status == "not known":
        # Of calls that nobody saw nothing is known either.
        follow: tuple[Part, ...] = ("tool_arguments", "tool_results")
        for part in follow:
            if states[part].status == "none":
                states[part] = calls
    return states


def _state(evidence: Evidence, part: Part, why: str | None) -> PartState:
    if why is not None:
        return PartState("not known", why)
    held = _held(evidence, part)
    if held is None:
        return PartState("not known", "not recorded in this evidence")
    return PartState("recorded" if held else "none")


def _held(evidence: Evidence, part: Part) -> Json:
    """What the evidence holds of a part: nothing where it was not recorded, an empty value where there was none."""
    calls = evidence.tool_calls
    if calls is None and evidence.nodes is not None:
        calls = tuple(call for node in evidence.nodes for call in node.tool_calls)
    match part:
        case "tool_calls" | "tool_arguments" | "tool_results":
            return calls
        case "answer":
            return evidence.text if evidence.text is not None else evidence.body
        case "turns":
            return evidence.turns if evidence.turns is not None else _one_exchange(evidence)
        case "usage":
            return evidence.usage and "reported"
        case "state":
            return evidence.state and "captured"
        case "input":
            return evidence.input
        case "nodes":
            return evidence.nodes


def _one_exchange(evidence: Evidence) -> str | None:
    # Evidence without turns is one exchange, as far as anything was exchanged.
    return "one exchange" if evidence.input is not None or evidence.text is not None or evidence.body is not None else None


def account_json(evidence: Evidence, reader: str | None = None) -> dict[str, Json]:
    """Return the account of an evidence as results show it."""
    account = evidence.account
    written: dict[str, Json] = {"reader": (account.reader if account is not None else "") or reader or "plain"}
    written["parts"] = {part: msgspec.to_builtins(state) for part, state in part_states(evidence).items()}
    if account is not None and account.notes:
        written["notes"] = list(account.notes)
    return written
