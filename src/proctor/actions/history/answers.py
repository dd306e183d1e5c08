"""The answers of an agent to one case in several runs, each next to the answer in the first run, the base.

Of several attempts the most informative is shown, unless one is requested: the first that passed in the base, the first that did not
in the other runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
MOST_EDITS = 600
"""The maximum number of differing words; beyond it, two texts count as entirely different."""
MOST_SAME = 240
"""Characters shown of a long equal part."""
_WORD = re.compile(r"\s+|\w{1,40}|[^\w\s]")

Kind = Literal["same", "removed", "added", "left_out"]


class DiffPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a text diff."""

    kind: Annotated[Kind, Meta(description="left_out: not shown, or not compared")]
    text: str = ""
    characters: int


class _Cut(msgspec.Struct, frozen=True):
    """The words of a text that are compared, and the length of the rest."""

    words: list[str]
    rest: int


def diff_words(before: str, after: str) -> tuple[DiffPiece, ...]:
    """Return the pieces of two texts in order: equal, removed, added, not compared."""
    head = _find_common_head(before, after)
    tail = _find_common_tail(before, after, head)
    old, new = _cut_words(before[head : len(before) - tail]), _cut_words(after[head : len(after) - tail])
    pieces = [*_show_same(before[:head], at_start=True), *_join_words(_list_edits(old.words, new.words))]
    if old.rest or new.rest:
        pieces.append(DiffPiece(kind="left_out", characters=old.rest + new.rest))
    pieces += _show_same(before[len(before) - tail :] if tail else "", at_end=True)
    return tuple(pieces)


def _find_common_head(before: str, after: str) -> int:
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
    return _step_back(before, after, low)


def _step_back(before: str, after: str, at: int) -> int:
    for text in (before, after):
        if 0 < at < len(text) and text[at].isalnum() and text[at - 1].isalnum():
            begin = at
            # Bounded, because a word such as base64 may be very long.
            while begin and at - begin < 40 and text[begin - 1].isalnum():
                begin -= 1
            return begin
    return at


def _find_common_tail(before: str, after: str, head: int) -> int:
    """Return how many characters after the head both texts end with, up to the beginning of a word."""
    # Must not overlap the head, or repeated text would be shown twice.
    low, high = 0, min(len(before), len(after)) - head
    while low < high:
        middle = (low + high + 1) // 2
        if before[len(before) - middle : len(before) - low] == after[len(after) - middle : len(after) - low]:
            low = middle
        else:
            high = middle - 1
    begin = len(before) - low
    while low and len(before) - low - begin < 40 and before[len(before) - low].isalnum():
        low -= 1
    return low


def _cut_words(text: str) -> _Cut:
    words = _WORD.findall(text[:MOST_CHARACTERS])[:MOST_WORDS]
    return _Cut(words, len(text) - sum(map(len, words)))


def _list_edits(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[Kind, str]]:
    """Yield every word as equal, removed or added."""
    steps = _find_steps(old, new)
    if steps is None:
        for word in old:
            yield "removed", word
        for word in new:
            yield "added", word
        return
    x = y = 0
    for to_x, to_y in steps:
        # First the differing word, then all equal words after it.
        if to_x - x > to_y - y:
            yield "removed", old[x]
            x += 1
        elif to_y - y > to_x - x:
            yield "added", new[y]
            y += 1
        while x < to_x:
            yield "same", old[x]
            x, y = x + 1, y + 1


def _find_steps(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the states of the shortest edit path between the texts; None if it is too long."""
    reached, history = {1: 0}, list[dict[int, int]]()
    for edits in range(min(MOST_EDITS, len(old) + len(new)) + 1):
        # The copies grow with the square of the edits, which `MOST_EDITS` bounds.
        history.append(dict(reached))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1])
            x = reached[diagonal + 1] if down else reached[diagonal - 1] + 1
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            reached[diagonal] = x
            if x >= len(old) and y >= len(new):
                return _walk_back(history, len(old), len(new))
    return None


def _walk_back(history: Sequence[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    steps = [(x, y)]
    for edits in range(len(history) - 1, 0, -1):
        reached, diagonal = history[edits], x - y
        down = diagonal == -edits or (diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1])
        before = diagonal + 1 if down else diagonal - 1
        x, y = reached[before], reached[before] - before
        steps.append((x, y))
    steps.reverse()
    return steps


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


def choose_attempt(found: Sequence[AttemptOutcome], *, is_base: bool, attempt: int | None = None) -> AttemptOutcome | None:
    """Return the attempt to show."""
    listed = sorted(found, key=lambda one: one.attempt)
    if attempt is not None:
        return next((one for one in listed if one.attempt == attempt), None)
    preferred = ("pass",) if is_base else ("fail", "error")
    return next((one for one in listed if one.outcome in preferred), listed[0] if listed else None)


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
    return tuple(_make_answer(one, base, is_base=number == 0) for number, one in enumerate(attempts))


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
