"""Sandboxes on loopback, called by Python's own client and over a bare socket."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from proctor.model.case import System
from proctor.sandboxes.server import MOST_BYTES, LoopbackServer, SandboxAddress
from proctor.simulators.rows import MemoryStore
from proctor.simulators.sandbox import Sandbox, provision_rows
from tests.simulators.workplace import make_surroundings

SYSTEMS = (
    System(name="clinic", kind="fhir", seed=[{"resourceType": "Patient", "id": "ann"}]),
    System(name="drop", kind="files", seed={"inbox/ä b.txt": "hi"}),
)


class Site:
    """A server with one sandbox."""

    def __init__(self) -> None:
        around = make_surroundings()
        self.server = LoopbackServer()
        self.server.open()
        self.sandbox = Sandbox("s1", SYSTEMS, MemoryStore(), around)
        asyncio.run(self.sandbox.provision(provision_rows(SYSTEMS, around)))
        self.place: SandboxAddress = self.server.add(self.sandbox, ("clinic", "drop"))
        self.address = urlsplit(self.place.url)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str) -> tuple[int, bytes, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port or 0, timeout=5)
        sent = {"authorization": f"Bearer {self.place.token if token is None else token}", **headers}
        try:
            connection.request(method, self.address.path + path, body, {name.replace("_", "-"): value for name, value in sent.items()})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.server.close()


def test_systems_are_reached_with_the_token(site: Site) -> None:
    status, body, headers = site.ask("GET", "/clinic/Patient?_id=ann")
    assert (status, headers["content-type"]) == (200, "application/fhir+json; charset=utf-8")
    bundle = json.loads(body)
    assert bundle["entry"][0]["fullUrl"] == f"{site.place.url}/clinic/Patient/ann"
    assert site.ask("GET", "/drop/inbox/%C3%A4%20b.txt")[1] == b"hi"


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/clinic/Patient", "", 401),
        ("/clinic/Patient", "wrong", 401),
        ("/nothing/Patient", "wrong", 401),
        ("/clinic/metadata", "", 200),
        ("/clinic/.well-known/smart-configuration", "wrong", 200),
        ("/drop/metadata", "", 401),
        ("/nothing/Patient", None, 404),
        ("/clinic", None, 405),
    ],
)
def test_open_and_protected_paths(site: Site, path: str, token: str | None, status: int) -> None:
    assert site.ask("GET", path, token=token)[0] == status


def test_a_client_gets_the_token_for_its_secret(site: Site) -> None:
    form = f"grant_type=client_credentials&client_id=agent&client_secret={site.place.token}"
    status, body, _ = site.ask("POST", "/clinic/token", form, token="")
    assert (status, json.loads(body)["access_token"]) == (200, site.place.token)
    assert site.ask("POST", "/clinic/token", form.replace(site.place.token, "guess"), token="")[0] == 401
    assert site.ask("POST", "/clinic/token", "grant_type=password", token="")[0] == 400
    events = asyncio.run(site.sandbox.read_state()).requests or ()
    assert site.place.token not in json.dumps([[one.body, one.response] for one in events])


def test_a_sandbox_that_is_removed_answers_no_more(site: Site) -> None:
    site.server.remove(site.sandbox)
    assert site.ask("GET", "/clinic/Patient")[0] == 404
    site.server.remove(site.sandbox)


def test_chunked_bodies_are_read(site: Site) -> None:
    parts = iter([b"one ", b"two"])
    assert site.ask("PUT", "/drop/a.txt", parts)[0] == 201
    assert site.ask("GET", "/drop/a.txt")[1] == b"one two"
    assert site.ask("HEAD", "/drop/a.txt")[1] == b""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Content-Length: -1\r\n\r\n", b"400"),
        ("Content-Length: x\r\n\r\n", b"400"),
        (f"Content-Length: {MOST_BYTES + 1}\r\n\r\n", b"413"),
        ("Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (f"Transfer-Encoding: chunked\r\n\r\n{MOST_BYTES + 1:x}\r\n", b"413"),
        # An interrupted body is an incomplete request.
        ("Content-Length: 9\r\n\r\nhalf", b"400"),
        ("Transfer-Encoding: chunked\r\n\r\n9\r\nhalf", b"400"),
        ("Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", b"400"),
        ("Transfer-Encoding: chunked\r\n\r\n4\r\nhalf more\r\n0\r\n\r\n", b"400"),
        (f"Transfer-Encoding: chunked\r\n\r\n4;{'x' * 200}\r\nhalf\r\n0\r\n\r\n", b"400"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_and_an_event(site: Site, headers: str, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", site.address.port or 0), timeout=5) as wire:
        head = f"PUT {site.address.path}/drop/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.place.token}\r\n"
        wire.sendall((head + headers).encode())
        wire.shutdown(socket.SHUT_WR)
        assert wire.recv(1_000).split(b" ")[1] == status
    assert asyncio.run(site.sandbox.find_differences()) == ()
    (event,) = asyncio.run(site.sandbox.read_state()).requests or ()
    assert (event.method, event.path, event.status, event.cut) == ("PUT", "/a", int(status), ("body",))


def test_an_unreadable_body_without_a_token_is_no_event(site: Site) -> None:
    assert site.ask("PUT", "/drop/a", token="wrong", content_length="x")[0] == 401
    assert asyncio.run(site.sandbox.read_state()).requests == ()


def test_a_request_that_waits_for_a_removed_sandbox_does_nothing(site: Site) -> None:
    served = site.server._served["s1"]
    site.server.remove(site.sandbox)
    # As for a request that had found the sandbox, and waited for its turn while it was removed.
    site.server._served["s1"] = served
    assert site.ask("GET", "/clinic/metadata", token="")[0] == 404
    assert asyncio.run(site.sandbox.read_state()).requests == ()


def test_twenty_clients_at_once_lose_no_write(site: Site) -> None:
    def write(number: int) -> None:
        for turn in range(5):
            assert site.ask("PUT", f"/drop/{number}/{turn}.txt", b"x")[0] == 201

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = asyncio.run(site.sandbox.read_state())
    assert len(state.changes or ()) == len(state.requests or ()) == 100


def test_closing_leaves_no_thread() -> None:
    before = threading.active_count()
    site = Site()
    connection = http.client.HTTPConnection("127.0.0.1", site.address.port or 0, timeout=5)
    connection.request("GET", f"{site.address.path}/clinic/metadata")
    connection.getresponse().read()  # the client keeps the connection open
    site.server.close()
    connection.close()
    for thread in threading.enumerate():
        if thread.name.startswith("Thread-") and "process_request" in thread.name:
            thread.join(5)
    assert threading.active_count() <= before


@pytest.mark.parametrize("method", ["PROPFIND", "MOVE", "TRACE", "WEBHOOK", "get"])
def test_a_method_that_no_system_takes_is_refused(site: Site, method: str) -> None:
    status, body, _ = site.ask(method, "/drop/a?to=b")
    assert (status, json.loads(body)["error"]["code"]) == (405, "method_not_allowed")
    (event,) = asyncio.run(site.sandbox.read_state()).requests or ()
    assert (event.method, event.path, event.status) == (method, "/a?to=b", 405)
