"""The HL7 feed: acknowledgements, and the end state."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.codecs.segments import compile_segment_path, read_messages
from proctor.errors import SpecError
from proctor.model.case import Step
from proctor.simulators.kinds import hl7
from tests.simulators.workplace import Workplace, read, refusal

ADT = "MSH|^~\\&|CLINIC|A|ADT|B|20261116||ADT^A01|C-1|P|2.5\rEVN|A01\rPID|1||17^^^MRN||Smith^Ann\r"
ORU = "MSH|^~\\&|LAB|L|EHR|E|20261116||ORU^R01|L-1|P|2.5\rPID|1||17\rOBR|1\rOBX|1|NM|K||5.1\r"


@pytest.fixture
def feed() -> Workplace:
    return Workplace("hl7", {"inbox": [ORU], "accepts": ["ADT^A01", "ORM"], "rules": [_UNKNOWN]})


_UNKNOWN = {"when": {"PID.3.1": None}, "reason": "no patient | given", "code": "101"}


def find(ack: str, path: str) -> str | None:
    return read_messages(ack)[0].value(compile_segment_path(path))


def test_a_message_is_accepted_and_is_the_state(feed: Workplace) -> None:
    answer = read(feed.ask("POST", "/outbound", {"payload": ADT}))
    assert (answer["code"], answer["accepted"], answer["control_id"]) == ("AA", True, "C-1")
    assert [find(answer["ack"], path) for path in ("MSA.1", "MSA.2", "MSH.3", "MSH.5", "MSH.9", "MSH.9.2", "MSH.12")] == [
        *("AA", "C-1", "ADT", "CLINIC", "ACK^A01^ACK", "A01", "2.5")
    ]
    state = feed.state()
    assert state.hl7 is not None and state.hl7.outbound == (ADT,)
    assert [(one.change, one.place) for one in state.changes or ()] == [("added", "outbound/1")]
    assert feed.get("/outbound")["messages"][0]["type"] == "ADT^A01"


@pytest.mark.parametrize("body", [ADT.encode(), ADT.replace("\r", "\r\n").encode(), b"\x0b" + ADT.encode() + b"\x1c\r"])
def test_a_message_that_is_the_body_is_answered_with_the_ack_alone(feed: Workplace, body: bytes) -> None:
    answer = feed.ask("POST", "/outbound", body, content_type="x-application/hl7-v2+er7")
    assert answer.headers["content-type"].startswith("application/hl7-v2")
    assert answer.body.split(b"\r")[1] == b"MSA|AA|C-1"
    state = feed.state()
    assert state.hl7 is not None and state.hl7.outbound == (ADT,), "stored in one form, however it was framed"


@pytest.mark.parametrize(
    ("message", "ack", "code", "reason"),
    [
        ("", "AR", "100", "empty"),
        ("PID|1", "AR", "100", "instead of MSH"),
        ("MSH", "AR", "100", "no field separator"),
        (ADT + ORU, "AR", "100", "one message at a time"),
        (ADT + "what is this\r", "AR", "100", "not a segment"),
        (ADT.replace("C-1", ""), "AR", "101", "MSH.10"),
        (ADT.replace("ADT^A01", ""), "AR", "101", "MSH.9"),
        (ORU, "AR", "200", "ORU^R01 is not taken here"),
        (ADT.replace("ADT^A01", "ADT^A04"), "AR", "201", "ADT^A04"),
        (ADT.replace("17^^^MRN", ""), "AE", "101", "no patient | given"),
    ],
)
def test_errors_are_reported_in_the_acknowledgement(feed: Workplace, message: str, ack: str, code: str, reason: str) -> None:
    response = feed.ask("POST", "/outbound", {"payload": message})
    answer = read(response)
    assert (response.status, answer["code"], answer["accepted"]) == (200, ack, False)
    assert reason in answer["reason"]
    assert (find(answer["ack"], "MSA.1"), find(answer["ack"], "ERR.3.1")) == (ack, code)
    assert reason in (find(answer["ack"], "MSA.3") or ""), "with its escapes undone"
    state = feed.state()
    assert state.hl7 is not None and state.hl7.outbound == (), "a refused message was not delivered"
    assert state.changes == () and len(state.requests or ()) == 1


def test_a_body_that_is_no_json_and_no_message_is_refused_by_an_ack(feed: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert b"MSA|AR" in feed.ask("POST", "/outbound", b"\xff\xfe").body
    assert refusal(feed.ask("POST", "/outbound", b"{")) == (400, "bad_json")
    assert refusal(feed.ask("POST", "/outbound", {"payload": ["MSH"]})) == (422, "wrong_value")
    assert refusal(feed.ask("DELETE", "/outbound")) == (405, "method_not_allowed")
    assert refusal(feed.ask("GET", "/nothing")) == (404, "not_found")
    monkeypatch.setattr(hl7, "MOST_BYTES", 100)
    assert b"MSA|AR" in feed.ask("POST", "/outbound", b" " * 100).body
    assert refusal(feed.ask("POST", "/outbound", b" " * 101)) == (413, "too_large")


def test_messages_arrive_in_the_inbox() -> None:
    feed = Workplace("hl7", [ORU], scenario=(Step(name="message_arrives", given=ADT.split("\r")[:-1]),))
    assert [(one["id"], one["type"]) for one in feed.get("/inbox")["messages"]] == [("1", "ORU^R01"), ("2", "ADT^A01")]
    assert [one["id"] for one in feed.get("/inbox?type=ORU")["messages"]] == ["1"]
    assert feed.ask("GET", "/inbox/2").body == ADT.encode()
    assert refusal(feed.ask("GET", "/inbox/3")) == (404, "not_found")
    state = feed.state()
    assert state.hl7 is not None and state.hl7.outbound == ()


def test_every_message_is_accepted_without_rules() -> None:
    feed = Workplace("hl7")
    assert read(feed.ask("POST", "/outbound", {"payload": ORU}))["code"] == "AA"


@pytest.mark.parametrize(
    ("seed", "message", "place"),
    [
        ("MSH", "expected an object", "hl7.seed"),
        ({"inboxes": []}, "unknown key", "hl7.seed.inboxes"),
        ({"inbox": ["PID|1"]}, "instead of MSH", "hl7.seed.inbox.0"),
        ({"inbox": [ADT + ORU]}, "found 2", "hl7.seed.inbox.0"),
        ({"rules": [{"when": {"what": "1"}, "reason": "x"}]}, "path", "hl7.seed.rules.0.when.what"),
        ({"rules": [{"when": {}, "reason": "x", "ack": "AA"}]}, "AE, AR", "hl7.seed.rules.0.ack"),
        ({"rules": [{"when": {}}]}, "reason is missing", "hl7.seed.rules.0"),
        ({"mllp": "yes"}, "true or false", "hl7.seed.mllp"),
    ],
)
def test_an_unusable_seed_is_refused_at_its_place(seed: Any, message: str, place: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        Workplace("hl7", seed)
    assert caught.value.field == place


def test_a_model_sends_and_lists() -> None:
    feed = Workplace("hl7", [ORU])
    tools = {tool.name: tool for tool in feed.sandbox.list_tools()["hl7"]}
    sent = tools["hl7_send"].make_request({"payload": ADT})
    assert read(feed.ask(sent.method, sent.path, sent.body, **{k.replace("-", "_"): v for k, v in sent.headers.items()}))["code"] == "AA"
    assert tools["hl7_inbox"].make_request({"type": "ORU"}).target == "/inbox?type=ORU"
