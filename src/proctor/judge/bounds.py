"""Limits how much of the agent's output is shown to a judge, and marks every omission.

The line of material has at most `max_chars` characters. The subject gets at least half of them if it needs them, the context the rest;
short values are shown in full, and long ones share the remaining space. A text loses its middle, a list or object its middle members; a
mark replaces each cut, and `ShownMaterial.cuts` lists the cuts for people. A list or object that is still too large is shown as the
beginning and end of its JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import cast

import msgspec

from proctor.llm import fence
from proctor.model.evidence import Json
from proctor.model.judgement import Material
from proctor.report.words.wording import count_noun

LEAST_CHARS = 200
"""The smallest useful limit: below it only cut marks would be shown."""
DEEPEST = 60
WIDEST = 1_000
"""How many members of one list or object are shown."""
MOST_MEMBERS = 20_000
"""The maximum number of members visited in all lists and objects together."""
LONGEST_KEY = 200
LONGEST_FAULT = 600
"""The maximum number of characters shown of the fault in an earlier reply."""
_SMALLEST_SHARE = 80
"""The minimum number of characters per text when a list or object is shortened."""

_STEPS = ((2, 1_000), (4, 300), (10, 100), (40, 30), (200, 10))
"""Steps for shortening a list or object, tried in order: the fraction of the limit that one text may take, and the number of members."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_BIG_NUMBER_BITS = 10_000
"""A larger integer is replaced by its length, because formatting it takes quadratic time."""
_TWO_WIDE = ('"', "\\", "\n", "\r", "\t")
"""Characters that JSON escapes with two characters; those escaped with six were removed before."""


class ShownMaterial(msgspec.Struct, frozen=True):
    """The material as a judge sees it."""

    line: str
    cuts: tuple[str, ...] = ()
    """Descriptions of the cuts."""
    places: int = 0
    """How many cuts there are in the line."""
    cuts_subject: bool = False
    """Whether the subject was shortened, not only its context."""


def show_material(material: Material, *, max_chars: int, fault: str | None = None) -> ShownMaterial:
    """Return the material as one line of JSON that is safe to show, with `fault`, the error of an earlier reply."""
    name = _name_subject(material)
    if fault is None:
        line = _try_to_encode({name: material.subject, "context": material.context} if material.context else {name: material.subject})
        # A value has at least as many brackets as levels. Brackets inside texts count too, but they only cause a slower path.
        if line is not None and len(line) <= max_chars and fence.is_harmless(line) and line.count("{") + line.count("[") <= DEEPEST:
            return ShownMaterial(line)
    return _show_carefully(material, name, max(max_chars, LEAST_CHARS), fault)


def cut_text(text: str, limit: int) -> tuple[str, int]:
    """Return `text` without its middle, so that its JSON takes at most `limit` characters, and how many characters are gone."""
    if len(text) + 2 <= limit and _measure_json(text, 0, len(text)) + 2 <= limit:
        return text, 0
    inner = max(limit - 2 - len(_make_cut_mark(len(text))), 0)
    head = _find_fitting_length(text, inner * 2 // 3)
    # Measured backwards from the end, but never into the head: otherwise both would show the same part of a slightly overlong text.
    tail = _find_fitting_length(text[max(head, len(text) - inner) :][::-1], inner - inner * 2 // 3)
    removed = len(text) - head - tail
    return text[:head] + _make_cut_mark(removed) + text[len(text) - tail :], removed


def fit_value(value: Json, limit: int) -> tuple[Json, int]:
    """Return `value`, or a shortened form with at most `limit` characters of JSON, and the number of cuts."""
    line = fence.encode_line(value)
    if len(line) <= limit:
        return value, 0
    if isinstance(value, str):
        return cut_text(value, limit)[0], 1
    for part, widest in _STEPS:
        walk = _Walk(longest=max(limit // part, _SMALLEST_SHARE), widest=widest)
        shorter = walk.copy(value)
        if len(fence.encode_line(shorter)) <= limit:
            return shorter, walk.places
    return cut_text(line, limit)[0], 1


def _show_carefully(material: Material, name: str, max_chars: int, fault: str | None) -> ShownMaterial:
    cuts: list[str] = []
    subject, in_subject = neutralise_value(material.subject)
    context, in_context = neutralise_value(material.context)
    frame = len(name) + len('{"":}') + (len(',"context":') if context else 0)
    limit = max_chars - frame
    context_size = len(fence.encode_line(context)) if context else 0
    shown, cut_here = fit_value(subject, max(limit - context_size, max_chars // 2))
    _note_cut(cuts, name, subject, shown, in_subject + cut_here)
    data: dict[str, Json] = {name: shown}
    places = in_subject + cut_here
    if context:
        fitted, cut_there = _fit_context(context, limit - len(fence.encode_line(shown)), cuts)
        if in_context and not cut_there:
            cuts.append(f"context: cut in {count_noun(in_context, 'place')}")
        data["context"] = fitted
        places += in_context + cut_there
    if fault is not None:
        data["fault_of_previous_reply"] = cut_text(fence.neutralise_text(fault), LONGEST_FAULT)[0]
    return ShownMaterial(fence.encode_line(data), tuple(cuts), places, bool(in_subject + cut_here))


def _fit_context(context: dict[str, Json], limit: int, cuts: list[str]) -> tuple[Json, int]:
    """Return the context members in `limit` characters: short ones in full, long ones with equal shares."""
    sizes = {key: len(fence.encode_line(value)) for key, value in context.items()}
    remaining = limit - 1 - sum(len(fence.encode_line(key)) + 2 for key in context)
    if sum(sizes.values()) <= remaining:
        return context, 0
    # Shares this small would show only cut marks; one cut through the whole context shows more.
    if remaining < _SMALLEST_SHARE * len(context):
        shown, places = cut_text(fence.encode_line(context), limit)[0], 1
        _note_cut(cuts, "context", context, shown, places)
        return shown, places
    fitted = dict(context)
    places = 0
    for rank, key in enumerate(sorted(context, key=sizes.__getitem__)):
        # Shortest first, so that unused space goes to the longer members.
        share = remaining // (len(context) - rank)
        fitted[key], member_cuts = fit_value(context[key], share)
        remaining -= len(fence.encode_line(fitted[key]))
        places += member_cuts
        # A name that is not a plain word may come from the agent.
        _note_cut(cuts, f"context.{key}" if _NAME.fullmatch(key) else "a member of the context", context[key], fitted[key], member_cuts)
    return fitted, places


def _note_cut(cuts: list[str], name: str, before: Json, after: Json, places: int) -> None:
    if not places:
        return
    if isinstance(before, str) and isinstance(after, str):
        cuts.append(f"{name}: cut from {len(before):,} to {len(after):,} characters")
    else:
        cuts.append(f"{name}: cut in {count_noun(places, 'place')}, {len(fence.encode_line(after)):,} characters shown")


class _Walk:
    """Copies a value with limits on its depth, its width and its texts; neutralises texts and keys if requested."""

    def __init__(self, *, longest: int | None = None, widest: int = WIDEST, neutralise: bool = False) -> None:
        self.places = 0
        self._longest = longest
        self._widest = widest
        self._neutralise = neutralise
        self._left = MOST_MEMBERS

    def copy(self, value: Json, depth: int = 0) -> Json:
        """Return the copy. Recursion ends at `DEEPEST`."""
        if isinstance(value, str):
            return self._copy_text(value)
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= _BIG_NUMBER_BITS else self._mark_gap(f"number of {value.bit_length():,} bits")
        if isinstance(value, (list, tuple, Mapping)):
            # Counted over the whole walk and before a list is entered, because nested wide lists multiply.
            self._left -= min(len(value), self._widest)
            if depth >= DEEPEST or self._left < 0:
                return self._mark_gap(count_noun(len(value), "item"))
            if isinstance(value, Mapping):
                return self._copy_members(cast(Mapping[Json, Json], value), depth)
            return self._copy_items(cast(list[Json], value), depth)
        return self._copy_text(_try_to_encode(value) or type(value).__name__)

    def _copy_items(self, items: list[Json] | tuple[Json, ...], depth: int) -> list[Json]:
        if len(items) <= self._widest:
            return [self.copy(item, depth + 1) for item in items]
        half = self._widest // 2
        copied = [self.copy(item, depth + 1) for item in chain(items[:half], items[-half:])]
        copied.insert(half, self._mark_gap(count_noun(len(items) - 2 * half, "item")))
        return copied

    def _copy_members(self, members: Mapping[Json, Json], depth: int) -> dict[str, Json]:
        copied: dict[str, Json] = {}
        numbers: dict[str, int] = {}
        half = self._widest // 2
        removed = len(members) - 2 * half if len(members) > self._widest else 0
        for index, (key, value) in enumerate(members.items()):
            if removed and index == half:
                copied[self._mark_gap(count_noun(removed, "member"))] = None
            if removed and half <= index < half + removed:
                continue
            plain = self._copy_key(key)
            name = plain
            while name in copied:
                # Two names may differ only in invisible characters; both values must survive. The counter continues per name: restarting at
                # 2 takes quadratic time for a thousand similar names.
                numbers[plain] = numbers.get(plain, 1) + 1
                name = f"{plain} ({numbers[plain]})"
            copied[name] = self.copy(value, depth + 1)
        return copied

    def _copy_key(self, key: Json) -> str:
        text = key if isinstance(key, str) else _try_to_encode(key) or ""
        text = fence.neutralise_text(text) if self._neutralise else text
        shorter, removed = cut_text(text, LONGEST_KEY)
        self.places += removed > 0
        return shorter

    def _copy_text(self, text: str) -> str:
        if self._neutralise:
            text = fence.neutralise_text(text)
        # JSON uses at most two characters for each character here, so a text of half the length fits without measuring.
        if self._longest is not None and len(text) > self._longest // 2:
            text, removed = cut_text(text, self._longest)
            self.places += removed > 0
        return text

    def _mark_gap(self, what: str) -> str:
        self.places += 1
        return f"[... {what} cut here ...]"


def neutralise_value(value: Json) -> tuple[Json, int]:
    """Return a copy whose texts cannot end a fence, and the number of places that were cut."""
    walk = _Walk(neutralise=True)
    return walk.copy(value), walk.places


def _name_subject(material: Material) -> str:
    name = material.name
    return name if _NAME.fullmatch(name) and name not in ("context", "fault_of_previous_reply") else "subject"


def _try_to_encode(value: Json) -> str | None:
    try:
        return fence.encode_line(value)
    except (RecursionError, ValueError, TypeError, OverflowError, msgspec.MsgspecError):  # ValueError: also a lone surrogate
        return None


def _make_cut_mark(removed: int) -> str:
    return f"[... {removed:,} characters cut here ...]"


def _measure_json(text: str, start: int, end: int) -> int:
    """Return the number of JSON characters that part of a text takes, without the quotes."""
    return end - start + sum(text.count(character, start, end) for character in _TWO_WIDE)


def _find_fitting_length(text: str, limit: int) -> int:
    """Return the length of the longest beginning of `text` whose JSON takes at most `limit` characters."""
    low, high = 0, min(limit, len(text))
    while low < high:
        middle = (low + high + 1) // 2
        # The JSON length grows with every character, so a binary search finds the longest prefix that fits.
        if _measure_json(text, 0, middle) <= limit:
            low = middle
        else:
            high = middle - 1
    return low
