"""Locates the characters of a text that a claim found: computed to show a verdict, never to decide.

Positions count code points of the recorded text, however it was transformed for comparison.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final, Literal

from proctor.checks.shared.javascript_json import iterate_texts, write_javascript_json
from proctor.matchers.mismatch import join_path
from proctor.model.evidence import Json
from proctor.model.json_values import quote_javascript_text
from proctor.model.verdict import TextRange
from proctor.work import spend

MOST_SPANS: Final = 20
"""Maximum number of ranges in one JSON text."""

Span = tuple[int, int]


def locate_text(
    path: str, text: str | None, wanted: str, *, ignore_case: bool, at: Literal["start", "end", "whole", "anywhere"] = "anywhere"
) -> Iterator[TextRange]:
    """Yield every occurrence of `wanted` in `text`, or the one at its start or end, or the whole text."""
    if not text or not wanted:
        return
    for start, end in find_spans(text, wanted, ignore_case=ignore_case, at=at):
        yield TextRange(path, start, end)


def find_spans(
    text: str, wanted: str, *, ignore_case: bool, at: Literal["start", "end", "whole", "anywhere"] = "anywhere"
) -> Iterator[Span]:
    """Yield where `wanted` occurs in `text`; both are lower-cased if case is ignored."""
    searched = text.lower() if ignore_case else text
    wanted = wanted.lower() if ignore_case else wanted
    restore = _find_restorer(text, searched)
    if at == "anywhere":
        begin = searched.find(wanted)
        while begin >= 0:
            yield restore(begin, begin + len(wanted))
            begin = searched.find(wanted, begin + len(wanted))
    elif at == "whole":
        if searched == wanted:
            yield 0, len(text)
    elif at == "start":
        if searched.startswith(wanted):
            yield restore(0, len(wanted))
    elif searched.endswith(wanted):
        yield restore(len(searched) - len(wanted), len(searched))


def _find_restorer(text: str, folded: str) -> Callable[[int, int], Span]:
    """Return a function that maps positions in the folded text to positions in the text itself."""
    if len(folded) == len(text):
        return lambda start, end: (start, end)
    # Lower-casing turns `İ` into two characters; both map to the original one.
    origin = [index for index, char in enumerate(text) for _ in char.lower()]
    return lambda start, end: (origin[start], origin[end - 1] + 1)


def locate_in_json(value: Json, path: str, find: Callable[[str], Iterator[Span]]) -> Iterator[TextRange]:
    """Yield the parts of texts inside `value` that overlap a match of `find` in its compact JSON text.

    A match may span keys and punctuation, which are not text of the evidence: only parts inside texts are returned.
    """
    spans = [span for span, _ in zip(find(write_javascript_json(value)), range(MOST_SPANS), strict=False)]
    if not spans:
        return
    for begin, at, text in iterate_texts(value, path):
        offsets = _list_offsets(text)
        for start, end in spans:
            first = max(0, bisect_right(offsets, start - begin) - 1)
            stop = min(len(text), bisect_left(offsets, end - begin))
            if first < stop:
                yield TextRange(at, first, stop)


def iterate_whole_texts(value: Json, path: str) -> Iterator[TextRange]:
    """Yield the whole range of every text in a value at `path`."""
    return (TextRange(at, 0, len(text)) for at, text in iterate_text_places(value, path) if text)


def iterate_text_places(value: Json, path: str) -> Iterator[tuple[str, str]]:
    """Yield every text in a value with its place, in order."""
    waiting: list[tuple[Json, str]] = [(value, path)]
    while waiting:
        value, at = waiting.pop()
        # With hostile nesting the paths grow too.
        spend(1 + len(at) // 64)
        if isinstance(value, str):
            yield at, value
        elif isinstance(value, dict):
            waiting += reversed([(item, join_path(at, key)) for key, item in value.items()])
        elif isinstance(value, (list, tuple)):
            waiting += reversed([(item, f"{at}[{number}]") for number, item in enumerate(value)])


def _list_offsets(text: str) -> range | list[int]:
    """Return the offset of each character inside the quotes of its JSON text, and the end of the last one."""
    if len(quote_javascript_text(text)) == len(text) + 2:
        return range(len(text) + 1)
    offsets = [0]
    for char in text:
        offsets.append(offsets[-1] + len(quote_javascript_text(char)) - 2)
    return offsets
