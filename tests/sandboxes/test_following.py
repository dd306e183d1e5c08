"""A call on loopback continues in parallel, and ends with its sandbox."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from proctor.model.case import System
from proctor.sandboxes.server import LoopbackServer
from proctor.simulators.rows import MemoryStore
from proctor.simulators.sandbox import Sandbox, provision_rows
from tests.simulators.test_voice import NUMBER
from tests.simulators.workplace import make_surroundings

SYSTEMS = (System(name="phone", kind="voice", seed={"lines": [{"number": NUMBER, "opening": "Hello?", "answers": ["Yes."]}]}),)


class Webhook(BaseHTTPRequestHandler):
    """Answers with speech, slowly on request."""

    reached = threading.Event()
    released = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.reached.set()
        self.released.wait(20)
        body = b"<Response><Say>Is this the clinic?</Say></Response>"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def webhook() -> Iterator[str]:
    Webhook.reached.clear()
    Webhook.released.clear()
    served = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_address[1]}/voice"
    Webhook.released.set()
    served.shutdown()
    served.server_close()
    thread.join()


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    made = LoopbackServer()
    made.open()
    yield made
    made.close()


def begin_call(server: LoopbackServer, url: str) -> tuple[Sandbox, Any]:
    """Make a call; return its sandbox, and how to read it."""
    around = make_surroundings()
    sandbox = Sandbox("s1", SYSTEMS, MemoryStore(), around)
    asyncio.run(sandbox.provision(provision_rows(SYSTEMS, around)))
    place = server.add(sandbox, ("phone",))
    headers = {"authorization": f"Basic {base64.b64encode(f'AC1:{place.token}'.encode()).decode()}"}

    def ask(path: str, form: dict[str, str] | None = None) -> Any:
        body = None if form is None else urlencode(form).encode()
        with urlopen(Request(f"{place.url}/phone/2010-04-01/Accounts/AC1/{path}", body, headers), timeout=5) as answer:
            return json.loads(answer.read())

    call = ask("Calls.json", {"To": NUMBER, "From": "+15550100", "Url": url})
    assert call["status"] == "queued"
    return sandbox, lambda: ask(f"Calls/{call['sid']}.json")


def test_a_call_continues_after_its_request(server: LoopbackServer, webhook: str) -> None:
    sandbox, read_call = begin_call(server, webhook)
    assert Webhook.reached.wait(5) and read_call()["status"] == "in-progress", "nothing is held while the webhook thinks"
    Webhook.released.set()
    for _ in range(200):
        if read_call()["status"] == "completed":
            break
        time.sleep(0.01)
    voice = asyncio.run(sandbox.read_state()).voice
    assert voice is not None and [turn.text for turn in voice.turns] == ["Hello?", "Is this the clinic?", "Yes."]


def test_a_call_ends_with_its_sandbox_also_while_a_webhook_thinks(server: LoopbackServer, webhook: str) -> None:
    sandbox, _ = begin_call(server, webhook)
    assert Webhook.reached.wait(5)
    server.remove(sandbox)
    assert not [thread for thread in threading.enumerate() if thread.name == "proctor-following"]
    voice = asyncio.run(sandbox.read_state()).voice
    assert voice is not None and [turn.text for turn in voice.turns] == ["Hello?"]
