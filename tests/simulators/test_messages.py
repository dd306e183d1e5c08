"""Short messages, e-mails and chats, and the people who answer them."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.checks.registry import default_registry
from proctor.checks.systems.effects import AllowedChange, Unchanged
from proctor.codecs.http import encode_query
from proctor.errors import SpecError
from proctor.model.case import Step
from proctor.model.evidence import Evidence
from proctor.simulators.persona import Script, find_answer
from proctor.simulators.seeds import read_as
from tests.simulators.workplace import NOW, Workplace, read, refusal

SEED: dict[str, Any] = {
    "phone": "+15550100",
    "people": [
        {
            "id": "ann",
            "phone": "+1 555 0101",
            "email": "ann@example.com",
            "answers": ["Who is this?", {"when": ["tuesday"], "say": "Yes."}],
        }
    ],
    "answers": ["Wrong number."],
}
TWILIO = "/2010-04-01/Accounts/AC1/Messages"


@pytest.fixture
def phone() -> Workplace:
    return Workplace("messages", SEED)


def texts(phone: Workplace) -> list[tuple[str, str, str]]:
    state = phone.state()
    assert state.messages is not None
    return [(one["direction"], one["to"], one["text"]) for one in state.messages.messages]


def test_replies_are_no_change_by_the_agent(phone: Workplace) -> None:
    sent = read(phone.ask("POST", "/messages", {"channel": "sms", "patient_id": "ann", "body": "Hello"}))
    state = phone.state()
    assert len(texts(phone)) == 2
    assert [(one.change, one.place) for one in state.changes or ()] == [("added", f"messages/{sent['id']}")]
    registry = default_registry()
    unchanged = registry.prepare("unchanged", Unchanged(allowed=(AllowedChange(place="messages/messages/*", at_most=1),)))
    assert unchanged(Evidence(state=state)).outcome == "pass"


def test_a_message_is_sent_and_answered_from_the_script(phone: Workplace) -> None:
    sent = read(phone.ask("POST", "/messages", {"channel": "sms", "patient_id": "ann", "body": "Hello"}))
    assert {name: sent[name] for name in ("channel", "patient_id", "direction", "status", "to", "body", "sent_at")} == {
        "channel": "sms",
        "patient_id": "ann",
        "direction": "outbound",
        "status": "delivered",
        "to": "+1 555 0101",
        "body": "Hello",
        "sent_at": NOW,
    }
    phone.ask("POST", "/", {"to": "+15550101", "text": "The clinic. Does TUESDAY, at ten, suit you?"})
    phone.ask("POST", "/", {"to": "+15550101", "text": "Thank you"})
    assert texts(phone) == [
        ("outbound", "+1 555 0101", "Hello"),
        ("inbound", "+15550100", "Who is this?"),
        ("outbound", "+15550101", "The clinic. Does TUESDAY, at ten, suit you?"),
        ("inbound", "+15550100", "Yes."),
        ("outbound", "+15550101", "Thank you"),
    ]
    assert phone.get(f"/messages/{sent['id']}")["body"] == "Hello"


def test_unknown_contacts_use_the_default_reply(phone: Workplace) -> None:
    phone.ask("POST", "/", {"to": "+15550999", "body": "Hello"})
    phone.ask("POST", "/", {"to": "+15550888", "body": "Hello"})
    assert [text for way, _, text in texts(phone) if way == "inbound"] == ["Wrong number.", "Wrong number."]


def test_an_email_has_a_subject_and_is_answered_to_it() -> None:
    phone = Workplace("messages", {"email": "clinic@example.com", "answers": ["Fine."]})
    phone.ask("POST", "/", {"channel": "email", "to": "bob@example.com", "subject": "Visit", "body": "Tomorrow"})
    state = phone.state()
    assert state.messages is not None
    assert [(one["from"], one["subject"]) for one in state.messages.messages] == [
        ("clinic@example.com", "Visit"),
        ("bob@example.com", "Re: Visit"),
    ]


def test_messages_are_filtered(phone: Workplace) -> None:
    phone.ask("POST", "/", {"patient_id": "ann", "body": "One"})
    phone.ask("POST", "/", {"channel": "chat", "patient_id": "ann", "body": "Two"})
    assert [one["body"] for one in phone.get("/messages?channel=sms&direction=outbound")["messages"]] == ["One"]
    assert phone.get("/messages?patient_id=ann&direction=outbound")["total"] == 2
    assert phone.get("/messages?patient_id=bob")["total"] == 0


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"to": "+15550101"}, 422, "wrong_value"),
        ({"body": "x"}, 422, "wrong_value"),
        ({"body": "x", "to": "ann"}, 422, "wrong_value"),
        ({"body": "x", "to": "+15550101", "from": "me"}, 422, "wrong_value"),
        ({"body": "x", "to": "+15550101", "channel": "pigeon"}, 422, "wrong_value"),
        ({"body": "x", "channel": "email", "to": "+15550101"}, 422, "wrong_value"),
        ({"body": ["x"], "to": "+15550101"}, 422, "wrong_value"),
        ({"body": "x", "patient_id": "nobody"}, 422, "unknown_patient"),
        ([], 422, "wrong_body"),
        (b"{", 400, "bad_json"),
    ],
)
def test_an_unsendable_message_is_refused(phone: Workplace, body: Any, status: int, code: str) -> None:
    assert refusal(phone.ask("POST", "/messages", body)) == (status, code)
    assert phone.state().changes == ()


def test_a_message_arrives() -> None:
    arrived = Step(name="message_arrives", given={"patient_id": "ann", "text": "Help"})
    phone = Workplace("messages", {**SEED, "inbox": [{"channel": "email", "from": "bob@example.com", "text": "Hi"}]}, scenario=(arrived,))
    found = phone.get("/messages?direction=inbound")["messages"]
    assert [(one["from"], one["body"], one["patient_id"]) for one in found] == [
        ("bob@example.com", "Hi", None),
        ("+1 555 0101", "Help", "ann"),
    ]
    assert phone.state().changes == ()


def form(**fields: str) -> bytes:
    return encode_query(fields.items()).encode()


def test_the_shape_of_twilio(phone: Workplace) -> None:
    sent = phone.ask(
        "POST",
        f"{TWILIO}.json",
        form(To="+15550101", From="+15550100", Body="Tuesday & ten?"),
        content_type="application/x-www-form-urlencoded",
    )
    answer = read(sent)
    assert (sent.status, answer["status"], answer["direction"], answer["body"]) == (201, "queued", "outbound-api", "Tuesday & ten?")
    assert answer["date_created"] == "Mon, 16 Nov 2026 09:30:00 +0000"
    assert phone.get(f"{TWILIO}/{answer['sid']}.json")["status"] == "delivered"
    assert [one["body"] for one in phone.get(f"{TWILIO}.json")["messages"]] == ["Yes.", "Tuesday & ten?"]
    assert [one["direction"] for one in phone.get(f"{TWILIO}.json?To=%2B15550100")["messages"]] == ["inbound"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", ".json", form(To="x", Body="x"), 400, 21211),
        ("POST", ".json", form(To="+15550101", From="x", Body="x"), 400, 21212),
        ("POST", ".json", form(To="+15550101"), 400, 21602),
        ("POST", ".json", form(To="+15550101", Body="x" * 1_601), 400, 21617),
        ("POST", ".json", b"\xff", 400, 21211),
        ("GET", "/SM9.json", b"", 404, 20404),
        ("GET", "", b"", 404, 20404),
        ("DELETE", ".json", b"", 405, 20004),
    ],
)
def test_messages_that_twilio_refuses(phone: Workplace, method: str, path: str, body: bytes, status: int, code: int) -> None:
    response = phone.ask(method, f"{TWILIO}{path}", body)
    assert (response.status, read(response)["code"]) == (status, code)
    assert phone.state().changes == ()


def test_the_shape_of_telnyx(phone: Workplace) -> None:
    sent = phone.ask("POST", "/v2/messages", {"from": "+15550100", "to": "+15550101", "text": "Tuesday?"})
    answer = read(sent)["data"]
    assert (sent.status, answer["to"][0]["status"], answer["text"], answer["from"]["phone_number"]) == (
        200,
        "queued",
        "Tuesday?",
        "+15550100",
    )
    assert phone.get(f"/v2/messages/{answer['id']}")["data"]["to"][0] == {**answer["to"][0], "status": "delivered"}
    assert [text for way, _, text in texts(phone) if way == "inbound"] == ["Yes."]
    for method, path, body, status in (
        ("POST", "/v2/messages", {"to": "x", "text": "x"}, 422),
        ("POST", "/v2/messages", b"{", 400),
        ("GET", "/v2/messages/x", None, 404),
        ("GET", "/v2/messages/x/y", None, 404),
        ("DELETE", "/v2/messages", None, 405),
    ):
        response = phone.ask(method, path, body)
        assert response.status == status and read(response)["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("heard", "lines_used", "answer"),
    [
        ("hello", 0, ("one", 1)),
        ("hello", 1, ("two", 2)),
        ("hello", 2, (None, 2)),
        ("Red, and BLUE!", 2, ("both", 2)),
        ("red", 2, (None, 2)),
        ("redblue", 2, (None, 2)),
    ],
)
def test_rules_come_before_lines(heard: str, lines_used: int, answer: tuple[str | None, int]) -> None:
    script = read_as(Script, ["one", {"when": ["red", "blue"], "say": "both"}, {"say": "two"}], "answers")
    assert find_answer(script, heard, lines_used) == answer


@pytest.mark.parametrize(
    ("seed", "message", "place"),
    [
        ({"people": [{}]}, "id is missing", "messages.seed.people.0"),
        ({"people": [{"id": "a", "phone": "x"}]}, "phone number", "messages.seed.people.0.phone"),
        ({"email": "x"}, "e-mail", "messages.seed.email"),
        ({"answers": [{"when": "x"}]}, "say is missing", "messages.seed.answers.0"),
        ({"inbox": [{"text": "x", "patient_id": "bob"}]}, "no person", "messages.seed.inbox.0.patient_id"),
        ({"inbox": [{"text": "x", "from": "bob"}]}, "no address", "messages.seed.inbox.0.from"),
    ],
)
def test_an_unusable_seed_is_refused_at_its_place(seed: Any, message: str, place: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        Workplace("messages", seed)
    assert caught.value.field == place
