"""`/v1/logs` over HTTP: log records of instrumentations are joined to their spans, in any order of arrival."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from tests.rest.services import Service
from tests.service.trace_world import logs, logs_protobuf, new_trace, record, request, span

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
MODEL = "bbbbbbbbbbbbbbbb"
CALL = {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": '{"id": 17}'}}


def send(service: Service, key: str | None, document: dict[str, Any], *, binary: bool = False, packed: bool = False) -> Any:
    body = logs_protobuf(document) if binary else json.dumps(document).encode()
    headers = dict(PROTOBUF if binary else JSON)
    if packed:
        body, headers["content-encoding"] = gzip.compress(body), "gzip"
    return service.post("/v1/logs", key=key, content=body, headers=headers)


def chat(trace: str) -> dict[str, Any]:
    """A model request whose span carries no messages."""
    more = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "m"}
    return request(span(trace, MODEL, name="chat m", gen_ai__response__finish_reasons="tool_calls", **more))


def conversation(trace: str) -> dict[str, Any]:
    """The messages, in log records of that span."""
    user = record(trace, MODEL, "gen_ai.user.message", {"content": "Refund order 17"}, gen_ai__system="openai")
    answer = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [CALL]}}
    return logs(user, record(trace, MODEL, "gen_ai.choice", answer, gen_ai__system="openai"))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
@pytest.mark.parametrize("first", ["logs", "spans"])
def test_log_records_are_part_of_the_trace_of_their_span(service: Service, first: str, binary: bool, packed: bool) -> None:
    keys = service.keys()
    trace = new_trace()
    for what in ("logs", "spans") if first == "logs" else ("spans", "logs"):
        if what == "spans":
            assert service.post("/v1/traces", key=keys["agent"], json=chat(trace)).status_code == 200
            continue
        answer = send(service, keys["agent"], conversation(trace), binary=binary, packed=packed)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == (PROTOBUF if binary else JSON)["content-type"]
        assert answer.content == (b"" if binary else b"{}")
    (row,) = service.get("/api/traces", key=keys["agent"]).json()["data"]
    evidence = service.get(f"/api/traces/{row['id']}", key=keys["agent"]).json()["evidence"]
    assert row["external_id"] == trace and evidence["input"] == "Refund order 17"
    assert [(call["name"], call["arguments"]) for call in evidence["tool_calls"]] == [("refund", {"id": 17})]


@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
def test_records_that_are_no_events_of_a_span_are_passed_over(service: Service, binary: bool) -> None:
    keys = service.keys()
    trace = new_trace()
    plain = [
        record("", "", "app.started"),
        record("0" * 32, "0" * 16, "app.started"),
        record(trace, "", "gen_ai.choice"),
        record(trace, MODEL, None, "a line of a log"),
        record(trace, MODEL, "gen_ai.evaluation.result", gen_ai__evaluation__name="case", gen_ai__evaluation__score__label="fail"),
    ]
    answer = send(service, keys["agent"], logs(*plain), binary=binary)
    assert answer.status_code == 200 and answer.content == (b"" if binary else b"{}")
    assert service.get("/public/traces", key=keys["agent"]).json()["data"] == []


@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
def test_records_that_cannot_be_used_are_counted_one_by_one_in_the_answer(service: Service, binary: bool) -> None:
    keys = service.keys()
    service.patch("/api/agents/agent_home_1", key=keys["organization"], json={"service_name": "shop"})
    unknown = [
        record(new_trace(), MODEL, "gen_ai.choice", "one"),
        *(record("1" * 32, MODEL, "gen_ai.choice", text) for text in ("two", "three")),
    ]
    document = {"resourceLogs": [*conversation(new_trace())["resourceLogs"], *logs(*unknown, service="nobody")["resourceLogs"]]}
    answer = send(service, keys["project"], document, binary=binary)
    assert answer.status_code == 200
    if binary:
        partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
        rejected, message = partial.rejected_log_records, partial.error_message
    else:
        partial = answer.json()["partialSuccess"]
        rejected, message = int(partial["rejectedLogRecords"]), partial["errorMessage"]
    assert rejected == 3 and "nobody" in message


def test_broken_records_are_counted_and_the_others_stored(service: Service) -> None:
    keys = service.keys()
    long = record("1" * 300, MODEL, "gen_ai.choice", "x")
    good = record(new_trace(), MODEL, "gen_ai.choice", "x")
    answer = send(service, keys["agent"], logs(good, long, 7))  # pyright: ignore[reportArgumentType] - no record
    partial = answer.json()["partialSuccess"]
    assert partial["rejectedLogRecords"] == "2" and "too long" in partial["errorMessage"] and "object" in partial["errorMessage"]
    assert len(service.get("/public/traces", key=keys["agent"]).json()["data"]) == 1


def test_a_request_without_records_is_a_success(service: Service) -> None:
    keys = service.keys()
    for binary in (False, True):
        assert send(service, keys["agent"], {"resourceLogs": []}, binary=binary).status_code == 200


BAD: list[tuple[str, dict[str, Any], int]] = [
    ("malformed protobuf", {"content": b"\xff\xff\xff\xff", "headers": PROTOBUF}, 400),
    ("cut off protobuf", {"content": logs_protobuf(conversation("1" * 32))[:-3], "headers": PROTOBUF}, 400),
    ("malformed JSON", {"content": b"{", "headers": JSON}, 400),
    ("JSON with spans", {"content": b'{"resourceSpans": []}', "headers": JSON}, 400),
    ("no content type", {"content": b"{}"}, 415),
    ("too large", {"content": b"\0" * 10_000_001, "headers": PROTOBUF}, 413),
    ("a bomb", {"content": gzip.compress(b"\0" * 50_000_000), "headers": {**PROTOBUF, "content-encoding": "gzip"}}, 413),
    ("no agent", {"content": logs_protobuf(logs(record("1" * 32, MODEL, "gen_ai.choice", "x"), service=None)), "headers": PROTOBUF}, 400),
]


@pytest.mark.parametrize(("why", "sent", "status"), BAD, ids=[row[0] for row in BAD])
def test_unusable_log_requests_get_a_status_in_their_encoding(why: str, sent: dict[str, Any], status: int, tmp_path: Path) -> None:
    with Service(f"sqlite:///{tmp_path}/p.db", tmp_path) as service:
        keys = service.keys()
        answer = service.post("/v1/logs", key=keys["project"], **sent)
        assert answer.status_code == status, answer.content
        if sent.get("headers", {}).get("content-type") == PROTOBUF["content-type"]:
            assert answer.headers["content-type"] == PROTOBUF["content-type"] and answer.content[:1] == b"\x08"
        else:
            assert answer.json()["message"]
        assert service.get("/public/traces", key=keys["organization"]).json()["data"] == []


def test_secrets_in_log_records_are_taken_out(service: Service) -> None:
    keys = service.keys()
    body = {"content": "the key is sk-abcdefghijklmnopqrstuvwxyz123456", "password": "hunter2hunter2"}
    assert send(service, keys["agent"], logs(record(new_trace(), MODEL, "gen_ai.user.message", body))).status_code == 200
    (row,) = service.get("/api/traces", key=keys["agent"]).json()["data"]
    stored = service.get(f"/api/traces/{row['id']}", key=keys["agent"]).text
    assert "sk-abc" not in stored and "hunter2" not in stored and "the key is" in stored


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_many_records_of_one_span_take_no_more_than_their_number(service: Service) -> None:
    keys = service.keys()
    trace = new_trace()
    many = [record(trace, MODEL, "gen_ai.user.message", f"line {number}") for number in range(20_000)]
    assert send(service, keys["agent"], logs(*many), binary=True).status_code == 200
    assert service.run(counted)["log_records_received"] == 20_000


async def counted(hub: Any) -> dict[str, int]:
    return hub.counters.read()
