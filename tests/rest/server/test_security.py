"""Refusals before any action: wrong host names, foreign pages, bodies too large or too deep, too many requests."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import StoreError
from proctor.rest import security
from proctor.rest.limits import RateLimits, inflate_bounded
from proctor.rest.security import HostCheck, is_loopback, is_unspecified
from proctor.service.access.keys import authenticate
from proctor.service.hub import Hub
from proctor.service.refusals import Refusal
from proctor.service.settings import ServiceSettings
from proctor.store.sql.tables import runs
from tests.rest.services import Service

JSON = {"content-type": "application/json"}


# --- names and pages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8700", "localhost", "LOCALHOST:99", "[::1]:8700", "[0:0::1]"])
def test_the_names_of_a_local_service_are_answered(shared_service: Service, host: str) -> None:
    assert shared_service.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8700", "", "10.0.0.7", "[::2]", "a b",
        "[::1].evil.com", "[::1]evil.com:80", "localhost:1@evil", "localhost:80:80", "localhost:", "localhost:99999", "localhost:1a",
        "[::1", "[::1]]", "[[::1]]", "[127.0.0.1]", "[::1%25lo]", "localhost/evil", "user@localhost", "localhost?x", "localhost#x",
        "localhost\\evil", "localhost,evil.com", "-localhost",
    ],
)  # fmt: skip
def test_another_name_is_refused_whatever_it_leads_to(shared_service: Service, host: str) -> None:
    answer = shared_service.get("/health", headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "FORBIDDEN"


def test_names_can_be_allowed_and_an_address_needs_no_name_where_all_addresses_are_served() -> None:
    def knows(host: str, name: str, *allowed: str) -> bool:
        return HostCheck(None, host=host, allowed_hosts=allowed)._is_known(name)  # type: ignore[arg-type]  # not called

    assert knows("0.0.0.0", "proctor.example", "proctor.example")
    assert not knows("0.0.0.0", "other.example", "proctor.example")
    assert knows("0.0.0.0", "192.168.1.5") and knows("::", "fe80::1") and knows("0.0.0.0", "localhost")
    assert knows("192.168.1.5", "192.168.1.5") and not knows("192.168.1.5", "192.168.1.6")
    assert knows("10.0.0.1", "whatever", "*")


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8700", 200),
        ("https://127.0.0.1:8700", 200),
        ("http://127.0.0.1:8701", 403),
        ("http://localhost:8700", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("file://127.0.0.1:8700", 403),
        ("http://[", 403),
    ],
)
def test_pages_of_others_are_not_answered(shared_service: Service, origin: str, status: int) -> None:
    answer = shared_service.get("/health", headers={"origin": origin})
    assert answer.status_code == status
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_no_answer_allows_other_pages_or_sets_a_cookie(service: Service) -> None:
    headers = {"origin": "http://127.0.0.1:8700", "access-control-request-method": "POST", "cookie": "session=1"}
    for method, path in (("OPTIONS", "/api/projects"), ("GET", "/api/projects"), ("GET", "/nothing"), ("GET", "/health")):
        answer = service.ask(method, path, headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control-") or name == "set-cookie"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("host", "loopback", "unspecified"),
    [
        ("127.0.0.1", True, False), ("127.8.8.8", True, False), ("::1", True, False), ("localhost", True, False),
        ("0.0.0.0", False, True), ("::", False, True), ("", False, True), ("192.168.1.1", False, False), ("proctor.example", False, False),
        ("localhost.example", False, False),
    ],
)  # fmt: skip
def test_addresses_are_distinguished(host: str, loopback: bool, unspecified: bool) -> None:
    assert is_loopback(host) is loopback
    assert is_unspecified(host) is unspecified


# --- keys --------------------------------------------------------------------------------------------------------------------


def test_every_key_is_accepted_in_both_headers(service: Service) -> None:
    keys = service.keys()
    for kind in ("organization", "project"):
        for headers in ({"authorization": f"Bearer {keys[kind]}"}, {"authorization": f"bearer  {keys[kind]} "}, {"x-api-key": keys[kind]}):
            assert service.get("/api/projects", headers=headers).status_code == 200


@pytest.mark.parametrize("value", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer ", "vk_bare"])
def test_other_authorization_headers_count_as_no_key(service: Service, value: str) -> None:
    service.keys()
    answer = service.get("/api/projects", headers={"authorization": value})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_local_user_is_let_in_until_a_key_was_created(service: Service) -> None:
    assert service.get("/api/projects").status_code == 200
    made = service.post("/api/keys", json={"kind": "organization", "name": "first"})
    assert made.status_code == 201
    assert service.get("/api/projects").status_code == 401
    key = made.json()["key"]
    assert service.get("/api/projects", key=key).status_code == 200
    assert service.delete(f"/api/keys/{made.json()['id']}", key=key).status_code == 200
    # Deleting the last key does not open the service again.
    assert service.get("/api/projects").status_code == 401
    assert service.get("/api/projects", key=key).status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        {"x-forwarded-for": "203.0.113.9"},
        {"forwarded": "for=203.0.113.9"},
        {"x-real-ip": "203.0.113.9"},
        {"x-forwarded-host": "proctor.example"},
        {"via": "1.1 proxy"},
        {"sec-fetch-site": "cross-site"},
    ],
    ids=lambda header: next(iter(header)),
)
def test_requests_through_a_proxy_or_foreign_page_are_not_local(service: Service, header: dict[str, str]) -> None:
    assert service.client.get("/api/projects").status_code == 200
    assert service.client.get("/api/projects", headers=header).status_code == 401
    assert service.client.get("/health", headers=header).status_code == 200


@pytest.mark.parametrize(("address", "status"), [("127.0.0.1", 200), ("::1", 200), ("203.0.113.9", 401), ("10.0.0.7", 401)])
def test_requests_from_another_address_are_not_local(service: Service, address: str, status: int) -> None:
    transport: Any = service.client._transport  # pyright: ignore[reportPrivateUsage] - the address it claims
    transport.client = (address, 50000)
    assert service.client.get("/api/projects").status_code == status


def test_no_caller_is_local_on_a_reachable_service(database_url: str, tmp_path: Path) -> None:
    with Service(database_url, tmp_path, host="0.0.0.0") as service:
        assert service.get("/health").status_code == 200
        assert service.get("/api/projects").status_code == 401


def test_a_body_without_a_key_is_not_read(service: Service) -> None:
    service.keys()
    answer = service.post("/api/projects", content=b"{" * 20_000_000, headers=JSON)
    assert answer.status_code == 401


# --- how much ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Any:
    with Service(f"sqlite:///{tmp_path / 'p.db'}", tmp_path, largest_body=10_000, deepest_body=20) as service:
        yield service


def project(text: str) -> bytes:
    return json.dumps({"name": "x", "description": text}).encode()


def chunks(body: bytes) -> Any:
    for at in range(0, len(body), 1_000):
        yield body[at : at + 1_000]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_body_that_is_too_large_is_refused_whatever_was_promised(small: Service, streamed: bool) -> None:
    body = b'{"name": "' + b"x" * 20_000 + b'"}'
    answer = small.post("/api/projects", content=chunks(body) if streamed else body, headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "PAYLOAD_TOO_LARGE"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_compressed_body_is_read(small: Service, streamed: bool) -> None:
    for squeeze, name in ((gzip.compress, "gzip"), (zlib.compress, "deflate")):
        body = squeeze(project("y" * 3000))
        answer = small.post("/api/projects", content=chunks(body) if streamed else body, headers={**JSON, "content-encoding": name})
        assert answer.status_code == 201, answer.text


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_a_bomb_is_refused_before_it_goes_off(small: Service) -> None:
    bomb = gzip.compress(b"[" * 300_000_000)
    answer = small.post("/api/projects", content=gzip.compress(gzip.compress(b"x" * 5)), headers={**JSON, "content-encoding": "gzip"})
    assert answer.status_code == 400
    with pytest.raises(Refusal) as caught:
        inflate_bounded(bomb, ServiceSettings(home=Path(), compression_ratio=2_000))
    assert caught.value.code == "PAYLOAD_TOO_LARGE"
    answer = small.post("/api/projects", content=gzip.compress(b"[" * 9_000_000), headers={**JSON, "content-encoding": "gzip"})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "body",
    [b"no gzip", gzip.compress(project("x"))[:-9], b"\x1f\x8b", gzip.compress(b"{}") + b"rest"],
    ids=["no gzip", "cut off", "only a head", "something after it"],
)
def test_invalid_compression_is_refused(small: Service, body: bytes) -> None:
    answer = small.post("/api/projects", content=body, headers={**JSON, "content-encoding": "gzip"})
    assert answer.status_code == 400


def test_an_unknown_encoding_is_refused(small: Service) -> None:
    answer = small.post("/api/projects", content=b"{}", headers={**JSON, "content-encoding": "br"})
    assert answer.status_code == 415


def test_gzip_in_several_members_is_one_body() -> None:
    assert (
        inflate_bounded(gzip.compress(b"ab") + gzip.compress(b"cd"), ServiceSettings(home=Path(), largest_body=100, gzip_members=2))
        == b"abcd"
    )


@pytest.mark.parametrize("depth", [19, 20, 21, 4_000])
def test_json_that_is_nested_too_deeply_is_refused_before_it_is_decoded(small: Service, depth: int) -> None:
    body = b'{"name":"x","settings":{"a":' + b"[" * (depth - 2) + b"]" * (depth - 2) + b"}}"
    answer = small.post("/api/projects", content=body, headers=JSON)
    assert answer.status_code == (201 if depth <= 20 else 400), answer.text


def test_many_large_bodies_at_once_get_retry_after(tmp_path: Path) -> None:
    with Service(f"sqlite:///{tmp_path / 'p.db'}", tmp_path, waiting_bytes=5_000) as service:
        answer = service.post("/api/projects", content=project("x" * 6_000), headers=JSON)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        # The reserved bytes are released.
        for _ in range(3):
            assert service.post("/api/projects", content=project("x" * 3_000), headers=JSON).status_code == 201


@pytest.mark.parametrize(
    "body",
    [b"", b"nonsense", b"NaN", b'{"name": NaN}', b'{"name": "\\ud800"}', b'{"name": 1e999}', b"[]", b"null", b"\xff\xfe", b'{"name": 1}'],
)
def test_a_body_that_cannot_be_used_is_a_bad_request(shared_service: Service, body: bytes) -> None:
    answer = shared_service.post("/api/projects", content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] in ("BAD_REQUEST", "VALIDATION_ERROR")


def test_an_unknown_field_is_named(service: Service) -> None:
    answer = service.post("/api/projects", json={"name": "x", "nmae": "y"})
    assert answer.status_code == 400
    assert "nmae" in answer.json()["error"]["details"]


# --- how often ---------------------------------------------------------------------------------------------------------------


def test_each_key_has_its_own_bucket_that_fills_up_again() -> None:
    now = 1000.0
    buckets = RateLimits(60, lambda: now)
    assert [buckets.take_s("a") for _ in range(60)] == [0.0] * 60
    assert buckets.take_s("a") == pytest.approx(1.0)
    assert buckets.take_s("b") == 0
    now += 0.5
    assert buckets.take_s("a") == pytest.approx(0.5)
    now += 0.6
    assert buckets.take_s("a") == 0
    now -= 100  # a clock set back grants nothing
    assert buckets.take_s("a") > 0
    assert RateLimits(0, lambda: now).take_s("a") == 0


def test_too_many_requests_get_retry_after(tmp_path: Path) -> None:
    with Service(f"sqlite:///{tmp_path / 'p.db'}", tmp_path, requests_per_minute=3) as service:
        keys = service.keys()
        answers = [service.get("/api/projects", key=keys["organization"]) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
        assert answers[-1].json()["error"]["code"] == "RATE_LIMITED"
        assert service.get("/api/projects", key=keys["project"]).status_code == 200
        # Guessing is limited too, and does not delay callers with a key.
        wrong = [service.get("/api/projects", key="vk_wrong").status_code for _ in range(5)]
        assert wrong == [401, 401, 401, 429, 429]
        assert service.get("/api/projects", key=keys["project"]).status_code == 200
        assert service.get("/health").status_code == 200


# --- streams -----------------------------------------------------------------------------------------------------------------


def _queued(service: Service) -> str:
    """A run that waits for ever: no worker is there."""

    async def queue(hub: Hub) -> None:
        run = {
            "organization_id": "org_default",
            "project_id": "proj_home",
            "suite_name": "s",
            "dialect": "native",
            "document": "",
            "note": "",
        }
        at = {"created_at": hub.now(), "updated_at": hub.now()}
        async with hub.database.writing() as connection:
            await connection.execute(runs.insert().values(id="run_waits", status="queued", **run, **at))

    service.run(queue)
    return "/api/runs/run_waits/events"


RECHECK_S = 0.2
"""How often a stream looks here whether its key is still good; otherwise it is a second."""


@pytest.fixture
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "RECHECK_S", RECHECK_S)


def _follow(service: Service, path: str, key: str | None, end: Callable[[], Any]) -> Any:
    """Return the response of a stream when it ended; `end` is called once it has begun and continued."""
    answers: list[Any] = []
    reader = threading.Thread(target=lambda: answers.append(service.get(path, key=key)))
    reader.start()
    deadline = time.monotonic() + 10
    while not service.hub.run_signals._waiting and time.monotonic() < deadline:
        time.sleep(0.01)
    reader.join(2 * RECHECK_S)
    assert reader.is_alive()
    end()
    reader.join(10)
    assert not reader.is_alive()
    return answers[0]


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("looking_often")
def test_a_stream_ends_when_its_key_is_revoked(service: Service) -> None:
    keys = service.keys()
    path = _queued(service)
    mine = service.run(lambda hub: authenticate(hub, keys["project"]))
    assert mine is not None
    stream = _follow(service, path, keys["project"], lambda: service.delete(f"/api/keys/{mine.key_id}", key=keys["organization"]))
    assert stream.status_code == 200 and stream.text.startswith("retry: 1000")
    assert service.get(path, key=keys["project"]).status_code == 401


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("looking_often")
def test_the_stream_of_the_local_user_ends_when_the_service_is_closed(service: Service) -> None:
    path = _queued(service)
    _follow(service, path, None, lambda: service.post("/api/keys", json={"kind": "organization", "name": "admin"}))
    assert service.get(path).status_code == 401


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("looking_often")
def test_a_stream_outlives_a_database_that_cannot_check_its_key(service: Service, monkeypatch: Any) -> None:
    keys = service.keys()
    path = _queued(service)
    looked: list[str] = []

    async def gone(hub: Hub, key: str) -> None:
        looked.append(key)
        raise StoreError("gone")

    def end() -> None:
        monkeypatch.setattr(security, "authenticate", gone)
        deadline = time.monotonic() + 10
        while len(looked) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(looked) >= 2 and service.hub.run_signals._waiting
        service.app.state.stopping.set()

    assert _follow(service, path, keys["organization"], end).status_code == 200
