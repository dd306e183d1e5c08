"""Compares proposed cases with a suite: which are new, which claims of the others would be added or removed.

A claim that a person wrote is never removed: only claims with a generated reason are. A rejected proposal is not made again.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal

import msgspec

from proctor.formats.native.editing import write_case_lines, write_claim_lines
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json

GENERATED = (" traces", "the only trace", "golden run", "boundary value", "branch of the workflow")
"""One of these is in the reason of every generated claim."""

WriteCase = Callable[[Case], dict[str, Json]]
"""Returns a case of a suite in the native shape."""


class Rejection(msgspec.Struct, frozen=True, omit_defaults=True):
    """A proposal that was rejected: a whole case, or one claim of a case."""

    case: str
    claim: str = ""
    reason: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the proposal."""
        return self.case, self.claim


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed case: new, or with changes for the case of this id."""

    case: str
    kind: Literal["new", "changed"]
    document: dict[str, Json]
    """The proposed case."""
    added: tuple[Json, ...] = ()
    removed: tuple[int, ...] = ()
    """Positions of the claims of the existing case."""
    diff: tuple[str, ...] = ()


def compare_with_suite(
    documents: Iterable[dict[str, Json]],
    suite: Suite | None,
    write_case: WriteCase,
    rejected: Collection[tuple[str, str]] = (),
    *,
    replaces: Sequence[str] = GENERATED,
) -> list[Proposal]:
    """Return what each proposed case would change; those that change nothing are left out.

    `replaces` are words in the reason of claims that a proposal may remove.
    """
    existing = {case.id: case for case in suite.cases} if suite is not None else {}
    proposals: list[Proposal] = []
    for document in documents:
        name = str(document["id"])
        document = drop_rejected(document, rejected)
        case = existing.get(name)
        if (name, "") in rejected or (case is None and not document.get("expect") and not document.get("turns")):
            continue
        if case is None:
            lines = tuple(f"+ {line}" for line in write_case_lines(document))
            proposals.append(Proposal(case=name, kind="new", document=document, diff=lines))
            continue
        written = write_case(case)
        positions = [at for at, assertion in enumerate(case.assertions) if assertion.turn is None]
        mine = dict(zip(positions, written.get("expect", ()), strict=True))
        keys = {write_key(claim) for claim in mine.values()}
        proposed = {write_key(claim) for claim in document.get("expect", ())}
        added = tuple(claim for claim in document.get("expect", ()) if write_key(claim) not in keys)
        generated = {at for at in mine if not case.assertions[at].id and any(word in case.assertions[at].because for word in replaces)}
        removed = tuple(at for at, claim in mine.items() if at in generated and write_key(claim) not in proposed)
        after = [claim for at, claim in mine.items() if at not in removed] + list(added)
        before, later = ([line for claim in claims for line in write_claim_lines(claim)] for claims in (mine.values(), after))
        diff = tuple(line for line in difflib.ndiff(before, later) if not line.startswith("?"))
        if added or removed:
            proposals.append(Proposal(case=case.id, kind="changed", document=document, added=added, removed=removed, diff=diff))
    return proposals


def drop_rejected(document: dict[str, Json], rejected: Collection[tuple[str, str]]) -> dict[str, Json]:
    """Return a proposed case without its rejected claims."""
    left = [claim for claim in document.get("expect", ()) if (str(document["id"]), write_key(claim)) not in rejected]
    return {**document, "expect": left}


def write_key(claim: Json) -> str:
    """Return a claim without its reason, in a form to compare."""
    if isinstance(claim, str):
        claim = {claim: {}}
    body = {key: value for key, value in claim.items() if key != "because"}
    return msgspec.json.encode({key: value or {} for key, value in body.items()}, order="sorted").decode()
