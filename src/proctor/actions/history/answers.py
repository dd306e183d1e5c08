"""The answers of an agent to one case in several runs, each next to the answer in the first run, the base.

Of several attempts the most informative is shown, unless one is requested: the first that passed in the base, the first that did not
in the other runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from proctor.actions.history.compare import find_reason
from proctor.model.case import Case
from proctor.model.run import RunEntry
from proctor.model.show import shorten
from proctor.model.verdict import Outcome
from proctor.store.sql.compressed_json import to_json

# The difference of two answers by words, at a bounded cost: an answer of many megabytes takes no longer than one of some pages.

MOST_CHARACTERS = 20_000
"""Characters of each answer that are compared, after the common beginning."""
MOST_WORDS = 3_000
MOST_SAME = 240
"""Characters shown of a long equal part."""
_WORD = re.compile(r"\s+|\w{1,40}|[^\w\s]")

Kind = Literal["same", "removed", "added", "left_out"]


class DiffPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a text diff."""

    kind: Annotated[Kind, Meta(description="left_out: not shown, or not compared")]
    text: str = ""
    characters: int


def diff_words(before: str, after: str) -> tuple[DiffPiece, ...]:
    """Return the pieces of two texts in order: equal, removed, added, not compared."""
    head = _count_common(before, after)
    # Of what is left, or repeated text would be shown twice.
    tail = _count_common(before[head:][::-1], after[head:][::-1])
    old, new = (_WORD.findall(text[head : len(text) - tail][:MOST_CHARACTERS])[:MOST_WORDS] for text in (before, after))
    left_out = len(before) + len(after) - 2 * (head + tail) - sum(map(len, (*old, *new)))
    pieces = [*_show_same(before[:head], at_start=True), *_join_words(_list_edits(old, new))]
    if left_out:
        pieces.append(DiffPiece(kind="left_out", characters=left_out))
    pieces += _show_same(before[len(before) - tail :] if tail else "", at_end=True)
    return tuple(pieces)


def _count_common(before: str, after: str) -> int:
    """Return how many characters both texts begin with, back to the end of a word."""
    low, high = 0, min(len(before), len(after))
    if before[:high] == after[:high] and len(before) == len(after):
        return high
    # Halved with slices, which are compared many times faster than characters one by one.
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    for text in (before, after):
        if 0 < low < len(text) and text[low].isalnum() and text[low - 1].isalnum():
            begin = low
            # Bounded, because a word such as base64 may be very long.
            while begin and low - begin < 40 and text[begin - 1].isalnum():
                begin -= 1
            return begin
    return low


def _list_edits(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[Kind, str]]:
    for kind, old_start, old_end, new_start, new_end in SequenceMatcher(None, old, new).get_opcodes():
        for word in old[old_start:old_end]:
            yield ("same" if kind == "equal" else "removed"), word
        for word in new[new_start:new_end] if kind != "equal" else ():
            yield "added", word


def _join_words(edits: Iterator[tuple[Kind, str]]) -> Iterator[DiffPiece]:
    """Yield words of the same kind as one piece; between two unchanged words, removed text comes before added text.

    White space between two changes belongs to both, so that a replaced sentence is struck out as a whole, not word by word.
    """
    equal: list[str] = []
    removed: list[str] = []
    added: list[str] = []
    for kind, word in edits:
        if kind == "same":
            equal.append(word)
            if not word.isspace():
                yield from _show_changed(removed, added)
            continue
        if (removed or added) and "".join(equal).isspace():
            removed += equal
            added += equal
        elif equal:
            yield from _show_changed(removed, added)
            yield from _show_same("".join(equal))
        equal.clear()
        (removed if kind == "removed" else added).append(word)
    yield from _show_changed(removed, added)
    yield from _show_same("".join(equal))


def _show_changed(removed: list[str], added: list[str]) -> Iterator[DiffPiece]:
    kinds: tuple[tuple[Kind, list[str]], ...] = (("removed", removed), ("added", added))
    for kind, words in kinds:
        if words:
            text = "".join(words)
            yield DiffPiece(kind=kind, text=text, characters=len(text))
            words.clear()


def _show_same(text: str, *, at_start: bool = False, at_end: bool = False) -> Iterator[DiffPiece]:
    """Yield equal text; if it is long, only the ends next to a difference."""
    if not text:
        return
    if len(text) <= MOST_SAME:
        yield DiffPiece(kind="same", text=text, characters=len(text))
        return
    first = "" if at_start else text[: MOST_SAME // 2]
    last = "" if at_end else text[-(MOST_SAME // 2) :]
    if first:
        yield DiffPiece(kind="same", text=first, characters=len(first))
    yield DiffPiece(kind="left_out", characters=len(text) - len(first) - len(last))
    if last:
        yield DiffPiece(kind="same", text=last, characters=len(last))


MOST_TEXT = 6_000
"""Characters of an answer that is shown alone."""


class AttemptOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a case."""

    id: str
    attempt: int
    outcome: Annotated[str, Outcome]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in one run."""

    run_id: str
    result_id: Annotated[str | None, Meta(description="the shown attempt; null if the run has none")] = None
    attempt: int | None = None
    attempts: Annotated[tuple[AttemptOutcome, ...], Meta(description="available attempts; at most 100")] = ()
    outcome: Annotated[str | None, Outcome] = None
    reason: str = ""
    text: Annotated[str | None, Meta(description="the answer, shortened")] = None
    characters: Annotated[int, Meta(description="length of the full answer")] = 0
    is_same: Annotated[bool, Meta(description="whether it equals the answer of the base")] = False
    difference: Annotated[tuple[DiffPiece, ...], Meta(description="word diff from the answer of the base")] = ()


def choose_attempt(attempts: Sequence[AttemptOutcome], *, is_base: bool, attempt: int | None = None) -> AttemptOutcome | None:
    """Return the attempt to show."""
    listed = sorted(attempts, key=lambda candidate: candidate.attempt)
    if attempt is not None:
        return next((candidate for candidate in listed if candidate.attempt == attempt), None)
    preferred = ("pass",) if is_base else ("fail", "error")
    return next((candidate for candidate in listed if candidate.outcome in preferred), listed[0] if listed else None)


class ReadAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt of one run that is shown, read."""

    run_id: str
    attempts: tuple[AttemptOutcome, ...]
    chosen: AttemptOutcome | None
    entry: RunEntry | None
    case: Case | None
    """The case in the suite, which names the assertions."""


def compare_answers(attempts: Sequence[ReadAttempt]) -> tuple[Answer, ...]:
    """Return the answers of several runs; the first is the base."""
    base = find_answer(attempts[0].entry) if attempts else None
    return tuple(_make_answer(attempt, base, is_base=number == 0) for number, attempt in enumerate(attempts))


def find_answer(entry: RunEntry | None) -> str | None:
    """Return what an agent answered: its text, else the body of its response."""
    evidence = None if entry is None else entry.evidence
    if evidence is None:
        return None
    if evidence.text is not None:
        return evidence.text
    return None if evidence.body is None else to_json(evidence.body).decode("utf-8", errors="replace")


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
