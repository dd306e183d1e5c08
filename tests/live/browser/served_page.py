"""A service with an agent to be examined, and a browser that visits its pages."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.live.serving import Serving, serving

CASES = ("refund", "hours", "greeting", "parcel")


class Agent:
    """Answers requests once released; knows less when it is `bad`."""

    def __init__(self) -> None:
        self.bad = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text_in: str = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
                agent.may_answer.wait(30)
                text = f"you sent {text_in}" if not agent.bad or text_in in ("hello", "parcel 7") else "I do not know."
                body = json.dumps({"text": text}).encode()
                with contextlib.suppress(OSError):  # the client has gone
                    self.send_response(200)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.target = {"type": "http", "url": f"http://127.0.0.1:{self._server.server_address[1]}/", "response_path": "text"}
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


class Place:
    """A service with a key, a project, and an agent to be examined."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.agent = Agent()
        self.project = self.ask("POST", "/api/projects", {"name": "Corner shop", "description": "Answers what customers ask."})["id"]
        self.key: str | None = None
        self.key = self.ask("POST", "/api/keys", {"kind": "organization", "name": "me"})["key"]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self.key}"} if getattr(self, "key", None) else {}
        status, answer = self.server.ask(method, path, body, headers)
        assert status < 300, answer
        return answer

    def start_run(self, cases: list[dict[str, Any]] | None = None, **more: Any) -> str:
        made = cases or [
            {"id": case, "input": text, "expect": [{"response_contains": text}]} for case, text in zip(CASES, INPUTS, strict=True)
        ]
        body = {"project_id": self.project, "suite": {"proctor": 1, "name": "shop", "cases": made}, "target": self.agent.target, **more}
        return self.ask("POST", "/api/runs", body)["id"]

    def wait_for(self, run: str) -> None:
        status, events = self.server.ask("GET", f"/api/runs/{run}/events", None, {"authorization": f"Bearer {self.key}"})
        assert status == 200, events


INPUTS = ("refund 17", "when are you open", "hello", "parcel 7")


@contextlib.contextmanager
def opened_place(home: Path, database: str | None, *flags: str) -> Iterator[Place]:
    with serving(home, database=database, flags=("--allowed-address", "127.0.0.1", *flags)) as server:
        place = Place(server)
        try:
            yield place
        finally:
            place.agent.close()


class Visitor:
    """A separate browser with its requests and console errors."""

    def __init__(self, browser: Any, place: Place, *, width: int = 1280, **options: Any) -> None:
        self.place = place
        self.context = browser.new_context(
            viewport={"width": width, "height": 844}, base_url=place.server.url, locale="en-GB", timezone_id="Asia/Tokyo", **options
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._note_request)
        if latency_ms := float(os.environ.get("PROCTOR_PAGE_LATENCY_MS", 0)):
            self._slow_down(latency_ms)

    def _slow_down(self, latency_ms: float) -> None:
        # A page loads before its scripts. A fast machine hides a test that does not wait for them.
        session = self.context.new_cdp_session(self.page)
        session.send("Network.enable")
        session.send(
            "Network.emulateNetworkConditions", {"offline": False, "latency": latency_ms, "downloadThroughput": -1, "uploadThroughput": -1}
        )
        session.send("Emulation.setCPUThrottlingRate", {"rate": 4})

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(self.place.server.url):
            self.complaints.append(f"requested {request.url}")

    def log_in(self) -> None:
        self.page.goto("/ui/login")
        self.page.fill("#key", str(self.place.key))
        self.page.keyboard.press("Enter")
        self.page.wait_for_url("**/ui/")

    def arrive(self, selector: str) -> None:
        """Wait until the next page shows the element and its scripts have run, so that keys and filled fields work."""
        self.page.wait_for_selector(selector)
        self.page.wait_for_load_state()

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()
