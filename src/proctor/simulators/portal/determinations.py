"""How a portal determines requests: the first rule that fits decides, at once or after a delay.

    determinations:
      - {procedure_code: '70551', status: approved}
      - {patient_member_id: W9, status: denied, reason: not a member, delay_seconds: 60}
    default_determination: {status: pending}

Without a default a request stays `submitted`. A determination with a delay is made by the first request to the portal after it is over,
since a simulated system does nothing by itself; the state shows it as determined.
"""

from __future__ import annotations

import datetime

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.show import show
from proctor.model.typed import make_json_decoder
from proctor.simulators.portal.wizards import WIZARDS
from proctor.simulators.seeds import join_place, read_items, read_members, read_word

STATUSES = ("approved", "denied", "pending", "need_more_info")
KEYS = ("procedure_code", "patient_member_id", "medication")
"""What a rule can ask for."""
SUBMITTED = "submitted"
REQUEST_KEYS = tuple(
    dict.fromkeys(
        (
            *("request_id", "auth_number", "portal", "status", "reason", "submitted_at", "determined_at"),
            *(field.name for wizard in WIZARDS.values() for field in wizard.list_fields()),
        )
    )
)
"""Fields that the portal sets in a request."""


class Determination(msgspec.Struct, frozen=True, kw_only=True):
    """How a request is determined, and which."""

    status: str
    reason: str = ""
    delay_seconds: float = 0.0
    match: tuple[tuple[str, str], ...] = ()


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """An author's settings of a portal."""

    portal: str = "radmd"
    username: str = "agent"
    password: str = ""
    """Empty: the token of the sandbox."""
    payer: str = "Payer"
    determinations: tuple[Determination, ...] = ()
    default: Determination | None = None

    def determine(self, row: dict[str, Json]) -> Determination | None:
        """Return the first determination that fits a request, else the default."""
        for one in self.determinations:
            if all(str(row.get(name, "")).casefold() == value.casefold() for name, value in one.match):
                return one
        return self.default


READ_SETUP = make_json_decoder(Setup)
SEED_KEYS = ("portal", "username", "password", "payer", "determinations", "default_determination", "patients", "providers", "requests")


def read_setup(given: dict[str, Json], before: Setup) -> Setup:
    """Return the settings of a suite, merged with earlier ones. Raises `SpecError` for invalid ones."""
    default = given.get("default_determination")
    return Setup(
        portal=read_word(given.get("portal"), "portal", default=before.portal, among=WIZARDS),
        username=read_word(given.get("username"), "username", default=before.username),
        password=read_word(given.get("password"), "password", default=before.password),
        payer=read_word(given.get("payer"), "payer", default=before.payer),
        determinations=before.determinations
        + tuple(_read_determination(item, at, KEYS) for at, item in read_items(given.get("determinations"), "determinations")),
        default=before.default if default is None else _read_determination(default, "default_determination", ()),
    )


def _read_determination(value: Json, at: str, keys: tuple[str, ...]) -> Determination:
    given = read_members(value, (*keys, "status", "reason", "delay_seconds"), at, required=("status",))
    delay = given.get("delay_seconds", 0)
    if not is_number(delay) or not 0 <= delay <= 1e7:
        raise SpecError(f"expected seconds, found {show(delay)}", field=join_place(at, "delay_seconds"))
    match = tuple((name, read_word(given[name], join_place(at, name))) for name in keys if given.get(name) is not None)
    if keys and not match:
        raise SpecError(f"expected one of {', '.join(keys)}", field=at)
    return Determination(
        status=read_word(given["status"], join_place(at, "status"), among=STATUSES),
        reason=read_word(given.get("reason"), join_place(at, "reason"), default=""),
        delay_seconds=float(delay),
        match=match,
    )


def apply_determination(row: dict[str, Json], setup: Setup, now: str) -> dict[str, Json]:
    """Return a request in its current state: determined, if a rule fits and the delay is over."""
    if row["status"] != SUBMITTED:
        return row
    made = setup.determine(row)
    if made is None or not _is_over(row["submitted_at"], made.delay_seconds, now):
        return row
    return {**row, "status": made.status, "reason": made.reason, "determined_at": now}


def _is_over(since: str, delay_s: float, now: str) -> bool:
    if delay_s <= 0:
        return True
    began, ends = (datetime.datetime.fromisoformat(moment) for moment in (since, now))
    return (ends - began).total_seconds() >= delay_s


def read_moment(value: Json, at: str) -> str:
    """Return a moment as the portal keeps it; one without a zone is in UTC."""
    try:
        moment = datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise SpecError(f"expected a moment such as 2026-11-16T09:30:00Z, found {show(value)}", field=at) from None
    return value if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC).isoformat()
