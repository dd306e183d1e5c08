"""A simulated EHR on loopback calls the agent's service, which may use the sandbox during the call."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

import pytest

from proctor.model.case import System
from proctor.sandboxes.outside import MOST_BYTES, fetch_outside
from proctor.sandboxes.server import LoopbackServer, SandboxAddress
from proctor.simulators.exchange import Errand
from proctor.simulators.rows import MemoryStore
from proctor.simulators.sandbox import Sandbox, provision_rows
from tests.simulators.workplace import make_surroundings

SYSTEMS = (
    System(name="ehr", kind="cds", seed={}),
    System(name="clinic", kind="fhir", seed=[{"resourceType": "Patient", "id": "ann", "name": [{"family": "Smith"}]}]),
)


class Service(BaseHTTPRequestHandler):
    """A service of CDS Hooks that reads the patient before it answers."""

    place: SandboxAddress

    def do_GET(self) -> None:
        body = (
            b"x" * (MOST_BYTES + 1)
            if self.path == "/large"
            else json.dumps({"services": [{"id": "mine", "hook": "patient-view"}]}).encode()
        )
        self.answer(302 if self.path == "/elsewhere" else 200, body)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {"authorization": f"Bearer {self.place.token}"}
        with urlopen(Request(f"{self.place.url}/clinic/Patient/{request['context']['patientId']}", headers=headers), timeout=5) as found:
            family = json.loads(found.read())["name"][0]["family"]
        card = {"summary": f"This is {family}", "indicator": "info", "source": {"label": "agent"}}
        self.answer(200, json.dumps({"cards": [card]}).encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("location", "http://127.0.0.1/")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    served = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_address[1]}"
    served.shutdown()
    served.server_close()
    thread.join()


def test_the_service_may_use_the_sandbox_while_it_is_called(service: str) -> None:
    around = make_surroundings()
    server = LoopbackServer()
    server.open()
    try:
        sandbox = Sandbox("s1", SYSTEMS, MemoryStore(), around)
        asyncio.run(sandbox.provision(provision_rows(SYSTEMS, around)))
        place = Service.place = server.add(sandbox, ("ehr", "clinic"))

        def ask(path: str, body: object) -> object:
            headers = {"authorization": f"Bearer {place.token}", "content-type": "application/json"}
            with urlopen(Request(f"{place.url}/ehr{path}", json.dumps(body).encode(), headers), timeout=10) as answer:
                return json.loads(answer.read())

        ask("/services", {"discovery_url": f"{service}/cds-services"})
        reply = ask("/hooks/patient-view", {"patient_id": "ann"})
        assert isinstance(reply, dict) and [card["summary"] for card in reply["cards"]] == ["This is Smith"]
    finally:
        server.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://169.254.169.254/latest", "refused"),
        ("http://10.0.0.1/", "refused"),
        ("http://user:word@127.0.0.1:1/", "reached"),
        ("http://127.0.0.1:1/", "reached"),
        ("http://[/", "reached"),
    ],
)
def test_a_forbidden_or_unreachable_address_is_reported(url: str, message: str) -> None:
    fetched = asyncio.run(fetch_outside(Errand("GET", url)))
    assert fetched.status == 0 and message in fetched.problem


def test_endless_answers_and_redirects_are_not_followed(service: str) -> None:
    assert "bytes" in asyncio.run(fetch_outside(Errand("GET", f"{service}/large"))).problem
    assert asyncio.run(fetch_outside(Errand("GET", f"{service}/elsewhere"))).status == 302
