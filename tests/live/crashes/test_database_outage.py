"""The database fails under load and returns: nothing acknowledged is lost, and other clients are told to retry.

PostgreSQL is stopped, SQLite's disk is full. `PROCTOR_OUTAGE_S` is the duration.
"""

from __future__ import annotations

import collections
import json
import os
import random
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.databases import TestDatabase
from tests.live.crashes.test_ingest_crash import AGENT, FLAGS, memory, prepare, settle
from tests.live.serving import Serving, serving
from tests.postgres import Cluster, programs
from tests.service.trace_world import new_trace, protobuf, request, root

SECONDS = float(os.environ.get("PROCTOR_OUTAGE_S", "8"))
pytestmark = [pytest.mark.live, pytest.mark.timeout(120 + 4 * SECONDS)]
SENDERS = 8
MOST_GROWTH = 150_000_000
"""Bytes by which the server may grow while nothing can be stored."""
MOST_HELD = 400_000_000
"""The same with large bodies: the queue (64 MB) raw and compressed, and one or two open bodies."""
TEXT = "Refund " + "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz ", k=20_000))


class Pressure:
    """Permanent senders: what was acknowledged, and the other responses."""

    def __init__(self, url: str) -> None:
        self._address = url.partition("//")[2]
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: list[str] = []
        self.refused: collections.Counter[tuple[int, str | None]] = collections.Counter()
        self.slowest = 0.0
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def _send(self, number: int) -> None:
        connection = HTTPConnection(self._address, timeout=60)
        while not self._stop.is_set():
            ids = [new_trace() for _ in range(5)] if number % 2 else [new_trace()]
            started = time.monotonic()
            try:
                if number % 2:
                    body = protobuf(request(*(root(id, TEXT) for id in ids)))
                    connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
                else:
                    body = json.dumps({"data": {"text": TEXT}, "metadata": {"http_status": 200}, "platformId": AGENT["id"]}).encode()
                    connection.request("POST", "/public/traces", body, {"content-type": "application/json", "x-request-id": ids[0]})
                answer = connection.getresponse()
                answer.read()
            except (OSError, HTTPException) as error:
                with self._lock:
                    self.refused[(0, type(error).__name__)] += 1
                connection.close()
                self._stop.wait(0.1)
                continue
            with self._lock:
                self.slowest = max(self.slowest, time.monotonic() - started)
                if answer.status in (200, 201):
                    self.acknowledged += ids
                else:
                    self.refused[(answer.status, answer.getheader("retry-after"))] += 1
            if answer.status not in (200, 201):
                self._stop.wait(0.02)
        connection.close()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive()

    def check(self) -> None:
        """Every rejected request got a retry time."""
        assert self.refused, "there was no outage"
        for status, retry_after in self.refused:
            assert status in (429, 503) and retry_after is not None and 1 <= int(retry_after) <= 60, self.refused


def endured(server: Serving, seconds: float) -> int:
    """The peak memory of the server during this time."""
    worst, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        worst = max(worst, memory(server.process.pid))
        time.sleep(0.2)
    return worst


def wait_until_stored(pressure: Pressure, seconds: float = 20) -> None:
    """Wait until new traces are acknowledged."""
    before, end = len(pressure.acknowledged), time.monotonic() + seconds
    while len(pressure.acknowledged) < before + 20:
        assert time.monotonic() < end, f"nothing is stored {seconds} s after the database came back: {pressure.refused}"
        time.sleep(0.05)


@pytest.mark.in_turn
@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed")
@pytest.mark.parametrize("how", ["kill", pytest.param("stop", marks=pytest.mark.on_request)])
def test_a_postgresql_that_is_gone_for_a_while_loses_nothing_that_was_acknowledged(tmp_path: Path, how: str) -> None:
    with Cluster(fsync=True) as cluster:
        url = cluster.new_database()
        with serving(tmp_path, database=url, flags=FLAGS) as server:
            prepare(server)
            pressure = Pressure(server.url)
            try:
                wait_until_stored(pressure)
                before = memory(server.process.pid)
                getattr(cluster, how)()
                time.sleep(0.5)
                status, health = server.ask("GET", "/health")
                assert status == 503, health
                worst = endured(server, SECONDS)
                cluster.start()
                wait_until_stored(pressure)
            finally:
                pressure.stop()
            assert server.process.poll() is None
            assert server.ask("GET", "/health")[0] == 200
            pressure.check()
            assert worst < before + MOST_GROWTH, (before, worst)
            assert pressure.slowest < 35, "no client waits longer than the server's timeout"
            settle(TestDatabase(url, tmp_path), pressure.acknowledged)
            assert server.stop() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """A folder that only the server sees as a small disk of its own, and how it is started; the disk is gone with the server."""
    place = tmp_path / "disk"
    place.mkdir()
    private = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    script = 'mount -t tmpfs -o size=24m,mode=0700 tmpfs "$0" && exec "$@"'
    before = (*private, "sh", "-c", script, str(place))
    if shutil.which("unshare") is None or subprocess.run([*before, "true"], capture_output=True, timeout=30).returncode:
        pytest.skip("a small disk cannot be made here")
    yield place, before


@pytest.mark.in_turn
def test_a_sqlite_whose_disk_is_full_loses_nothing_that_was_acknowledged(tmp_path: Path, small_disk: tuple[Path, tuple[str, ...]]) -> None:
    place, before = small_disk
    with serving(tmp_path, database=f"sqlite:///{place}/proctor.db", flags=FLAGS, before=before) as server:
        # A disk that only the server sees.
        disk = Path(f"/proc/{server.process.pid}/root{place}")
        prepare(server)
        pressure = Pressure(server.url)
        try:
            wait_until_stored(pressure)
            used = memory(server.process.pid)
            fill(disk / "filler")
            end = time.monotonic() + 30
            while not pressure.refused:
                assert time.monotonic() < end, "the disk is not full"
                time.sleep(0.05)
            worst = endured(server, min(SECONDS, 8))
            assert server.process.poll() is None
            (disk / "filler").unlink()
            wait_until_stored(pressure)
        finally:
            pressure.stop()
        pressure.check()
        assert worst < used + MOST_GROWTH, (used, worst)
        settle(copied(server, disk, tmp_path / "copy"), pressure.acknowledged)
        assert server.stop() == 0


@pytest.mark.on_request
def test_large_bodies_queued_for_a_locked_sqlite_stay_bytes(tmp_path: Path) -> None:
    """Decoded they would be ten times as large, and more."""
    items = [{"k": number / 7, "t": []} for number in range(30_000)]
    statuses: collections.Counter[int] = collections.Counter()
    stop = threading.Event()

    def send(address: str, body: bytes) -> None:
        while not stop.is_set():
            connection = HTTPConnection(address, timeout=90)
            connection.request("POST", "/public/traces", body, {"content-type": "application/json"})
            statuses[connection.getresponse().status] += 1
            connection.close()
            stop.wait(0.05)

    with serving(tmp_path, flags=FLAGS) as server:
        prepare(server)
        body = json.dumps({"data": {"items": items}, "platformId": AGENT["id"]}).encode()
        before = memory(server.process.pid)
        lock = sqlite3.connect(tmp_path / "proctor.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        threads = [threading.Thread(target=send, args=(server.url.partition("//")[2], body)) for _ in range(100)]
        for thread in threads:
            thread.start()
        worst = endured(server, SECONDS)
        lock.execute("ROLLBACK")
        lock.close()
        stop.set()
        for thread in threads:
            thread.join(90)
        assert set(statuses) <= {201, 503} and statuses[503], statuses
        assert worst < before + MOST_HELD, (before, worst)
        assert server.stop() == 0


def copied(server: Serving, disk: Path, place: Path) -> TestDatabase:
    """The database once nothing is queued: SQLite itself cannot open it if only the server sees it."""
    end = time.monotonic() + 60
    while depth(server) > 0:
        assert time.monotonic() < end, "traces are still due"
        time.sleep(0.2)
    place.mkdir()
    for name in ("proctor.db", "proctor.db-wal"):
        shutil.copyfile(disk / name, place / name)
    return TestDatabase(f"sqlite:///{place}/proctor.db", place)


def depth(server: Serving) -> int:
    with urlopen(f"{server.url}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("proctor_queue_depth ")))


def fill(path: Path) -> None:
    """Fill a disk almost completely."""
    block = bytes(64 * 1024)
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(block) == len(block):
                pass
        except OSError:
            pass
