"""The clearinghouse: inquiries, answers, and rejected EDI."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.codecs.segments import compile_segment_path, read_transactions
from proctor.errors import SpecError
from proctor.simulators.kinds import x12
from tests.simulators.workplace import Workplace, read, refusal

SEED: dict[str, Any] = {
    "payer": {"name": "Acme Health", "id": "60054"},
    "members": [
        {
            "patient_id": "ann",
            "member_id": "W1",
            "first_name": "Ann",
            "last_name": "Smith",
            "birth_date": "1980-02-01",
            "gender": "F",
            "plan": "Gold",
            "benefits": [
                {"service_type": "98", "copay": 25, "coinsurance": 0.2},
                {"service_type": "30", "deductible": 500, "deductible_remaining": 120.5},
            ],
        },
        {"member_id": "W2", "first_name": "Bob", "last_name": "Gone", "active": False},
    ],
    "claims": [
        {"claim_number": "C-7", "member_id": "W1", "status": "paid", "charged": 200, "paid": 150, "date": "2026-10-01"},
        {"claim_number": "C-8", "member_id": "W1", "status": "denied"},
    ],
    "determinations": [
        {"procedure_code": "70551", "status": "approved"},
        {"procedure_code": "99999", "status": "denied", "reason": "not covered"},
    ],
}
_HEAD = "BHT*0022*13*REF-1*20261116*0930~HL*1**20*1~NM1*PR*2*ACME*****PI*60054~HL*2*1*21*1~NM1*1P*2*CLINIC*****XX*1234567893~"


def interchange(kind: str, body: str, *, count: int | None = None, control: str = "0001", end: str = "000000905") -> str:
    segments = [one for one in body.split("~") if one]
    return (
        "ISA*00*          *00*          *ZZ*CLINIC         *ZZ*ACME           *261116*0930*^*00501*000000905*0*P*:~"
        f"GS*HS*CLINIC*ACME*20261116*0930*1*X*005010X279A1~ST*{kind}*0001*005010X279A1~{'~'.join(segments)}~"
        f"SE*{len(segments) + 2 if count is None else count}*{control}~GE*1*1~IEA*1*{end}~"
    )


def inquiry(subscriber: str = "NM1*IL*1*SMITH*ANN****MI*W1", service: str = "EQ*30") -> str:
    return interchange("270", f"{_HEAD}HL*3*2*22*0~TRN*1*T-1*9ORIGIN~{subscriber}~{service}~")


def find(edi: str, *paths: str) -> list[str | None]:
    (transaction,) = read_transactions(edi)
    return [transaction.value(compile_segment_path(path)) for path in paths]


@pytest.fixture
def house() -> Workplace:
    return Workplace("x12", SEED)


def test_an_inquiry_is_answered_with_the_benefits(house: Workplace) -> None:
    answer = house.ask("POST", "/270", inquiry().encode())
    assert answer.headers["content-type"] == "application/edi-x12"
    edi = answer.body.decode()
    assert find(edi, "ST.1", "BHT.3", "TRN.2", "NM1[IL].9", "NM1[1P].3", "DMG.2") == ["271", "REF-1", "T-1", "W1", "CLINIC", "19800201"]
    assert find(edi, "EB.1", "EB.5", "EB[2].1", "EB[2].7", "EB[3].8", "EB[5].7") == ["1", "Gold", "B", "25", "0.2", "120.5"]
    assert find(edi, "ISA.6", "ISA.8", "GS.1", "GS.2") == ["ACME", "CLINIC", "HB", "ACME"]
    state = house.state()
    assert state.x12 is not None and state.x12.responses == (edi,)
    stored = house.get("/transactions/1")
    assert (stored["kind"], stored["accepted"], stored["request"], stored["response"]) == ("271", True, inquiry(), edi)


@pytest.mark.parametrize(
    ("subscriber", "service", "path", "value"),
    [
        ("NM1*IL*1*SMITH*ANN", "DMG*D8*19800201~EQ*30", "NM1[IL].9", "W1"),
        ("NM1*IL*1*SMITH*ANN", "EQ*30", "AAA.3", "75"),
        ("NM1*IL*1*X*Y****MI*W9", "EQ*30", "AAA.3", "75"),
        ("NM1*IL*1*GONE*BOB****MI*W2", "EQ*30", "EB.1", "6"),
        ("NM1*IL*1*SMITH*ANN****MI*W1", "EQ*98^1", "EB[3].1", "A"),
        ("NM1*IL*1*SMITH*ANN****MI*W1", "EQ*98", "EB[4].1", None),
    ],
)
def test_subscribers_are_found_and_answered(house: Workplace, subscriber: str, service: str, path: str, value: str | None) -> None:
    assert find(house.ask("POST", "/", inquiry(subscriber, service).encode()).body.decode(), path) == [value]


def test_eligibility_as_json_includes_its_edi(house: Workplace) -> None:
    answer = read(house.ask("POST", "/eligibility", {"patient_id": "ann", "service_type": "98"}))
    assert {name: answer[name] for name in ("active", "member_id", "plan", "copay", "deductible", "errors")} == {
        "active": True,
        "member_id": "W1",
        "plan": "Gold",
        "copay": 25.0,
        "deductible": None,
        "errors": [],
    }
    state = house.state()
    assert state.x12 is not None and find(state.x12.responses[0], "ST.1", "EB[2].7") == ["271", "25"]
    unknown = read(house.ask("POST", "/eligibility", {"patient_id": "nobody"}))
    assert (unknown["active"], unknown["errors"][0]["code"]) == (False, "75")
    assert refusal(house.ask("POST", "/eligibility", {})) == (422, "wrong_value")
    assert refusal(house.ask("GET", "/eligibility")) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    ("number", "status", "paid"), [("C-7", "F1:65", "150"), ("C-8", "F2:585", "0"), ("C-9", "A4:35", None), ("", "A4:35", None)]
)
def test_the_status_of_a_claim_is_answered(house: Workplace, number: str, status: str, paid: str | None) -> None:
    named = f"REF*1K*{number}~" if number else ""
    body = f"BHT*0010*13*R*20261116*0930~HL*1**20*1~NM1*PR*2*ACME*****PI*1~HL*4*3*22*0~NM1*IL*1*SMITH*ANN****MI*W1~TRN*1*T-9~{named}"
    edi = house.ask("POST", "/276", interchange("276", body).encode()).body.decode()
    assert find(edi, "ST.1", "TRN.2", "STC.1", "STC.5") == ["277", "T-9", status, paid]


@pytest.mark.parametrize(
    ("code", "member", "decision", "number"),
    [("70551", "W1", "A1", "AUTH0000101"), ("99999", "W1", "A3", None), ("1", "W1", "A4", "AUTH0000101"), ("70551", "W9", None, None)],
)
def test_a_request_for_authorization_is_decided_by_the_first_rule_that_fits(
    house: Workplace, code: str, member: str, decision: str | None, number: str | None
) -> None:
    body = (
        "BHT*0007*13*R*20261116*0930~HL*1**20*1~NM1*X3*2*ACME*****PI*1~HL*2*1*21*1~NM1*1P*1*WHO*ANN~HL*3*2*22*1~"
        f"NM1*IL*1*SMITH*ANN****MI*{member}~HL*4*3*EV*1~TRN*1*T~UM*HS*I*1*11:B~HL*5*4*SS*0~SV1*HC:{code}*100*UN*1~"
    )
    edi = house.ask("POST", "/278", interchange("278", body).encode()).body.decode()
    assert find(edi, "ST.1", "HCR.1", "HCR.2") == ["278", decision, number]
    if decision is None:
        assert find(edi, "AAA.3") == ["75"]
    else:
        assert find(edi, "UM.4", "MSG.1") == ["11:B", "not covered" if decision == "A3" else None]


def test_every_service_of_a_request_for_authorization_is_decided(house: Workplace) -> None:
    services = "".join(f"HL*{5 + index}*4*SS*0~SV1*HC:{code}*100*UN*1~" for index, code in enumerate(("70551", "99999", "1")))
    body = f"BHT*0007*13*R*20261116*0930~HL*1**20*1~HL*3*2*22*1~NM1*IL*1*SMITH*ANN****MI*W1~HL*4*3*EV*1~UM*HS*I*1*11:B~{services}"
    house.ask("POST", "/278", interchange("278", body).encode())
    state = house.state()
    assert state.x12 is not None
    paths = [f"{name}[{place}]{rest}" for place in (1, 2, 3) for name, rest in (("SV1", ".1.2"), ("HCR", ".1"), ("HCR", ".2"))]
    decided = ["70551", "A1", "AUTH000010101", "99999", "A3", None, "1", "A4", "AUTH000010103"]
    assert find(state.x12.responses[0], *paths) == decided


_PARTIES = "HL*1**20*1~NM1*X*2*ACME*****PI*1~NM1*41*2*CLINIC*****46*77~HL*2*1*21*1~NM1*1P*2*CLINIC*****XX*1234567893~"
_SUBSCRIBER = "NM1*IL*1*SMITH*ANN****MI*W1~"
_CLAIMS = f"BHT*0010*13*R*20261116*0930~{_PARTIES}HL*4*3*22*0~{_SUBSCRIBER}TRN*1*T-9~REF*1K*C-7~TRN*1*T-10~REF*EJ*C-8~TRN*1*T-11~"
_SERVICE = (
    f"BHT*0007*13*R*20261116*0930~{_PARTIES}HL*3*2*22*1~{_SUBSCRIBER}HL*4*3*EV*1~TRN*1*T~UM*HS*I*1*11:B~HL*5*4*SS*0~SV1*HC:99999*1*UN*1~"
)
_ANSWERS = {
    "eligibility": (
        inquiry(service="EQ*98^30"),
        "GS*HB*ACME*CLINIC*20261116*0930*1*X*005010X279A1~ST*271*0001*005010X279A1~BHT*0022*11*REF-1*20261116*0930~"
        "HL*1**20*1~NM1*PR*2*Acme Health*****PI*60054~HL*2*1*21*1~NM1*1P*2*CLINIC*****XX*1234567893~HL*3*2*22*0~TRN*2*T-1*9ORIGIN~"
        "NM1*IL*1*Smith*Ann****MI*W1~DMG*D8*19800201*F~EB*1*IND*30**Gold~EB*B*IND*98***27*25~EB*A*IND*98***27**0.2~"
        "EB*C*IND*30***23*500~EB*C*IND*30***29*120.5~SE*16*0001~GE*1*1~IEA*1*000000001~",
    ),
    "an unknown subscriber without a provider": (
        interchange("270", "BHT*0022*13~HL*1~TRN*1*T-1~NM1*IL*1*X*Y****MI*W9~EQ*30~"),
        "GS*HB*ACME*CLINIC*20261116*0930*1*X*005010X279A1~ST*271*0001*005010X279A1~BHT*0022*11*1*20261116*0930~"
        "HL*1**20*1~NM1*PR*2*Acme Health*****PI*60054~HL*2*1*21*1~NM1*1P*2*PROVIDER*****XX*0000000000~HL*3*2*22*0~TRN*2*T-1~"
        "NM1*IL*1*X*Y****MI*W9~AAA*N**75*C~SE*11*0001~GE*1*1~IEA*1*000000001~",
    ),
    "claims": (
        interchange("276", _CLAIMS),
        "GS*HN*ACME*CLINIC*20261116*0930*1*X*005010X212~ST*277*0001*005010X212~BHT*0010*08*R*20261116*0930*DG~"
        "HL*1**20*1~NM1*PR*2*Acme Health*****PI*60054~HL*2*1*21*1~NM1*41*2*CLINIC*****46*77~HL*3*2*19*1~"
        "NM1*1P*2*CLINIC*****XX*1234567893~HL*4*3*22*0~NM1*IL*1*Smith*Ann****MI*W1~"
        "TRN*2*T-9~STC*F1:65*20261116**200*150~REF*1K*C-7~DTP*472*D8*20261001~TRN*2*T-10~STC*F2:585*20261116**0*0~REF*1K*C-8~"
        "TRN*2*T-11~STC*A4:35*20261116~SE*20*0001~GE*1*1~IEA*1*000000001~",
    ),
    "authorization": (
        interchange("278", _SERVICE),
        "GS*HI*ACME*CLINIC*20261116*0930*1*X*005010X217~ST*278*0001*005010X217~BHT*0007*11*R*20261116*0930*18~"
        "HL*1**20*1~NM1*X3*2*Acme Health*****PI*60054~HL*2*1*21*1~NM1*1P*2*CLINIC*****XX*1234567893~HL*3*2*22*1~"
        "NM1*IL*1*Smith*Ann****MI*W1~HL*4*3*EV*1~TRN*2*T~UM*HS*I*1*11:B~HL*5*4*SS*0~SV1*HC:99999*1*UN*1~HCR*A3~MSG*not covered~"
        "SE*16*0001~GE*1*1~IEA*1*000000001~",
    ),
    "a wrong count of segments": (
        interchange("270", "BHT*1~HL*1~NM1*IL~", count=9),
        "GS*FA*ACME*CLINIC*20261116*0930*1*X*005010X231A1~ST*999*0001*005010X231A1~AK1*HS*1*005010X279A1~AK2*270*0001*005010X279A1~"
        "IK5*R*4~AK9*R*1*1*0~SE*6*0001~GE*1*1~IEA*1*000000001~",
    ),
    "a wrong control number": (
        interchange("270", "BHT*1~", end="000000001"),
        "TA1*000000905*261116*0930*R*001~IEA*0*000000001~",
    ),
}


@pytest.mark.parametrize(("edi", "answer"), _ANSWERS.values(), ids=_ANSWERS)
def test_an_answer_has_exactly_these_segments(house: Workplace, edi: str, answer: str) -> None:
    head = "ISA*00*          *00*          *ZZ*ACME           *ZZ*CLINIC         *261116*0930*^*00501*000000001*0*P*:~"
    assert house.ask("POST", "/", edi.encode()).body.decode() == head + answer


@pytest.mark.parametrize("kind", ["270", "276", "278"])
def test_a_second_subscriber_is_refused(house: Workplace, kind: str) -> None:
    body = "BHT*1~HL*1~TRN*1~UM*HS~NM1*IL*1*SMITH*ANN****MI*W1~NM1*IL*1*WHO*BOB****MI*W2~"
    edi = house.ask("POST", f"/{kind}", interchange(kind, body).encode()).body.decode()
    assert find(edi, "ST.1", "IK3.1", "IK5.1") == ["999", "NM1", "R"]


@pytest.mark.parametrize(
    ("edi", "code"),
    [
        (interchange("837", "BHT*1~"), "1"),
        (interchange("270", "BHT*1~HL*1~NM1*IL~", count=9), "4"),
        (interchange("270", "BHT*1~HL*1~NM1*IL~", control="0002"), "3"),
        (interchange("270", "BHT*1~HL*1~"), "5"),
        (interchange("270", "BHT*1~HL*1~NM1*IL~").replace("SE*5*0001~", ""), "2"),
    ],
)
def test_an_invalid_transaction_is_rejected_by_a_999(house: Workplace, edi: str, code: str) -> None:
    response = house.ask("POST", "/", {"payload": edi})
    answer = read(response)
    assert (response.status, answer["accepted"], answer["kind"]) == (200, False, "999") and answer["reason"]
    assert find(answer["response"], "ST.1", "AK1.2", "IK5.1", "IK5.2", "AK9.1") == ["999", "1", "R", code, "R"]


@pytest.mark.parametrize(
    ("edi", "code"),
    [
        ("", "024"),
        ("what", "024"),
        ("ISA*00", "024"),
        (inquiry().split("ST*")[0], "024"),
        (inquiry().split("IEA*")[0], "023"),
        (interchange("270", "BHT*1~", end="000000001"), "001"),
    ],
)
def test_an_invalid_interchange_is_rejected_by_a_ta1(house: Workplace, edi: str, code: str) -> None:
    answer = read(house.ask("POST", "/", {"payload": edi}))
    assert (answer["kind"], answer["accepted"]) == ("TA1", False)
    ta1 = next(segment.split("*") for segment in answer["response"].split("~") if segment.startswith("TA1"))
    assert ta1[4:] == ["R", code]
    assert answer["response"].endswith("~IEA*0*000000001~")


@pytest.mark.parametrize("control", ["00000000²", "٣٣٣٣٣٣٣٣٣", "9" * 5000])
def test_an_interchange_with_an_invalid_number_is_rejected_without_one(house: Workplace, control: str) -> None:
    edi = interchange("270", "BHT*1~").replace("*000000905*", f"*{control}*")
    answer = read(house.ask("POST", "/", {"payload": edi}))
    assert answer["kind"] == "TA1" and "~TA1*000000000*" in answer["response"]


def test_bytes_and_wrong_paths_are_refused(house: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert house.ask("POST", "/", b"\xff\x00").status == 200, "rejected by a TA1"
    assert refusal(house.ask("POST", "/837", b"")) == (404, "not_found")
    assert refusal(house.ask("GET", "/transactions/9")) == (404, "not_found")
    assert refusal(house.ask("POST", "/", b"{")) == (400, "bad_json")
    monkeypatch.setattr(x12, "MOST_BYTES", 100)
    assert house.ask("POST", "/", b" " * 100).status == 200, "rejected by a TA1"
    assert refusal(house.ask("POST", "/", b" " * 101)) == (413, "too_large")


def test_delimiters_in_a_name_end_nothing_early() -> None:
    house = Workplace("x12", {"members": [{"member_id": "W1", "last_name": "A*B~C"}]})
    edi = house.ask("POST", "/270", inquiry().encode()).body.decode()
    assert find(edi, "NM1[IL].3", "NM1[IL].9") == ["A B C", "W1"]


@pytest.mark.parametrize(
    ("seed", "message", "place"),
    [
        ([], "expected an object", "x12.seed"),
        ({"member": []}, "unknown key", "x12.seed.member"),
        ({"members": [{}]}, "member_id is missing", "x12.seed.members.0"),
        ({"members": [{"member_id": "1", "birth_date": "soon"}]}, "expected a day", "x12.seed.members.0.birth_date"),
        ({"members": [{"member_id": "1", "benefits": [{"copay": "x"}]}]}, "amount", "x12.seed.members.0.benefits.0.copay"),
        ({"claims": [{"claim_number": "1", "member_id": "2"}]}, "no member", "x12.seed.claims.0.member_id"),
        ({"determinations": [{"status": "maybe"}]}, "expected one of", "x12.seed.determinations.0.status"),
    ],
)
def test_an_unusable_seed_is_refused_at_its_place(seed: Any, message: str, place: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        Workplace("x12", seed)
    assert caught.value.field == place
