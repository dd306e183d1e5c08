"""One client does everything that is slow on purpose, and another is served as before; the memory is given back.

The slow one comes from 127.0.0.2. `PROCTOR_CROWD_ROUNDS` is the number of rounds.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.databases import TestDatabase
from tests.evidence.otlp.test_wire_format import field, request_with
from tests.live.crashes.test_ingest_crash import FLAGS, PROTOBUF, memory, prepare
from tests.live.serving import Serving, serving
from tests.service.trace_world import new_trace, protobuf, request, root

ROUNDS = int(os.environ.get("PROCTOR_CROWD_ROUNDS", "1"))
pytestmark = [pytest.mark.live, pytest.mark.timeout(300 + 60 * ROUNDS)]
REQUESTS = 150
"""Requests of the other client in each round, quiet and crowded."""
LEAST_S = 0.02
"""Durations below this do not count: a busy machine is not reliably faster."""
HEAD = b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\n"
HALF = b"x" * 1_066_500
ROOT_TEXT = "Refund " * 5_000
READ = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 50
SLOW: dict[str, tuple[int, bytes]] = {
    "stalled bodies": (60, HEAD + b"content-length: 3000000\r\n\r\n" + HALF),
    "half heads": (200, HEAD),
    "slow readers": (20, READ),
}
"""Connections, and what they send before they do nothing."""


class Crowd:
    """Connections from another address that are opened again when they are closed."""

    def __init__(self, server: Serving, count: int, sent: bytes) -> None:
        self._server = server
        self._sent = sent
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._keep_on, args=(count // 4,)) for _ in range(4)]

    @contextlib.contextmanager
    def going(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        self._stop.wait(1)
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(60)

    def _keep_on(self, count: int) -> None:
        with contextlib.ExitStack() as stack:
            held: list[socket.socket] = []
            while not self._stop.is_set():
                while len(held) < count and not self._stop.is_set():
                    with contextlib.suppress(OSError):
                        held.append(stack.enter_context(self._one()))
                held = [one for one in held if not is_closed(one)]
                self._stop.wait(0.1)

    def _one(self) -> socket.socket:
        host, _, port = self._server.url.partition("//")[2].partition(":")
        opened = socket.socket()
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        opened.settimeout(2)
        opened.bind(("127.0.0.2", 0))
        opened.connect((host, int(port)))
        with contextlib.suppress(OSError):  # refused while it was still sending
            opened.sendall(self._sent)
        opened.setblocking(False)
        return opened


def is_closed(opened: socket.socket) -> bool:
    """Whether the service has ended a connection; nothing is read of it."""
    try:
        return opened.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def times(server: Serving, count: int = REQUESTS) -> list[float]:
    """Send traces one after the other; how long each took."""
    connection = HTTPConnection(server.url.partition("//")[2], timeout=60)
    found: list[float] = []
    for number in range(count):
        body = protobuf(request(root(new_trace(), f"{ROOT_TEXT}{number}")))
        started = time.monotonic()
        connection.request("POST", "/v1/traces", body, PROTOBUF)
        answer = connection.getresponse()
        content = answer.read()
        found.append(time.monotonic() - started)
        assert answer.status == 200, (number, content)
    connection.close()
    return found


def p99(found: list[float]) -> float:
    return statistics.quantiles(found, n=100, method="inclusive")[98]


def settled_memory(server: Serving, most: float) -> int:
    """Return the memory of the service once it is at most `most`, or after a timeout."""
    end = time.monotonic() + 15
    while (found := memory(server.process.pid)) > most and time.monotonic() < end:
        time.sleep(0.2)
    return found


# The cost of slow clients is in the connections, equal on either database; the long run tries both.
@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"] if ROUNDS > 2 else ["sqlite"], indirect=True)
@pytest.mark.quiet
@pytest.mark.parametrize("kind", list(SLOW))
def test_slow_clients_delay_no_one(kind: str, database: TestDatabase, tmp_path: Path) -> None:
    with serving(tmp_path, database=database.url, flags=FLAGS) as server:
        prepare(server)
        times(server)
        # Built with the first request, once: that is not the cost of slow readers.
        with urlopen(f"{server.url}/openapi.json", timeout=60) as document:
            document.read()
        before = memory(server.process.pid)
        quiet: list[float] = []
        crowded: list[float] = []
        for _ in range(ROUNDS):
            quiet += times(server)
            with Crowd(server, *SLOW[kind]).going():
                crowded += times(server)
        after = settled_memory(server, 1.3 * before)
        times_measured = f"p99 {p99(quiet) * 1000:.1f} ms quiet, {p99(crowded) * 1000:.1f} ms crowded"
        print(f"{kind}: {times_measured}; {before >> 20} MB before, {after >> 20} after")
        assert p99(crowded) <= 3 * max(p99(quiet), LEAST_S)
        assert after <= 1.3 * before


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One service for all large bodies: none of them may leave anything in memory."""
    with serving(tmp_path_factory.mktemp("large"), flags=FLAGS) as found:
        prepare(found)
        times(found)
        yield found


def bomb(value: bytes) -> bytes:
    return gzip.compress(request_with(value))


BOMBS: dict[str, Callable[[], bytes]] = {
    "millions of empty values": lambda: bomb(field(5, b"\x0a\x00" * 4_900_000)),
    "as many as are allowed": lambda: bomb(field(5, b"\x0a\x00" * 240_000)),
    "as many nested ones as are allowed": lambda: bomb(field(5, b"\x0a\x04\x2a\x02\x0a\x00" * 80_000)),
    "nothing, compressed": lambda: gzip.compress(b"\0" * 9_000_000),
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_large_bodies_are_refused_or_read_and_their_memory_is_returned(name: str, server: Serving) -> None:
    body = BOMBS[name]()
    before = memory(server.process.pid)
    forget_peak(server.process.pid)
    slowest = 0.0
    for _ in range(10):
        started = time.monotonic()
        status, _ = server.ask("POST", "/v1/traces", body, {**PROTOBUF, "content-encoding": "gzip"})
        slowest = max(slowest, time.monotonic() - started)
        assert status in (200, 400, 413)
    after = settled_memory(server, 1.3 * before)
    peak = peak_memory(server.process.pid)
    print(f"{name}: {len(body)} bytes, {slowest:.2f} s, {before >> 20} MB before, {peak >> 20} at most, {after >> 20} after")
    assert peak - before < 200_000_000
    assert after <= 1.3 * before


def forget_peak(pid: int) -> None:
    """Reset the peak memory of a process to its current memory."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:"))) * 1024


def many(head: bytes, one: bytes, count: int, tail: bytes) -> bytes:
    return head + one + (b"," + one) * (count - 1) + tail


CALL = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"validate_suite","arguments":{"document":{"x":['
JSON_BOMBS: dict[str, tuple[str, bytes]] = {
    "a case of lists": ("/api/cases", many(b'{"project_id":"p","document":{"x":[', b"[]", 3_200_000, b"]}}")),
    "a call of lists": ("/mcp", many(CALL, b"[]", 3_200_000, b"]}}}}")),
    "a trace of lists": ("/public/traces", many(b'{"data":{"x":[', b"[]", 3_200_000, b"]}}")),
    "spans of nothing": (
        "/v1/traces",
        many(b'{"pad":"' + os.urandom(40_000).hex().encode() + b'","resourceSpans":[', b"{}", 3_000_000, b"]}"),
    ),
    "a case of as many lists as are allowed": ("/api/cases", many(b'{"project_id":"p","document":{"x":[', b"[]", 24_900, b"]}}")),
    "spans of as much of nothing as is allowed": ("/v1/traces", many(b'{"resourceSpans":[', b"{}", 249_900, b"]}")),
}
"""Path and body: JSON in which every two bytes become a hundred."""
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}


# Compressed bodies are the same once measured; the long run tries them, too.
@pytest.mark.parametrize("squeezed", [False, True] if ROUNDS > 2 else [False])
@pytest.mark.parametrize("name", list(JSON_BOMBS) if ROUNDS > 2 else list(JSON_BOMBS)[::2])
def test_json_that_becomes_large_delays_no_one(name: str, squeezed: bool, server: Serving) -> None:
    path, body = JSON_BOMBS[name]
    sent = gzip.compress(body) if squeezed else body
    headers = {**JSON, "content-encoding": "gzip"} if squeezed else JSON
    server.ask("POST", path, sent, headers)  # imports of the first request stay in memory
    before = memory(server.process.pid)
    statuses: list[int] = []

    def attack() -> None:
        for _ in range(ROUNDS):
            # Clients refused before their bodies are read may only see that the connection has ended.
            with contextlib.suppress(OSError, HTTPException):
                statuses.append(server.ask("POST", path, sent, headers)[0])

    attackers = [threading.Thread(target=attack) for _ in range(8)]
    for attacker in attackers:
        attacker.start()
    answers: list[tuple[float, int, object]] = []
    while any(attacker.is_alive() for attacker in attackers):
        started = time.monotonic()
        status, answer = server.ask("GET", "/health")
        answers.append((time.monotonic() - started, status, answer))
        time.sleep(0.02)
    after = settled_memory(server, 1.3 * before)
    print(f"{name}: health {max(answers)[0]:.2f} s, {before >> 20} MB before, {after >> 20} after; {set(statuses)}")
    assert set(statuses) <= {200, 400, 413, 503}  # the last: all together have more than `--waiting-bytes`
    assert max(took for took, _, _ in answers) < 10
    assert all(status == 200 for _, status, _ in answers), answers
    assert after <= 1.3 * before


def test_a_service_ends_in_time_under_json_that_becomes_large(tmp_path: Path) -> None:
    path, body = JSON_BOMBS["a case of as many lists as are allowed"]
    with serving(tmp_path, flags=FLAGS) as server:
        prepare(server)
        stop = threading.Event()

        def attack() -> None:
            with contextlib.suppress(OSError, HTTPException):
                while not stop.is_set():
                    server.ask("POST", path, body, JSON)

        attackers = [threading.Thread(target=attack) for _ in range(8)]
        for attacker in attackers:
            attacker.start()
        stop.wait(1)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(25) == 0
        stop.set()
        for attacker in attackers:
            attacker.join(30)
        print(f"ended after {time.monotonic() - started:.1f} s")
        assert "Exception in ASGI" not in server.log.read_text(errors="replace")
