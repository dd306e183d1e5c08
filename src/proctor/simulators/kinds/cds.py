"""CDS Hooks 1.1, both sides of it: an EHR that calls the agent's service, and services of the suite that an agent can call.

As the EHR:

        POST /services          `{"discovery_url": "http://..."}`: its services are fetched and registered; they are below it,
                            or below `services_url`
    GET  /services          all services, registered and of the suite
    POST /hooks/HOOK        `{"patient_id": "ann", ...}`: every service of that hook is called; answers its cards
    POST /feedback          `{"card": UUID, "outcome": "accepted"}`, also `overridden` and `ignored`; sent on to its service

As services, for an agent that is the EHR: `GET /cds-services`, `POST /cds-services/ID` and `POST /cds-services/ID/feedback`, as the
specification has them. The state are the answered cards with their feedback. A registered service is called by the server of the sandbox
(`exchange.Errand`); answers that are not cards are listed in `problems` and dropped.
"""

from __future__ import annotations

import re
import uuid

import msgspec

from proctor.codecs.query import encode_percent
from proctor.model.evidence import CdsState, Json, State
from proctor.model.show import kind_of, show
from proctor.simulators.bodies import read_object, require_method, split_path, take_text
from proctor.simulators.cds.cards import HOOK, READ_SERVICE, Service, choose_cards, read_cards, read_service, read_services
from proctor.simulators.exchange import Errand, Fetched, Refused, Request, Response, answer_json, refuse
from proctor.simulators.ports import Desk, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.seeds import read_items, read_members, read_word, refuse_doubles

OUTCOMES = ("accepted", "overridden", "ignored")
_CONFIG, _SERVICES = "_config", "_services"
_CARDS = "cards"
_ADDRESS = re.compile(r"https?://[^\s]{1,2000}")
_IDS = uuid.UUID("6f1d2a36-6f6b-4a55-9f2e-6b1f6c0f3c11")
"""The namespace in which ids become UUIDs, which the specification asks for."""


class CdsSimulator:
    """Both sides of CDS Hooks."""

    kind = "cds"
    summary = "CDS Hooks 1.1: an EHR that calls the agent's service, and services that an agent calls."
    steps = ()
    open_paths = ("/cds-services",)
    config_names = ("services", "fhir_server")
    access = {"cds_url": "{url}", "registration_url": "{url}/services"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `services` that the suite plays, each with its cards, and `fhir_server` for requests."""
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
                return _give_feedback(read_object(request), request, desk)
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
            before = desk.rows.get(_SERVICES, service.id)
            if before is not None and not before["url"]:
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
        """Answer as the services that the suite plays."""
        own = {service.id: service for service in _load_services(desk.rows) if not service.url}
        if not names:
            require_method(request, "GET", "HEAD")
            return answer_json(200, {"services": [_show(service) for service in own.values()]})
        require_method(request, "POST")
        service = own.get(names[0])
        if service is None or names[1:] not in ([], ["feedback"]):
            raise refuse(404, "not_found", f"there is no service {show(names[0])}")
        given = read_object(request)
        if names[1:]:
            return _take_feedback(given, desk.rows)
        if given.get("hook") != service.hook:
            raise refuse(400, "wrong_hook", f"{service.id} is of the hook {service.hook}, not {show(given.get('hook'))}")
        if not isinstance(given.get("hookInstance"), str) or not isinstance(given.get("context"), dict):
            raise refuse(400, "wrong_request", "a request has a hookInstance, which is text, and a context, which is an object")
        return answer_json(200, {"cards": [_keep_card(card, service, desk) for card in choose_cards(service, given)]})

    def read_state(self, desk: Desk) -> State:
        """Return the cards that were answered."""
        return State(cds=CdsState(cards=tuple(desk.rows.list(_CARDS).values())))

    def list_tools(self) -> tuple[Tool, ...]:
        """Return what a model can do with CDS Hooks."""
        words: dict[str, Json] = {"type": "string"}
        context: dict[str, Json] = {"type": "object", "description": "patient_id, user_id and whatever else the hook has."}
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
            Tool(
                name="cds_feedback",
                description="Report the outcome of a card.",
                schema={
                    "type": "object",
                    "properties": {"card": words, "outcome": {"enum": list(OUTCOMES)}},
                    "required": ["card", "outcome"],
                },
                make_request=lambda given: Request(method="POST", path="/feedback", body=msgspec.json.encode(given)),
            ),
        )


def _fetch(request: Request, method: str, url: str, body: bytes = b"") -> Fetched:
    """Return the result of an outgoing request; the first time, the errand is raised."""
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
    return read_cards(fetched.body)


def _keep_card(card: dict[str, Json], service: Service, desk: Desk) -> dict[str, Json]:
    named = card.get("uuid")
    name = named if isinstance(named, str) and named else str(uuid.uuid5(_IDS, desk.around.new_id()))
    row = {**card, "uuid": name}
    # A service may answer the same card again: the one before was answered all the same, and stays.
    key = name if desk.rows.get(_CARDS, name) is None else f"{name} {desk.around.new_id()}"
    desk.rows.put(_CARDS, key, {**row, "hook": service.hook, "service": service.id})
    return row


def _find_card(name: str, rows: Draft) -> str | None:
    """Return the key of the last card that has this UUID."""
    return next((key for key, row in reversed(list(rows.list(_CARDS).items())) if row["uuid"] == name), None)


def _take_feedback(given: dict[str, Json], rows: Draft) -> Response:
    """Keep feedback in the form of the specification: a list, each about one card."""
    listed = given.get("feedback")
    if not isinstance(listed, list) or not listed:
        raise refuse(400, "wrong_request", f"feedback: expected a list, found {kind_of(listed)}")
    for one in listed:
        if not isinstance(one, dict):
            raise refuse(400, "wrong_request", f"feedback: expected objects, found {kind_of(one)}")
        _check_feedback(one, rows)
    for one in listed:
        _keep_feedback(one, rows)
    return answer_json(200, {})


def _give_feedback(given: dict[str, Json], request: Request, desk: Desk) -> Response:
    """Store feedback on a card, and send it to the registered service of the card."""
    row = _keep_feedback(given, desk.rows)
    service = next((one for one in _load_services(desk.rows) if one.id == row["service"]), None)
    # The specification has two outcomes: a service does not hear of a card that was ignored.
    if service is None or not service.url or row["feedback"] == "ignored":
        return answer_json(200, row)
    feedback: dict[str, Json] = {"card": row["uuid"], "outcome": row["feedback"], "outcomeTimestamp": desk.around.now()}
    if row["feedback"] == "overridden" and "feedback_reason" in row:
        feedback["overrideReason"] = row["feedback_reason"]
    fetched = _fetch(request, "POST", f"{service.url}/feedback", msgspec.json.encode({"feedback": [feedback]}))
    problem = "" if 200 <= fetched.status < 300 else fetched.problem or f"the service takes no feedback: it answers {fetched.status}"
    return answer_json(200, {**row, "delivered": not problem, "problems": [problem] if problem else []})


def _check_feedback(given: dict[str, Json], rows: Draft) -> tuple[str, str]:
    card, outcome = take_text(given, "card"), take_text(given, "outcome")
    if outcome not in OUTCOMES:
        raise refuse(422, "wrong_value", f"outcome: expected one of {', '.join(OUTCOMES)}, found {show(outcome)}")
    key = _find_card(card, rows)
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
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


SIMULATOR = CdsSimulator()
