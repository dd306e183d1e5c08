"""The portal of the payer: pages and REST over one state. `tests/live/clients/test_simulator_clients.py` drives it in a real browser."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from proctor.codecs.http import encode_query
from proctor.errors import SpecError
from proctor.model.case import System
from proctor.simulators.exchange import Request, Response
from proctor.simulators.kinds.portal import SIMULATOR
from proctor.simulators.ports import Desk, Surroundings
from proctor.simulators.rows import Draft, MemoryStore
from proctor.simulators.sandbox import Sandbox
from tests.simulators.workplace import BASE, Workplace, make_surroundings, read, refusal

SEED: dict[str, Any] = {
    "password": "secret",
    "payer": "Acme <Health>",
    "patients": [{"member_id": "W1", "name": "Ann Smith"}, {"member_id": "W2", "name": "Bob <b>"}],
    "providers": [{"npi": "1234567893", "name": "Dr. Rivera"}],
    "determinations": [
        {"procedure_code": "70551", "status": "approved"},
        {"patient_member_id": "W2", "status": "denied", "reason": "not covered", "delay_seconds": 60},
    ],
    "default_determination": {"status": "pending"},
}
REQUEST = {
    "patient_member_id": "W1",
    "provider_npi": "1234567893",
    "procedure_code": "70551",
    "diagnosis_code": "M54.5",
    "urgency": "standard",
}
FORM = "application/x-www-form-urlencoded"


class Browser:
    """A user of the portal's pages: follows redirects and keeps the cookie."""

    def __init__(self, portal: Workplace) -> None:
        self.portal = portal
        self.cookie = ""
        self.at = "/"

    def open(self, path: str, form: dict[str, str] | None = None) -> Response:
        body = None if form is None else encode_query(form.items()).encode()
        response = self.portal.ask("GET" if form is None else "POST", path, body, cookie=self.cookie, content_type=FORM)
        self.cookie = response.headers.get("set-cookie", self.cookie).partition(";")[0]
        self.at = path
        if response.status == 303:
            assert response.headers["location"].startswith(BASE)
            return self.open(response.headers["location"].removeprefix(BASE))
        return response

    def sign_in(self, password: str = "secret") -> Response:
        return self.open("/login", {"username": "agent", "password": password})

    def fill(self, answers: list[dict[str, str]]) -> Response:
        """Begin a request, and answer step by step to the review."""
        page = self.open("/requests/new")
        for answer in answers:
            page = self.open(self.at, answer)
        return page


def split(*steps: tuple[str, ...]) -> list[dict[str, str]]:
    return [{name: REQUEST.get(name, "") for name in step} for step in steps]


RADMD = split(("patient_member_id",), ("provider_npi",), ("procedure_code", "diagnosis_code"), ("urgency", "clinical_notes"))


@pytest.fixture
def portal() -> Workplace:
    return Workplace("portal", SEED)


def rows(portal: Workplace) -> list[dict[str, Any]]:
    state = portal.state()
    assert state.portal is not None
    return state.portal["prior_auth_requests"]


def test_a_request_by_rest_is_determined(portal: Workplace) -> None:
    made = portal.ask("POST", "/api/prior-auths", REQUEST)
    row = read(made)
    assert (made.status, row["status"], row["request_id"], row["auth_number"]) == (201, "approved", "REQ-0001", "PA-000001")
    assert (row["patient_name"], row["procedure_code"], row["clinical_notes"]) == ("Ann Smith", "70551", "")
    assert portal.get("/api/prior-auths/PA-000001") == portal.get("/api/prior-auths/REQ-0001") == row == rows(portal)[0]
    assert read(portal.ask("POST", "/api/prior-auths", {**REQUEST, "procedure_code": "73721"}))["status"] == "pending"
    assert [one["member_id"] for one in portal.get("/api/patients?q=smith")["patients"]] == ["W1"]
    assert portal.get("/api/providers")["providers"][0]["npi"] == "1234567893"
    assert len(portal.get("/api/prior-auths?q=70551")["prior_auths"]) == 1


def test_the_wizard_makes_the_same_request(portal: Workplace) -> None:
    browser = Browser(portal)
    assert b"Sign in" in browser.open("/").body
    assert b"New request" in browser.sign_in().body
    review = browser.fill(RADMD)
    assert b"Step 5 of 5: Review" in review.body and b"M54.5" in review.body
    assert rows(portal) == []
    submit = browser.at.rpartition("/")[0] + "/submit"
    assert b"REQ-0001: approved" in browser.open(submit, {}).body
    assert b"REQ-0001: approved" in browser.open(submit, {}).body, "posted twice, it is one request"
    made = read(portal.ask("POST", "/api/prior-auths", REQUEST))
    one, other = rows(portal)
    same = {"request_id": None, "auth_number": None}
    assert {**one, **same} == {**other, **same} and other == made
    assert b"PA-000002" in browser.open("/requests?q=W1").body
    assert b"Bob &lt;b&gt;" in browser.open("/patients?q=bob").body
    assert browser.open("/nothing").status == 404 and browser.open("/requests/REQ-9").status == 404
    assert browser.open("/requests/new/k/00019").status == browser.open(f"/requests/new/k/0001{'9' * 5_000}").status == 404


def test_the_other_wizard_asks_for_a_medication() -> None:
    portal = Workplace("portal", {"portal": "covermymeds", "password": "secret"})
    browser = Browser(portal)
    browser.sign_in()
    steps = [
        {"patient_member_id": "W1"},
        {"medication": "Humira 40 mg", "quantity": "2", "days_supply": "28"},
        {"provider_npi": "1234567893"},
        {"diagnosis_code": "M05.79", "urgency": "urgent", "clinical_notes": "Methotrexate failed"},
    ]
    assert b"Review" in browser.fill(steps).body
    assert b"submitted" in browser.open(browser.at.rpartition("/")[0] + "/submit", {}).body
    (row,) = rows(portal)
    assert (row["medication"], row["status"], row["portal"]) == ("Humira 40 mg", "submitted", "covermymeds")


def test_a_wrong_password_is_refused_at_the_sign_in(portal: Workplace) -> None:
    browser = Browser(portal)
    wrong = browser.sign_in("guess")
    assert wrong.status == 403 and b'role="alert"' in wrong.body
    assert b"Sign in" in browser.open("/requests").body
    browser.cookie = "portal_session=guess"
    assert b"Sign in" in browser.open("/requests/new").body


def test_signing_out_ends_the_session(portal: Workplace) -> None:
    browser = Browser(portal)
    browser.sign_in()
    browser.open("/logout", {})
    assert b"Sign in" in browser.open("/requests").body


def test_errors_of_a_step_are_shown_next_to_their_field(portal: Workplace) -> None:
    browser = Browser(portal)
    browser.sign_in()
    page = browser.fill([{"patient_member_id": ""}])
    assert page.status == 422 and b'aria-invalid="true"' in page.body and b"Member ID: enter a value" in page.body
    assert b"there is no member W9" in browser.fill([{"patient_member_id": "W9"}]).body
    page = browser.fill([{"patient_member_id": '"><script>'}])
    assert b"<script>" not in page.body
    browser.fill([])
    unfinished = browser.open(browser.at.rpartition("/")[0] + "/submit", {})
    assert unfinished.status == 422 and rows(portal) == []
    for step in ("9", "00019", "0001" + "9" * 5000, "²", "0"):
        assert browser.open(f"/requests/new/x/{step}").status == 404, step[:10]


def test_every_field_has_a_label(portal: Workplace) -> None:
    browser = Browser(portal)
    pages = [browser.open("/login"), browser.sign_in(), browser.open("/requests"), browser.open("/patients")]
    browser.open("/requests/new")
    for step in RADMD:
        pages.append(browser.open(browser.at))
        browser.open(browser.at, step)
    for page in pages:
        text = page.body.decode()
        fields = re.findall(r"<(?:input|select|textarea) id=\"([^\"]+)\"", text)
        assert set(fields) == set(re.findall(r"<label for=\"([^\"]+)\"", text))
        assert '<html lang="en">' in text and "<title>" in text and text.count("<h1>") == 1


def test_a_delayed_determination_is_made_after_its_delay() -> None:
    clock = {"now": "2026-11-16T09:30:00.000Z"}
    around = Surroundings(now=lambda: clock["now"], new_id=lambda: "x", seconds=lambda: 0.0)
    draft = Draft({}, "portal")
    desk = Desk(draft, around)
    SIMULATOR.seed(SEED, desk)
    body = msgspec.json.encode({**REQUEST, "patient_member_id": "W2", "procedure_code": "1aaaa"})
    made = SIMULATOR.handle(Request(method="POST", path="/api/prior-auths", body=body), desk)
    assert read(made)["status"] == "submitted"
    look = Request(method="GET", path="/api/prior-auths/REQ-0001")
    clock["now"] = "2026-11-16T09:30:59.000Z"
    assert read(SIMULATOR.handle(look, desk))["status"] == "submitted"
    clock["now"] = "2026-11-16T09:31:00.000Z"
    assert {**read(SIMULATOR.handle(look, desk)), **REQUEST}["status"] == "denied"
    state = SIMULATOR.read_state(desk)
    assert state.portal is not None and state.portal["prior_auth_requests"][0]["reason"] == "not covered"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/api/prior-auths", {}, 422, "wrong_value"),
        ("POST", "/api/prior-auths", {**REQUEST, "procedure_code": "x"}, 422, "wrong_value"),
        ("POST", "/api/prior-auths", {**REQUEST, "urgency": "now"}, 422, "wrong_value"),
        ("POST", "/api/prior-auths", {**REQUEST, "patient_member_id": "W9"}, 422, "unknown_member"),
        ("POST", "/api/prior-auths", {**REQUEST, "clinical_notes": ["x"]}, 422, "wrong_value"),
        ("POST", "/api/prior-auths", b"{", 400, "bad_json"),
        ("GET", "/api/prior-auths/PA-9", None, 404, "not_found"),
        ("GET", "/api/nothing", None, 404, "not_found"),
        ("DELETE", "/api/patients", None, 405, "method_not_allowed"),
    ],
)
def test_impossible_requests_are_refused(portal: Workplace, method: str, path: str, body: Any, status: int, code: str) -> None:
    assert refusal(portal.ask(method, path, body)) == (status, code)
    assert portal.state().changes == ()


@pytest.mark.parametrize(
    ("path", "is_open"), [("/login", True), ("/requests/new/x/1", True), ("/api/prior-auths", False), ("//api/patients", False)]
)
def test_only_pages_are_reached_without_the_token(path: str, is_open: bool) -> None:
    sandbox = Sandbox("s", (System(name="portal", kind="portal"),), MemoryStore(), make_surroundings())
    assert sandbox.is_open("portal", path) is is_open


@pytest.mark.parametrize(
    ("seed", "message", "place"),
    [
        ({"portal": "radmed"}, "expected one of", "portal.seed.portal"),
        ({"patients": [{"name": "x"}]}, "member_id is missing", "portal.seed.patients.0"),
        ({"determinations": [{"status": "approved"}]}, "expected one of procedure_code", "portal.seed.determinations.0"),
        ({"default_determination": {"status": "maybe"}}, "expected one of", "portal.seed.default_determination.status"),
        (
            {"default_determination": {"status": "denied", "delay_seconds": "x"}},
            "seconds",
            "portal.seed.default_determination.delay_seconds",
        ),
    ],
)
def test_an_unusable_seed_is_refused_at_its_place(seed: Any, message: str, place: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        Workplace("portal", seed)
    assert caught.value.field == place


def test_a_new_request_takes_no_number_that_the_seed_has() -> None:
    portal = Workplace("portal", {"requests": [{"request_id": "REQ-0002", "auth_number": "PA-000003", "status": "approved"}]})
    rows = {
        "patient_member_id": "A1",
        "provider_npi": "1234567890",
        "procedure_code": "70551",
        "diagnosis_code": "M54.5",
        "urgency": "urgent",
    }
    assert read(portal.ask("POST", "/api/prior-auths", rows))["request_id"] == "REQ-0004"
    assert [change.change for change in portal.state().changes or ()] == ["added"]


def test_seeded_requests_may_have_more_fields_and_are_determined_after_their_delay() -> None:
    """A day without a time of day is one in UTC; members of an author's own stay."""
    request = {"request_id": "R-1", "provider_name": "Dr. Rivera", "submitted_at": "2026-11-15", "determined_by": "nobody"}
    late = {"request_id": "R-2", "submitted_at": "2199-01-01T00:00:00+02:00"}
    rules = {"default_determination": {"status": "approved", "delay_seconds": 60}, "requests": [request, late]}
    one, other = Workplace("portal", rules).get("/api/prior-auths")["prior_auths"]
    assert (one["status"], one["provider_name"], one["determined_by"]) == ("approved", "Dr. Rivera", "nobody")
    assert other["status"] == "submitted"
