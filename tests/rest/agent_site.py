"""A server of the agent on loopback that the service calls; a test chooses its answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class AgentSite:
    """Answers each request with `answer(method, headers, body)`, and calls `before_answer` before sending it."""

    def __init__(self, path: str, answer: Callable[[str, Mapping[str, str], bytes], bytes]) -> None:
        self.before_answer: Callable[[], object] = lambda: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                sent = self.rfile.read(int(self.headers.get("content-length", 0)))
                body = answer(self.command, self.headers, sent)
                outer.before_answer()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}{path}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
