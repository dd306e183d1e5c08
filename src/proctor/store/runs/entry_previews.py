"""Shortened attempts with very long texts for pages, and the text by which attempts are searched; both are stored next to the body.

Unpacking ten megabytes takes longer than the page itself. A long text is stored with its two ends and the surroundings of the characters
that verdicts point to. Read again it has its old length, with filling in place of the omitted text, so that offsets stay valid. The
characters that verdicts point to are stored too, since they can no longer be found. Attempts without long texts, and those of earlier
versions, have no preview: their body is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from proctor.errors import StoreError
from proctor.model.evidence import Evidence, Json
from proctor.model.run import RunEntry
from proctor.model.typed import convert_to, make_json_decoder
from proctor.model.verdict import TextRange
from proctor.store.sql.compressed_json import compress_bytes, expand_bytes, to_json
from proctor.store.sql.queries import DialectFunction, clean_text
from proctor.store.sql.tables import run_entries

MOST_ANSWERED, MOST_INPUT, MOST_REASONS = 8_000, 2_000, 2_000
"""Maximum searched characters, from the beginning of each text."""
_MOST_PIECES = 1_000

SEARCHED = sa.case((run_entries.c.search_text.is_(None), run_entries.c.body), else_=sa.null()).label("searched_body")
"""The columns to search attempts without a search text: their body."""


class _Place(DialectFunction):
    """The position of a text in another, from 1; 0 if it is not in it."""

    inherit_cache = True
    name = "place_in"
    type = sa.Integer()
    plain, sqlite = "strpos({}, {})", "instr({}, {})"


def make_search_text(entry: RunEntry) -> str:
    """Return the search text of an attempt."""
    evidence = entry.evidence or Evidence()
    turns = evidence.turns or ()
    answered: list[Json] = [turn.text for turn in turns]
    answered += [evidence.text] if evidence.text is not None else [] if any(answered) else [evidence.body]
    inputs: list[Json] = [turn.input for turn in turns] if any(turn.input for turn in turns) else [evidence.input]
    # Deciding assertions first: most of the others have passed.
    reasons = [verdict.reason for verdict in sorted(entry.verdicts, key=lambda verdict: verdict.outcome == "pass")]
    parts = (_join(answered, MOST_ANSWERED), _join(inputs, MOST_INPUT), _join([entry.reason, *reasons], MOST_REASONS))
    return "\n".join(part for part in parts if part)


def fold_text(text: str) -> str:
    """Return a text with folded case, for comparison."""
    return clean_text(text).casefold()


def match_search_text(query: str) -> sa.ColumnElement[bool]:
    """Return the condition for attempts that contain a text, and for those whose body must be searched."""
    return sa.or_(_Place(run_entries.c.search_text, sa.literal(fold_text(query), sa.Text)) > 0, run_entries.c.search_text.is_(None))


def _join(pieces: Iterable[Json], most: int) -> str:
    """Return the beginning of the distinct texts, with folded case."""
    found: dict[str, None] = {}
    characters_left = most
    for piece in islice(pieces, _MOST_PIECES):
        if piece is None or characters_left <= 0:
            continue
        text = piece if isinstance(piece, str) else to_json(piece).decode("utf-8", errors="replace")
        found[fold_text(text[:characters_left])] = None
        characters_left -= len(text)
    return "\n".join(found)


LONG_TEXT = 1_000_000
"""Minimum characters of a long text."""
LARGEST_SHOWN = 1_000_000
"""Maximum bytes of JSON. A larger preview is not stored; the body is read instead."""
_END = 8_000
"""Stored characters at either end of a text; a page shows 6,000 in total."""
_BEFORE, _AFTER = 300, 700
"""Stored characters before and after the position of a verdict; a page shows 200 before, and 400 after."""
_SHORTEST_GAP = 100
"""Characters; a shorter gap is not omitted."""
_DEEPEST = 60
"""Levels of the evidence that are searched for long texts."""

Ranges = tuple[tuple[TextRange, ...], ...]
"""The text ranges of each verdict."""


class _Piece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a text, and the length of the omitted text after it."""

    text: str
    gap: int = 0
    """Characters."""
    escapes: int = 0
    """Additional characters for JSON escapes."""
    hash: str = ""
    """Distinguishes texts that differ only in the omitted part."""


class _LongText(msgspec.Struct, frozen=True, array_like=True):
    """A long text, and its path in the evidence."""

    keys: tuple[str | int, ...]
    pieces: tuple[_Piece, ...]


class _Shown(msgspec.Struct, frozen=True, array_like=True):
    entry: dict[str, Any]
    """A `RunEntry` without its long texts."""
    texts: tuple[_LongText, ...]
    ranges: Ranges


_SHOWN = make_json_decoder(_Shown)


class ShownEntry(NamedTuple):
    """An attempt as a page shows it."""

    entry: RunEntry
    ranges: Ranges


def make_shown(entry: RunEntry, find_ranges: Callable[[RunEntry], Ranges]) -> bytes | None:
    """Return the preview of an attempt; None if its texts are short, or if the preview would be too long."""
    if entry.evidence is None:
        return None
    written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(entry))
    evidence = written["evidence"]
    places = list(_iterate_long_texts(evidence, (), 0))
    if not places:
        return None
    ranges = find_ranges(entry)
    spots = [edge for ranges_of_claim in ranges for text_range in ranges_of_claim for edge in (text_range.start, text_range.end)]
    texts = [_LongText(keys, tuple(_cut_text(_replace_text(evidence, keys, ""), spots))) for keys in places]
    data = msgspec.json.encode(_Shown(written, tuple(texts), ranges))
    return compress_bytes(data) if len(data) <= LARGEST_SHOWN else None


def read_shown(data: bytes) -> ShownEntry:
    """Return the entry given to `make_shown`, with its long texts padded. Raises `StoreError`."""
    try:
        found = _SHOWN.decode(expand_bytes(data, largest=2 * LARGEST_SHOWN))
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
    """Set a text at a path of the evidence, and return the previous one."""
    for key in keys[:-1]:
        evidence = evidence[key]
    previous, evidence[keys[-1]] = evidence[keys[-1]], text
    return previous


def _cut_text(text: str, spots: list[int]) -> Iterator[_Piece]:
    ranges = sorted([(0, _END), (len(text) - _END, len(text)), *((max(0, spot - _BEFORE), spot + _AFTER) for spot in spots)])
    begin, end = 0, 0
    for start, after in ranges:
        if start >= len(text):
            break
        if start >= end + _SHORTEST_GAP:
            gap = text[end:start]
            written = msgspec.json.encode(gap).decode()
            yield _Piece(text[begin:end], len(gap), len(written) - len(gap) - 2, hashlib.blake2b(gap.encode(), digest_size=8).hexdigest())
            begin = start
        end = max(end, min(after, len(text)))
    yield _Piece(text[begin:end])


def _fill_up(piece: _Piece) -> str:
    """Return a piece with its gap padded to the same length, both as text and as JSON."""
    # JSON needs five extra characters for a control character, and one for a line break.
    controls, breaks = divmod(piece.escapes, 5)
    filling = (chr(1) * controls + chr(10) * breaks)[: piece.gap]
    missing = piece.gap - len(filling)
    return f"{piece.text}{filling}{piece.hash[:missing]}{' ' * (missing - len(piece.hash))}"
