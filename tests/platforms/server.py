"""A platform's server on loopback with its own data folder: started, awaited, and ended with all its processes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.message import Message
from pathlib import Path
from typing import Any

import msgspec

LONGEST_START_S = 240
LONGEST_END_S = 15


class Answer(msgspec.Struct, frozen=True):
    """The response of a server."""

    status: int
    body: Any
    headers: dict[str, str]
    cookies: list[str]


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None, *, timeout_s: float = 60) -> Answer:
    """Send a request with a JSON body; any status is returned."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"content-type": "application/json", **(headers or {})})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return _answer(response.status, response.read(), response.headers)
    except urllib.error.HTTPError as error:
        with error:
            return _answer(error.code, error.read(), error.headers)


def wanted(answer: Answer, what: str) -> Any:
    """Return the body of a successful response."""
    assert 200 <= answer.status < 300, f"{what}: status {answer.status}: {answer.body}"
    return answer.body


def _answer(status: int, data: bytes, headers: Message) -> Answer:
    text = data.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = text
    return Answer(status, body, {name.lower(): value for name, value in headers.items()}, headers.get_all("set-cookie", []))


@contextmanager
def running(
    command: Sequence[str], *, data: Path, port: int, health: str, healthy: Callable[[Any], bool], environment: Mapping[str, str]
) -> Iterator[str]:
    """The server for as long as the block lasts; its address. Its output is `server.log` in the data folder.

    It has started when `GET health` answers 200 with a body that is `healthy`.
    """
    data.mkdir(parents=True, exist_ok=True)
    log = data / "server.log"
    # Only the search path of the caller's environment: no keys, no proxy, no settings of another installation.
    given = {"PATH": os.environ["PATH"], "HOME": str(data), "TZ": "UTC", "LANG": "C.UTF-8", **environment}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=data, env=given, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_healthy(process, f"{url}{health}", healthy, log)
        yield url
    finally:
        end_group(process)


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, healthy: Callable[[Any], bool], log: Path) -> None:
    until = time.monotonic() + LONGEST_START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode} while starting:\n{last_of(log)}")
        with suppress(OSError, http.client.HTTPException):
            answer = ask("GET", url, timeout_s=5)
            if answer.status == 200 and healthy(answer.body):
                return
        time.sleep(0.5)
    raise AssertionError(f"{url} was not healthy within {LONGEST_START_S} s:\n{last_of(log)}")


def last_of(log: Path, lines: int = 40) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ask the whole group to end; kill it if it does not."""
    for number, patience in ((signal.SIGTERM, LONGEST_END_S), (signal.SIGKILL, LONGEST_END_S)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            process.poll()  # otherwise the leader stays a zombie, and its group with it
            if not group_is_alive(process.pid):
                return
            time.sleep(0.1)
    raise AssertionError(f"the process group {process.pid} outlived SIGKILL")


def group_is_alive(group: int) -> bool:
    """Whether any process of the group is running."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
