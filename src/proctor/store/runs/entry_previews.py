"""What a page shows of an attempt with very long texts, kept beside its body: unpacking ten megabytes takes longer than the page itself.

Every long text of the evidence is kept without what no page shows: its two ends stay, and what stands around the characters that verdicts
are about. Read again it has its old length, with something as long in the place of what was left out, so that whoever shows it counts and
cuts as before. The characters that verdicts are about are kept too: nobody can look for them any more. Attempts without long texts have
none of this, nor have those of earlier versions: their body is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from proctor.errors import StoreError
from proctor.model.run import RunEntry
from proctor.model.typed import convert_to, make_json_decoder
from proctor.model.verdict import TextRange
from proctor.store.sql.compressed_json import compress_bytes, expand_bytes

LONG_TEXT = 1_000_000
"""Characters from which on a text is long."""
LARGEST_SHOWN = 1_000_000
"""Bytes of JSON. An attempt that has more to show is read from its body."""
_END = 8_000
"""Characters kept at either end of a text; a page shows 6,000 in all."""
_BEFORE, _BEHIND = 300, 700
"""Characters kept before and behind where a verdict points to; a page shows 200 before, and 400 behind."""
_SHORTEST_GAP = 100
"""Characters; what is less is not left out."""
_DEEPEST = 60
"""Levels of the evidence in which long texts are looked for."""

Ranges = tuple[tuple[TextRange, ...], ...]
"""Of each verdict the characters that it is about."""


class _Piece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a text, and what was left out behind it."""

    text: str
    gap: int = 0
    """Characters."""
    escapes: int = 0
    """Characters more that JSON takes to write them."""
    hash: str = ""
    """Two texts that differ in what was left out are two texts still."""


class _LongText(msgspec.Struct, frozen=True, array_like=True):
    """A long text, and the way to it from the evidence."""

    keys: tuple[str | int, ...]
    pieces: tuple[_Piece, ...]


class _Shown(msgspec.Struct, frozen=True, array_like=True):
    entry: dict[str, Any]
    """A `RunEntry`, with nothing in the place of long texts."""
    texts: tuple[_LongText, ...]
    ranges: Ranges


_SHOWN = make_json_decoder(_Shown)


class ShownEntry(NamedTuple):
    """An attempt as a page shows it."""

    entry: RunEntry
    ranges: Ranges


def make_shown(entry: RunEntry, find_ranges: Callable[[RunEntry], Ranges]) -> bytes | None:
    """Return what is kept of an attempt to be shown; nothing where its texts are short, or where too much would be left."""
    if entry.evidence is None:
        return None
    written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(entry))
    evidence = written["evidence"]
    places = list(_iterate_long_texts(evidence, (), 0))
    if not places:
        return None
    ranges = find_ranges(entry)
    spots = [edge for found in ranges for one in found for edge in (one.start, one.end)]
    texts = [_LongText(keys, tuple(_cut_text(_replace_text(evidence, keys, ""), spots))) for keys in places]
    data = msgspec.json.encode(_Shown(written, tuple(texts), ranges))
    return compress_bytes(data) if len(data) <= LARGEST_SHOWN else None


def read_shown(kept: bytes) -> ShownEntry:
    """Return what `make_shown` was given, its long texts filled up. Raises `StoreError`."""
    try:
        found = _SHOWN.decode(expand_bytes(kept, largest=2 * LARGEST_SHOWN))
        for text in found.texts:
            _replace_text(found.entry["evidence"], text.keys, "".join(map(_fill_up, text.pieces)))
        return ShownEntry(convert_to(found.entry, RunEntry), found.ranges)
    except (msgspec.MsgspecError, LookupError, TypeError) as error:
        raise StoreError(f"a stored result cannot be read: {error}") from error


def _iterate_long_texts(value: object, keys: tuple[str | int, ...], depth: int) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, str):
        if len(value) > LONG_TEXT:
            yield keys
    elif depth < _DEEPEST and isinstance(value, dict):
        for key, item in value.items():
            yield from _iterate_long_texts(item, (*keys, key), depth + 1)
    elif depth < _DEEPEST and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _iterate_long_texts(item, (*keys, index), depth + 1)


def _replace_text(evidence: Any, keys: tuple[str | int, ...], text: str) -> str:
    """Put a text at a place of the evidence, and return the one that was there."""
    for key in keys[:-1]:
        evidence = evidence[key]
    before, evidence[keys[-1]] = evidence[keys[-1]], text
    return before


def _cut_text(text: str, spots: list[int]) -> Iterator[_Piece]:
    wanted = sorted([(0, _END), (len(text) - _END, len(text)), *((max(0, spot - _BEFORE), spot + _BEHIND) for spot in spots)])
    begin, end = 0, 0
    for start, behind in wanted:
        if start >= len(text):
            break
        if start >= end + _SHORTEST_GAP:
            yield _write_piece(text, begin, end, start)
            begin = start
        end = max(end, min(behind, len(text)))
    yield _Piece(text[begin:end])


def _write_piece(text: str, begin: int, end: int, following: int) -> _Piece:
    gap = text[end:following]
    written = msgspec.json.encode(gap).decode()
    return _Piece(text[begin:end], len(gap), len(written) - len(gap) - 2, hashlib.blake2b(gap.encode(), digest_size=8).hexdigest())


def _fill_up(piece: _Piece) -> str:
    """Return a piece with something in its gap that has as many characters, as they are and as JSON writes them."""
    # JSON writes a control character with five characters more, and a line break with one more.
    controls, breaks = divmod(piece.escapes, 5)
    filling = (chr(1) * controls + chr(10) * breaks)[: piece.gap]
    room = piece.gap - len(filling)
    return f"{piece.text}{filling}{piece.hash[:room]}{' ' * (room - len(piece.hash))}"
