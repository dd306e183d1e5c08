"""Envelopes of X12: an interchange that came in is looked at, and what goes out is written with everything counted.

What is wrong with an interchange as a whole is answered by TA1, what is wrong with a transaction by 999 (005010X231A1); both name the
reason by the codes of the standard. The delimiters that are written are `*`, `:`, `^` and `~`.
"""

from __future__ import annotations

import re

import msgspec

from proctor.codecs.segments import SegmentPath, compile_segment_path
from proctor.codecs.x12 import X12Transaction, read_transactions
from proctor.errors import EvidenceError

KNOWN = {"270": "005010X279A1", "276": "005010X212", "278": "005010X217"}
"""The transactions that are answered, with the guide that they follow."""
GROUPS = {"270": "HS", "271": "HB", "276": "HR", "277": "HN", "278": "HI", "999": "FA"}
# Answers repeat what came in: a delimiter in it would add elements or segments to them.
_UNFIT = re.compile(r"[*~:^\x00-\x1f\x7f]")
_CONTROL = re.compile("[0-9]{1,9}")
_NEEDED = {"270": ("BHT", "HL", "NM1"), "276": ("BHT", "HL", "NM1", "TRN"), "278": ("BHT", "HL", "NM1", "UM")}


class Fault(msgspec.Struct, frozen=True):
    """Why a transaction is rejected: codes of IK5, and the segment of IK3 where one is to blame."""

    code: str
    text: str
    segment: str = ""
    place: int = 0
    """Which segment of the transaction, from 1."""
    segment_code: str = ""
    """IK304: `3` a mandatory segment is missing."""


class Envelope(msgspec.Struct, frozen=True):
    """Who sends to whom, and under which numbers."""

    sender: tuple[str, str] = ("ZZ", "SENDER")
    """Qualifier and id."""
    receiver: tuple[str, str] = ("ZZ", "RECEIVER")
    control: str = "000000000"
    group_sender: str = "SENDER"
    group_receiver: str = "RECEIVER"
    moment: str = "20000101000000"


_ISA = {number: compile_segment_path(f"ISA.{number}") for number in (5, 6, 7, 8, 9, 10, 13)}
_GS = {number: compile_segment_path(f"GS.{number}") for number in (1, 2, 3, 6, 8)}
_ST = {number: compile_segment_path(f"ST.{number}") for number in (1, 2, 3)}


def read_interchange(text: str) -> tuple[list[X12Transaction], str]:
    """Return the transactions, and why the interchange as a whole is rejected: a code of TA105, or nothing."""
    try:
        transactions = read_transactions(text)
    except EvidenceError:
        return [], "024"
    if not transactions:
        return [], "024"
    control = value_at(transactions[0], _ISA[13])
    interchange = transactions[0].interchange
    # Each interchange brings its own delimiters, which stand at fixed places of its ISA.
    terminator = text[interchange.start + len(interchange.text) : interchange.start + len(interchange.text) + 1]
    divider = text[interchange.start + 3]
    ends = [piece.strip().split(divider) for piece in text.split(terminator) if piece.strip().startswith(f"IEA{divider}")]
    if len(ends) != 1 or len({one.interchange.start for one in transactions}) != 1:
        return transactions, "023"
    return transactions, "" if len(ends[0]) > 2 and ends[0][2].strip() == control else "001"


def value_at(transaction: X12Transaction, path: SegmentPath) -> str:
    """Return the text at a path, or nothing."""
    return transaction.value(path) or ""


def find_fault(transaction: X12Transaction, allowed: tuple[str, ...]) -> Fault | None:
    """Return why a transaction is rejected, or None."""
    kind = transaction.kind
    if kind not in allowed:
        return Fault("1", f"transaction set {kind[:20]!r} is not answered here; {', '.join(allowed)} are")
    first, last = transaction.segments[0], transaction.segments[-1]
    if not first.find_field(2).strip():
        return Fault("7", "ST.2, the control number, is missing")
    if last.name != "SE":
        return Fault("2", "SE is missing")
    if last.find_field(2) != first.find_field(2):
        return Fault("3", "SE.2 is not the control number of ST.2")
    if last.find_field(1).lstrip("0") != str(len(transaction.segments)):
        return Fault("4", f"SE.1 has {last.find_field(1)[:20]!r} segments, found {len(transaction.segments)}")
    names = {segment.name for segment in transaction.segments}
    for name in _NEEDED[kind]:
        if name not in names:
            return Fault("5", f"{name} is missing", name, len(transaction.segments), "3")
    subscribers = [place for place, one in enumerate(transaction.segments, 1) if one.name == "NM1" and one.find_field(1) == "IL"]
    if len(subscribers) > 1:
        return Fault("5", f"{len(subscribers)} subscribers in one transaction; send one for each", "NM1", subscribers[1], "5")
    return None


def read_envelope(transaction: X12Transaction | None, moment: str) -> Envelope:
    """Return the envelope of the answer: who received is now the sender."""
    if transaction is None:
        return Envelope(moment=moment)
    isa = {number: value_at(transaction, path) for number, path in _ISA.items()}
    return Envelope(
        sender=(isa[7] or "ZZ", isa[8] or "RECEIVER"),
        receiver=(isa[5] or "ZZ", isa[6] or "SENDER"),
        control=isa[13],
        group_sender=value_at(transaction, _GS[3]) or "RECEIVER",
        group_receiver=value_at(transaction, _GS[2]) or "SENDER",
        moment=moment,
    )


def write_segment(*elements: str) -> str:
    """Return a segment without its end; delimiters inside of elements become blanks, and empty elements at the end are left out."""
    return "*".join(element if index == 0 else _UNFIT.sub(" ", element) for index, element in enumerate(elements)).rstrip("*")


def write_composite(*parts: str) -> str:
    """Return parts of one element, separated by `:`; `join_elements` writes the segment."""
    return ":".join(_UNFIT.sub(" ", part) for part in parts)


def join_elements(*elements: str) -> str:
    """Return a segment of elements that are clean already."""
    return "*".join(elements).rstrip("*")


def write_interchange(envelope: Envelope, control: int, groups: list[tuple[str, str, list[str]]]) -> str:
    """Return an interchange with one transaction in a group each: kind, guide, and segments between ST and SE."""
    day, time = envelope.moment[:8], envelope.moment[8:12]
    number = f"{control % 1_000_000_000:09}"
    parties = f"{_pad_party(envelope.sender)}*{_pad_party(envelope.receiver)}"
    lines = [f"ISA*00*          *00*          *{parties}*{day[2:]}*{time}*^*00501*{number}*0*P*:"]
    for index, (kind, guide, segments) in enumerate(groups, 1):
        lines.append(write_segment("GS", GROUPS[kind], envelope.group_sender, envelope.group_receiver, day, time, str(index), "X", guide))
        lines += [f"ST*{kind}*{index:04}*{guide}", *segments, f"SE*{len(segments) + 2}*{index:04}", f"GE*1*{index}"]
    lines.append(f"IEA*{len(groups)}*{number}")
    return "".join(f"{line}~" for line in lines)


def _pad_party(party: tuple[str, str]) -> str:
    qualifier, name = (_UNFIT.sub(" ", part) for part in party)
    # ISA has a fixed width: readers find the delimiters by counting.
    return f"{qualifier[:2]:<2}*{name[:15]:<15}"


def write_ta1(envelope: Envelope, control: int, code: str) -> str:
    """Return an interchange that rejects another one."""
    text = write_interchange(envelope, control, [])
    number = envelope.control if _CONTROL.fullmatch(envelope.control) else "0"
    ta1 = write_segment("TA1", f"{number:0>9}", envelope.moment[2:8], envelope.moment[8:12], "R", code)
    head, _, end = text.partition("~")
    return f"{head}~{ta1}~{end}"


def write_999(transaction: X12Transaction, fault: Fault) -> tuple[str, str, list[str]]:
    """Return the 999 that rejects a transaction."""
    kind, number, guide = (value_at(transaction, _ST[index]) for index in (1, 2, 3))
    group, group_number, version = (value_at(transaction, _GS[index]) for index in (1, 6, 8))
    segments = [write_segment("AK1", group or GROUPS.get(kind, "HS"), group_number or "1", version or guide)]
    segments.append(write_segment("AK2", kind[:3] or "000", number or "0000", guide or version))
    if fault.segment:
        segments.append(write_segment("IK3", fault.segment, str(fault.place), "", fault.segment_code))
    segments += [write_segment("IK5", "R", fault.code), "AK9*R*1*1*0"]
    return "999", "005010X231A1", segments
