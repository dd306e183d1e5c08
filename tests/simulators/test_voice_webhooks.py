"""Calls in the shape of Twilio: led by webhooks, which here are functions of a form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from proctor.codecs.http import decode_query, encode_query
from proctor.model.case import Step
from proctor.simulators.exchange import GO_ON, Errand, Fetched, Request, Response
from proctor.simulators.voice import webhooks
from proctor.simulators.voice.webhooks import MOST_BYTES, BadTwiml, read_twiml, sign_request
from tests.simulators.test_voice import IVR, NUMBER
from tests.simulators.workplace import BASE, Workplace, read

CALLS = "/2010-04-01/Accounts/AC1/Calls"
Answer = Callable[[str, dict[str, str]], str | int]


class Line:
    """A phone line whose webhooks are answered by a function; every request to it is noted."""

    def __init__(self, answer: Answer, *, scenario: tuple[Step, ...] = ()) -> None:
        self.phone = Workplace("voice", {"phone": "+15550100", "lines": [{"number": NUMBER, "ivr": IVR}]}, scenario=scenario)
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.headers: list[dict[str, str]] = []

    async def fetch(self, errand: Errand) -> Fetched:
        fields = dict(decode_query(errand.body.decode() or errand.url.partition("?")[2]))
        self.requests.append((errand.url.removeprefix("http://agent.test"), fields))
        self.headers.append(errand.headers)
        # In a thread, so that the agent may send requests while it answers.
        answer = await asyncio.to_thread(self.answer, errand.url.removeprefix("http://agent.test").partition("?")[0], fields)
        if isinstance(answer, int):
            return Fetched(url=errand.url, status=answer)
        return Fetched(url=errand.url, status=200, body=answer.encode())

    def ask(self, method: str, path: str, *, then: str = "", **form: str) -> Response:
        """Send one request, and run the line until it is idle."""
        pairs = [(name, part) for name, value in form.items() for part in (value.split() if name == "StatusCallbackEvent" else [value])]
        body = encode_query(pairs).encode()
        headers = {"content-type": "application/x-www-form-urlencoded"}
        request = Request(method=method, path=then or path, headers=headers, body=body, base=BASE, token="token")
        return asyncio.run(self.phone.sandbox.handle("voice", request, fetch=self.fetch))

    def call(self, **form: str) -> dict[str, Any]:
        """Make a call, wait until it is over, and return it."""
        given = {"To": NUMBER, "From": "+15550100", "Url": "http://agent.test/begin", **form}
        response = self.ask("POST", f"{CALLS}.json", **{name: value for name, value in given.items() if value})
        assert response.status == 201 and read(response)["status"] == "queued", response.body
        self.follow(response)
        return self.phone.get(f"/calls/{read(response)['sid']}")

    def follow(self, response: Response) -> None:
        while response.then:
            response = self.ask(GO_ON, "", then=response.then)
            assert response.status == 200, response.body


def twiml(*verbs: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?><Response>{"".join(verbs)}</Response>'


def listen(action: str, say: str = "") -> str:
    return f'<Gather input="speech dtmf" action="{action}">{f"<Say>{say}</Say>" if say else ""}</Gather>'


def ask_for_the_copay(path: str, fields: dict[str, str]) -> str:
    heard = fields.get("SpeechResult", "")
    if path == "/begin":
        return twiml(listen("/menu"))
    if "press 1" in heard:
        return twiml(listen("menu", "I want <emphasis>a person</emphasis>, please."), "<Redirect>/lost</Redirect>")
    if "Member services" in heard:
        return twiml("<Say>What is</Say><Say>the copay?</Say>", listen("/menu"))
    return twiml("<Say>Thank you.</Say>", "<Hangup/>", "<Say>never</Say>")


def test_webhooks_lead_a_call_through_a_menu_to_a_person() -> None:
    line = Line(ask_for_the_copay)
    call = line.call()
    assert call["status"] == "completed"
    assert [(turn["speaker"], turn["text"]) for turn in call["turns"]] == [
        ("caller", "Welcome. For benefits press 1."),
        ("agent", "I want a person, please."),
        ("caller", "Member services."),
        ("agent", "What is the copay?"),
        ("caller", "It is 25 dollars."),
        ("agent", "Thank you."),
        ("caller", "What is it about?"),
    ]
    assert [(path, fields.get("SpeechResult")) for path, fields in line.requests] == [
        ("/begin", None),
        ("/menu", "Welcome. For benefits press 1."),
        ("/menu", "Member services."),
        ("/menu", "It is 25 dollars."),
    ]
    common = {"AccountSid": "AC1", "ApiVersion": "2010-04-01", "CallSid": call["id"], "Direction": "outbound-api"}
    common.update({"Called": NUMBER, "To": NUMBER, "Caller": "+15550100", "From": "+15550100"})
    assert line.requests[0][1] == {**common, "CallStatus": "in-progress"}
    assert line.requests[2][1] == {**common, "CallStatus": "in-progress", "SpeechResult": "Member services.", "Confidence": "0.9"}
    events = line.phone.state().requests or ()
    assert [(one.method, one.status) for one in events][:5] == [("POST", 201)] + [("WEBHOOK", 200)] * 4


def test_keys_are_pressed_and_the_final_status_is_reported() -> None:
    def answer(path: str, fields: dict[str, str]) -> str:
        return twiml('<Play digits="ww1w999#"/>', "<Say>W 12345</Say>", listen("/end"), "<Redirect>/lost</Redirect>")

    line = Line(answer)
    call = line.call(Method="GET", StatusCallback="http://agent.test/status", StatusCallbackEvent="initiated ringing answered completed")
    assert (call["status"], call["collected"]) == ("completed", {"member_id": "W 12345"})
    assert [turn["text"] for turn in call["turns"] if turn["speaker"] == "agent"] == ["1", "999#", "W 12345"]
    paths = [path.partition("?")[0] for path, _ in line.requests]
    assert paths == ["/status", "/status", "/status", "/begin", "/end", "/status"]
    statuses = [fields for path, fields in line.requests if path == "/status"]
    assert [(fields["CallStatus"], fields["SequenceNumber"], fields.get("CallDuration")) for fields in statuses] == [
        ("initiated", "0", None),
        ("ringing", "1", None),
        ("in-progress", "2", None),
        ("completed", "3", "0"),
    ]
    assert {fields["CallbackSource"] for fields in statuses} == {"call-progress-events"}
    last = line.requests[4][1]
    assert last["SpeechResult"].endswith("The coverage is active. Goodbye.") and last["CallStatus"] == "completed"
    assert (
        line.headers[3]["x-twilio-signature"] == sign_request(f"http://agent.test{line.requests[3][0]}", (), "token")["x-twilio-signature"]
    )
    assert (
        line.headers[0]["x-twilio-signature"]
        == sign_request("http://agent.test/status", line.requests[0][1].items(), "token")["x-twilio-signature"]
    )


def test_keys_of_the_other_end_are_digits() -> None:
    given = {"from": "+15550101", "opening": "12345#", "answers": ["7"]}

    def answer(path: str, fields: dict[str, str]) -> str:
        if path == "/in":
            return twiml('<Gather action="/keys"/>')
        if path == "/keys":
            return twiml('<Gather action="/one" numDigits="1"><Say>And how many?</Say></Gather>')
        return twiml('<Gather action="/none" actionOnEmptyResult="true"/>') if path == "/one" else twiml("<Gather/>", "<Hangup/>")

    line = Line(answer, scenario=(Step(name="call_arrives", given=given),))
    (ringing,) = read(line.ask("GET", f"{CALLS}.json"))["calls"]
    assert (ringing["status"], ringing["direction"]) == ("ringing", "inbound")
    line.follow(line.ask("POST", f"{CALLS}/{ringing['sid']}.json", Url="http://agent.test/in"))
    assert [(path, fields.get("Digits")) for path, fields in line.requests] == [
        ("/in", None),
        ("/keys", "12345"),
        ("/one", "7"),
        ("/none", ""),
    ]
    assert read(line.ask("GET", f"{CALLS}/{ringing['sid']}.json"))["status"] == "completed"


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (500, "failed", "answers 500"),
        ("no TwiML", "failed", "not TwiML"),
        ("<Hello/>", "failed", "begins with <Response>"),
        (twiml("<Dial>+15550102</Dial>"), "failed", "<Dial> is not simulated"),
        (twiml("<say>Hello</say>"), "failed", "did you mean <Say>"),
        (twiml("<Redirect>ftp://agent.test/</Redirect>"), "failed", "not a valid address"),
        (twiml("<Redirect>/begin</Redirect>"), "failed", "at most 200 webhooks"),
        (twiml(*["<Say>Good morning to all of you</Say>"] * 500), "failed", "at most 10000 characters"),
        (twiml("<Play>http://agent.test/a.mp3</Play>"), "completed", "sounds are not simulated"),
        (twiml(), "completed", ""),
        ("", "completed", ""),
    ],
    ids=lambda value: str(value)[:80],
)
def test_an_impossible_instruction_ends_the_call_and_is_reported(answer: str | int, status: str, message: str) -> None:
    line = Line(lambda path, fields: answer)
    assert line.call()["status"] == status
    problems = [problem for one in line.phone.state().requests or () if one.method == GO_ON for problem in one.response["problems"]]
    assert message in " ".join(problems) and bool(problems) == bool(message)


def test_a_call_hung_up_during_a_webhook_ends() -> None:
    line = Line(lambda path, fields: 200)

    def hang_up(path: str, fields: dict[str, str]) -> str:
        if path == "/begin":
            response = line.ask("POST", f"{CALLS}/{fields['CallSid']}.json", Status="completed")
            assert read(response)["status"] == "completed" and not response.then
        return twiml("<Say>too late</Say>")

    line.answer = hang_up
    call = line.call()
    assert (call["status"], len(call["turns"]), len(line.requests)) == ("completed", 1, 1)


def test_a_call_to_an_unassigned_number_and_one_with_a_document() -> None:
    line = Line(lambda path, fields: 404)
    assert line.call(To="+15559999", StatusCallback="http://agent.test/status")["status"] == "no-answer"
    assert [(path, fields["CallStatus"]) for path, fields in line.requests] == [("/status", "no-answer")]
    call = line.call(Url="", Twiml="<Response><Say>benefits</Say></Response>")
    assert [turn["text"] for turn in call["turns"]][1:] == ["benefits", "Enter the member id."]


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({"To": ""}, 21201),
        ({"To": "nobody"}, 21211),
        ({"From": "nobody"}, 21212),
        ({"Url": ""}, 21205),
        ({"Url": "file:///etc/passwd"}, 21205),
        ({"Method": "PUT"}, 21206),
        ({"StatusCallback": "x"}, 21205),
        ({"StatusCallback": "http://agent.test/", "StatusCallbackEvent": "rung"}, 21626),
    ],
)
def test_a_call_that_cannot_be_made_is_refused_as_twilio_does(form: dict[str, str], code: int) -> None:
    line = Line(lambda path, fields: 200)
    given = {"To": NUMBER, "From": "+15550100", "Url": "http://agent.test/begin", **form}
    response = line.ask("POST", f"{CALLS}.json", **{name: value for name, value in given.items() if value})
    assert (response.status, read(response)["code"], response.then) == (400, code, "")
    assert line.phone.state().changes == ()


def test_limits_and_wrong_paths_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(lambda path, fields: twiml())
    monkeypatch.setattr(webhooks, "MOST_LED", 1)
    form = {"To": NUMBER, "From": "+15550100", "Url": "http://agent.test/begin"}
    first = line.ask("POST", f"{CALLS}.json", **form)
    assert read(line.ask("POST", f"{CALLS}.json", **form))["code"] == 20429
    sid = read(first)["sid"]
    assert read(line.phone.ask("POST", f"/calls/{sid}/turns", {"say": "x"}))["error"]["code"] == "led_by_webhooks"
    line.follow(first)
    assert read(line.ask("POST", f"{CALLS}/{sid}.json", Status="completed"))["code"] == 21220
    assert read(line.ask("GET", f"{CALLS}/none.json"))["code"] == 20404
    assert read(line.ask("GET", "/2010-04-01/Accounts/AC1/Queues.json"))["code"] == 20404
    assert read(line.ask("DELETE", f"{CALLS}/{sid}.json"))["code"] == 20004
    assert line.ask(GO_ON, f"/calls/{sid}/1").then == "", "what is done is not done again"
    assert line.ask(GO_ON, "/calls/none/1").then == ""


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe<\x00R\x00",
        b"<Response>" + b" " * MOST_BYTES + b"</Response>",
        b'<!DOCTYPE a [<!ENTITY b "c">]><Response><Say>&b;</Say></Response>',
        b"<Response><Gather><Hangup/></Gather></Response>",
        b'<Response><Gather input="song"/></Response>',
        b'<Response><Gather numDigits="many"/></Response>',
        b'<Response><Gather method="PUT"/></Response>',
        b'<Response><Play digits="abc"/></Response>',
        b"<Response><Redirect/></Response>",
    ],
    ids=lambda body: body[:60],
)
def test_documents_that_are_hostile_or_wrong_are_refused(body: bytes) -> None:
    with pytest.raises(BadTwiml):
        read_twiml(body)


def test_a_signature_is_the_one_that_twilio_documents() -> None:
    url = "https://example.com/myapp.php?foo=1&bar=2"
    fields = {"CallSid": "CA1234567890ABCDE", "Caller": "+14158675310", "Digits": "1234", "From": "+14158675310", "To": "+18005551212"}
    assert sign_request(url, fields.items(), "12345") == {"x-twilio-signature": "L/OH5YylLD5NRKLltdqwSvS0BnU="}
    assert sign_request(url, (), "") == {}


def test_rows_are_plain_data() -> None:
    line = Line(ask_for_the_copay)
    response = line.ask("POST", f"{CALLS}.json", To=NUMBER, From="+15550100", Url="http://agent.test/begin")
    assert msgspec.json.encode(read(response)) and b"token" not in msgspec.json.encode(line.phone.state())
