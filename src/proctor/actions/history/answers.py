"""What an agent answered to one case in several runs, each beside the answer in the first of them, the base.

Where a case was tried several times, the attempt that says most is shown: of the base the first that passed, of the others the first
that did not; or the attempt that somebody asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proctor.actions.history.answer_diff import DiffPiece, diff_words
from proctor.actions.history.compare import find_reason
from proctor.model.case import Case
from proctor.model.run import RunEntry
from proctor.model.show import shorten
from proctor.store.sql.compressed_json import to_json

MOST_TEXT = 6_000
"""Characters of an answer that stands for itself."""


class AttemptOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a case, to choose from."""

    id: str
    attempt: int
    outcome: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered in one run."""

    run_id: str
    result_id: str | None = None
    """None: the run has no such attempt."""
    attempt: int | None = None
    attempts: tuple[AttemptOutcome, ...] = ()
    """Every attempt of the case in this run, as far as they are listed."""
    outcome: str | None = None
    reason: str = ""
    """Why it did not pass."""
    text: str | None = None
    """Shortened; None where no answer was recorded."""
    characters: int = 0
    """How long the answer is."""
    is_same: bool = False
    """Whether it is the answer of the base, to the letter."""
    difference: tuple[DiffPiece, ...] = ()
    """From the answer of the base to this one; empty for the base, and where either has none."""


def choose_attempt(found: Sequence[AttemptOutcome], *, is_base: bool, attempt: int | None = None) -> AttemptOutcome | None:
    """Return the attempt to show."""
    listed = sorted(found, key=lambda one: one.attempt)
    if attempt is not None:
        return next((one for one in listed if one.attempt == attempt), None)
    telling = ("pass",) if is_base else ("fail", "error")
    return next((one for one in listed if one.outcome in telling), listed[0] if listed else None)


class ReadAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt of one run that is shown, read."""

    run_id: str
    attempts: tuple[AttemptOutcome, ...]
    chosen: AttemptOutcome | None
    entry: RunEntry | None
    case: Case | None
    """Of the suite, which names the assertions."""


def compare_answers(attempts: Sequence[ReadAttempt]) -> tuple[Answer, ...]:
    """Return the answers of several runs; the first is the base."""
    base = find_answer(attempts[0].entry) if attempts else None
    return tuple(_make_answer(one, base, is_base=number == 0) for number, one in enumerate(attempts))


def find_answer(entry: RunEntry | None) -> str | None:
    """Return what an agent answered: its text, else the body of its response."""
    seen = None if entry is None else entry.evidence
    if seen is None:
        return None
    if seen.text is not None:
        return seen.text
    return None if seen.body is None else to_json(seen.body).decode("utf-8", errors="replace")


def _make_answer(read: ReadAttempt, base: str | None, *, is_base: bool) -> Answer:
    if read.entry is None or read.chosen is None:
        return Answer(run_id=read.run_id, attempts=read.attempts)
    text = find_answer(read.entry)
    compared = not is_base and text is not None and base is not None
    return Answer(
        run_id=read.run_id,
        result_id=read.chosen.id,
        attempt=read.chosen.attempt,
        attempts=read.attempts,
        outcome=read.entry.outcome,
        reason=find_reason(read.entry, read.case) if read.entry.outcome in ("fail", "error") else "",
        text=None if text is None else shorten(text, MOST_TEXT),
        characters=0 if text is None else len(text),
        is_same=compared and text == base,
        difference=diff_words(base or "", text or "") if compared and text != base else (),
    )
