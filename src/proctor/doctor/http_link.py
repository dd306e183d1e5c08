"""A server at an address: each message is a POST, answered with JSON or with a stream of events.

Redirects are not followed, so that credentials stay with the address the user gave.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import httpx2
import msgspec

from proctor.doctor.client import Reply
from proctor.doctor.recording import MOST_FRAME_BYTES, Frame, Recording, TooMuch
from proctor.doctor.stdio_link import answer_request
from proctor.model.evidence import Json
from proctor.targets.mcp.auth import FetchedToken, ServerAuth
from proctor.targets.mcp.settings import ServerFault, ServerSettings, strip_url
from proctor.targets.shared.wire import MakeTransport

ACCEPT: Final = "application/json, text/event-stream"
_SHOWN_HEADERS: Final = (
    *("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "origin", "host"),
    *("content-type", "accept", "www-authenticate", "location", "allow"),
)
"""Headers that evidence shows; none of them is a secret of ours."""
_BODY_SHOWN: Final = 400


class HttpLink:
    """Requests to one address."""

    def __init__(
        self,
        settings: ServerSettings,
        recording: Recording,
        fetched: FetchedToken,
        *,
        without_auth: bool = False,
        transport: MakeTransport | None = None,
    ) -> None:
        """`transport` makes the connections, if given; it raises `AddressRefused` for a forbidden address."""
        self.recording = recording
        self.settings = settings
        self.url = settings.url
        self.answers: Mapping[str, Json] = {}
        auth = None if without_auth else ServerAuth(settings, fetched=fetched)
        headers = {name: value for name, value in settings.headers.items() if not (without_auth and name.lower() == "authorization")}
        by = None if transport is None else transport(True)
        self._http = httpx2.AsyncClient(auth=auth, headers=headers, timeout=settings.timeout_s, follow_redirects=False, transport=by)
        self._lost = ""
        self.overflow = ""
        """Why the connection was given up: the server sent more than is recorded. Empty otherwise."""

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def is_open(self) -> bool:
        """Return whether the address could be reached so far."""
        return not self._lost

    def explain_end(self) -> str:
        """Return why the address cannot be reached."""
        return self._lost

    async def exchange(self, message: Mapping[str, Json] | bytes, *, timeout_s: float, headers: Mapping[str, str | None]) -> Reply:
        """POST a message and read the answer until its response has arrived."""
        raw = message if isinstance(message, bytes) else msgspec.json.encode(message)
        identity = message.get("id") if isinstance(message, Mapping) and "method" in message else None
        return await self.fetch(
            "POST", raw, headers={"Content-Type": "application/json", **headers}, timeout_s=timeout_s, identity=identity
        )

    async def fetch(
        self,
        method: str,
        raw: bytes = b"",
        *,
        headers: Mapping[str, str | None],
        timeout_s: float,
        identity: Json = None,
        collects: bool = False,
    ) -> Reply:
        """Send one HTTP request; with `collects`, read its stream until the time is over."""
        sending: dict[str, str] = {"Accept": ACCEPT}
        for name, value in headers.items():
            sending = {key: header_value for key, header_value in sending.items() if key.lower() != name.lower()}
            if value is not None:
                sending[name] = value
        try:
            request_frame = self.recording.add("sent", raw, http=f"{method} {strip_url(self.url)}{_show_headers(sending)}")
        except TooMuch as error:
            return Reply(problem=str(error))
        frames: list[Frame] = []
        answer: dict[str, Any] = {}
        try:
            async with asyncio.timeout(timeout_s):
                encoded = {name.encode("ascii"): value.encode("utf-8") for name, value in sending.items()}
                async with self._http.stream(method, self.url, content=raw or None, headers=encoded) as response:
                    answer = {"status": response.status_code, "headers": dict(response.headers)}
                    http = f"HTTP {response.status_code}{_show_headers(response.headers)}"
                    async for body in _read_bodies(response):
                        frame = self.recording.add("received", body, http=http)
                        frames.append(frame)
                        await self._answer(frame, headers)
                        if not collects and _find_response(frame, identity) is not None:
                            break
                    if not frames:
                        frames.append(self.recording.add("received", b"", http=http))
        except TimeoutError:
            if not collects:
                return Reply(request=request_frame, problem=f"no response within {timeout_s:g} s", others=tuple(frames), **answer)
        except (httpx2.HTTPError, TooMuch, UnicodeEncodeError, ServerFault) as error:
            problem = str(error) or type(error).__name__
            if isinstance(error, TooMuch):
                self._lost = self.overflow = problem
            elif not answer:
                self._lost = f"{strip_url(self.url)} cannot be reached: {problem}"
            return Reply(request=request_frame, problem=problem, others=tuple(frames), **answer)
        matches = [(frame, fields) for frame in frames if identity is not None and (fields := _find_response(frame, identity)) is not None]
        if not matches and len(frames) == 1 and frames[0].is_response():
            matches = [(frames[0], frames[0].fields)]
        response_frame, fields = matches[0] if matches else (None, {})
        others = tuple(frame for frame in frames if frame is not response_frame)
        body = frames[0].raw[:_BODY_SHOWN] if frames and response_frame is None else b""
        problem = "" if response_frame is not None or identity is None else f"HTTP {answer['status']} without a response message"
        return Reply(request=request_frame, response=response_frame, fields=fields, problem=problem, others=others, body=body, **answer)

    async def _answer(self, frame: Frame, headers: Mapping[str, str | None]) -> None:
        """Answer a request that the server made on a stream."""
        if "method" in frame.fields and "id" in frame.fields:
            raw = msgspec.json.encode(answer_request(frame.fields, self.answers))
            own = {name: value for name, value in headers.items() if name.lower() not in ("mcp-method", "mcp-name")}
            await self.fetch("POST", raw, headers=own, timeout_s=self.settings.timeout_s)

    async def wait(self, seconds: float) -> None:
        """Return at once: without a request, nothing arrives over HTTP."""


def _find_response(frame: Frame, identity: Json) -> Mapping[str, Any] | None:
    messages = frame.message if isinstance(frame.message, list) else [frame.message]
    fitting = (each for each in messages if isinstance(each, dict) and "method" not in each and str(each.get("id")) == str(identity))
    return next(fitting, None)


def _show_headers(headers: Mapping[str, str]) -> str:
    shown = [f"{name.lower()}: {value}" for name, value in headers.items() if name.lower() in _SHOWN_HEADERS and value != ACCEPT]
    return f" ({'; '.join(shown)})" if shown else ""


async def _read_bodies(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield each message of a response: the events of a stream, or the whole body. Raises `TooMuch`."""
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    buffer = bytearray()
    async for chunk in response.aiter_bytes():
        buffer += chunk
        if is_stream:
            normal = bytes(buffer).replace(b"\r\n", b"\n")
            *events, rest = normal.split(b"\n\n")
            buffer = bytearray(rest)
            for event in events:
                if body := read_event(event):
                    yield body
        if len(buffer) > MOST_FRAME_BYTES:
            raise TooMuch(f"it sent a message of more than {MOST_FRAME_BYTES // 1_000_000} MB")
    body = read_event(bytes(buffer)) if is_stream else bytes(buffer)
    if body.strip():
        yield body


def read_event(event: bytes) -> bytes:
    """Return the data of a server-sent event."""
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
