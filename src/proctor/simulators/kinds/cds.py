"""CDS Hooks 1.1, both sides of it: an EHR that calls the agent's service, and services of the suite that an agent can call.

As the EHR:

    POST /services          `{"discovery_url": "http://..."}`: its services are fetched and registered; they are below it,
                            or below `services_url`
    GET  /services          all services, registered and of the suite
    POST /hooks/HOOK        `{"patient_id": "ann", ...}`: every service of that hook is called; answers its cards
    POST /feedback          `{"card": UUID, "outcome": "accepted"}`, also `overridden` and `ignored`; sent on to its service

As services, for an agent that is the EHR: `GET /cds-services`, `POST /cds-services/ID` and `POST /cds-services/ID/feedback`, as the
specification has them. The state consists of the answered cards with their feedback. The server of the sandbox calls registered services
(`exchange.Errand`). A card has a summary of up to 140 characters, an indicator and a source with a label, as the specification requires;
answers that are not cards are listed in `problems` and dropped.
"""

from __future__ import annotations

import re
import uuid
from typing import Annotated, cast

import msgspec

from proctor.codecs.http import encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import CdsState, Json, State
from proctor.model.json_values import MISSING, decode_embedded
from proctor.model.show import kind_of, show
from proctor.model.typed import convert_to
from proctor.paths.dotted import find_dotted
from proctor.simulators import exchange
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import (
    NotRead,
    ReadBy,
    holds_condition,
    join_place,
    read_as,
    read_condition,
    read_members,
    read_word,
    refuse_doubles,
)
from proctor.simulators.tools import make_tool

OUTCOMES = ("accepted", "overridden", "ignored")
_CONFIG, _SERVICES = "_config", "_services"
_CARDS = "cards"
_ADDRESS = re.compile(r"https?://[^\s]{1,2000}")
_IDS = uuid.UUID("6f1d2a36-6f6b-4a55-9f2e-6b1f6c0f3c11")
"""The namespace for converting ids to UUIDs, which the specification requires."""


class CdsSimulator(Simulator):
    """Both sides of CDS Hooks."""

    kind = "cds"
    summary = "CDS Hooks 1.1: an EHR that calls the agent's service, and services that an agent calls."
    open_paths = ("/cds-services",)
    config_names = ("services", "fhir_server")
    access = {"cds_url": "{url}", "registration_url": "{url}/services"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read the `services` that the suite simulates, each with its cards, and `fhir_server` for requests."""
        members = read_members(seed, self.config_names)
        if members.get("fhir_server") is not None:
            desk.rows.put(_CONFIG, "fhir_server", read_word(members["fhir_server"], "fhir_server", default=""))
        services = read_as(tuple[Service, ...], members.get("services"), "services")
        refuse_doubles(((f"services.{index}.id", service.id) for index, service in enumerate(services)), "the service")
        for service in services:
            desk.rows.put(_SERVICES, service.id, msgspec.to_builtins(service))

    def answer(self, request: exchange.Request, desk: Desk) -> exchange.Response:
        """Answer a request. Raises `Refused`."""
        parts = exchange.split_path(request)
        if parts[:1] == ["cds-services"] and len(parts) <= 3:
            return self._serve(parts[1:], request, desk)
        if parts == ["services"]:
            exchange.require_method(request, "GET", "HEAD", "POST")
            return self._register(request, desk) if request.method == "POST" else _list_services(desk.rows)
        if len(parts) == 2 and parts[0] == "hooks":
            exchange.require_method(request, "POST")
            return self._call_hook(parts[1], request, desk)
        if parts == ["feedback"]:
            exchange.require_method(request, "POST")
            row = _store_feedback(exchange.read_object(request), desk.rows)
            service = next((loaded for loaded in _load_services(desk.rows) if loaded.id == row["service"]), None)
            # The specification has two outcomes: a service is not notified of an ignored card.
            if service is None or not service.url or row["feedback"] == "ignored":
                return exchange.answer_json(200, row)
            feedback: dict[str, Json] = {"card": row["uuid"], "outcome": row["feedback"], "outcomeTimestamp": desk.around.now()}
            if row["feedback"] == "overridden" and "feedback_reason" in row:
                feedback["overrideReason"] = row["feedback_reason"]
            fetched = _fetch(request, "POST", f"{service.url}/feedback", msgspec.json.encode({"feedback": [feedback]}))
            problem = (
                "" if 200 <= fetched.status < 300 else fetched.problem or f"the service takes no feedback: it answers {fetched.status}"
            )
            return exchange.answer_json(200, {**row, "delivered": not problem, "problems": [problem] if problem else []})
        raise exchange.refuse(404, "not_found", "there are /services, /hooks/HOOK, /feedback and /cds-services")

    def _register(self, request: exchange.Request, desk: Desk) -> exchange.Response:
        body = exchange.read_object(request)
        address = exchange.take_text(body, "discovery_url").strip()
        below = exchange.take_text(body, "services_url", default=address).strip()
        for name, url in (("discovery_url", address), ("services_url", below)):
            if not _ADDRESS.fullmatch(url):
                raise exchange.refuse(422, "wrong_value", f"{name}: expected an address that begins with http, found {show(url)}")
        fetched = _fetch(request, "GET", address)
        services = (
            fetched.problem or f"the discovery answers {fetched.status}" if fetched.status != 200 else read_services(fetched.body, below)
        )
        if isinstance(services, str):
            raise exchange.refuse(422, "discovery_failed", services)
        for service in services:
            registered = desk.rows.get(_SERVICES, service.id)
            if registered is not None and not registered["url"]:
                raise exchange.refuse(409, "name_taken", f"{show(service.id)} is a service of the suite; give yours another id")
            desk.rows.put(_SERVICES, service.id, msgspec.to_builtins(service))
        return exchange.answer_json(201, {"services": [_show(service) for service in services]})

    def _call_hook(self, hook: str, request: exchange.Request, desk: Desk) -> exchange.Response:
        if not HOOK.fullmatch(hook):
            raise exchange.refuse(422, "wrong_value", f"not the name of a hook: {show(hook)}")
        body = exchange.read_object(request)
        context = {_write_camel(name): value for name, value in body.items() if name != "prefetch"}
        instance = str(uuid.uuid5(_IDS, desk.around.new_id()))
        hook_request: dict[str, Json] = {
            "hook": hook,
            "hookInstance": instance,
            "context": context,
            "prefetch": body.get("prefetch") or {},
        }
        if server := desk.rows.get(_CONFIG, "fhir_server"):
            hook_request["fhirServer"] = server
        stored_cards: list[Json] = []
        problems: list[str] = []
        for service in _load_services(desk.rows):
            if service.hook != hook:
                continue
            cards, wrong = _ask(service, hook_request, request)
            problems += [f"{service.id}: {problem}" for problem in wrong]
            stored_cards += [_keep_card(card, service, desk) for card in cards]
        return exchange.answer_json(200, {"hook": hook, "hook_instance": instance, "cards": stored_cards, "problems": problems})

    def _serve(self, names: list[str], request: exchange.Request, desk: Desk) -> exchange.Response:
        """Answer as the simulated services."""
        simulated = {service.id: service for service in _load_services(desk.rows) if not service.url}
        if not names:
            exchange.require_method(request, "GET", "HEAD")
            return exchange.answer_json(200, {"services": [_show(service) for service in simulated.values()]})
        exchange.require_method(request, "POST")
        service = simulated.get(names[0])
        if service is None or names[1:] not in ([], ["feedback"]):
            raise exchange.refuse(404, "not_found", f"there is no service {show(names[0])}")
        body = exchange.read_object(request)
        if names[1:]:
            listed = body.get("feedback")
            if not isinstance(listed, list) or not listed:
                raise exchange.refuse(400, "wrong_request", f"feedback: expected a list, found {kind_of(listed)}")
            for candidate in listed:
                if not isinstance(candidate, dict):
                    raise exchange.refuse(400, "wrong_request", f"feedback: expected objects, found {kind_of(candidate)}")
                _check_feedback(candidate, desk.rows)
            for candidate in listed:
                _store_feedback(candidate, desk.rows)
            return exchange.answer_json(200, {})
        if body.get("hook") != service.hook:
            raise exchange.refuse(400, "wrong_hook", f"{service.id} is of the hook {service.hook}, not {show(body.get('hook'))}")
        if not isinstance(body.get("hookInstance"), str) or not isinstance(body.get("context"), dict):
            raise exchange.refuse(400, "wrong_request", "a request has a hookInstance, which is text, and a context, which is an object")
        return exchange.answer_json(200, {"cards": [_keep_card(card, service, desk) for card in choose_cards(service, body)]})

    def read_state(self, desk: Desk) -> State:
        """Return the answered cards."""
        return State(cds=CdsState(cards=tuple(desk.rows.list(_CARDS).values())))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for CDS Hooks."""
        words: dict[str, Json] = {"type": "string"}
        context: dict[str, Json] = {"type": "object", "description": "patient_id, user_id and whatever else the hook has."}
        outcome: dict[str, Json] = {"enum": list(OUTCOMES)}
        return (
            Tool(
                name="cds_call_hook",
                description="Call a hook, such as patient-view; the answer are the cards of all services.",
                schema={"type": "object", "properties": {"hook": words, "context": context}, "required": ["hook"]},
                make_request=lambda args: exchange.Request(
                    method="POST",
                    path=f"/hooks/{encode_percent(str(args.get('hook', '')))}",
                    body=msgspec.json.encode(args.get("context") or {}),
                ),
            ),
            make_tool(
                "cds_feedback",
                "Report the outcome of a card.",
                {"card": words, "outcome": outcome},
                ("card", "outcome"),
                request="POST /feedback",
            ),
        )


def _fetch(request: exchange.Request, method: str, url: str, body: bytes = b"") -> exchange.Fetched:
    """Return the result of an outgoing request; on the first call, the errand is raised."""
    for fetched in request.fetched:
        if fetched.url == url:
            return fetched
    raise exchange.Errand(method, url, body)


def _ask(service: Service, hook_request: dict[str, Json], request: exchange.Request) -> tuple[list[dict[str, Json]], list[str]]:
    if not service.url:
        return choose_cards(service, hook_request), []
    fetched = _fetch(request, "POST", service.url, msgspec.json.encode(hook_request))
    if fetched.status != 200:
        return [], [fetched.problem or f"the service answers {fetched.status}"]
    answered = _decode(fetched.body)
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


def _keep_card(card: dict[str, Json], service: Service, desk: Desk) -> dict[str, Json]:
    card_id = card.get("uuid")
    name = card_id if isinstance(card_id, str) and card_id else str(uuid.uuid5(_IDS, desk.around.new_id()))
    row = {**card, "uuid": name}
    # A service may repeat a card: the earlier one was also answered, and stays.
    key = name if desk.rows.get(_CARDS, name) is None else f"{name} {desk.around.new_id()}"
    desk.rows.put(_CARDS, key, {**row, "hook": service.hook, "service": service.id})
    return row


def _check_feedback(feedback: dict[str, Json], rows: Draft) -> tuple[str, str]:
    card, outcome = exchange.take_text(feedback, "card"), exchange.take_text(feedback, "outcome")
    if outcome not in OUTCOMES:
        raise exchange.refuse(422, "wrong_value", f"outcome: expected one of {', '.join(OUTCOMES)}, found {show(outcome)}")
    key = next((key for key, row in reversed(list(rows.list(_CARDS).items())) if row["uuid"] == card), None)
    if key is None:
        raise exchange.refuse(404, "not_found", f"there is no card {show(card)}")
    return key, outcome


def _store_feedback(feedback: dict[str, Json], rows: Draft) -> dict[str, Json]:
    card, outcome = _check_feedback(feedback, rows)
    reason = feedback.get("overrideReason", feedback.get("reason"))
    row = {**rows.get(_CARDS, card), "feedback": outcome, **({"feedback_reason": reason} if reason else {})}
    rows.put(_CARDS, card, row)
    return row


def _list_services(rows: Draft) -> exchange.Response:
    return exchange.answer_json(200, {"services": [{**_show(service), "url": service.url or None} for service in _load_services(rows)]})


def _show(service: Service) -> dict[str, Json]:
    return {"hook": service.hook, "title": service.title, "description": service.description, "id": service.id, "prefetch": {}}


def _load_services(rows: Draft) -> list[Service]:
    return [convert_to(row, Service) for row in rows.list(_SERVICES).values()]


def _write_camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


SIMULATOR = CdsSimulator()


INDICATORS = ("info", "warning", "critical")
MOST_SUMMARY = 140
MOST_SERVICES = 100
"""Services of one discovery."""
HOOK = re.compile(r"[a-z][a-z0-9-]{0,60}")


class Canned(msgspec.Struct, frozen=True):
    """A card that is returned if the request has certain values."""

    when: dict[str, Json]
    """Paths such as `context.patientId` with their expected values."""
    card: dict[str, Json]


def _read_hook(value: Json, at: str) -> str:
    hook = read_word(value, at)
    if not HOOK.fullmatch(hook):
        # It could never be called.
        raise SpecError(f"expected the name of a hook such as patient-view, found {show(hook)}", field=at)
    return hook


def _read_canned(value: Json, at: str) -> Canned:
    if not isinstance(value, dict):
        raise SpecError(f"expected a card, found {kind_of(value)}", field=at)
    members = cast("dict[str, Json]", value)
    when = read_condition(members.get("when") or None, join_place(at, "when"))
    card = {"indicator": "info", "source": {"label": "simulated"}, **{name: member for name, member in members.items() if name != "when"}}
    problem = find_problem(card)
    if problem:
        raise SpecError(problem, field=at)
    return Canned(when, card)


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service for a hook."""

    id: str
    hook: Annotated[str, ReadBy(_read_hook)]
    title: str = ""
    description: str = ""
    url: Annotated[str, NotRead] = ""
    """Its address; empty for a service that the suite simulates."""
    cards: tuple[Annotated[Canned, ReadBy(_read_canned)], ...] = ()


def find_problem(card: Json) -> str:
    """Return the error in a card, or an empty text."""
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
    """Return the cards of a simulated service whose conditions match the request."""
    return [canned.card for canned in service.cards if holds_condition(canned.when, lambda path: find_dotted(request, path))]


def read_services(body: bytes, services_url: str) -> list[Service] | str:
    """Return the services in a discovery response, each with its address, or the error in it."""
    answered = _decode(body)
    listed = answered.get("services") if isinstance(answered, dict) else None
    if not isinstance(listed, list):
        return "the discovery answers no list of services"
    if len(cast("list[Json]", listed)) > MOST_SERVICES:
        return f"the discovery answers more than {MOST_SERVICES} services"
    services: list[Service] = []
    for entry in cast("list[Json]", listed):
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or not isinstance(entry.get("hook"), str) or not entry["id"]:
            return f"a service needs an id and a hook, found {show(entry)}"
        title, description = (str(entry.get(name) or "") for name in ("title", "description"))
        url = f"{services_url.rstrip('/')}/{entry['id']}"
        services.append(Service(id=entry["id"], hook=entry["hook"], url=url, title=title, description=description))
    return services


def _decode(body: bytes) -> Json:
    value = decode_embedded(body)
    return None if value is MISSING else value
