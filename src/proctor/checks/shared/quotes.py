"""Finds the characters of the judged material that a judge's reason quotes.

A quotation is text between quotation marks of any language. The first exact occurrence at word boundaries counts, else the first one
ignoring case. Paraphrases are not located.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from proctor.checks.shared.places import Span, find_spans, iterate_text_places
from proctor.checks.shared.rubric import find_answer
from proctor.model.evidence import Evidence, Json
from proctor.model.verdict import TextRange, Verdict
from proctor.work import spend

_MARKS: Final = ('""', "“”", "„“", "„”", "«»", "»«", "‘’", "``", "「」", "『』")
_LONGEST: Final = 500
# Each match is limited to the longest quotation, so that no text makes the search long. `'` is an apostrophe inside words.
_QUOTED: Final = tuple(re.compile(f"{a}([^{a}{b}]{{2,{_LONGEST}}}){b}") for a, b in _MARKS)
_SINGLE: Final = re.compile(rf"(?<!\w)'([^']{{2,{_LONGEST}}})'(?!\w)")
_LEFT_OUT: Final = re.compile(r"\.{3,}|…|\[\.\.\.\]")
_MOST_QUOTES: Final = 20
_MOST_TEXTS: Final = 200
_MOST_PLACES: Final = 20
"""The maximum number of occurrences examined to find one at word boundaries."""


def locate_quotes(value: Json, pointer: str, verdict: Verdict) -> Iterator[TextRange]:
    """Yield the parts of the value at `pointer` that the reasons of a verdict quote."""
    quotes = list(islice(dict.fromkeys(_list_quotes(verdict)), _MOST_QUOTES))
    if not quotes:
        return
    texts = list(islice(iterate_text_places(msgspec.to_builtins(value), pointer), _MOST_TEXTS))
    for quote in quotes:
        for path, text in texts:
            spend(len(text) // 32 + 1)
            span = _find(text, quote)
            if span is not None:
                yield TextRange(path, *span)
                break


def locate_quoted_answer(spec: msgspec.Struct, evidence: Evidence, verdict: Verdict) -> Iterator[TextRange]:
    """Yield the parts of the answer that the reasons of a verdict quote."""
    answer = find_answer(evidence)
    return iter(()) if isinstance(answer, Verdict) else locate_quotes(answer.value, answer.pointer, verdict)


def _list_quotes(verdict: Verdict) -> Iterator[str]:
    for reason in _list_reasons(verdict):
        for pattern in (*_QUOTED, _SINGLE):
            for found in pattern.finditer(reason):
                # A judge may omit the middle of a quote; both ends are then quotations.
                for part in _LEFT_OUT.split(found[1]):
                    bare = part.strip().rstrip(",")
                    if len(bare) > 1:
                        yield bare


def _list_reasons(verdict: Verdict) -> Iterator[str]:
    yield verdict.reason
    points: Json = verdict.details.get("points")
    for point in points if isinstance(points, list) else ():
        if isinstance(point, dict) and point.get("outcome") == verdict.outcome and isinstance(point.get("reason"), str):
            yield point["reason"]


def _find(text: str, quote: str) -> Span | None:
    for ignore_case in (False, True):
        for start, end in islice(find_spans(text, quote, ignore_case=ignore_case), _MOST_PLACES):
            if not (_continues_word(text, start) or _continues_word(text, end)):
                return start, end
    return None


def _continues_word(text: str, at: int) -> bool:
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()
