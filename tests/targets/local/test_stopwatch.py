"""How long an agent took: from sending or calling to its answer, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from proctor.cassettes.ports import LIVE
from proctor.model.evidence import Evidence
from proctor.targets.local import callable as callable_module
from proctor.targets.local.callable import CallableTarget
from proctor.targets.platforms.http import HttpSettings, HttpTarget
from proctor.targets.shared import wire
from proctor.targets.shared import wire as stopwatch
from proctor.targets.shared.wire import Stopwatch
from tests.targets.loopback import ReceivedRequest, Reply, attempt, serve


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def pass_ms(self, milliseconds: float) -> None:
        self.now += milliseconds / 1000


CLOCK = Clock()


@pytest.fixture(autouse=True)
def _stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "read_clock", lambda: CLOCK.now)


# --- over HTTP -------------------------------------------------------------------------------------------------------------------


class Slow(httpx2.AsyncBaseTransport):
    """Connects in 100 ms and answers in 7; may report when it sends, and may redirect first."""

    def __init__(self, reports_sending: bool, redirects: int) -> None:
        self._reports_sending, self._redirects = reports_sending, redirects

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        CLOCK.pass_ms(100)
        trace = request.extensions.get("trace")
        if self._reports_sending and trace is not None:
            for event in ("connection.connect_tcp.complete", "http11.send_request_headers.started", "http11.send_request_body.started"):
                await trace(event, {})
        CLOCK.pass_ms(7)
        if self._redirects:
            self._redirects -= 1
            return httpx2.Response(307, headers={"location": "/there"}, content=_send_pieces(b""))
        return httpx2.Response(200, content=_send_pieces(b'{"text": ', b'"hi"}'))


async def _send_pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def ask_slow(*, reports_sending: bool, redirects: int = 0) -> Evidence:
    async def run() -> Evidence:
        target = HttpTarget("shop", HttpSettings(url="http://shop.test/chat"), transport=lambda _: Slow(reports_sending, redirects))
        await target.open()
        try:
            return await target.run(attempt("hello"), LIVE)
        finally:
            await target.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        pytest.param({"reports_sending": True}, 7.0, id="from sending, not from connecting"),
        pytest.param({"reports_sending": True, "redirects": 2}, 21.0, id="every redirect, and none of their connections"),
        pytest.param({"reports_sending": False}, 107.0, id="from handing over if sending is not reported"),
    ],
)
def test_connecting_is_not_the_agents_time(connection: Any, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    make = wire.new_client

    def make_slowly(**settings: Any) -> Any:
        CLOCK.pass_ms(300)
        return make(**settings)

    monkeypatch.setattr(wire, "new_client", make_slowly)
    assert ask_slow(**connection).duration_ms == expected


def test_the_http_client_reports_when_a_request_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    note = Stopwatch.note_event

    async def note_loudly(self: Stopwatch, name: str, info: object) -> None:
        events.append(name)
        if "connect" in name:
            CLOCK.pass_ms(100)
        await note(self, name, info)

    monkeypatch.setattr(Stopwatch, "note_event", note_loudly)

    def answer(request: ReceivedRequest) -> Reply:
        CLOCK.pass_ms(7)
        return Reply(body={"text": "hi"})

    async def run() -> list[float | None]:
        async with serve(answer) as server:
            target = HttpTarget("shop", HttpSettings(url=server.url))
            await target.open()
            try:
                return [(await target.run(attempt("hello"), LIVE)).duration_ms for _ in range(2)]
            finally:
                await target.close()

    assert asyncio.run(run()) == [7.0, 7.0]
    assert "connection.connect_tcp.started" in events and "http11.send_request_headers.started" in events


# --- functions -------------------------------------------------------------------------------------------------------------------


class LateThread(threading.Thread):
    """A thread that takes 200 ms to start."""

    def start(self) -> None:
        CLOCK.pass_ms(200)
        super().start()


def answer(message: str) -> str:
    CLOCK.pass_ms(5)
    return "ok"


async def answer_later(message: str) -> str:
    CLOCK.pass_ms(5)
    return "ok"


def promise(message: str) -> Any:
    CLOCK.pass_ms(2)
    return answer_later(message)


def stream(message: str) -> Iterator[str]:
    for piece in ("o", "k"):
        CLOCK.pass_ms(4)
        yield piece


async def stream_later(message: str) -> AsyncIterator[str]:
    for piece in ("o", "k"):
        CLOCK.pass_ms(4)
        yield piece


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(answer, 5.0, id="a function"),
        pytest.param(answer_later, 5.0, id="one that is awaited"),
        pytest.param(promise, 7.0, id="one that returns what has to be awaited"),
        pytest.param(stream, 8.0, id="a generator, to its end"),
        pytest.param(stream_later, 8.0, id="an asynchronous generator, to its end"),
    ],
)
def test_starting_a_thread_and_reading_the_answer_do_not_count(function: Any, expected: float, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = callable_module.keep_current_exchange

    def keep_slowly(*given: Any) -> Evidence:
        CLOCK.pass_ms(300)
        return keep(*given)

    monkeypatch.setattr(callable_module.threading, "Thread", LateThread)
    monkeypatch.setattr(callable_module, "keep_current_exchange", keep_slowly)
    evidence = asyncio.run(CallableTarget("agent", function).run(attempt("hello"), LIVE))
    assert (evidence.text, evidence.duration_ms) == ("ok", expected)


class Connection:
    """A network stream with a socket that records its options."""

    def __init__(self, closed: bool) -> None:
        self.closed, self.options = closed, list[tuple[int, int, int]]()

    def get_extra_info(self, name: str) -> Connection | None:
        return self if name == "socket" else None

    def setsockopt(self, *option: int) -> None:
        if self.closed:
            raise OSError("closed")
        self.options.append((option[0], option[1], option[2]))


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux holds acknowledgements back so")
@pytest.mark.parametrize("closed", [False, True])
def test_the_head_of_a_response_is_acknowledged_at_once(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(closed)
    handle = Slow.handle_async_request

    async def handle_connected(self: Slow, request: httpx2.Request) -> httpx2.Response:
        response = await handle(self, request)
        response.extensions["network_stream"] = connection
        return response

    monkeypatch.setattr(Slow, "handle_async_request", handle_connected)
    assert ask_slow(reports_sending=True).text == "hi"
    assert connection.options == ([] if closed else [(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)])
