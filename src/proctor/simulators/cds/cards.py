"""Services of CDS Hooks 1.1 and their cards: those that a suite writes, and those that a real service answers.

A card has a summary of up to 140 characters, an indicator and a source with a label, as the specification requires; anything else that a
service answers is reported and dropped.
"""

from __future__ import annotations

import re
from typing import cast

import msgspec

from proctor.errors import SpecError
from proctor.model.evidence import Json
from proctor.model.show import kind_of, show
from proctor.model.typed import make_json_decoder
from proctor.paths.dotted import find_dotted
from proctor.simulators.seeds import holds_condition, join_place, read_condition, read_items, read_members, read_word

INDICATORS = ("info", "warning", "critical")
MOST_SUMMARY = 140
MOST_SERVICES = 100
"""Services of one discovery."""
HOOK = re.compile(r"[a-z][a-z0-9-]{0,60}")


class Canned(msgspec.Struct, frozen=True):
    """A card that is answered where the request has certain values."""

    when: dict[str, Json]
    """Paths such as `context.patientId` with the value they have."""
    card: dict[str, Json]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service that decides something for a hook."""

    id: str
    hook: str
    title: str = ""
    description: str = ""
    url: str = ""
    """Its address; empty for one that the suite plays itself."""
    cards: tuple[Canned, ...] = ()


READ_SERVICE = make_json_decoder(Service)


def read_service(value: Json, at: str) -> Service:
    """Return a service that a suite writes. Raises `SpecError` for one that cannot be used."""
    given = read_members(value, ("id", "hook", "title", "description", "cards"), at, required=("id", "hook"))
    return Service(
        id=read_word(given["id"], join_place(at, "id")),
        hook=_read_hook(given["hook"], join_place(at, "hook")),
        cards=tuple(_read_canned(item, place) for place, item in read_items(given.get("cards"), join_place(at, "cards"))),
        title=read_word(given.get("title"), join_place(at, "title"), default=""),
        description=read_word(given.get("description"), join_place(at, "description"), default=""),
    )


def _read_hook(value: Json, at: str) -> str:
    hook = read_word(value, at)
    if not HOOK.fullmatch(hook):
        # It could never be called.
        raise SpecError(f"expected the name of a hook such as patient-view, found {show(hook)}", field=at)
    return hook


def _read_canned(value: Json, at: str) -> Canned:
    if not isinstance(value, dict):
        raise SpecError(f"expected a card, found {kind_of(value)}", field=at)
    given = cast("dict[str, Json]", value)
    when = read_condition(given.get("when") or None, join_place(at, "when"))
    card = {"indicator": "info", "source": {"label": "simulated"}, **{name: one for name, one in given.items() if name != "when"}}
    problem = find_problem(card)
    if problem:
        raise SpecError(problem, field=at)
    return Canned(when, card)


def find_problem(card: Json) -> str:
    """Return what is wrong with a card, or nothing."""
    if not isinstance(card, dict):
        return f"a card is an object, found {kind_of(card)}"
    summary, source = card.get("summary"), card.get("source")
    if not isinstance(summary, str) or not summary.strip() or len(summary) > MOST_SUMMARY:
        return f"summary: expected text of up to {MOST_SUMMARY} characters, found {show(summary)}"
    if card.get("indicator") not in INDICATORS:
        return f"indicator: expected one of {', '.join(INDICATORS)}, found {show(card.get('indicator'))}"
    if not isinstance(source, dict) or not isinstance(source.get("label"), str):
        return "source: expected an object with a label"
    return ""


def choose_cards(service: Service, request: dict[str, Json]) -> list[dict[str, Json]]:
    """Return the cards of a service that the suite plays: those whose values the request has."""
    return [canned.card for canned in service.cards if holds_condition(canned.when, lambda path: find_dotted(request, path))]


def read_services(body: bytes, services_url: str) -> list[Service] | str:
    """Return the services that a discovery answers, each below an address, or what is wrong with it."""
    answered = _decode(body)
    listed = answered.get("services") if isinstance(answered, dict) else None
    if not isinstance(listed, list):
        return "the discovery answers no list of services"
    if len(cast("list[Json]", listed)) > MOST_SERVICES:
        return f"the discovery answers more than {MOST_SERVICES} services"
    found: list[Service] = []
    for one in cast("list[Json]", listed):
        if not isinstance(one, dict) or not isinstance(one.get("id"), str) or not isinstance(one.get("hook"), str) or not one["id"]:
            return f"a service has an id and a hook, found {show(one)}"
        title, description = (str(one.get(name) or "") for name in ("title", "description"))
        url = f"{services_url.rstrip('/')}/{one['id']}"
        found.append(Service(id=one["id"], hook=one["hook"], url=url, title=title, description=description))
    return found


def read_cards(body: bytes) -> tuple[list[dict[str, Json]], list[str]]:
    """Return the cards that a service answers, and what is wrong with its answer."""
    answered = _decode(body)
    listed = answered.get("cards") if isinstance(answered, dict) else None
    if not isinstance(listed, list):
        return [], ["the answer has no list of cards"]
    cards: list[dict[str, Json]] = []
    problems: list[str] = []
    for index, card in enumerate(cast("list[Json]", listed)):
        problem = find_problem(card)
        if problem:
            problems.append(f"cards.{index}: {problem}")
        else:
            cards.append(card)
    return cards, problems


def _decode(body: bytes) -> Json:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
