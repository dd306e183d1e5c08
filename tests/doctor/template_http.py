"""The template server over HTTP."""

from __future__ import annotations

import base64
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.doctor.template_server import HANDSHAKE, META, MODERN, Refused, Shop


class Handler(BaseHTTPRequestHandler):
    shop: Shop
    sessions: ClassVar[dict[str, bool]] = {}
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def reply(self, status: int, message: Any = None, **headers: str) -> None:
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        if body:
            kind = "text/plain" if self.shop.has("http-content-type") and status == 200 else "application/json"
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: int, code: int, message: str, identity: Any = None, data: Any = None) -> None:
        self.reply(status, self.shop.failed(identity, Refused(code, message, data)))

    def is_foreign(self) -> bool:
        own = self.headers.get("Host", "").rpartition(":")[0] in ("127.0.0.1", "localhost")
        origin = self.headers.get("Origin")
        local = origin is None or origin.split("//")[-1].rpartition(":")[0] in ("127.0.0.1", "localhost")
        if self.shop.has("http-own-host"):
            return origin is not None or not own
        return not ((own or self.shop.has("http-host")) and (local or self.shop.has("http-origin")))

    def do_GET(self) -> None:
        self.reply(404 if self.shop.has("http-get") else 405, Allow="POST")

    def do_DELETE(self) -> None:
        if not self.shop.has("http-ended-session"):
            self.sessions.pop(self.headers.get("Mcp-Session-Id", ""), None)
        self.reply(200)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.is_foreign():
            self.reply(403)
            return
        try:
            message = json.loads(raw)
        except ValueError:
            self.refuse(200 if self.shop.has("http-malformed-json") else 400, -32700, "Parse error")
            return
        version = self.headers.get("MCP-Protocol-Version", "")
        modern = version == MODERN or (isinstance(message, dict) and f"{META}protocolVersion" in str(message.get("params")))
        (self.post_modern if modern and self.shop.era != "handshake" else self.post_handshake)(message, version)

    def post_handshake(self, message: Any, version: str) -> None:
        shop, method = self.shop, message.get("method") if isinstance(message, dict) else None
        identity = message.get("id") if isinstance(message, dict) else None
        if shop.era == "stateless":
            self.refuse(400, -32022, "Unsupported version", identity, {"supported": [MODERN]})
            return
        if version and version not in HANDSHAKE and not shop.has("http-version-header"):
            self.refuse(400, -32600, "Unknown version", identity)
            return
        extra: dict[str, str] = {}
        if method == "initialize":
            session = base64.b16encode(os.urandom(8)).decode()
            extra["Mcp_Session_Id"] = f"{session} {session}" if shop.has("http-session-id") else session
            self.sessions[extra["Mcp_Session_Id"]] = True
        else:
            given = self.headers.get("Mcp-Session-Id")
            if given is None and not shop.has("http-missing-session"):
                self.refuse(400, -32600, "No session", identity)
                return
            if given is not None and given not in self.sessions and not shop.has("http-unknown-session"):
                self.refuse(404, -32600, "Unknown session", identity)
                return
        self.send_answers(message, **extra)

    def send_answers(self, message: Any, **extra: str) -> None:
        found = self.shop.receive(message)
        if not found:
            self.reply(200 if self.shop.has("http-notification-202") else 202, **extra)
            return
        error = found[-1].get("error") if isinstance(found[-1], dict) else None
        status = 200
        if error and isinstance(message, dict) and f"{META}protocolVersion" in str(message.get("params")):
            wrong = self.shop.has("http-method-404") and error["code"] == -32601
            status = 200 if wrong else {-32601: 404, -32602: 400, -32022: 400}.get(error["code"], 200)
        elif error and error["code"] == -32600:
            status = 400
        if len(found) == 1:
            self.reply(status, found[0], **extra)
            return
        body = b"".join(b"event: message\ndata: " + json.dumps(each).encode() + b"\n\n" for each in found)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def post_modern(self, message: Any, version: str) -> None:
        shop = self.shop
        if not isinstance(message, dict) or "method" not in message:
            self.refuse(400, -32600, "Invalid request")
            return
        method, params = message["method"], message.get("params") or {}
        meta = params.get("_meta") or {}
        identity = message.get("id")
        if "id" not in message:
            self.reply(202)
            return
        headers = {name.lower() if not shop.has("http-header-case") else name: value for name, value in self.headers.items()}
        if shop.has("http-header-case") and "Mcp-Method" not in headers:
            self.refuse(400, -32020, "Mcp-Method is missing", identity)
            return
        wanted = headers.get("mcp-method") or headers.get("Mcp-Method")
        named = headers.get("mcp-name") or headers.get("Mcp-Name")
        if not meta and not shop.has("http-missing-meta"):
            self.refuse(400, -32602, "_meta is missing", identity)
            return
        checks = {
            "http-version-mismatch": bool(meta) and version != meta.get(f"{META}protocolVersion"),
            "http-method-mismatch": wanted is not None and wanted != method,
            "http-missing-method": wanted is None,
            "http-name-mismatch": method in ("tools/call", "prompts/get", "resources/read")
            and isinstance(params.get("uri", params.get("name")), str)
            and named != params.get("uri", params.get("name")),
        }
        for name, wrong in checks.items():
            if wrong and not shop.has(name):
                self.refuse(400, -32020, name, identity)
                return
        if not meta:
            message["params"] = {**params, "_meta": {f"{META}protocolVersion": MODERN}}
        if shop.has("http-version-header") and meta.get(f"{META}protocolVersion") == "2099-01-01":
            self.refuse(200, -32022, "Unsupported version", identity, {"supported": [MODERN]})
            return
        self.send_answers(message, **({"Mcp_Session_Id": "abc"} if shop.has("http-no-session") else {}))


def serve_http(shop: Shop) -> None:
    """Listen on a free port, and print it."""
    Handler.shop, shop.over_http = shop, True
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
