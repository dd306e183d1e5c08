"""Probes of the HTTP transport: status, headers, sessions, and protection against DNS rebinding."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from proctor.doctor.client import META, Reply, Session
from proctor.doctor.http_link import HttpLink
from proctor.doctor.inspect import initialize
from proctor.doctor.model import Verdicts
from proctor.network.addresses import parse_address

_FOREIGN: Final = "http://evil.example"
_STREAM_S: Final = 1.5
"""Seconds in which a GET must give a status."""
_MISMATCH: Final = -32020


def is_on_this_machine(url: str) -> bool:
    """Return whether an address is a loopback one, the case that DNS rebinding is about."""
    host = urlsplit(url).hostname or ""
    address = parse_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


async def probe_http(session: Session, link: HttpLink, v: Verdicts) -> None:
    """Send the probes of the transport; the session has ended afterwards."""
    prober = _HttpProber(session, link, v)
    await prober.probe_content_type()
    await prober.probe_get()
    await prober.probe_rebinding()
    await (prober.probe_stateless() if session.is_stateless else prober.probe_session())


class _HttpProber:
    def __init__(self, session: Session, link: HttpLink, v: Verdicts) -> None:
        self._session = session
        self._link = link
        self._v = v
        self._method = "server/discover" if session.is_stateless else "ping"

    def _judge(self, check: str, reply: Reply, holds: bool, expected: str) -> None:
        if not reply.status and not self._link.is_open():
            return
        show = self._session.recording.show
        got = f"status {reply.status}" + (f" with error {reply.code}" if reply.error is not None else "") if reply.status else reply.problem
        self._v.require(check, holds, f"expected {expected}, got {got}", show(reply.request), show(reply.shown))

    async def probe_content_type(self) -> None:
        """Look at the type of an ordinary response."""
        reply = await self._session.request(self._method)
        kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._judge(
            "http-content-type", reply, kind in ("application/json", "text/event-stream"), f"JSON or events, not {kind or 'no type'}"
        )
        if self._session.is_stateless:
            self._judge("http-no-session", reply, "mcp-session-id" not in reply.headers, "no `Mcp-Session-Id`")

    async def probe_get(self) -> None:
        """Ask for a stream of events."""
        headers = {"Accept": "text/event-stream", **self._session.make_headers({})}
        headers = {name: value for name, value in headers.items() if name not in ("Mcp-Method", "Mcp-Name")}
        reply = await self._link.fetch("GET", headers=headers, timeout_s=_STREAM_S, collects=True)
        is_stream = reply.status == 200 and reply.headers.get("content-type", "").lower().startswith("text/event-stream")
        holds = reply.status == 405 or (is_stream and not self._session.is_stateless)
        self._judge("http-get", reply, holds, "405" if self._session.is_stateless else "a stream of events or 405")

    async def probe_rebinding(self) -> None:
        """Send requests as a page of another site could."""
        checks = ("http-origin", "http-host", "http-own-host")
        if not is_on_this_machine(self._link.url):
            self._v.skip("the server is not on this machine", *checks)
            return
        parts = urlsplit(self._link.url)
        for check, header, value in (("http-origin", "Origin", _FOREIGN), ("http-host", "Host", urlsplit(_FOREIGN).netloc)):
            reply = await self._session.request(self._method, headers={header: value})
            self._judge(check, reply, 400 <= reply.status < 500, f"a refusal of {header}: {value}")
        own = {"Host": parts.netloc, "Origin": f"{parts.scheme}://{parts.netloc}"}
        reply = await self._session.request(self._method, headers=own)
        self._judge("http-own-host", reply, reply.status == 200, "200 for its own address")

    async def probe_session(self) -> None:
        """Look at the session id, and at requests without one, with a wrong one and with an ended one."""
        session, v = self._session, self._v
        if session.revision >= "2025-06-18":
            reply = await session.request("ping", headers={"MCP-Protocol-Version": "2099-01-01"})
            self._judge("http-version-header", reply, reply.status == 400, "400")
        own = session.session_id
        if own is None:
            v.skip("the server has no sessions", "http-session-id", "http-missing-session", "http-unknown-session", "http-ended-session")
            return
        v.require("http-session-id", bool(re.fullmatch(r"[\x21-\x7e]+", own)), f"the session id is {own!r}")
        reply = await session.request("ping", headers={"Mcp-Session-Id": None})
        self._judge("http-missing-session", reply, reply.status == 400, "400")
        reply = await session.request("ping", headers={"Mcp-Session-Id": secrets.token_hex(16)})
        self._judge("http-unknown-session", reply, reply.status == 404, "404")
        if reply.status == 200:
            v.skip("the server accepts every session id", "http-ended-session")
            return
        ended = await self._link.fetch("DELETE", headers=session.make_headers({}), timeout_s=session.timeout_s)
        if ended.status == 405 or not 200 <= ended.status < 300:
            v.skip(f"DELETE gives {ended.status}: clients cannot end sessions", "http-ended-session")
            return
        reply = await session.request("ping")
        self._judge("http-ended-session", reply, reply.status == 404, "404")
        # For whatever comes after.
        await initialize(session, timeout_s=session.timeout_s)

    async def probe_stateless(self) -> None:
        """Send headers that differ from the body."""
        session = self._session
        name = f"proctor-{secrets.token_hex(6)}"
        message = session.make_request("server/discover", {"_meta": {f"{META}protocolVersion": "2099-01-01"}})
        self._judge_mismatch("http-version-mismatch", await session.send(message))
        for check, method in (("http-method-mismatch", "tools/list"), ("http-missing-method", None)):
            self._judge_mismatch(check, await session.request("server/discover", headers={"Mcp-Method": method}))
        kinds = (("tools", "tools/call", "name"), ("prompts", "prompts/get", "name"), ("resources", "resources/read", "uri"))
        known = next((each for each in kinds if session.capabilities.get(each[0]) is not None), None)
        if known is None:
            self._v.skip("there is nothing with a name", "http-name-mismatch")
        else:
            value = name if known[2] == "name" else f"proctor://{name}"
            self._judge_mismatch(
                "http-name-mismatch", await session.request(known[1], {known[2]: value}, headers={"Mcp-Name": f"{value}x"})
            )
        usual = session.make_headers({"method": "server/discover"})
        shouted: Mapping[str, Any] = {**dict.fromkeys(usual), **{key.upper(): value for key, value in usual.items()}}
        reply = await session.request("server/discover", headers=shouted)
        self._judge("http-header-case", reply, reply.status == 200, "200 for headers in capitals")
        message = session.make_request("server/discover", {"_meta": {f"{META}protocolVersion": "2099-01-01"}})
        reply = await session.send(message, headers={"MCP-Protocol-Version": "2099-01-01"})
        self._judge("http-version-header", reply, reply.status == 400, "400")
        message = {"jsonrpc": "2.0", "id": f"{name}-bare", "method": "server/discover", "params": {}}
        reply = await session.send(message, headers=session.make_headers({"method": "server/discover"}))
        self._judge("http-missing-meta", reply, reply.status == 400, "400")

    def _judge_mismatch(self, check: str, reply: Reply) -> None:
        self._judge(check, reply, reply.status == 400 and reply.code == _MISMATCH, "400 with error -32020")
