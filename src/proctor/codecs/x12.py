"""X12 interchanges: delimiters from ISA, transactions from ST to SE, and the text at a path.

The ISA segment defines all delimiters: the character after `ISA` divides elements, the sixteenth element is the component
separator, the character after it ends segments, and the eleventh element divides repetitions (since version 00402; before, it is
a letter, and there are none). Line ends after a terminator are dropped. One text may hold several interchanges, each several
transactions; a transaction is read together with its own ISA and GS. Truncated text is read as far as possible, and reported: a
transaction without SE, a group without GE, an interchange without a transaction and IEA, and text after the last interchange.
"""

from __future__ import annotations

import msgspec

from proctor.codecs.segments import Delimiters, Segment, SegmentPath, Span, find_segment, locate_piece, pick
from proctor.errors import EvidenceError
from proctor.model.show import show

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
        if path.name == "ISA":
            # Fixed width, padded, and its last element is itself a delimiter.
            if path.field is None:
                return self.interchange.text
            return self.interchange.find_field(path.field).strip(" ") or None
        segments = ((self.group,) if self.group is not None else ()) if path.name == "GS" else self.segments
        segment = find_segment(segments, path)
        return pick(segment, path, self.delimiters, _as_written) if segment is not None else None

    def locate(self, path: SegmentPath) -> Span | None:
        """Return the position of the value at a path in the text of the transaction."""
        if path.name == "ISA":
            plain = msgspec.structs.replace(path, repetition=None, component=None, subcomponent=None)
            span = locate_piece(self.interchange, plain, Delimiters(None))
            text = "" if path.field is None else self.interchange.find_field(path.field)
            if span is None or not text:
                return span
            # Without the padding, as in `value`.
            start = span[0] + len(text) - len(text.lstrip(" "))
            return (start, start + len(text.strip(" "))) if text.strip(" ") else None
        segments = ((self.group,) if self.group is not None else ()) if path.name == "GS" else self.segments
        segment = find_segment(segments, path)
        return locate_piece(segment, path, self.delimiters) if segment is not None else None


def _as_written(text: str) -> str:
    return text


class Interchanges(msgspec.Struct, frozen=True):
    """The transactions in a text of interchanges."""

    transactions: list[X12Transaction]
    gap: str
    """A description of incomplete parts; empty if everything was read."""


def read_transactions(text: str) -> list[X12Transaction]:
    """Return every transaction in a text; raises `EvidenceError` if it does not begin with an interchange."""
    return read_interchanges(text).transactions


def read_interchanges(text: str) -> Interchanges:
    """Return every transaction in a text, and its gaps; raises `EvidenceError` if it does not begin with an interchange."""
    position = _skip_blanks(text, 0)
    if not text.startswith("ISA", position):
        begins = show(text[position : position + 20])
        raise EvidenceError(f"not an X12 interchange: it begins with {begins} instead of ISA")
    found: list[X12Transaction] = []
    gaps: list[str] = []
    while text.startswith("ISA", position):
        end, gap = _read_interchange(text, position, found)
        position = _skip_blanks(text, end)
        gaps += [gap] if gap else []
    if position < len(text):
        gaps.append(f"unexpected text after the last interchange: {show(text[position : position + 20])}")
    return Interchanges(found, gaps[0] if gaps else "")


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


def _read_interchange(text: str, start: int, found: list[X12Transaction]) -> tuple[int, str]:
    """Read one interchange into `found`; return the position after it, and its gap."""
    elements, position = _read_header(text, start)
    divider, terminator = text[start + 3], text[position]
    divides_repetitions = len(elements[10]) == 1 and not elements[10].isalnum() and elements[10] != " "
    delimiters = Delimiters(elements[15], elements[10] if divides_repetitions else None)
    interchange = Segment("ISA", text[start:position], tuple(elements), start)
    group: Segment | None = None
    current: list[Segment] = []
    previous_count = len(found)
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
            found.append(X12Transaction(delimiters, tuple(current), interchange, group))
            current = []
    if current:
        # Cut off before SE: the part that is there is still evidence.
        found.append(X12Transaction(delimiters, tuple(current), interchange, group, is_whole=False))
        return position, "a transaction ends without SE"
    # People write single transactions without the end of their interchange.
    if not expected_end or (expected_end == "IEA" and len(found) > previous_count):
        return position, ""
    return position, f"it ends without {expected_end}"
