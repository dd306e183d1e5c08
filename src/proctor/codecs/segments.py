"""Segments of delimited text, which HL7 v2 and X12 share, and the paths into them.

    PID.5.1         segment, field, component        PID.3.4.2      a subcomponent
    PID.3[2].1      the second repetition            PID            the whole segment
    OBX[2].5        the second segment of that name  PID-5.1        the way HL7 users write it
    NM1[IL].3       the first NM1 whose first field is IL; REF[6P].2 and NM1[1P].3 likewise
    DTP['346'].3    quotes for a first field of digits alone, which without them are a position

Everything counts from 1. Without a bracket the first segment and the first repetition are meant. What still has structure
below it (`PID.5` of `Smith^John`) is given whole, as written; the last piece is given with its escapes undone. Empty text
counts as absent.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import msgspec

from proctor.errors import SpecError
from proctor.model.show import show

_PATH = re.compile(
    r"(?P<name>[A-Z][A-Z0-9]{1,2})"
    r"(?:\[(?:(?P<position>[0-9]{1,6})|'(?P<single>[^']{1,80})'|\"(?P<double>[^\"]{1,80})\"|(?P<word>(?=[0-9]*[A-Za-z])[A-Za-z0-9]{1,80}))\])?"
    r"(?:[.-](?P<field>[0-9]{1,4})(?:\[(?P<repetition>[0-9]{1,6})\])?"
    r"(?:[.-](?P<component>[0-9]{1,4})(?:[.-](?P<subcomponent>[0-9]{1,4}))?)?)?"
)


class SegmentPath(msgspec.Struct, frozen=True):
    """A parsed path; numbers count from 1."""

    text: str
    name: str
    position: int | None
    """The position among segments of that name."""
    first: str | None
    """Or the value of the first field."""
    field: int | None
    repetition: int | None
    component: int | None
    subcomponent: int | None

    def find_segment_path(self) -> SegmentPath:
        """Return the path of the whole segment."""
        return msgspec.structs.replace(self, field=None, repetition=None, component=None, subcomponent=None)


class Delimiters(msgspec.Struct, frozen=True):
    """The characters that split a field; a level that a message does not have is `None`."""

    component: str | None
    repetition: str | None = None
    subcomponent: str | None = None


Span = tuple[int, int]
"""The start and end of a piece of text."""


class Segment(msgspec.Struct, frozen=True):
    """One segment: its text, and its fields as written; `fields[0]` is field 1."""

    name: str
    text: str
    fields: tuple[str, ...]
    start: int = 0
    """The position of its text in the source."""
    header: bool = False
    """Whether field 1 is the separator itself, directly after the name."""

    def find_field(self, number: int) -> str:
        """Return field `number`, or empty text."""
        return self.fields[number - 1] if 0 < number <= len(self.fields) else ""


@functools.lru_cache(maxsize=1024)
def compile_segment_path(text: str) -> SegmentPath:
    """Compile a path. Raises `SpecError` (field `path`) if it is invalid."""
    match = _PATH.match(text)
    if match is None or match.end() != len(text):
        at = match.end() if match is not None else 0
        raise SpecError(
            f"not a segment path: {show(text)}, unexpected {show(text[at : at + 10])} at character {at + 1}"
            if text
            else "the path is empty",
            field="path",
            offset=at,
            hint="a path is like PID.5.1, PID.3[2].1, OBX[2].5, NM1[IL].3 or REF[6P].2; "
            "in brackets digits alone are a position, letters or quotes (DTP['346'].3) select by the first field",
        )
    numbers = {
        name: int(value)
        for name in ("position", "field", "repetition", "component", "subcomponent")
        if (value := match.group(name)) is not None
    }
    for name, number in numbers.items():
        if number == 0:
            raise SpecError(f"{show(text)}: positions count from 1", field="path", offset=match.start(name))
    return SegmentPath(
        text,
        match.group("name"),
        numbers.get("position"),
        match.group("single") or match.group("double") or match.group("word"),
        numbers.get("field"),
        numbers.get("repetition"),
        numbers.get("component"),
        numbers.get("subcomponent"),
    )


def find_segment(segments: Sequence[Segment], path: SegmentPath) -> Segment | None:
    """Return the segment of a path."""
    left = path.position or 1
    for segment in segments:
        if segment.name != path.name or (path.first is not None and segment.find_field(1) != path.first):
            continue
        left -= 1
        if left == 0:
            return segment
    return None


def explain_position(segments: Sequence[Segment], path: SegmentPath) -> str | None:
    """Return what to write instead of a position beyond the last segment, if these digits may be a first field."""
    if path.position is None or find_segment(segments, path) is not None:
        return None
    count = sum(segment.name == path.name for segment in segments)
    available = f"there {'is' if count == 1 else 'are'} {count} {path.name}"
    return f"{available}, and digits in brackets are a position; {path.name}['{path.position}'] selects by the first field"


def pick(segment: Segment, path: SegmentPath, delimiters: Delimiters, unescape: Callable[[str], str]) -> str | None:
    """Return the text that a path selects inside its segment, or None if it is absent or empty."""
    if path.field is None:
        return segment.text
    piece = segment.find_field(path.field)
    if path.repetition is not None or path.component is not None:
        piece = _pick_part(piece, delimiters.repetition, path.repetition or 1)
    if path.component is not None:
        piece = _pick_part(piece, delimiters.component, path.component)
    if path.subcomponent is not None:
        piece = _pick_part(piece, delimiters.subcomponent, path.subcomponent)
    if not piece:
        return None
    # A piece with structure keeps its escapes: an unescaped delimiter would look like a real one.
    divided = any(mark is not None and mark in piece for mark in (delimiters.repetition, delimiters.component, delimiters.subcomponent))
    return piece if divided else unescape(piece)


def locate_piece(segment: Segment, path: SegmentPath, delimiters: Delimiters) -> Span | None:
    """Return the position of the text that `pick` selects, with its escapes; None if it is absent or empty."""
    if path.field is None:
        return segment.start, segment.start + len(segment.text)
    if not 0 < path.field <= len(segment.fields):
        return None
    piece = segment.fields[path.field - 1]
    # Every field has a separator before it; in a header the first field is one.
    preceding = segment.fields[1 if segment.header else 0 : path.field - 1]
    start = segment.start + len(segment.name) + sum(len(field) + 1 for field in preceding) + 1
    if segment.header and path.field == 1:
        start -= 1
    if path.repetition is not None or path.component is not None:
        piece, start = _narrow(piece, start, delimiters.repetition, path.repetition or 1)
    if path.component is not None:
        piece, start = _narrow(piece, start, delimiters.component, path.component)
    if path.subcomponent is not None:
        piece, start = _narrow(piece, start, delimiters.subcomponent, path.subcomponent)
    return (start, start + len(piece)) if piece else None


def _narrow(text: str, start: int, delimiter: str | None, number: int) -> tuple[str, int]:
    """Return one part of a text and its position."""
    parts = text.split(delimiter, number) if delimiter is not None else [text]
    if number > len(parts):
        return "", start
    return parts[number - 1], start + sum(len(part) + 1 for part in parts[: number - 1])


def _pick_part(text: str, delimiter: str | None, number: int) -> str:
    parts = text.split(delimiter, number) if delimiter is not None else [text]
    return parts[number - 1] if number <= len(parts) else ""
