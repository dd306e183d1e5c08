"""`/v1/traces` over HTTP: both encodings, partial success, and answers that exporters understand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from proctor.errors import StoreError
from proctor.rest import write_queue
from tests.rest.services import Service
from tests.service.trace_world import new_trace, protobuf, request, root, span

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


def send(service: Service, key: str, document: dict[str, Any], *, binary: bool, packed: bool = False) -> Any:
    body = protobuf(document) if binary else json.dumps(document).encode()
    headers = dict(PROTOBUF if binary else JSON)
    if packed:
        body, headers["content-encoding"] = gzip.compress(body), "gzip"
    return service.post("/v1/traces", key=key, content=body, headers=headers)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
def test_spans_are_taken_in_both_encodings_and_answered_in_the_same(service: Service, binary: bool, packed: bool) -> None:
    keys = service.keys()
    answer = send(service, keys["agent"], request(root(new_trace()), root(new_trace())), binary=binary, packed=packed)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == (PROTOBUF if binary else JSON)["content-type"]
    assert answer.content == (b"" if binary else b"{}")
    assert len(service.get("/public/traces", key=keys["agent"]).json()["data"]) == 2


def read_rejections(answer: Any, *, binary: bool) -> tuple[int, str]:
    """Return how many spans were rejected, and why."""
    if binary:
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
        return partial.rejected_spans, partial.error_message
    partial = answer.json()["partialSuccess"]
    return int(partial["rejectedSpans"]), partial["errorMessage"]


@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
def test_spans_that_cannot_be_used_are_counted_in_the_answer(service: Service, binary: bool) -> None:
    keys = service.keys()
    service.patch("/api/agents/agent_home_1", key=keys["organization"], json={"service_name": "shop"})
    good, unknown = request(root(new_trace())), request(root(new_trace()), root(new_trace()), service="nobody")
    zero = request(span("0" * 32, "aaaaaaaaaaaaaaaa"))
    document = {"resourceSpans": [*good["resourceSpans"], *unknown["resourceSpans"], *zero["resourceSpans"]]}
    answer = send(service, keys["project"], document, binary=binary)
    assert answer.status_code == 200
    rejected, message = read_rejections(answer, binary=binary)
    assert rejected == 3 and "nobody" in message and "no trace id" in message


@pytest.mark.parametrize("binary", [False, True], ids=["json", "protobuf"])
def test_one_text_that_is_not_utf8_costs_its_span_and_not_the_batch(service: Service, binary: bool) -> None:
    keys = service.keys()
    good = [new_trace(), new_trace()]
    document = request(root(good[0]), root(new_trace(), "broken"), root(good[1]))
    body = (protobuf(document) if binary else json.dumps(document).encode()).replace(b"broken", b"br\xffken")
    answer = service.post("/v1/traces", key=keys["agent"], content=body, headers=PROTOBUF if binary else JSON)
    assert answer.status_code == 200
    rejected, message = read_rejections(answer, binary=binary)
    assert (rejected, message) == (1, "a span has a text that is not UTF-8")
    rows = service.get("/public/traces", key=keys["agent"]).json()["data"]
    assert sorted(row["externalId"] for row in rows) == sorted(good)


def test_a_request_without_spans_is_a_success(service: Service) -> None:
    keys = service.keys()
    assert send(service, keys["agent"], {"resourceSpans": []}, binary=False).status_code == 200
    assert send(service, keys["agent"], {"resourceSpans": []}, binary=True).status_code == 200


def test_the_platform_attribute_and_the_service_name_route(service: Service) -> None:
    keys = service.keys()
    service.patch("/api/agents/agent_home_2", key=keys["organization"], json={"service_name": "shop"})
    named = request(root(new_trace()), service="other", mibo__platform_id="agent_home_1")
    assert send(service, keys["project"], named, binary=True).status_code == 200
    assert send(service, keys["project"], request(root(new_trace())), binary=True).status_code == 200
    rows = service.get("/public/traces", key=keys["project"]).json()["data"]
    assert sorted(row["platformId"] for row in rows) == ["agent_home_1", "agent_home_2"]


BAD: list[tuple[str, dict[str, Any], int]] = [
    ("malformed protobuf", {"content": b"\xff\xff\xff\xff", "headers": PROTOBUF}, 400),
    ("cut off protobuf", {"content": protobuf(request(root("1" * 32)))[:-3], "headers": PROTOBUF}, 400),
    ("malformed JSON", {"content": b"{", "headers": JSON}, 400),
    ("JSON of something else", {"content": b'{"spans": []}', "headers": JSON}, 400),
    ("no content type", {"content": b"{}"}, 415),
    ("text", {"content": b"{}", "headers": {"content-type": "text/plain"}}, 415),
    ("too large", {"content": b"\0" * 10_000_001, "headers": PROTOBUF}, 413),
    ("a bomb", {"content": gzip.compress(b"\0" * 50_000_000), "headers": {**PROTOBUF, "content-encoding": "gzip"}}, 413),
    ("many small messages", {"content": b"\x0a\x00" * 500_000, "headers": PROTOBUF}, 413),
    (
        "nothing but broken texts",
        {"content": protobuf(request(root("1" * 32, "broken"))).replace(b"broken", b"br\xffken"), "headers": PROTOBUF},
        400,
    ),
    ("unknown encoding", {"content": b"x", "headers": {**PROTOBUF, "content-encoding": "br"}}, 415),
    ("no agent", {"content": protobuf(request(root("1" * 32), service=None)), "headers": PROTOBUF}, 400),
]


@pytest.mark.parametrize(("why", "sent", "status"), BAD, ids=[row[0] for row in BAD])
@pytest.mark.timeout(60)
def test_unusable_requests_get_a_status_in_their_encoding(why: str, sent: dict[str, Any], status: int, tmp_path: Path) -> None:
    with Service(f"sqlite:///{tmp_path}/p.db", tmp_path) as service:
        keys = service.keys()
        answer = service.post("/v1/traces", key=keys["project"], **sent)
        assert answer.status_code == status, answer.content
        if sent.get("headers", {}).get("content-type") == PROTOBUF["content-type"]:
            assert answer.headers["content-type"] == PROTOBUF["content-type"] and answer.content[:1] == b"\x08"
        else:
            assert answer.json()["message"]
        assert service.get("/public/traces", key=keys["organization"]).json()["data"] == []


def test_a_lost_database_is_answered_with_retry_after_and_nothing_is_acknowledged(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = service.keys()
    assert send(service, keys["agent"], request(root(new_trace())), binary=True).status_code == 200
    keep = write_queue.keep_arrivals

    async def gone(*arguments: Any) -> Any:
        raise StoreError("the database cannot be used: database or disk is full")

    monkeypatch.setattr(write_queue, "keep_arrivals", gone)
    answer = send(service, keys["agent"], request(root(new_trace())), binary=True)
    assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
    monkeypatch.setattr(write_queue, "keep_arrivals", keep)
    assert send(service, keys["agent"], request(root(new_trace())), binary=True).status_code == 200
    assert len(service.get("/public/traces", key=keys["agent"]).json()["data"]) == 2


def test_traces_of_a_deleted_agent_are_rejected(service: Service) -> None:
    keys = service.keys()
    assert send(service, keys["agent"], request(root(new_trace())), binary=True).status_code == 200
    assert service.delete("/api/agents/agent_home_1", key=keys["organization"]).status_code == 204
    assert send(service, keys["agent"], request(root(new_trace())), binary=True).status_code in (401, 404)
    named = request(root(new_trace()), mibo__platform_id="agent_home_1")
    assert send(service, keys["organization"], named, binary=True).status_code == 404
