"""Phone lines: menus, keys, and people who answer from a script."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.errors import SpecError
from proctor.model.case import Step
from proctor.model.evidence import VoiceTurn
from tests.simulators.workplace import Workplace, read, refusal

IVR: dict[str, Any] = {
    "start": {
        "say": "Welcome. For benefits press 1.",
        "options": [{"press": "1", "hear": ["benefits"], "go": "member"}, {"press": "0", "hear": "a person", "go": "person"}],
    },
    "member": {"say": "Enter the member id.", "ask": "member_id", "accepts": ["W-12345"], "go": "result", "otherwise": "Not found."},
    "result": {"say": "The coverage is active. Goodbye.", "hang_up": True},
    "person": {"say": "Member services.", "answers": [{"when": "copay", "say": "It is 25 dollars."}, "What is it about?"]},
}
NUMBER = "+18005550100"


@pytest.fixture
def phone() -> Workplace:
    return Workplace("voice", {"phone": "+15550100", "lines": [{"number": "+1 800 555 0100", "ivr": IVR}]})


def heard(phone: Workplace, call: str, body: Any) -> tuple[str, list[str]]:
    answer = read(phone.ask("POST", f"/calls/{call}/turns", body))
    return answer["status"], [turn["text"] for turn in answer["turns"]]


def test_a_call_goes_through_the_menus_by_keys(phone: Workplace) -> None:
    call = read(phone.ask("POST", "/calls", {"to": NUMBER}))
    assert (call["status"], call["from"], call["turns"]) == (
        "in-progress",
        "+15550100",
        [{"speaker": "caller", "text": "Welcome. For benefits press 1."}],
    )
    assert heard(phone, call["id"], {"digits": "9"}) == ("in-progress", ["Sorry, I did not get that.", "Welcome. For benefits press 1."])
    assert heard(phone, call["id"], {"digits": "1"}) == ("in-progress", ["Enter the member id."])
    assert heard(phone, call["id"], {"digits": "999#"}) == ("in-progress", ["Not found.", "Enter the member id."])
    assert heard(phone, call["id"], {"say": "W 12345."}) == ("completed", ["The coverage is active. Goodbye."])
    assert phone.get(f"/calls/{call['id']}")["collected"] == {"member_id": "W 12345."}
    assert refusal(phone.ask("POST", f"/calls/{call['id']}/turns", {"say": "Hello?"})) == (409, "call_over")
    voice = phone.state().voice
    call = {"call": "CAnew-1", "to": "+18005550100", "sender": "+15550100"}
    assert voice is not None and voice.turns[:3] == (
        VoiceTurn(speaker="caller", text="Welcome. For benefits press 1.", **call),
        VoiceTurn(speaker="agent", text="9", **call),
        VoiceTurn(speaker="caller", text="Sorry, I did not get that.", **call),
    )


def test_speech_reaches_a_person_with_a_script(phone: Workplace) -> None:
    call = read(phone.ask("POST", "/calls", {"to": NUMBER}))["id"]
    assert heard(phone, call, {"say": "I want to talk to a PERSON"})[1] == ["Member services."]
    assert heard(phone, call, {"say": "Hello"})[1] == ["What is it about?"]
    assert heard(phone, call, {"say": "The copay, please."})[1] == ["It is 25 dollars."]
    assert heard(phone, call, {"say": "Thank you."})[1] == []
    assert read(phone.ask("POST", f"/calls/{call}/hangup"))["status"] == "completed"


def test_an_unassigned_number_is_not_answered(phone: Workplace) -> None:
    call = read(phone.ask("POST", "/calls", {"to": "+15559999"}))
    assert (call["status"], call["turns"]) == ("no-answer", [])
    assert refusal(phone.ask("POST", f"/calls/{call['id']}/turns", {"say": "x"})) == (409, "call_over")


def test_an_incoming_call() -> None:
    given = {"from": "+15550101", "opening": "Is this the clinic?", "answers": ["I need an appointment."]}
    phone = Workplace("voice", None, scenario=(Step(name="call_arrives", given=given),))
    (ringing,) = phone.get("/calls")["calls"]
    assert (ringing["status"], ringing["direction"], ringing["from"], ringing["turns"]) == ("ringing", "inbound", "+15550101", [])
    assert refusal(phone.ask("POST", f"/calls/{ringing['id']}/turns", {"say": "Hello"})) == (409, "not_answered")
    answered = read(phone.ask("POST", f"/calls/{ringing['id']}/answer"))
    assert answered["turns"] == [{"speaker": "caller", "text": "Is this the clinic?"}]
    assert refusal(phone.ask("POST", f"/calls/{ringing['id']}/answer")) == (409, "not_ringing")
    assert heard(phone, ringing["id"], {"say": "Yes."}) == ("in-progress", ["I need an appointment."])


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/calls", {}, 422, "wrong_value"),
        ("/calls", {"to": "the clinic"}, 422, "wrong_value"),
        ("/calls", b"{", 400, "bad_json"),
        ("/calls/x/turns", {"say": "x"}, 404, "not_found"),
        ("/calls/CAnew-1/turns", {}, 422, "wrong_value"),
        ("/calls/CAnew-1/turns", {"say": "x", "digits": "1"}, 422, "wrong_value"),
        ("/calls/CAnew-1/turns", {"digits": "one"}, 422, "wrong_value"),
        ("/calls/CAnew-1/turns", {"say": 17.5, "digits": []}, 422, "wrong_value"),
        ("/calls/CAnew-1", {}, 405, "method_not_allowed"),
        ("/calls/CAnew-1/sing", {}, 404, "not_found"),
        ("/", {}, 404, "not_found"),
    ],
)
def test_impossible_requests_are_refused(phone: Workplace, path: str, body: Any, status: int, code: str) -> None:
    phone.ask("POST", "/calls", {"to": NUMBER})
    before = phone.state().changes
    assert refusal(phone.ask("POST", path, body)) == (status, code)
    assert phone.state().changes == before


@pytest.mark.parametrize(
    ("line", "message", "place"),
    [
        ({"number": "x", "answers": []}, "phone number", "lines.0.number"),
        ({"number": NUMBER}, "ivr or answers", "lines.0"),
        ({"number": NUMBER, "ivr": {}}, "start is missing", "lines.0.ivr"),
        ({"number": NUMBER, "ivr": {"start": {"go": "there"}}}, "no menu", "lines.0.ivr.start"),
        ({"number": NUMBER, "ivr": {"start": {"ask": "x"}}}, "ask needs go", "lines.0.ivr.start"),
        ({"number": NUMBER, "ivr": {"start": {"options": [{"press": "x", "go": "start"}]}}}, "keys", "lines.0.ivr.start.options.0.press"),
        ({"number": NUMBER, "ivr": {"start": {"options": [{"go": "start"}]}}}, "press or hear", "lines.0.ivr.start.options.0"),
    ],
)
def test_an_unusable_line_is_refused_at_its_place(line: Any, message: str, place: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        Workplace("voice", {"lines": [line]})
    assert caught.value.field == f"voice.seed.{place}"


@pytest.mark.parametrize(
    ("ivr", "first"),
    [
        (IVR, "Welcome. For benefits press 1."),
        ({"say": "Press 1.", "options": [{"press": "1", "go": "start"}]}, "Press 1."),
        ("All lines are busy.", "All lines are busy."),
    ],
)
def test_bare_menus_answer_under_the_number_of_the_sandbox(ivr: Any, first: str) -> None:
    phone = Workplace("voice", {"phone": NUMBER, "ivr": ivr})
    call = read(phone.ask("POST", "/calls", {"to": NUMBER}))
    assert [turn["text"] for turn in call["turns"]] == [first] and call["from"] != call["to"]
    unnamed = Workplace("voice", {"opening": "Hello.", "answers": ["Bye."]})
    call = read(unnamed.ask("POST", "/calls", {"to": "+15550100"}))
    assert [turn["text"] for turn in call["turns"]] == ["Hello."]


@pytest.mark.parametrize(("ivr", "message"), [({}, "start is missing"), (17, "expected an object"), ({"menu": {}}, "start is missing")])
def test_bare_menus_that_cannot_be_used_are_refused(ivr: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Workplace("voice", {"ivr": ivr})


def test_a_model_calls_and_talks(phone: Workplace) -> None:
    tools = {tool.name: tool for tool in phone.sandbox.list_tools()["voice"]}
    made = tools["voice_call"].make_request({"to": NUMBER})
    call = read(phone.ask(made.method, made.path, made.body))["id"]
    request = tools["voice_say"].make_request({"id": call, "say": "benefits"})
    assert (request.path, read(phone.ask(request.method, request.path, request.body))["turns"][0]["text"]) == (
        f"/calls/{call}/turns",
        "Enter the member id.",
    )
