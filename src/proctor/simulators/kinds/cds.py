"""CDS Hooks 1.1, both sides of it: an EHR that calls the agent's service, and services of the suite that an agent can call.

As the EHR:

    POST /services          `{"discovery_url": "http://..."}`: its services are fetched and registered; they are below it,
                            or below `services_url`
    GET  /services          all services, registered and of the suite
    POST /hooks/HOOK        `{"patient_id": "ann", ...}`: every service of that hook is called; answers its cards
    POST /feedback          `{"card": UUID, "outcome": "accepted"}`, also `overridden` and `ignored`; sent on to its service

As services, for an agent that is the EHR: `GET /cds-services`, `POST /cds-services/ID` and `POST /cds-services/ID/feedback`, as the
specification has them. The state are the answered cards with their feedback. A registered service is called by the server of the sandbox
(`exchange.Errand`). A card has a summary of up to 140 characters, an indicator and a source with a label, as the specification requires;
answers that are not cards are listed in `problems` and dropped.
"""

from __future__ import annotations

import re
import uuid
from typing import cast

import msgspec

from proctor.codecs.http import encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import CdsState, Json, State
from proctor.model.json_values import MISSING, decode_embedded
from proctor.model.show import kind_of, show
from proctor.model.typed import make_json_decoder
from proctor.paths.dotted import find_dotted
from proctor.simulators.exchange import (
    Errand,
    Fetched,
    Refused,
    Request,
    Response,
    answer_json,
    read_object,
    refuse,
    require_method,
    split_path,
    take_text,
)
from proctor.simulators.ports import Desk, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import holds_condition, join_place, read_condition, read_items, read_members, read_word, refuse_doubles
from proctor.simulators.tools import make_tool

OUTCOMES = ("accepted", "overridden", "ignored")
_CONFIG, _SERVICES = "_config", "_services"
_CARDS = "cards"
_ADDRESS = re.compile(r"https?://[^\s]{1,2000}")
_IDS = uuid.UUID("6f1d2a36-6f6b-4a55-9f2e-6b1f6c0f3c11")
"""The namespace for converting ids to UUIDs, which the specification requires."""


class CdsSimulator:
    """Both sides of CDS Hooks."""

    kind = "cds"
    summary = "CDS Hooks 1.1: an EHR that calls the agent's service, and services that an agent calls."
    steps = ()
    open_paths = ("/cds-services",)
    config_names = ("services", "fhir_server")
    access = {"cds_url": "{url}", "registration_url": "{url}/services"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read the `services` that the suite simulates, each with its cards, and `fhir_server` for requests."""
        given = read_members(seed, self.config_names)
        if given.get("fhir_server") is not None:
            desk.rows.put(_CONFIG, "fhir_server", read_word(given["fhir_server"], "fhir_server", default=""))
        services = [(at, read_service(item, at)) for at, item in read_items(given.get("services"), "services")]
        refuse_doubles(((f"{at}.id", service.id) for at, service in services), "the service")
        for _, service in services:
            desk.rows.put(_SERVICES, service.id, msgspec.to_builtins(service))

    def perform(self, step: str, given: Json, desk: Desk) -> None:
        """Perform nothing: hooks are called by requests."""

    def handle(self, request: Request, desk: Desk) -> Response:
        """Answer a request."""
        try:
            parts = split_path(request)
            if parts[:1] == ["cds-services"] and len(parts) <= 3:
                return self._serve(parts[1:], request, desk)
            if parts == ["services"]:
                require_method(request, "GET", "HEAD", "POST")
                return self._register(request, desk) if request.method == "POST" else _list_services(desk.rows)
            if len(parts) == 2 and parts[0] == "hooks":
                require_method(request, "POST")
                return self._call_hook(parts[1], request, desk)
            if parts == ["feedback"]:
                require_method(request, "POST")
                row = _keep_feedback(read_object(request), desk.rows)
                service = next((one for one in _load_services(desk.rows) if one.id == row["service"]), None)
                # The specification has two outcomes: a service is not notified of an ignored card.
                if service is None or not service.url or row["feedback"] == "ignored":
                    return answer_json(200, row)
                feedback: dict[str, Json] = {"card": row["uuid"], "outcome": row["feedback"], "outcomeTimestamp": desk.around.now()}
                if row["feedback"] == "overridden" and "feedback_reason" in row:
                    feedback["overrideReason"] = row["feedback_reason"]
                fetched = _fetch(request, "POST", f"{service.url}/feedback", msgspec.json.encode({"feedback": [feedback]}))
                problem = (
                    "" if 200 <= fetched.status < 300 else fetched.problem or f"the service takes no feedback: it answers {fetched.status}"
                )
                return answer_json(200, {**row, "delivered": not problem, "problems": [problem] if problem else []})
            raise refuse(404, "not_found", "there are /services, /hooks/HOOK, /feedback and /cds-services")
        except Refused as refused:
            return refused.response

    def _register(self, request: Request, desk: Desk) -> Response:
        given = read_object(request)
        address = take_text(given, "discovery_url").strip()
        below = take_text(given, "services_url", default=address).strip()
        for name, url in (("discovery_url", address), ("services_url", below)):
            if not _ADDRESS.fullmatch(url):
                raise refuse(422, "wrong_value", f"{name}: expected an address that begins with http, found {show(url)}")
        fetched = _fetch(request, "GET", address)
        found = (
            fetched.problem or f"the discovery answers {fetched.status}" if fetched.status != 200 else read_services(fetched.body, below)
        )
        if isinstance(found, str):
            raise refuse(422, "discovery_failed", found)
        for service in found:
            registered = desk.rows.get(_SERVICES, service.id)
            if registered is not None and not registered["url"]:
                raise refuse(409, "name_taken", f"{show(service.id)} is a service of the suite; give yours another id")
            desk.rows.put(_SERVICES, service.id, msgspec.to_builtins(service))
        return answer_json(201, {"services": [_show(service) for service in found]})

    def _call_hook(self, hook: str, request: Request, desk: Desk) -> Response:
        if not HOOK.fullmatch(hook):
            raise refuse(422, "wrong_value", f"not the name of a hook: {show(hook)}")
        given = read_object(request)
        context = {_write_camel(name): value for name, value in given.items() if name != "prefetch"}
        instance = str(uuid.uuid5(_IDS, desk.around.new_id()))
        hook_request: dict[str, Json] = {
            "hook": hook,
            "hookInstance": instance,
            "context": context,
            "prefetch": given.get("prefetch") or {},
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
        return answer_json(200, {"hook": hook, "hook_instance": instance, "cards": stored_cards, "problems": problems})

    def _serve(self, names: list[str], request: Request, desk: Desk) -> Response:
        """Answer as the simulated services."""
        simulated = {service.id: service for service in _load_services(desk.rows) if not service.url}
        if not names:
            require_method(request, "GET", "HEAD")
            return answer_json(200, {"services": [_show(service) for service in simulated.values()]})
        require_method(request, "POST")
        service = simulated.get(names[0])
        if service is None or names[1:] not in ([], ["feedback"]):
            raise refuse(404, "not_found", f"there is no service {show(names[0])}")
        given = read_object(request)
        if names[1:]:
            listed = given.get("feedback")
            if not isinstance(listed, list) or not listed:
                raise refuse(400, "wrong_request", f"feedback: expected a list, found {kind_of(listed)}")
            for one in listed:
                if not isinstance(one, dict):
                    raise refuse(400, "wrong_request", f"feedback: expected objects, found {kind_of(one)}")
                _check_feedback(one, desk.rows)
            for one in listed:
                _keep_feedback(one, desk.rows)
            return answer_json(200, {})
        if given.get("hook") != service.hook:
            raise refuse(400, "wrong_hook", f"{service.id} is of the hook {service.hook}, not {show(given.get('hook'))}")
        if not isinstance(given.get("hookInstance"), str) or not isinstance(given.get("context"), dict):
            raise refuse(400, "wrong_request", "a request has a hookInstance, which is text, and a context, which is an object")
        return answer_json(200, {"cards": [_keep_card(card, service, desk) for card in choose_cards(service, given)]})

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
                make_request=lambda given: Request(
                    method="POST",
                    path=f"/hooks/{encode_percent(str(given.get('hook', '')))}",
                    body=msgspec.json.encode(given.get("context") or {}),
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


def _fetch(request: Request, method: str, url: str, body: bytes = b"") -> Fetched:
    """Return the result of an outgoing request; on the first call, the errand is raised."""
    for fetched in request.fetched:
        if fetched.url == url:
            return fetched
    raise Errand(method, url, body)


def _ask(service: Service, hook_request: dict[str, Json], request: Request) -> tuple[list[dict[str, Json]], list[str]]:
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
    named = card.get("uuid")
    name = named if isinstance(named, str) and named else str(uuid.uuid5(_IDS, desk.around.new_id()))
    row = {**card, "uuid": name}
    # A service may repeat a card: the earlier one was also answered, and stays.
    key = name if desk.rows.get(_CARDS, name) is None else f"{name} {desk.around.new_id()}"
    desk.rows.put(_CARDS, key, {**row, "hook": service.hook, "service": service.id})
    return row


def _check_feedback(given: dict[str, Json], rows: Draft) -> tuple[str, str]:
    card, outcome = take_text(given, "card"), take_text(given, "outcome")
    if outcome not in OUTCOMES:
        raise refuse(422, "wrong_value", f"outcome: expected one of {', '.join(OUTCOMES)}, found {show(outcome)}")
    key = next((key for key, row in reversed(list(rows.list(_CARDS).items())) if row["uuid"] == card), None)
    if key is None:
        raise refuse(404, "not_found", f"there is no card {show(card)}")
    return key, outcome


def _keep_feedback(given: dict[str, Json], rows: Draft) -> dict[str, Json]:
    card, outcome = _check_feedback(given, rows)
    reason = given.get("overrideReason", given.get("reason"))
    row = {**rows.get(_CARDS, card), "feedback": outcome, **({"feedback_reason": reason} if reason else {})}
    rows.put(_CARDS, card, row)
    return row


def _list_services(rows: Draft) -> Response:
    return answer_json(200, {"services": [{**_show(one), "url": one.url or None} for one in _load_services(rows)]})


def _show(service: Service) -> dict[str, Json]:
    return {"hook": service.hook, "title": service.title, "description": service.description, "id": service.id, "prefetch": {}}


def _load_services(rows: Draft) -> list[Service]:
    return [READ_SERVICE.decode(msgspec.json.encode(row)) for row in rows.list(_SERVICES).values()]


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


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service for a hook."""

    id: str
    hook: str
    title: str = ""
    description: str = ""
    url: str = ""
    """Its address; empty for a service that the suite simulates."""
    cards: tuple[Canned, ...] = ()


READ_SERVICE = make_json_decoder(Service)


def read_service(value: Json, at: str) -> Service:
    """Return a service from a suite. Raises `SpecError` for an invalid one."""
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
    found: list[Service] = []
    for one in cast("list[Json]", listed):
        if not isinstance(one, dict) or not isinstance(one.get("id"), str) or not isinstance(one.get("hook"), str) or not one["id"]:
            return f"a service has an id and a hook, found {show(one)}"
        title, description = (str(one.get(name) or "") for name in ("title", "description"))
        url = f"{services_url.rstrip('/')}/{one['id']}"
        found.append(Service(id=one["id"], hook=one["hook"], url=url, title=title, description=description))
    return found


def _decode(body: bytes) -> Json:
    value = decode_embedded(body)
    return None if value is MISSING else value
