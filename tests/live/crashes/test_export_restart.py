"""Verdicts reach a receiver after its outage during evaluation, and after the service itself was killed."""

from __future__ import annotations

import contextlib
import gzip
import sqlite3
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from tests.live.crashes.test_ingest_crash import FLAGS, prepare
from tests.live.serving import serving
from tests.service.trace_world import new_trace, protobuf, request, root

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


class Receiver(ThreadingHTTPServer):
    """An OTLP receiver that can be unavailable."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.away = True
        self.requests = 0
        self.traces: dict[str, set[str]] = {}
        """By id of the trace: the ids of its results."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Receiver  # type: ignore[assignment]

    def do_POST(self) -> None:
        got = ExportLogsServiceRequest.FromString(gzip.decompress(self.rfile.read(int(self.headers["content-length"]))))
        self.server.requests += 1
        if not self.server.away:
            assert self.path == "/v1/logs"
            for record in (record for group in got.resource_logs for scope in group.scope_logs for record in scope.log_records):
                attributes = {pair.key: pair.value.string_value for pair in record.attributes}
                self.server.traces.setdefault(record.trace_id.hex(), set()).add(attributes["proctor.result.id"])
        body = ExportLogsServiceResponse().SerializeToString()
        self.send_response(503 if self.server.away else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def wait_for(what: str, done: Any) -> None:
    end = time.monotonic() + 40
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.in_turn
def test_every_verdict_arrives_after_an_outage_of_the_receiver_and_kill_9_of_the_service(tmp_path: Path, receiver: Receiver) -> None:
    flags = (*FLAGS, "--export-otlp-endpoint", receiver.url, "--allowed-address", "127.0.0.1")
    sent: list[str] = []
    with serving(tmp_path, flags=flags) as server:
        prepare(server)
        for _ in range(20):
            ids = [new_trace() for _ in range(10)]
            body = protobuf(request(*(root(id) for id in ids)))
            status, _ = server.ask("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
            assert status == 200
            sent += ids
        wait_for("the receiver got no request", lambda: receiver.requests > 0)
        server.kill()
    assert not receiver.traces
    receiver.away = False
    # The leases of the killed server expire later than a test should take.
    with contextlib.closing(sqlite3.connect(tmp_path / "proctor.db")) as database, database:
        database.execute("UPDATE exports SET next_at = 0")
    with serving(tmp_path, flags=flags) as server:
        wait_for("verdicts are missing", lambda: set(sent) <= set(receiver.traces))
        assert server.stop() == 0
    assert set(receiver.traces) == set(sent)
    assert {len(found) for found in receiver.traces.values()} == {1}, "sent again it is the same result"
