"""`proctor serve` as a process: where it may listen, what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from proctor.cli.main import run
from proctor.rest import process as serving
from proctor.rest.settings import ServeSettings
from proctor.service.access.callers import LOCAL
from proctor.service.access.keys import KeySpec, create_key
from proctor.service.hub import Hub
from proctor.service.settings import ServiceSettings
from proctor.store.sql.database import open_database


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PROCTOR_"):
            monkeypatch.delenv(name)


def make_key(home: Path) -> str:
    async def make() -> str:
        database = await open_database(home / "proctor.db")
        try:
            hub = Hub(database=database, settings=ServiceSettings(home=home))
            return (await create_key(hub, LOCAL, KeySpec(kind="organization", name="x")))[1]
        finally:
            await database.close()

    return asyncio.run(make())


def test_an_address_others_can_reach_is_refused_without_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--host", "0.0.0.0", "--port", "0", "--home", str(tmp_path)]) == 4
    output = capsys.readouterr()
    assert "there is no organization key" in output.err and "proctor keys create" in output.err and not output.out


async def test_a_signal_as_soon_as_it_serves_ends_it_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = serving.QuietServer.startup

    async def start_and_end(server: serving.QuietServer, sockets: list[socket.socket] | None = None) -> None:
        await start(server, sockets)
        server.should_exit = True  # as a signal does; the socket is closed before any message

    monkeypatch.setattr(serving.QuietServer, "startup", start_and_end)
    # These need their own process.
    monkeypatch.setattr(serving, "_tune_interpreter", lambda: None)
    monkeypatch.setattr(serving, "log_to_stream", lambda stream: None)
    messages: list[str] = []
    await serving.serve(ServeSettings(service=ServiceSettings(home=tmp_path), database=str(tmp_path / "p.db"), port=0), messages.append)
    assert re.fullmatch(r"proctor serves on http://127\.0\.0\.1:[1-9]\d+", messages[0])


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run(["serve", "--port", port, "--home", str(tmp_path)]) == 4
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--port", "x"], "--port: expected a whole number"),
        (["--database", "mysql://x/y"], "not supported"),
        (["--hots", "x"], "nearest to --hots: --host"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_key(tmp_path)
    assert run(["serve", "--home", str(tmp_path), *words]) == 4
    assert message in capsys.readouterr().err


class Process:
    """`proctor serve` in its own process."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "proctor", "serve", "--port", "0", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        found = re.search(r"http://\S+", self.first_line)
        assert found is not None, self.process.communicate()
        self.url = found[0]

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        assert self.process.stdout is not None and self.process.stderr is not None
        return code, self.process.stdout.read(), self.process.stderr.read()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    running = Process("--home", str(tmp_path))
    yield running
    if running.process.poll() is None:
        running.process.kill()
    running.process.communicate()


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_without_keys_warns_that_it_is_open_and_ends_well(process: Process, number: signal.Signals) -> None:
    assert httpx2.get(f"{process.url}/health", timeout=10).json()["status"] == "ok"
    code, out, err = process.end(number)
    assert code == 0, err
    assert "no organization key exists" in out
    assert all(line.startswith("{") for line in err.splitlines()), err


@pytest.mark.live
def test_a_service_with_keys_may_listen_everywhere(tmp_path: Path) -> None:
    key = make_key(tmp_path)
    running = Process("--home", str(tmp_path), "--host", "0.0.0.0")
    try:
        url = running.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx2.get(f"{url}/api/projects", timeout=10).status_code == 401
        assert httpx2.get(f"{url}/api/projects", timeout=10, headers={"authorization": f"Bearer {key}"}).status_code == 200
        code, out, _ = running.end()
        assert code == 0 and "key" not in out
    finally:
        running.process.kill()
        running.process.communicate()


@pytest.mark.live
def test_a_request_that_is_under_way_is_finished_before_the_end(process: Process) -> None:
    answers: list[int] = []

    def slowly() -> Iterator[bytes]:
        yield b'{"name": '
        time.sleep(1.0)
        yield b'"slow"}'

    def ask() -> None:
        answer = httpx2.post(f"{process.url}/api/projects", content=slowly(), headers={"content-type": "application/json"}, timeout=20)
        answers.append(answer.status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.4)
    code, _, err = process.end()
    thread.join(20)
    assert answers == [201]
    assert code == 0, err
