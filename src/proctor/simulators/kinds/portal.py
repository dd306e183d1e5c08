"""A payer's web portal for prior authorization: pages for people and browsers, and REST, over one state.

Pages: sign in at `/login` (user name `agent`, the token of the sandbox as password, unless the seed has others), a wizard at
`/requests/new`, `/requests` to search, `/requests/ID` for the status, `/patients`. `portal: radmd` asks for a radiology procedure,
`portal: covermymeds` for a medication (`simulators/portal.py`). A form that is posted twice makes one request.

    POST /api/prior-auths                 the fields of the wizard as JSON
    GET  /api/prior-auths                 all requests; /api/prior-auths/AUTH_NUMBER one, also by its request id
    GET  /api/patients, /api/providers    `q` looks for a part of anything

`simulators/portal.py` determines requests. The state consists of `prior_auth_requests`, `patients` and `providers`.
"""

from __future__ import annotations

import hmac
import itertools

import msgspec

from proctor.codecs.http import encode_percent
from proctor.errors import SpecError
from proctor.model.evidence import Json, State
from proctor.model.show import show
from proctor.simulators import exchange, portal, seeds
from proctor.simulators.portal import (
    REQUEST_KEYS,
    SEED_KEYS,
    STATUSES,
    SUBMITTED,
    WIZARDS,
    Setup,
    Wizard,
    apply_determination,
    find_problems,
    read_moment,
    read_setup,
    require_answers,
)
from proctor.simulators.ports import Desk, Simulator, Tool
from proctor.simulators.rows import Draft
from proctor.simulators.tools import make_tool

_CONFIG, _SESSIONS, _DRAFTS = "_config", "_sessions", "_drafts"
REQUESTS = "prior_auth_requests"
_PEOPLE = ("patients", "providers")
_COOKIE = "portal_session"


class PortalSimulator(Simulator):
    """A payer's web portal."""

    kind = "portal"
    summary = "A payer's web portal for prior authorization: pages with wizards, and REST, over one state."
    open_paths = ("/", "/login", "/logout", "/requests", "/requests/*", "/patients")
    config_names = SEED_KEYS
    access = {"portal_url": "{url}/", "api_url": "{url}/api", "username": "{username}", "password": "{password}"}  # noqa: RUF012 - never changed
    access_defaults = {"username": Setup().username, "password": "{token}"}  # noqa: RUF012 - never changed
    endpoints = {"portal_api": "/api"}  # noqa: RUF012 - never changed

    def seed(self, seed: Json, desk: Desk) -> None:
        """Read `portal`, `username`, `password`, `payer`, the determinations, `patients`, `providers` and `requests`."""
        members = seeds.read_members(seed, SEED_KEYS)
        setup = read_setup(members, _load_setup(desk.rows))
        desk.rows.put(_CONFIG, "setup", msgspec.to_builtins(setup))
        for name, key in (("patients", "member_id"), ("providers", "npi")):
            people: list[tuple[str, str]] = []
            for at, item in seeds.read_items(members.get(name), name):
                row = seeds.read_members(item, item if isinstance(item, dict) else (), at, required=(key,))
                seeds.refuse_slips(row, (key, "name"), at)
                people.append((f"{at}.{key}", existing := seeds.read_word(row[key], f"{at}.{key}")))
                desk.rows.put(name, existing, {**row, key: existing})
            seeds.refuse_doubles(people, key)
        for at, item in seeds.read_items(members.get("requests"), "requests"):
            row = seeds.read_members(item, item if isinstance(item, dict) else (), at)
            seeds.refuse_slips(row, REQUEST_KEYS, at)
            if "submitted_at" in row:
                row = {**row, "submitted_at": read_moment(row["submitted_at"], f"{at}.submitted_at")}
            status = seeds.read_word(row.get("status"), f"{at}.status", default=SUBMITTED, among=(SUBMITTED, *STATUSES))
            existing = desk.rows.get(REQUESTS, str(row.get("request_id", "")))
            if existing is not None:
                raise SpecError(f"there is a request {show(row['request_id'])} already", field=f"{at}.request_id")
            _keep_request({"reason": "", **row, "status": status}, setup, desk)

    def answer(self, request: exchange.Request, desk: Desk) -> exchange.Response:
        """Answer a request. Raises `Refused`."""
        setup = _load_setup(desk.rows)
        _determine(setup, desk)
        parts = exchange.split_path(request)
        if parts[:1] == ["api"]:
            return self._handle_api(parts[1:], request, setup, desk)
        return self._handle_page(parts, request, setup, desk)

    def _handle_api(self, parts: list[str], request: exchange.Request, setup: Setup, desk: Desk) -> exchange.Response:
        if parts == ["prior-auths"] and request.method == "POST":
            body = exchange.read_object(request)
            answers = require_answers(WIZARDS[setup.portal], {name: exchange.take_text(body, name, default="") for name in body})
            for problem in _find_unknown_member(answers, desk.rows).values():
                raise exchange.refuse(422, "unknown_member", problem)
            return exchange.answer_json(201, _submit(answers, setup, desk))
        exchange.require_method(request, "GET", "HEAD", *(("POST",) if parts == ["prior-auths"] else ()))
        query = dict(request.query).get("q", "")
        if parts == ["prior-auths"]:
            return exchange.answer_json(200, {"prior_auths": _search(desk.rows, REQUESTS, query)})
        if len(parts) == 2 and parts[0] == "prior-auths":
            return exchange.answer_json(200, _find_request(parts[1], desk.rows))
        if len(parts) == 1 and parts[0] in _PEOPLE:
            return exchange.answer_json(200, {parts[0]: _search(desk.rows, parts[0], query)})
        raise exchange.refuse(404, "not_found", "there are /api/prior-auths, /api/patients and /api/providers")

    def _handle_page(self, parts: list[str], request: exchange.Request, setup: Setup, desk: Desk) -> exchange.Response:
        base = request.base
        if parts == ["login"]:
            exchange.require_method(request, "GET", "HEAD", "POST")
            problem = ""
            if request.method == "POST":
                form = exchange.read_form(request)
                password = setup.password or request.token
                known = bool(password) and hmac.compare_digest(form.get("password", "").encode(), password.encode())
                if known and form.get("username") == setup.username:
                    session = desk.around.new_id()
                    desk.rows.put(_SESSIONS, session, {"at": desk.around.now()})
                    # The cookie is limited to the portal: `http://host/SANDBOX/NAME` is its base.
                    path = "/" + "/".join(request.base.split("/")[3:])
                    return portal.redirect(f"{request.base}/", set_cookie=f"{_COOKIE}={session}; Path={path}; HttpOnly; SameSite=Lax")
                problem = "User name or password are wrong"
            body = portal.write_login(request.base, problem)
            return portal.answer_page("Sign in", body, request.base, payer=setup.payer, is_inside=False, status=403 if problem else 200)
        session = _find_session(request, desk.rows)
        if parts == ["logout"]:
            exchange.require_method(request, "POST")
            if session:
                desk.rows.remove(_SESSIONS, session)
            return portal.redirect(f"{base}/login")
        if not session:
            return portal.redirect(f"{base}/login")
        if parts[:2] == ["requests", "new"]:
            return _handle_wizard(parts[2:], request, setup, desk)
        exchange.require_method(request, "GET", "HEAD")
        query = dict(request.query).get("q", "")
        if not parts:
            start = f'<p><a href="{portal.escape(base)}/requests/new">New request</a></p>'
            count = len(desk.rows.list(REQUESTS))
            return portal.answer_page("Home", f"{start}<p>{count} requests so far.</p>", base, payer=setup.payer)
        if parts == ["requests"]:
            cells = (
                (
                    f'<a href="{portal.escape(base)}/requests/{portal.escape(row["request_id"])}">{portal.escape(row["auth_number"])}</a>',
                    portal.escape(row.get("patient_member_id", "")),
                    portal.escape(row.get(WIZARDS[setup.portal].subject, "")),
                    portal.escape(row["status"]),
                )
                for row in _search(desk.rows, REQUESTS, query)
            )
            table = portal.write_table(("Authorization number", "Member ID", "Requested", "Status"), cells, "No request found.")
            search = portal.write_search(f"{base}/requests", "Authorization number or member ID", query)
            return portal.answer_page("Requests", search + table, base, payer=setup.payer)
        if len(parts) == 2 and parts[0] == "requests":
            row = desk.rows.get(REQUESTS, parts[1])
            if row is not None:
                listed = portal.write_list((name.replace("_", " ").capitalize(), value) for name, value in row.items() if value != "")
                return portal.answer_page(f"Request {row['request_id']}: {row['status']}", listed, base, payer=setup.payer)
        if parts == ["patients"]:
            patients = _search(desk.rows, "patients", query)
            cells = ((portal.escape(row["member_id"]), portal.escape(row.get("name", ""))) for row in patients)
            table = portal.write_table(("Member ID", "Name"), cells, "No patient found.")
            search = portal.write_search(f"{base}/patients", "Name or member ID", query)
            return portal.answer_page("Patients", search + table, base, payer=setup.payer)
        return portal.answer_page("Not found", "<p>There is no such page.</p>", base, payer=setup.payer, status=404)

    def read_state(self, desk: Desk) -> State:
        """Return the requests in their current state, the patients and the providers."""
        _determine(_load_setup(desk.rows), desk)
        return State(portal={name: list(desk.rows.list(name).values()) for name in (REQUESTS, *_PEOPLE)})

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the tools for the portal."""
        fields = {field.name: field for wizard in WIZARDS.values() for field in wizard.list_fields()}
        properties: dict[str, Json] = {}
        for name, field in fields.items():
            properties[name] = {"type": "string", "description": f"{field.label}. {field.hint}"}
        words: dict[str, Json] = {"type": "string"}
        return (
            make_tool(
                "portal_submit_prior_auth",
                "Submit a request for prior authorization; its answer has the authorization number and the status.",
                properties,
                ("patient_member_id",),
                request="POST /api/prior-auths",
            ),
            make_tool(
                "portal_status",
                "Look up a request by its authorization number.",
                {"auth_number": words},
                ("auth_number",),
                request="GET /api/prior-auths/{auth_number}",
            ),
            make_tool(
                "portal_search_patients",
                "Search patients by a part of any field.",
                {"q": words},
                request="GET /api/patients",
            ),
        )


def _determine(setup: Setup, desk: Desk) -> None:
    """Make the determinations whose delay is over."""
    for key, row in list(desk.rows.list(REQUESTS).items()):
        if (now := apply_determination(row, setup, desk.around.now())) is not row:
            desk.rows.put(REQUESTS, key, now)


def _find_session(request: exchange.Request, rows: Draft) -> str:
    for part in request.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == _COOKIE and rows.get(_SESSIONS, value) is not None:
            return value
    return ""


def _handle_wizard(parts: list[str], request: exchange.Request, setup: Setup, desk: Desk) -> exchange.Response:
    """Handle the wizard: `new` starts a draft, `new/DRAFT/2` is its second step, `new/DRAFT/submit` creates the request."""
    exchange.require_method(request, "GET", "HEAD", "POST")
    wizard = WIZARDS[setup.portal]
    base = request.base
    if not parts:
        # The draft is stored with its first answers: viewing a form changes nothing.
        return portal.redirect(f"{base}/requests/new/{desk.around.new_id()}/1")
    key, step = (parts[0], parts[1]) if len(parts) == 2 else ("", "")
    draft: dict[str, Json] = desk.rows.get(_DRAFTS, key) or {"answers": {}, "request_id": ""}
    if draft["request_id"]:
        return portal.redirect(f"{base}/requests/{draft['request_id']}")
    address = f"{base}/requests/new/{encode_percent(key)}"
    if step == "submit" and request.method == "POST":
        return _submit_draft(key, draft, wizard, setup, request, desk)
    if not key or not (step.isascii() and step.isdigit()) or len(step) > 4 or not 1 <= int(step) <= len(wizard.steps) + 1:
        return portal.answer_page("Not found", "<p>There is no such step.</p>", base, payer=setup.payer, status=404)
    index = int(step) - 1
    answers: dict[str, str] = draft["answers"]
    problems: dict[str, str] = {}
    if request.method == "POST" and index < len(wizard.steps):
        fields = wizard.steps[index].fields
        form = exchange.read_form(request)
        answers = {**answers, **{field.name: form.get(field.name, "").strip() for field in fields}}
        problems = find_problems(fields, answers) or _find_unknown_member(answers, desk.rows)
        if not problems:
            desk.rows.put(_DRAFTS, key, {**draft, "answers": answers})
            return portal.redirect(f"{address}/{index + 2}")
    body = (
        portal.write_step(wizard, index, address, answers, problems)
        if index < len(wizard.steps)
        else portal.write_review(wizard, address, answers)
    )
    return portal.answer_page(wizard.title, body, base, payer=setup.payer, status=422 if problems else 200)


def _submit_draft(
    key: str, draft: dict[str, Json], wizard: Wizard, setup: Setup, request: exchange.Request, desk: Desk
) -> exchange.Response:
    problems = find_problems(wizard.list_fields(), draft["answers"]) or _find_unknown_member(draft["answers"], desk.rows)
    if problems:
        body = portal.write_problems(problems.values()) + portal.write_review(
            wizard, f"{request.base}/requests/new/{encode_percent(key)}", draft["answers"]
        )
        return portal.answer_page(wizard.title, body, request.base, payer=setup.payer, status=422)
    row = _submit({field.name: draft["answers"].get(field.name, "") for field in wizard.list_fields()}, setup, desk)
    # Submitting a draft again leads to the same request.
    desk.rows.put(_DRAFTS, key, {**draft, "request_id": row["request_id"]})
    return portal.redirect(f"{request.base}/requests/{row['request_id']}")


def _submit(answers: dict[str, str], setup: Setup, desk: Desk) -> dict[str, Json]:
    patient = desk.rows.get("patients", answers["patient_member_id"]) or {}
    row: dict[str, Json] = {"status": SUBMITTED, "reason": "", **answers, "patient_name": patient.get("name", "")}
    return _keep_request(row, setup, desk)


def _keep_request(row: dict[str, Json], setup: Setup, desk: Desk) -> dict[str, Json]:
    known = desk.rows.list(REQUESTS)
    used_numbers = {str(request[name]) for request in known.values() for name in ("request_id", "auth_number")}
    # A seeded request may already have the next number.
    number = next(at for at in itertools.count(len(known) + 1) if not {f"REQ-{at:04}", f"PA-{at:06}"} & used_numbers)
    now = desk.around.now()
    identity: dict[str, Json] = {
        "request_id": f"REQ-{number:04}",
        "auth_number": f"PA-{number:06}",
        "portal": setup.portal,
        "submitted_at": now,
    }
    # Seeded requests keep their own names.
    determined = apply_determination({**identity, **row}, setup, now)
    desk.rows.put(REQUESTS, str(determined["request_id"]), determined)
    return determined


def _find_unknown_member(answers: dict[str, str], rows: Draft) -> dict[str, str]:
    member = answers.get("patient_member_id", "")
    if not rows.list("patients") or rows.get("patients", member) is not None:
        return {}
    return {"patient_member_id": f"Member ID: there is no member {member[:40]}"}


def _find_request(name: str, rows: Draft) -> dict[str, Json]:
    for row in rows.list(REQUESTS).values():
        if name in (row["auth_number"], row["request_id"]):
            return row
    raise exchange.refuse(404, "not_found", f"there is no request {show(name)}")


def _search(rows: Draft, collection: str, query: str) -> list[dict[str, Json]]:
    needle = query.strip().casefold()
    return [row for row in rows.list(collection).values() if any(needle in str(value).casefold() for value in row.values())]


def _load_setup(rows: Draft) -> Setup:
    return rows.load(_CONFIG, "setup", Setup) or Setup()


SIMULATOR = PortalSimulator()
