"""Slow clients on real sockets: partial, stalled and unread requests cost only their own connection."""

from __future__ import annotations

import gzip
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.rest.connections import GuardedProtocol
from proctor.service.access import projects
from proctor.service.access.callers import LOCAL
from proctor.service.hub import Hub
from proctor.service.runs import requests as runs
from tests.rest.listening import Listening
from tests.service.agents import LOOPBACK, suite

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
HEAD = b"POST /api/projects HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


@contextmanager
def listening(folder: Path, **settings: Any) -> Iterator[Listening]:
    with Listening(f"sqlite:///{folder}/p.db", folder, **settings) as server:
        yield server


def connect(server: Listening, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    host, _, port = server.url.partition("//")[2].partition(":")
    opened = socket.create_connection((host, int(port)), timeout=60, source_address=(source, 0))
    if sent:
        opened.sendall(sent)
    return opened


def answer(opened: socket.socket) -> tuple[int, str]:
    """Status and text of the answer that comes next, to the end of the connection or of the answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = opened.recv(65_536)
        if not more:
            return 0, data.decode()
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += opened.recv(65_536)
    return int(head.split()[1]), body.decode()


def has_ended(opened: socket.socket) -> bool:
    """Whether the other side has closed a connection on which nothing else is to come."""
    opened.settimeout(2)
    try:
        return is_ended(opened)
    except TimeoutError:
        return False


def is_ended_now(opened: socket.socket) -> bool:
    """Return whether the other side has hung up by now."""
    opened.setblocking(False)
    try:
        return opened.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def is_ended(opened: socket.socket) -> bool:
    try:
        return opened.recv(1) == b""
    except ConnectionResetError:
        return True


def test_half_a_head_is_answered_and_closed_and_silence_is_closed(tmp_path: Path) -> None:
    with listening(tmp_path, header_timeout_s=0.5) as server, ExitStack() as stack:
        silent = stack.enter_context(connect(server))
        half = stack.enter_context(connect(server, HEAD))
        status, text = answer(half)
        assert status == 408 and "0.5 s (--header-timeout-s)" in text and is_ended(half)
        assert is_ended(silent)


def test_a_head_that_comes_byte_by_byte_has_no_more_time(tmp_path: Path) -> None:
    with listening(tmp_path, header_timeout_s=0.6) as server, connect(server, GET) as opened:
        assert answer(opened)[0] == 200
        started = time.monotonic()
        with pytest.raises((ConnectionError, AssertionError)):
            for number in range(200):
                opened.sendall(GET[number % 10 : number % 10 + 1])
                opened.settimeout(0.05)
                try:
                    assert not opened.recv(1_000)
                    raise ConnectionError
                except TimeoutError:
                    continue
        assert time.monotonic() - started < 5


def test_a_path_that_needs_no_key_takes_no_body(tmp_path: Path) -> None:
    with listening(tmp_path) as server:
        for extra in (b"content-length: 4\r\n\r\nbody", b"transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"):
            with connect(server, GET[:-2] + extra) as opened:
                status, text = answer(opened)
                assert status == 413 and "must not have a body" in text
        with connect(server, GET[:-2] + b"content-length: 0\r\n\r\n") as opened:
            assert answer(opened)[0] == 200


def test_a_stalled_body_gets_a_timeout(tmp_path: Path) -> None:
    with listening(tmp_path, body_stall_s=0.4) as server, connect(server, HEAD + b"content-length: 100\r\n\r\n{") as opened:
        status, text = answer(opened)
        assert status == 408 and "0.4 s (--body-stall-s)" in text


def test_a_body_that_trickles_has_no_more_time_than_another(tmp_path: Path) -> None:
    with (
        listening(tmp_path, body_stall_s=5, body_timeout_s=0.8) as server,
        connect(server, HEAD + b"content-length: 100000\r\n\r\n") as opened,
    ):
        for _ in range(100):
            opened.sendall(b"x")
            if select.select([opened], [], [], 0.1)[0]:
                break
        status, text = answer(opened)
        assert status == 408 and "0.8 s (--body-timeout-s)" in text


def test_half_sent_bodies_of_one_client_deny_nothing_to_another(tmp_path: Path) -> None:
    limit = 2_000_000
    with listening(tmp_path, waiting_bytes=limit) as server, ExitStack() as stack:
        for _ in range(4):
            attack = HEAD + b"content-length: 900000\r\n\r\n" + b"x" * 499_000
            stack.enter_context(connect(server, attack, source="127.0.0.2"))
        body = b" " * 100_000 + b'{"name": "shop"}'
        wanted = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
        time.sleep(0.3)
        for _ in range(8):
            with connect(server, wanted) as opened:
                status, text = answer(opened)
                assert status == 201, text


def test_stalled_bodies_do_not_even_deny_their_own_sender(tmp_path: Path) -> None:
    with listening(tmp_path, waiting_bytes=2_000_000) as server, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connect(server, HEAD + b"content-length: 900000\r\n\r\n" + b"x" * 499_000))
        time.sleep(1.3)
        body = b" " * 100_000 + b'{"name": "shop"}'
        with connect(server, HEAD + b"content-length: %d\r\n\r\n" % len(body) + body) as opened:
            assert answer(opened)[0] == 201


def test_a_body_in_crumbs_is_refused_before_it_costs_much(tmp_path: Path) -> None:
    crumbs = b"1\r\n \r\n" * 5_000
    with listening(tmp_path) as server, connect(server, HEAD + b"transfer-encoding: chunked\r\n\r\n" + crumbs) as opened:
        status, text = answer(opened)
        assert status == 400 and "--body-pieces" in text


def test_a_client_that_sends_after_the_answer_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.rest.connections.LINGER_S", 0.3)
    sent = HEAD + b"authorization: Bearer vk_wrong\r\ncontent-length: 9000000\r\n\r\n"
    with listening(tmp_path) as server, connect(server, sent) as opened:
        assert answer(opened)[0] == 401
        started = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - started < 10:
                opened.sendall(b"x")
                time.sleep(0.02)
        assert time.monotonic() - started < 5


def test_connections_of_one_address_are_limited_and_others_are_not_concerned(tmp_path: Path) -> None:
    with listening(tmp_path, connections_per_address=4, body_stall_s=30) as server, ExitStack() as stack:
        working = [stack.enter_context(connect(server, GET)) for _ in range(4)]
        assert [answer(one)[0] for one in working] == [200] * 4
        with connect(server, GET) as fifth:
            # All four were active just now; none of them is closed.
            status, text = answer(fifth)
            assert status == 503 and "127.0.0.1 already has 4 connections (--connections-per-address)" in text
        with connect(server, GET, source="127.0.0.2") as other:
            assert answer(other)[0] == 200
        time.sleep(0.6)
        with connect(server, GET) as later:
            assert answer(later)[0] == 200, "the longest silent connection was closed"
        # Which of them that was is for the service to know: they were answered at the same time.
        wait_until(lambda: [is_ended_now(one) for one in working].count(True) == 1)


def test_half_heads_and_half_bodies_are_closed_first(tmp_path: Path) -> None:
    with listening(tmp_path, connections=4, connections_per_address=0) as server, ExitStack() as stack:
        client = stack.enter_context(connect(server, GET))
        assert answer(client)[0] == 200
        attackers = [stack.enter_context(connect(server, HEAD, source="127.0.0.2")) for _ in range(2)]
        attackers.append(stack.enter_context(connect(server, HEAD + b"content-length: 9\r\n\r\n{", source="127.0.0.2")))
        time.sleep(0.6)
        for number in range(3):
            with connect(server, GET) as opened:
                assert answer(opened)[0] == 200, number
        client.sendall(GET)
        assert answer(client)[0] == 200


def test_all_connections_together_are_limited(tmp_path: Path) -> None:
    with listening(tmp_path, connections=3, connections_per_address=0) as server, ExitStack() as stack:
        for _ in range(3):
            answer(stack.enter_context(connect(server, GET)))
        with connect(server, GET) as opened:
            status, text = answer(opened)
            assert status == 503 and "already has 3 connections (--connections)" in text


def slow_reader(server: Listening, source: str) -> socket.socket:
    """Request megabytes repeatedly, and read nothing."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    opened.bind((source, 0))
    host, _, port = server.url.partition("//")[2].partition(":")
    opened.connect((host, int(port)))
    opened.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 200)
    return opened


def open_from(server: Listening, address: str) -> list[GuardedProtocol]:
    return [one for one in server.connections if one.address == address]


def wait_until(is_so: Any) -> None:
    end = time.monotonic() + 300  # only against a hang
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def warm(server: Listening) -> None:
    with connect(server, b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n") as opened:
        assert answer(opened)[0] == 200


def test_an_unread_answer_is_dropped_when_its_time_is_over_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    cut = GuardedProtocol.cut

    def note_cut(protocol: GuardedProtocol) -> None:
        # Recorded, not polled: if the machine stalls for a moment, the connection is gone before a poll sees it.
        if protocol.address == "127.0.0.2" and protocol.count_unsent():
            waited.append(protocol.measure_unread_s(protocol.open_connections.now()))
        cut(protocol)

    monkeypatch.setattr(GuardedProtocol, "cut", note_cut)
    with listening(tmp_path, write_stall_s=3) as server:
        warm(server)
        began = time.monotonic()
        with slow_reader(server, "127.0.0.2"):
            wait_until(lambda: waited)
            # Not at the first check of a connection whose answer did not fit at once.
            assert 3 < waited[0] <= time.monotonic() - began
            wait_until(lambda: not open_from(server, "127.0.0.2"))


READERS = 24


def test_unread_answers_share_one_limit_and_the_slowest_readers_are_closed(tmp_path: Path) -> None:
    # Space for two answers of three quarters of a megabyte each: with less than one, the last reader would be closed, too.
    # The system takes a part of each answer, more or less of it from time to time, so there are many readers.
    with listening(tmp_path, write_stall_s=60, unsent_bytes=1_700_000) as server, ExitStack() as stack:
        warm(server)
        for _ in range(READERS):
            stack.enter_context(slow_reader(server, "127.0.0.2"))
        wait_until(lambda: 0 < len(open_from(server, "127.0.0.2")) < READERS)
        assert sum(one.count_unsent() for one in open_from(server, "127.0.0.2")) <= 1_700_000
        warm(server)


def test_compressed_bodies_are_bounded_in_ratio_and_members(tmp_path: Path) -> None:
    with listening(tmp_path, gzip_members=3) as server:
        for body, message in (
            (gzip.compress(b"[" + b" " * 5_000_000 + b"]"), "200 times as large when decompressed (--compression-ratio)"),
            (gzip.compress(b"") * 4, "more than 3 gzip members (--gzip-members)"),
        ):
            head = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
            with connect(server, head + body) as opened:
                status, text = answer(opened)
                assert status == 413 and message in text
        body = gzip.compress(b'{"name":') + gzip.compress(b'"shop"') + gzip.compress(b"}")
        with connect(server, HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body) + body) as opened:
            assert answer(opened)[0] == 201


def test_event_streams_are_limited_per_key_and_counted_until_they_end(tmp_path: Path) -> None:
    with listening(tmp_path, streams_per_key=2, allowed_addresses=LOOPBACK) as server, ExitStack() as stack:

        async def a_run(hub: Hub) -> str:
            project = await projects.create_project(hub, LOCAL, projects.NewProject(name="shop"))
            target = {"type": "http", "url": "http://127.0.0.1:9/", "response_path": "text"}
            return str((await runs.start_run(hub, LOCAL, runs.NewRun(project_id=project["id"], suite=suite("hi"), target=target)))["id"])

        ask = b"GET /api/runs/%s/events HTTP/1.1\r\nhost: localhost\r\n\r\n" % server.run(a_run).encode()
        followed = [stack.enter_context(connect(server, ask)) for _ in range(2)]
        assert all(b" 200 " in one.recv(65_536) for one in followed)
        with connect(server, ask) as third:
            status, text = answer(third)
            assert status == 429 and "already has 2 event streams (--streams-per-key)" in text
        followed[0].close()

        def is_welcome() -> bool:
            with connect(server, ask) as opened:
                return b" 200 " in opened.recv(65_536)

        wait_until(is_welcome)


def test_used_parts_of_uvicorn_exist() -> None:
    for name in ("send_400_response", "on_response_complete", "data_received", "connection_made", "connection_lost", "pause_writing"):
        assert hasattr(GuardedProtocol.__mro__[1], name), name
