"""X12 of a simulated clearinghouse: its dataset, and the envelopes of incoming and outgoing interchanges.

An error in the interchange as a whole is answered by TA1, an error in a transaction by 999 (005010X231A1), both with the standard's reason
codes. Answers use the delimiters `*`, `:`, `^` and `~`.

The dataset has members with their benefits, claims with their status, and rules for authorizations.
"""

from __future__ import annotations

import functools
import re
from typing import Annotated, Literal

import msgspec

from proctor.codecs.segments import SegmentPath, X12Transaction, compile_segment_path, read_transactions
from proctor.errors import EvidenceError, SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import show
from proctor.simulators.seeds import ReadBy, read_as, read_word, refuse_doubles

KNOWN = {"270": "005010X279A1", "276": "005010X212", "278": "005010X217"}
"""The supported transactions, with their implementation guides."""
GROUPS = {"270": "HS", "271": "HB", "276": "HR", "277": "HN", "278": "HI", "999": "FA"}
# Answers repeat incoming text: a delimiter in it would add elements or segments to them.
_UNFIT = re.compile(r"[*~:^\x00-\x1f\x7f]")
_CONTROL = re.compile("[0-9]{1,9}")
_NEEDED = {"270": ("BHT", "HL", "NM1"), "276": ("BHT", "HL", "NM1", "TRN"), "278": ("BHT", "HL", "NM1", "UM")}


class Fault(msgspec.Struct, frozen=True):
    """Why a transaction is rejected: codes of IK5, and the segment of IK3 with the error, if known."""

    code: str
    text: str
    segment: str = ""
    place: int = 0
    """The index of the segment in the transaction, from 1."""
    segment_code: str = ""
    """IK304: `3` a mandatory segment is missing."""


class Envelope(msgspec.Struct, frozen=True):
    """Sender, receiver and control numbers."""

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
    """Return the transactions, and why the whole interchange is rejected: a code of TA105, or an empty text."""
    try:
        transactions = read_transactions(text)
    except EvidenceError:
        return [], "024"
    if not transactions:
        return [], "024"
    control = value_at(transactions[0], _ISA[13])
    interchange = transactions[0].interchange
    # Each interchange defines its own delimiters, at fixed positions of its ISA.
    terminator = text[interchange.start + len(interchange.text) : interchange.start + len(interchange.text) + 1]
    divider = text[interchange.start + 3]
    ends = [piece.strip().split(divider) for piece in text.split(terminator) if piece.strip().startswith(f"IEA{divider}")]
    if len(ends) != 1 or len({transaction.interchange.start for transaction in transactions}) != 1:
        return transactions, "023"
    return transactions, "" if len(ends[0]) > 2 and ends[0][2].strip() == control else "001"


def value_at(transaction: X12Transaction, path: SegmentPath) -> str:
    """Return the text at a path, or an empty text."""
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
    parties = [(place, segment) for place, segment in enumerate(transaction.segments, 1) if segment.name == "NM1"]
    subscribers = [place for place, segment in parties if segment.find_field(1) == "IL"]
    if len(subscribers) > 1:
        return Fault("5", f"{len(subscribers)} subscribers in one transaction; send one for each", "NM1", subscribers[1], "5")
    return None


def read_envelope(transaction: X12Transaction | None, moment: str) -> Envelope:
    """Return the envelope of the answer, with sender and receiver swapped."""
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
    """Return a segment without its terminator; delimiters inside elements become blanks, and trailing empty elements are omitted."""
    return "*".join(element if index == 0 else _UNFIT.sub(" ", element) for index, element in enumerate(elements)).rstrip("*")


def write_composite(*parts: str) -> str:
    """Return components of one element, separated by `:`; `join_elements` writes the segment."""
    return ":".join(_UNFIT.sub(" ", part) for part in parts)


def join_elements(*elements: str) -> str:
    """Return a segment of elements that are already cleaned."""
    return "*".join(elements).rstrip("*")


def write_interchange(envelope: Envelope, control: int, groups: list[tuple[str, str, list[str]]]) -> str:
    """Return an interchange with one group per transaction: kind, guide, and segments between ST and SE."""
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


CLAIM_STATUS = {
    "paid": ("F1", "65"),
    "denied": ("F2", "585"),
    "finalized": ("F0", "3"),
    "pending": ("P1", "20"),
    "received": ("A1", "20"),
    "need_more_info": ("R0", "1"),
}
"""Category (code list 507) and status (508) of the author's names for the status of a claim."""
DECISIONS = {"approved": "A1", "modified": "A2", "denied": "A3", "pending": "A4", "need_more_info": "A4"}
"""HCR.1 of the author's names for a determination."""
_DAY = re.compile(r"([0-9]{4})-?([0-9]{2})-?([0-9]{2})")


def _read_amount(value: Json, at: str) -> float:
    if not is_number(value) or not 0 <= value < 1e9:
        raise SpecError(f"expected an amount, found {show(value)}", field=at)
    return float(value)


def _read_day(value: Json, at: str) -> str:
    match = _DAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise SpecError(f"expected a day such as 1980-02-01, found {show(value)}", field=at)
    return "".join(match.groups())


_Amount = Annotated[float, ReadBy(_read_amount)]
_Day = Annotated[str, ReadBy(_read_day)]
"""Stored as `19800201`."""


class Benefit(msgspec.Struct, frozen=True, kw_only=True):
    """The coverage for one type of service."""

    service_type: str = "30"
    copay: _Amount | None = None
    deductible: _Amount | None = None
    deductible_remaining: _Amount | None = None
    coinsurance: _Amount | None = None
    """The share that the member pays: 0.2."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A person who is or was insured."""

    member_id: str
    patient_id: str = ""
    first_name: str = ""
    last_name: str = ""
    birth_date: _Day = ""
    gender: Literal["", "F", "M", "U"] = ""
    active: bool = True
    plan: str = ""
    benefits: tuple[Benefit, ...] = ()


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that the payer has."""

    claim_number: str
    member_id: str
    status: Annotated[str, ReadBy(functools.partial(read_word, among=CLAIM_STATUS))] = "pending"
    charged: _Amount = 0.0
    paid: _Amount = 0.0
    date: _Day = ""
    """The day of the service."""


class Determination(msgspec.Struct, frozen=True, kw_only=True):
    """How a request for authorization is decided."""

    status: Annotated[str, ReadBy(functools.partial(read_word, among=DECISIONS))]
    procedure_code: str | None = None
    member_id: str | None = None
    reason: str = ""


class _Payer(msgspec.Struct, frozen=True):
    name: str = ""
    id: str = ""


class _Seed(msgspec.Struct, frozen=True):
    """What a suite gives a clearinghouse."""

    payer: _Payer = _Payer()
    members: tuple[Member, ...] = ()
    claims: tuple[Claim, ...] = ()
    determinations: tuple[Determination, ...] = ()
    default_determination: Determination | None = None


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a clearinghouse."""

    payer_name: str = "PAYER"
    payer_id: str = "00000"
    members: tuple[Member, ...] = ()
    claims: tuple[Claim, ...] = ()
    determinations: tuple[Determination, ...] = ()
    """The first one that fits decides."""
    default: Determination = Determination(status="pending")

    def find_member(self, name: str) -> Member | None:
        """Return a member by member id, else by patient id."""
        by_id = (member for member in self.members if member.member_id == name)
        return next(by_id, None) or next((member for member in self.members if name and member.patient_id == name), None)

    def find_person(self, last_name: str, first_name: str, birth_date: str) -> Member | None:
        """Return a member by name and birth date, all of which must be known."""
        identity = (last_name.casefold(), first_name.casefold(), birth_date)
        if not all(identity):
            return None
        for member in self.members:
            if (member.last_name.casefold(), member.first_name.casefold(), member.birth_date) == identity:
                return member
        return None

    def decide(self, procedure_code: str, member_id: str) -> Determination:
        """Return the first determination that fits, else the default."""
        for determination in self.determinations:
            if determination.procedure_code in (None, procedure_code) and determination.member_id in (None, member_id):
                return determination
        return self.default


def read_dataset(value: Json, before: Dataset) -> Dataset:
    """Return the dataset of a suite, added to the earlier one. Raises `SpecError` for an invalid one."""
    seed = read_as(_Seed, value)
    refuse_doubles(((f"members.{index}.member_id", member.member_id) for index, member in enumerate(seed.members)), "the member")
    members = (*before.members, *seed.members)
    known = {member.member_id for member in members}
    for index, claim in enumerate(seed.claims):
        if claim.member_id not in known:
            raise SpecError(f"there is no member {show(claim.member_id)}", field=f"claims.{index}.member_id")
    return Dataset(
        payer_name=seed.payer.name or before.payer_name,
        payer_id=seed.payer.id or before.payer_id,
        members=members,
        claims=before.claims + seed.claims,
        determinations=before.determinations + seed.determinations,
        default=seed.default_determination or before.default,
    )
