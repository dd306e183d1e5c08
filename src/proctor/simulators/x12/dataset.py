"""The dataset of a simulated clearinghouse: members with their benefits, claims with their status, and rules for authorizations."""

from __future__ import annotations

import re

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import show
from proctor.model.typed import make_json_decoder
from proctor.simulators.seeds import join_place, read_flag, read_items, read_members, read_word, refuse_doubles

CLAIM_STATUS = {
    "paid": ("F1", "65"),
    "denied": ("F2", "585"),
    "finalized": ("F0", "3"),
    "pending": ("P1", "20"),
    "received": ("A1", "20"),
    "need_more_info": ("R0", "1"),
}
"""Category (code list 507) and status (508) of what an author calls the status of a claim."""
DECISIONS = {"approved": "A1", "modified": "A2", "denied": "A3", "pending": "A4", "need_more_info": "A4"}
"""HCR.1 of what an author calls a determination."""
_DAY = re.compile(r"([0-9]{4})-?([0-9]{2})-?([0-9]{2})")


class Benefit(msgspec.Struct, frozen=True, kw_only=True):
    """What is covered for one type of service."""

    service_type: str = "30"
    copay: float | None = None
    deductible: float | None = None
    deductible_remaining: float | None = None
    coinsurance: float | None = None
    """The share that the member pays: 0.2."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A person who is or was insured."""

    member_id: str
    patient_id: str = ""
    first_name: str = ""
    last_name: str = ""
    birth_date: str = ""
    """As `19800201`."""
    gender: str = ""
    active: bool = True
    plan: str = ""
    benefits: tuple[Benefit, ...] = ()


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that the payer has."""

    claim_number: str
    member_id: str
    status: str = "pending"
    charged: float = 0.0
    paid: float = 0.0
    date: str = ""
    """The day of the service, as `20261001`."""


class Determination(msgspec.Struct, frozen=True, kw_only=True):
    """How a request for authorization is decided."""

    status: str = "pending"
    procedure_code: str | None = None
    member_id: str | None = None
    reason: str = ""


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """All that a clearinghouse knows."""

    payer_name: str = "PAYER"
    payer_id: str = "00000"
    members: tuple[Member, ...] = ()
    claims: tuple[Claim, ...] = ()
    determinations: tuple[Determination, ...] = ()
    """The first one that fits decides."""
    default: Determination = Determination()

    def find_member(self, name: str) -> Member | None:
        """Return a member by member id, else by patient id."""
        by_id = (member for member in self.members if member.member_id == name)
        return next(by_id, None) or next((member for member in self.members if name and member.patient_id == name), None)

    def find_person(self, last_name: str, first_name: str, birth_date: str) -> Member | None:
        """Return a member by name and birth date, all of which must be known."""
        wanted = (last_name.casefold(), first_name.casefold(), birth_date)
        if not all(wanted):
            return None
        people = ((one, (one.last_name.casefold(), one.first_name.casefold(), one.birth_date)) for one in self.members)
        return next((member for member, known in people if known == wanted), None)

    def decide(self, procedure_code: str, member_id: str) -> Determination:
        """Return the first determination that fits, else the default."""
        for one in self.determinations:
            if one.procedure_code in (None, procedure_code) and one.member_id in (None, member_id):
                return one
        return self.default


READ_DATASET = make_json_decoder(Dataset)


def read_dataset(seed: Json, before: Dataset) -> Dataset:
    """Return the dataset that a suite writes, added to what was known before. Raises `SpecError` for one that cannot be used."""
    given = read_members(seed, ("payer", "members", "claims", "determinations", "default_determination"))
    payer = read_members(given.get("payer") or {}, ("name", "id"), "payer")
    more = [(at, _read_member(item, at)) for at, item in read_items(given.get("members"), "members")]
    refuse_doubles(((f"{at}.member_id", member.member_id) for at, member in more), "the member")
    members = before.members + tuple(member for _, member in more)
    default = given.get("default_determination")
    return Dataset(
        payer_name=read_word(payer.get("name"), "payer.name", default=before.payer_name),
        payer_id=read_word(payer.get("id"), "payer.id", default=before.payer_id),
        members=members,
        claims=before.claims + tuple(_read_claim(item, at, members) for at, item in read_items(given.get("claims"), "claims")),
        determinations=before.determinations
        + tuple(_read_determination(item, at) for at, item in read_items(given.get("determinations"), "determinations")),
        default=before.default if default is None else _read_determination(default, "default_determination"),
    )


def _read_member(value: Json, at: str) -> Member:
    given = read_members(value, Member.__struct_fields__, at, required=("member_id",))
    return Member(
        **{
            name: read_word(given.get(name), join_place(at, name), default="") for name in ("patient_id", "first_name", "last_name", "plan")
        },
        member_id=read_word(given["member_id"], join_place(at, "member_id")),
        birth_date=_read_day(given.get("birth_date"), join_place(at, "birth_date")),
        gender=read_word(given.get("gender"), join_place(at, "gender"), default="", among=("", "F", "M", "U")),
        active=read_flag(given.get("active"), join_place(at, "active"), default=True),
        benefits=tuple(_read_benefit(item, place) for place, item in read_items(given.get("benefits"), join_place(at, "benefits"))),
    )


def _read_benefit(value: Json, at: str) -> Benefit:
    given = read_members(value, Benefit.__struct_fields__, at)
    amounts = {name: _read_amount(given.get(name), join_place(at, name)) for name in Benefit.__struct_fields__ if name != "service_type"}
    return Benefit(service_type=read_word(given.get("service_type"), join_place(at, "service_type"), default="30"), **amounts)


def _read_claim(value: Json, at: str, members: tuple[Member, ...]) -> Claim:
    given = read_members(value, Claim.__struct_fields__, at, required=("claim_number", "member_id"))
    member_id = read_word(given["member_id"], join_place(at, "member_id"))
    if all(member.member_id != member_id for member in members):
        raise SpecError(f"there is no member {show(member_id)}", field=join_place(at, "member_id"))
    return Claim(
        claim_number=read_word(given["claim_number"], join_place(at, "claim_number")),
        member_id=member_id,
        status=read_word(given.get("status"), join_place(at, "status"), default="pending", among=CLAIM_STATUS),
        charged=_read_amount(given.get("charged"), join_place(at, "charged")) or 0.0,
        paid=_read_amount(given.get("paid"), join_place(at, "paid")) or 0.0,
        date=_read_day(given.get("date"), join_place(at, "date")),
    )


def _read_determination(value: Json, at: str) -> Determination:
    given = read_members(value, Determination.__struct_fields__, at, required=("status",))
    keys = {name: read_word(given[name], join_place(at, name)) for name in ("procedure_code", "member_id") if given.get(name) is not None}
    return Determination(
        status=read_word(given["status"], join_place(at, "status"), among=DECISIONS),
        reason=read_word(given.get("reason"), join_place(at, "reason"), default=""),
        **keys,
    )


def _read_amount(value: Json, at: str) -> float | None:
    if value is None:
        return None
    if not is_number(value) or not 0 <= value < 1e9:
        raise SpecError(f"expected an amount, found {show(value)}", field=at)
    return float(value)


def _read_day(value: Json, at: str) -> str:
    if value is None:
        return ""
    match = _DAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise SpecError(f"expected a day such as 1980-02-01, found {show(value)}", field=at)
    return "".join(match.groups())
