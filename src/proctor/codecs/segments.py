r"""Segments of delimited text, which HL7 v2 and X12 share, and the paths into them.

    PID.5.1         segment, field, component        PID.3.4.2      a subcomponent
    PID.3[2].1      the second repetition            PID            the whole segment
    OBX[2].5        the second segment of that name  PID-5.1        the way HL7 users write it
    NM1[IL].3       the first NM1 whose first field is IL; REF[6P].2 and NM1[1P].3 likewise
    DTP['346'].3    quotes for a first field of digits alone, which without them are a position

Everything counts from 1. Without a bracket the first segment and the first repetition are meant. What still has structure
below it (`PID.5` of `Smith^John`) is given whole, as written; the last piece is given with its escapes undone. Empty text
counts as absent.

HL7 v2 messages: delimiters from MSH, segments, and the text at a path.

Segments end in CR, LF or both; the framing bytes of MLLP and a byte order mark are dropped. One text may hold several
messages, each beginning with MSH; the envelope of a batch (FHS, BHS, BTS, FTS) is left out. MSH.1 is the field separator
itself and MSH.2 the other delimiters, so MSH.9 is the message type, as the standard counts.
Escapes undone in single values: `\F\ \S\ \T\ \R\ \E\` (the delimiters), `\Xhh..\` (bytes: UTF-8, else Latin-1), `\.br\` (a line
break); any other stays as written. HL7's explicit null `""` is that text.

X12 interchanges: delimiters from ISA, transactions from ST to SE, and the text at a path.

The ISA segment defines all delimiters: the character after `ISA` divides elements, the sixteenth element is the component
separator, the character after it ends segments, and the eleventh element divides repetitions (since version 00402; before, it is
a letter, and there are none). Line ends after a terminator are dropped. One text may hold several interchanges, each several
transactions; a transaction is read together with its own ISA and GS. Truncated text is read as far as possible, and reported: a
transaction without SE, a group without GE, an interchange without a transaction and IEA, and text after the last interchange.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence

import msgspec

from proctor.errors import EvidenceError, SpecError
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
        return msgspec.structs.replace(self.without_parts(), field=None)

    def without_parts(self) -> SegmentPath:
        """Return the path of the whole field."""
        return msgspec.structs.replace(self, repetition=None, component=None, subcomponent=None)


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


Piece = tuple[str, int]
"""A piece of text as written, and its position in the source."""
_NOTHING: Piece = ("", 0)


def _pick(segment: Segment | None, path: SegmentPath, delimiters: Delimiters) -> Piece:
    """Return the piece that a path selects inside its segment; an absent one is empty."""
    if segment is None:
        return _NOTHING
    if path.field is None:
        return segment.text, segment.start
    # Every field has a separator before it; in a header the first field is one.
    preceding = segment.fields[1 if segment.header else 0 : max(path.field - 1, 0)]
    start = segment.start + len(segment.name) + sum(len(field) + 1 for field in preceding) + 1
    piece = segment.find_field(path.field), start - 1 if segment.header and path.field == 1 else start
    if path.repetition is not None or path.component is not None:
        piece = _narrow(piece, delimiters.repetition, path.repetition or 1)
    if path.component is not None:
        piece = _narrow(piece, delimiters.component, path.component)
    return piece if path.subcomponent is None else _narrow(piece, delimiters.subcomponent, path.subcomponent)


def _narrow(piece: Piece, delimiter: str | None, number: int) -> Piece:
    text, start = piece
    parts = text.split(delimiter, number) if delimiter is not None else [text]
    return (parts[number - 1], start + sum(len(part) + 1 for part in parts[: number - 1])) if number <= len(parts) else _NOTHING


def _span(piece: Piece) -> Span | None:
    text, start = piece
    return (start, start + len(text)) if text else None


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
        piece, _ = self._find(path)
        marks = self.delimiters
        # A piece with structure keeps its escapes: an unescaped delimiter would look like a real one.
        divided = any(mark is not None and mark in piece for mark in (marks.repetition, marks.component, marks.subcomponent))
        return (piece if divided or path.field is None else self._unescape(piece)) or None

    def locate(self, path: SegmentPath) -> Span | None:
        """Return the position of the value at a path, with its escapes, in the text of the message."""
        return _span(self._find(path))

    def _find(self, path: SegmentPath) -> Piece:
        if path.name == "MSH" and path.field in (1, 2):
            # The delimiter fields must not be split by themselves.
            path = path.without_parts()
        return _pick(find_segment(self.segments, path), path, self.delimiters)

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


_BLANK = " \t\r\n\ufeff\x00\x1a"


class X12Transaction(msgspec.Struct, frozen=True):
    """One transaction set: its envelope (ISA, GS) and its segments from ST to SE."""

    delimiters: Delimiters
    segments: tuple[Segment, ...]
    interchange: Segment
    group: Segment | None
    is_whole: bool = True
    """Whether SE ends it; otherwise there may have been more."""

    @property
    def kind(self) -> str:
        """The transaction set: `271`."""
        return self.segments[0].find_field(1).strip()

    def value(self, path: SegmentPath) -> str | None:
        """Return the text at a path, or None if it is absent or empty."""
        return self._find(path)[0] or None

    def locate(self, path: SegmentPath) -> Span | None:
        """Return the position of the value at a path in the text of the transaction."""
        return _span(self._find(path))

    def _find(self, path: SegmentPath) -> Piece:
        if path.name == "ISA":
            # Fixed width, padded, and its last element is itself a delimiter.
            text, start = _pick(self.interchange, path.without_parts(), self.delimiters)
            return (text, start) if path.field is None else (text.strip(" "), start + len(text) - len(text.lstrip(" ")))
        segments = ((self.group,) if self.group is not None else ()) if path.name == "GS" else self.segments
        return _pick(find_segment(segments, path), path, self.delimiters)


def read_transactions(text: str) -> list[X12Transaction]:
    """Return every transaction in a text; raises `EvidenceError` if it does not begin with an interchange."""
    return read_interchanges(text)[0]


def read_interchanges(text: str) -> tuple[list[X12Transaction], str]:
    """Return every transaction in a text, and a description of its first gap, or empty text; raises as `read_transactions`."""
    position = _skip_blanks(text, 0)
    if not text.startswith("ISA", position):
        begins = show(text[position : position + 20])
        raise EvidenceError(f"not an X12 interchange: it begins with {begins} instead of ISA")
    transactions: list[X12Transaction] = []
    gaps: list[str] = []
    while text.startswith("ISA", position):
        end, gap = _read_interchange(text, position, transactions)
        position = _skip_blanks(text, end)
        gaps += [gap] if gap else []
    if position < len(text):
        gaps.append(f"unexpected text after the last interchange: {show(text[position : position + 20])}")
    return transactions, gaps[0] if gaps else ""


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANK:
        position += 1
    return position


def _read_header(text: str, start: int) -> tuple[list[str], int]:
    """Return the sixteen elements of ISA (the last one a single character) and the position of the segment terminator."""
    divider = text[start + 3 : start + 4]
    elements: list[str] = []
    position = start + 4
    if divider and not divider.isalnum() and not divider.isspace():
        # The widest element of ISA has fifteen characters; 200 allow for bad padding and limit the search in other texts.
        while len(elements) < 15 and (end := text.find(divider, position, position + 200)) >= 0:
            elements.append(text[position:end])
            position = end + 1
    terminator = text[position + 1 : position + 2]
    if len(elements) < 15 or not terminator or terminator.isalnum() or terminator == divider:
        raise EvidenceError("not an X12 interchange: ISA does not have its sixteen elements and a segment terminator")
    return [*elements, text[position]], position + 1


def _read_interchange(text: str, start: int, transactions: list[X12Transaction]) -> tuple[int, str]:
    """Read one interchange into `found`; return the position after it, and its gap."""
    elements, position = _read_header(text, start)
    divider, terminator = text[start + 3], text[position]
    divides_repetitions = len(elements[10]) == 1 and not elements[10].isalnum() and elements[10] != " "
    delimiters = Delimiters(elements[15], elements[10] if divides_repetitions else None)
    interchange = Segment("ISA", text[start:position], tuple(elements), start)
    group: Segment | None = None
    current: list[Segment] = []
    previous_count = len(transactions)
    # The expected end: of a group, or of an interchange without content so far.
    expected_end = "IEA"
    position += 1
    while position < len(text):
        end = text.find(terminator, position)
        end = len(text) if end < 0 else end
        piece = text[position:end].rstrip(_BLANK)
        raw = piece.lstrip(_BLANK)
        begin = position + len(piece) - len(raw)
        # This interchange lacks its IEA, and the next one begins.
        if raw.startswith("ISA" + divider):
            break
        position = end + 1
        name, *fields = raw.split(divider)
        if name == "IEA":
            expected_end = ""
            break
        segment = Segment(name, raw, tuple(fields), begin)
        if name == "GS":
            group, expected_end = segment, "GE"
        elif name == "GE":
            expected_end = ""
        elif name == "ST":
            current = [segment]
        elif current and name:
            current.append(segment)
        if name == "SE" and current:
            transactions.append(X12Transaction(delimiters, tuple(current), interchange, group))
            current = []
    if current:
        # Cut off before SE: the part that is there is still evidence.
        transactions.append(X12Transaction(delimiters, tuple(current), interchange, group, is_whole=False))
        return position, "a transaction ends without SE"
    # People write single transactions without the end of their interchange.
    if not expected_end or (expected_end == "IEA" and len(transactions) > previous_count):
        return position, ""
    return position, f"it ends without {expected_end}"
