"""Sends what a server must refuse, over any transport and over HTTP: nothing here can change anything.

Only names that do not exist are used (they are random), so no tool runs, and no prompt or resource is produced. What ends a server, such as
malformed JSON, comes last. Over HTTP: status, headers, sessions, and protection against DNS rebinding.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from proctor.doctor.client import META, Reply, Session
from proctor.doctor.http_link import HttpLink
from proctor.doctor.inspect import LISTS, Surface, initialize
from proctor.doctor.model import Verdicts
from proctor.doctor.recording import Frame
from proctor.model.evidence import Json
from proctor.network.addresses import parse_address

_AT_ONCE: Final = 8
_NOT_FOUND, _INVALID = -32601, -32602


class Prober:
    """Probes one session."""

    def __init__(self, session: Session, v: Verdicts, surface: Surface) -> None:
        self._session = session
        self._v = v
        self._surface = surface
        self._random = f"proctor-{secrets.token_hex(6)}"
        self._over_http = isinstance(session.link, HttpLink)

    async def probe(self) -> None:
        """Send every probe that applies, while the server is there."""
        refused = (self._probe_methods, self._probe_unknown_names, self._probe_cursor, self._probe_params, self._probe_task)
        declared = (self._probe_utilities, self._probe_subscribe, self._probe_stateless, self._probe_listen)
        for step in (*refused, *declared, self._probe_concurrency, self._probe_notifications, self._probe_malformed):
            if not self._session.link.is_open():
                return
            await step()

    def _judge(self, check: str, reply: Reply, holds: bool, expected: str) -> None:
        """Note a verdict, unless the connection ended."""
        if reply.response is None and not self._session.link.is_open():
            return
        self._v.require(check, holds, f"expected {expected}, got {reply.describe()}", *self._session.show(reply))

    def _has(self, capability: str) -> bool:
        return self._session.capabilities.get(capability) is not None

    def _find_list(self) -> tuple[str, str] | None:
        """Return the method and the field of a list that works."""
        working = ((method, key) for cap, method, key in LISTS.values() if self._has(cap) and not self._v.is_broken(f"{cap}-list"))
        return next(working, None)

    async def is_alive(self) -> bool:
        """Return whether the server still answers."""
        reply = await self._session.request("server/discover" if self._session.is_stateless else "ping")
        return reply.response is not None

    async def _probe_methods(self) -> None:
        if not self._session.is_stateless:
            reply = await self._session.request("ping")
            self._judge("ping", reply, isinstance(reply.result, dict), "an empty result")
        reply = await self._session.request(f"{self._random}/unknown")
        self._judge("unknown-method", reply, reply.code == _NOT_FOUND, "error -32601")
        if self._over_http:
            self._judge("http-method-404", reply, reply.status == 404 or reply.error is None, f"status 404, not {reply.status},")

    async def _probe_unknown_names(self) -> None:
        uri = f"proctor://{self._random}/unknown"
        resource_code = _INVALID if self._session.is_stateless else -32002
        for capability, method, params, check, code in (
            ("tools", "tools/call", {"name": self._random, "arguments": {}}, "unknown-tool", _INVALID),
            ("resources", "resources/read", {"uri": uri}, "unknown-resource", resource_code),
            ("prompts", "prompts/get", {"name": self._random}, "unknown-prompt", _INVALID),
        ):
            if not self._has(capability):
                self._v.skip(f"`{capability}` is not declared", check, f"{check}-code")
                continue
            reply = await self._session.request(method, params)
            failed = reply.error is not None or (check == "unknown-tool" and reply.is_error_result)
            self._judge(check, reply, failed, "an error")
            if failed:
                self._judge(f"{check}-code", reply, reply.code == code, f"error {code}")
            else:
                self._v.skip("it got no error at all", f"{check}-code")

    async def _probe_task(self) -> None:
        if not self._session.has_tasks:
            self._v.skip("tasks are not declared", "unknown-task")
            return
        reply = await self._session.request("tasks/get", {"taskId": self._random, **self._session.declare_tasks()})
        self._judge("unknown-task", reply, reply.code == _INVALID, "error -32602")

    async def _probe_cursor(self) -> None:
        listed = self._find_list()
        if listed is None:
            self._v.skip("there are no lists", "unknown-cursor")
            return
        reply = await self._session.request(listed[0], {"cursor": self._random})
        self._judge("unknown-cursor", reply, reply.code == _INVALID, "error -32602")

    async def _probe_params(self) -> None:
        wrong: list[tuple[str, str, dict[str, Json]]] = [
            ("tools", "tools/call", {"name": 42}),
            ("resources", "resources/read", {"uri": 42}),
            ("prompts", "prompts/get", {"name": 42}),
        ]
        chosen = next(((method, params) for capability, method, params in wrong if self._has(capability)), None)
        if chosen is None:
            self._v.skip("there is nothing with parameters", "wrong-params")
            return
        method, params = chosen
        reply = await self._session.request(method, params)
        # Over HTTP the missing `Mcp-Name` may be noticed first.
        allowed = (_INVALID, -32020) if self._over_http and self._session.is_stateless else (_INVALID,)
        self._judge("wrong-params", reply, reply.code in allowed, f"error -32602 for `{method}` with a number as name")

    async def _probe_utilities(self) -> None:
        if not self._session.is_stateless:
            if self._has("logging"):
                reply = await self._session.request("logging/setLevel", {"level": "error"})
                self._judge("logging-set-level", reply, isinstance(reply.result, dict), "a result")
                reply = await self._session.request("logging/setLevel", {"level": self._random})
                self._judge("logging-bad-level", reply, reply.code == _INVALID, "error -32602")
            else:
                self._v.skip("`logging` is not declared", "logging-set-level", "logging-bad-level")
        if not self._has("completions"):
            self._v.skip("`completions` is not declared", "completion", "completion-bound", "completion-unknown")
            return
        unknown = {"ref": {"type": "ref/prompt", "name": self._random}, "argument": {"name": "a", "value": ""}}
        reply = await self._session.request("completion/complete", unknown)
        self._judge("completion-unknown", reply, reply.code == _INVALID, "error -32602")
        known = _find_completable(self._surface)
        if known is None:
            self._v.skip("there is no prompt with arguments, and no template", "completion", "completion-bound")
            return
        reply = await self._session.request("completion/complete", known)
        completion = reply.result.get("completion") if isinstance(reply.result, dict) else None
        self._judge("completion", reply, isinstance(completion, dict), "a completion")
        values = completion.get("values") if isinstance(completion, dict) else None
        count = len(values) if isinstance(values, list) else 0
        self._judge("completion-bound", reply, count <= 100, f"at most 100 values, found {count},")

    async def _probe_subscribe(self) -> None:
        if self._session.is_stateless:
            return
        resources = self._session.capabilities.get("resources")
        if not (isinstance(resources, dict) and resources.get("subscribe") and self._surface.resources):
            self._v.skip("`resources.subscribe` is not declared, or there are no resources", "resources-subscribe")
            return
        for method in ("resources/subscribe", "resources/unsubscribe"):
            reply = await self._session.request(method, {"uri": self._surface.resources[0].get("uri")})
            self._judge("resources-subscribe", reply, isinstance(reply.result, dict), f"a result of `{method}`")

    async def _probe_stateless(self) -> None:
        session = self._session
        if not session.is_stateless:
            return
        future = "2099-01-01"
        message = session.make_request("server/discover", {"_meta": {f"{META}protocolVersion": future}})
        reply = await session.send(message, headers={"MCP-Protocol-Version": future})
        data = (reply.error or {}).get("data")
        is_supported = isinstance(data, dict) and session.revision in (data.get("supported") or [])
        expected = "error -32022 with `data.supported`" + (" and status 400" if self._over_http else "")
        self._judge("unsupported-version", reply, reply.code == -32022 and is_supported and reply.status in (0, 400), expected)
        for method, params in (("ping", {}), ("logging/setLevel", {"level": "error"}), ("resources/subscribe", {"uri": "proctor://none"})):
            reply = await session.request(method, params)
            self._judge("removed-methods", reply, reply.code == _NOT_FOUND, f"error -32601 for `{method}`")

    async def _probe_listen(self) -> None:
        session, v = self._session, self._v
        if not session.is_stateless:
            return
        checks = ("listen-acknowledged", "listen-tagged", "listen-filter")
        changes = [name for name in ("tools", "prompts", "resources") if (session.capabilities.get(name) or {}).get("listChanged")]
        if not changes:
            v.skip("no `listChanged` is declared", *checks)
            return
        requested = {f"{changes[0]}ListChanged": True}
        message = session.make_request("subscriptions/listen", {"notifications": requested})
        began = len(session.recording.frames)
        if isinstance(session.link, HttpLink):
            headers = {"Content-Type": "application/json", **session.make_headers(message)}
            await session.link.fetch("POST", msgspec.json.encode(message), headers=headers, timeout_s=5 * session.quiet_s, collects=True)
        else:
            await session.send(message, timeout_s=5 * session.quiet_s)
            await session.notify("notifications/cancelled", {"requestId": message["id"]})
        received = [frame for frame in session.recording.frames[began:] if frame.direction == "received" and frame.fields]
        first = received[0] if received else None
        show = session.recording.show
        if first is not None and first.fields.get("id") == message["id"] and "error" in first.fields:
            v.broken(
                "listen-acknowledged", f"`listChanged` is declared, but `subscriptions/listen` got {first.fields['error']}", show(first)
            )
            v.skip("there is no subscription", "listen-tagged", "listen-filter")
            return
        acknowledged = first is not None and first.fields.get("method") == "notifications/subscriptions/acknowledged"
        what = f"expected the acknowledgement first, got {first.fields.get('method', 'a response')}" if first else "got nothing"
        v.require("listen-acknowledged", acknowledged, what, show(first))
        notices = [frame for frame in received if "method" in frame.fields]
        untagged = [frame for frame in notices if _read_meta(frame).get(f"{META}subscriptionId") != message["id"]]
        v.require("listen-tagged", not untagged, "a notice lacks the `subscriptionId`", show(untagged[0]) if untagged else None)
        allowed = {"notifications/subscriptions/acknowledged", f"notifications/{changes[0]}/list_changed"}
        foreign = [frame for frame in notices if frame.fields.get("method") not in allowed]
        what = f"got `{foreign[0].fields.get('method')}`, which was not requested" if foreign else ""
        v.require("listen-filter", not foreign, what, show(foreign[0]) if foreign else None)

    async def _probe_concurrency(self) -> None:
        session = self._session
        listed = self._find_list()
        other = "server/discover" if session.is_stateless else "ping"
        began = time.monotonic()

        async def ask(number: int) -> tuple[bool, Reply]:
            # Two kinds of request with different answers: mixed ids show.
            if number % 2 and listed is not None:
                reply = await session.request(listed[0])
                return isinstance(reply.result, dict) and listed[1] in reply.result, reply
            reply = await session.request(other)
            mixed = listed is not None and isinstance(reply.result, dict) and listed[1] in reply.result
            return reply.response is not None and not mixed, reply

        outcomes = await asyncio.gather(*(ask(number) for number in range(_AT_ONCE)))
        wrong = [reply for fits, reply in outcomes if not fits]
        reply = wrong[0] if wrong else outcomes[0][1]
        lasted = f"{_AT_ONCE} requests at once, {time.monotonic() - began:.1f} s"
        self._judge("concurrent-requests", reply, not wrong, f"a fitting response ({lasted}; {len(wrong)} do not fit)")

    async def _probe_notifications(self) -> None:
        for check, method, params in (
            ("unknown-notification", f"notifications/{self._random}", {}),
            ("cancel-unknown", "notifications/cancelled", {"requestId": 987654321, "reason": "a probe"}),
        ):
            began = len(self._session.recording.frames)
            accepted = await self._session.notify(method, params)
            await self._session.link.wait(self._session.quiet_s)
            # A response to the notification was sent before this one.
            alive = await self.is_alive()
            frames = self._session.recording.frames[began:]
            stray = [frame for frame in frames if _is_stray_response(frame)] if not self._over_http else []
            if not alive and not self._session.link.is_open() and self._over_http:
                return
            what = "it got a response" if stray else "the server does not answer after it"
            show = self._session.recording.show
            self._v.require(check, alive and not stray, what, show(accepted.request), show(stray[0]) if stray else None)
            if not alive:
                return

    async def _probe_malformed(self) -> None:
        await self._send_nonsense("survives-malformed-json", b'{"jsonrpc": "2.0", "id": 1, "method": ', "malformed-json")
        if self._session.link.is_open():
            await self._send_nonsense("survives-non-request", b'{"jsonrpc": "2.0", "proctor": [1, 2, 3]}', None)

    async def _send_nonsense(self, check: str, raw: bytes, answered: str | None) -> None:
        session, v = self._session, self._v
        began = len(session.recording.frames)
        reply = await session.send(raw)
        await session.link.wait(session.quiet_s)
        alive = await self.is_alive()
        answers = [frame for frame in session.recording.frames[began:] if _is_stray_response(frame)]
        show = session.recording.show
        if self._over_http:
            if answered is not None:
                holds = 400 <= reply.status < 500
                v.require("http-malformed-json", holds, f"got status {reply.status}", show(reply.request), show(reply.shown))
        elif answered is not None and session.link.is_open():
            codes = [error.get("code") for frame in answers if isinstance(error := frame.fields.get("error"), dict)]
            what = f"got {f'error {codes[0]}' if codes else 'no response'}"
            v.require(answered, codes[:1] == [-32700], what, show(reply.request), show(answers[0]) if answers else None)
        v.require(check, alive, f"the server does not answer after {raw.decode()!r}: {session.link.explain_end()}", show(reply.request))


def _is_stray_response(frame: Frame) -> bool:
    return frame.direction == "received" and frame.is_response() and frame.fields.get("id") is None


def _read_meta(frame: Frame) -> Mapping[str, Any]:
    params = frame.fields.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _find_completable(surface: Surface) -> dict[str, Json] | None:
    """Return the parameters of a completion for a prompt or a template."""
    for prompt in surface.prompts:
        for argument in prompt.get("arguments") or ():
            if isinstance(argument, dict):
                return {"ref": {"type": "ref/prompt", "name": prompt.get("name")}, "argument": {"name": argument.get("name"), "value": ""}}
    for template in surface.templates:
        uri = str(template.get("uriTemplate"))
        name = uri.partition("{")[2].partition("}")[0].strip("+#./;?&*").split(",")[0].rstrip("*")
        if name:
            return {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": name, "value": ""}}
    return None


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
        seen = f"status {reply.status}" + (f" with error {reply.code}" if reply.code is not None else "") if reply.status else reply.problem
        self._v.require(check, holds, f"expected {expected}, got {seen}", *self._session.show(reply))

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
