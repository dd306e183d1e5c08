r"""HL7 v2 messages: delimiters from MSH, segments, and the text at a path.

Segments end in CR, LF or both; the framing bytes of MLLP and a byte order mark are dropped. One text may hold several
messages, each beginning with MSH; the envelope of a batch (FHS, BHS, BTS, FTS) is left out. MSH.1 is the field separator
itself and MSH.2 the other delimiters, so MSH.9 is the message type, as the standard counts.
Escapes undone in single values: `\F\ \S\ \T\ \R\ \E\` (the delimiters), `\Xhh..\` (bytes: UTF-8, else Latin-1), `\.br\` (a line
break); any other stays as written. HL7's explicit null `""` is that text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from proctor.codecs.segments import Delimiters, Segment, SegmentPath, Span, find_segment, locate_piece, pick
from proctor.errors import EvidenceError
from proctor.model.show import show

_SEGMENT = re.compile(r"[A-Z][A-Z0-9]{2}")
_ESCAPED_END = re.compile(r"\\[rn][A-Z][A-Z0-9]{2}[^A-Za-z0-9\s]")
_LINE_ENDS = re.compile(r"\r\n|\r|\n|\Z")
_ENVELOPE = ("FHS", "BHS", "BTS", "FTS")
_FRAMING = "\x0b\x1c\ufeff \t"

Line = tuple[int, str]
"""A line without its framing, and its position."""


class Hl7Message(msgspec.Struct, frozen=True):
    """One parsed message."""

    delimiters: Delimiters
    field_separator: str
    escape: str | None
    segments: tuple[Segment, ...]
    is_whole: bool = True
    """A message does not show whether it was cut off."""

    def value(self, path: SegmentPath) -> str | None:
        """Return the text at a path, or None if it is absent or empty."""
        segment = find_segment(self.segments, path)
        if segment is None:
            return None
        if segment.name == "MSH" and path.field in (1, 2):
            # The delimiter fields must not be split by themselves.
            return segment.find_field(path.field) or None
        return pick(segment, path, self.delimiters, self._unescape)

    def locate(self, path: SegmentPath) -> Span | None:
        """Return the position of the value at a path in the text of the message."""
        segment = find_segment(self.segments, path)
        if segment is None:
            return None
        if segment.name == "MSH" and path.field in (1, 2):
            # As in `value`: the delimiter fields are never split.
            path = msgspec.structs.replace(path, repetition=None, component=None, subcomponent=None)
        return locate_piece(segment, path, self.delimiters)

    def _unescape(self, text: str) -> str:
        mark = self.escape
        if mark is None or mark not in text:
            return text
        pieces = text.split(mark)
        # An escape is between two marks; a lone last mark is text.
        result = [pieces[0]]
        position = 1
        while position < len(pieces):
            code = self._resolve_escape(pieces[position]) if position + 1 < len(pieces) else None
            if code is None:
                result.append(mark + pieces[position])
                position += 1
            else:
                result.append(code + pieces[position + 1])
                position += 2
        return "".join(result)

    def _resolve_escape(self, code: str) -> str | None:
        marks = {
            "F": self.field_separator,
            "S": self.delimiters.component,
            "T": self.delimiters.subcomponent,
            "R": self.delimiters.repetition,
            "E": self.escape,
            ".br": "\n",
        }
        if code in marks:
            return marks[code]
        if code[:1] == "X" and len(code) > 1:
            try:
                raw = bytes.fromhex(code[1:])
            except ValueError:
                return None
            try:
                return raw.decode("utf-8")
            except UnicodeDecodeError:
                # Latin-1 has a character for every byte, so this never fails.
                return raw.decode("latin-1")
        return None


def read_messages(text: str) -> list[Hl7Message]:
    """Return every message in a text; raises `EvidenceError` if it does not begin with one."""
    messages: list[Hl7Message] = []
    lines: list[Line] = []
    for start, line in _split_lines(text):
        if line.startswith("MSH"):
            if lines:
                messages.append(_read_message(lines))
            lines = [(start, line)]
        elif lines:
            lines.append((start, line))
        else:
            raise EvidenceError(f"not an HL7 v2 message: it begins with {show(line[:20])} instead of MSH")
    if not lines:
        raise EvidenceError("not an HL7 v2 message: it is empty")
    messages.append(_read_message(lines))
    return messages


def find_gap(messages: Sequence[Hl7Message]) -> str:
    """Return a description of lines that are not segments; empty if there are none."""
    for message in messages:
        for segment in message.segments:
            if not _SEGMENT.fullmatch(segment.name):
                return f"a line that begins with {show(segment.name[:20])} is not a segment"
            # Not an HL7 escape: JSON was escaped twice, and the rest is read as part of the last field.
            if "\\" in segment.text and _ESCAPED_END.search(segment.text):
                return "its line ends are written as a backslash and a letter"
    return ""


def _split_lines(text: str) -> Iterator[Line]:
    start = 0
    # The end of the text ends the last line.
    for end, following in (found.span() for found in _LINE_ENDS.finditer(text)):
        line = text[start:end]
        # Blanks at the end of an ordinary line are part of its last field; the end mark of MLLP is not.
        bare = line.strip(_FRAMING) if line[:1] in _FRAMING else line.rstrip("\x1c")
        if bare and not bare.startswith(_ENVELOPE):
            yield start + line.index(bare), bare
        start = following


def _read_message(lines: list[Line]) -> Hl7Message:
    _, header = lines[0]
    separator = header[3:4]
    if not separator or separator.isalnum() or separator.isspace():
        raise EvidenceError(f"not an HL7 v2 message: no field separator after MSH in {show(header[:20])}")
    encoding = header[4:].split(separator, 1)[0]
    # A message may name fewer than four delimiters; a level without one is never split.
    marks = [mark if mark != separator and not mark.isalnum() else None for mark in encoding[:4]]
    component, repetition, escape, subcomponent = (*marks, None, None, None, None)[:4]
    return Hl7Message(
        Delimiters(component, repetition, subcomponent),
        separator,
        escape,
        tuple(_read_segment(line, separator, start) for start, line in lines),
    )


def _read_segment(line: str, separator: str, start: int) -> Segment:
    name, *fields = line.split(separator)
    if name == "MSH":
        # The standard counts the separator itself as MSH.1; without it every other field of MSH would be off by one.
        fields.insert(0, separator)
    return Segment(name, line, tuple(fields), start, name == "MSH")
