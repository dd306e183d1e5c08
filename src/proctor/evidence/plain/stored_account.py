"""The account of plain evidence: one that was stored with it, and what reading it again adds."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from proctor.errors import EvidenceError
from proctor.evidence.unknowns.account import Unknowns
from proctor.evidence.unknowns.members import list_unknown_members
from proctor.model.account import PARTS, Account
from proctor.model.evidence import Json, UserEnding
from proctor.model.show import show
from proctor.model.typed import convert_to

Read = TypeVar("Read")

_FIELDS = frozenset(Account.__struct_fields__)


def read_account(value: Json, path: str) -> Account | None:
    """Read the account stored with evidence. Raises `EvidenceError` if it cannot be read, as its unknowns would be lost."""
    return _convert(value, Account, path)


def read_ending(value: Json, path: str) -> UserEnding | None:
    """Read how a simulated user fared, as a run wrote it. Raises `EvidenceError` if it cannot be read."""
    return _convert(value, UserEnding, path)


def _convert(value: Json, kind: type[Read], path: str) -> Read | None:
    if value is None:
        return None
    try:
        return convert_to(value, kind)
    except msgspec.ValidationError as error:
        raise EvidenceError(f"{path}: {error}") from None


def refuse_lost_account(entry: dict[str, Any], known: frozenset[str], path: str) -> None:
    """Refuse evidence whose account stands under a name nobody looks at."""
    for key in list_unknown_members(entry, known):
        inside = entry[key]
        # An account that is wrapped in a list of one would be lost as well.
        while isinstance(inside, list) and len(inside) == 1:
            inside = inside[0]
        if isinstance(inside, dict) and _is_account(inside):
            raise EvidenceError(f"{path}.{key}: expected the name 'account' for an account of evidence, found {show(key)}")


def _is_account(entry: dict[str, Any]) -> bool:
    unknown = entry.get("unknown")
    return len(_FIELDS & entry.keys()) > 1 or (isinstance(unknown, dict) and not unknown.keys().isdisjoint(PARTS))


def close_account(unknowns: Unknowns, stored: Account | None) -> Account | None:
    """Return the account of plain evidence, or None if everything was understood."""
    if stored is None:
        return unknowns.close_account("plain") if unknowns.unknown or unknowns.notes else None
    notes = dict.fromkeys((*stored.notes, *unknowns.notes))
    # The stored reasons win: they were written by whoever saw the original, of which this record is a copy.
    return Account(stored.reader, {**unknowns.unknown, **stored.unknown}, tuple(notes))
