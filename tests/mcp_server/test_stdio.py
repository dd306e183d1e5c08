"""The protocol on standard input and output: every kind of message, cancelled calls, and what is loaded before the first call."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import StoreError
from proctor.mcp_server.protocol import HANDSHAKE_VERSIONS, LISTS
from proctor.mcp_server.server import OpenDesk
from proctor.mcp_server.stdio import Connection

META = "io.modelcontextprotocol/"
NEW = {"_meta": {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}}
DESCRIBE = {"name": "describe", "arguments": {}}


async def open_nothing() -> Any:
    raise StoreError("the database is locked")


def request(method: str, params: dict[str, Any] | None = None, *, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is None else {"params": params})}


def exchange(message: bytes | dict[str, Any], open_desk: OpenDesk = open_nothing) -> list[dict[str, Any]]:
    """The answers to one message."""

    async def talk(connection: Connection) -> None:
        connection.receive(message if isinstance(message, bytes) else json.dumps(message).encode())
        while connection.calls:
            await asyncio.sleep(0.001)

    return asyncio.run(answers_in(talk, open_desk))


async def answers_in(talk: Callable[[Connection], Awaitable[None]], open_desk: OpenDesk) -> list[dict[str, Any]]:
    answers: list[bytes] = []
    async with asyncio.timeout(50):
        await talk(Connection(open_desk, answers.append))
    assert all(b"\n" not in answer for answer in answers)
    return [json.loads(answer) for answer in answers]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"null", -32600),
        (b'{"id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', -32600),
    ],
)
def test_what_is_no_message_is_refused_without_an_id(message: bytes, code: int) -> None:
    (answer,) = exchange(message)
    assert (answer["id"], answer["error"]["code"]) == (None, code)


def test_deep_json_is_refused() -> None:
    (answer,) = exchange(b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}")
    assert answer["error"]["code"] == -32700


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("nothing", {}, -32601),
        ("nothing", NEW, -32601),
        ("initialize", {}, -32602),
        ("ping", NEW, -32601),
        ("server/discover", {}, -32601),
        ("logging/setLevel", {"level": "error"}, -32601),
        ("resources/subscribe", {"uri": "proctor://docs/README.md"}, -32601),
        ("tools/list", {"cursor": "2"}, -32602),
        ("resources/list", {"cursor": "2", **NEW}, -32602),
        ("tools/list", {"_meta": {f"{META}protocolVersion": "2026-07-28"}}, -32602),
        ("tools/list", {"_meta": {f"{META}protocolVersion": 7, f"{META}clientCapabilities": {}}}, -32602),
        ("server/discover", {"_meta": {f"{META}protocolVersion": "2099-01-01", f"{META}clientCapabilities": {}}}, -32022),
        ("tools/call", {"name": 42}, -32602),
        ("tools/call", {"name": "describe", "arguments": [1]}, -32602),
        ("tools/call", {}, -32602),
        ("resources/read", {"uri": 42}, -32602),
        ("prompts/get", {"name": "write_suite", "arguments": {"goal": 3}}, -32602),
    ],
    ids=str,
)
def test_requests_that_cannot_be_answered_get_an_error(method: str, params: dict[str, Any], code: int) -> None:
    (answer,) = exchange(request(method, params, id="a"))
    assert (answer["id"], answer["error"]["code"]) == ("a", code)
    assert code != -32022 or answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/nothing", "params": {"a": 1}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [5]}},
        {"jsonrpc": "2.0", "id": 5, "result": {}},
        {"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": "no"}},
    ],
    ids=str,
)
def test_notifications_and_responses_get_no_answer(message: dict[str, Any]) -> None:
    assert exchange(message) == []


@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, "2099-01-01"])
def test_the_version_is_the_requested_or_the_newest_known(version: str) -> None:
    (answer,) = exchange(request("initialize", {"protocolVersion": version}))
    assert answer["result"]["protocolVersion"] == (version if version in HANDSHAKE_VERSIONS else "2025-11-25")


@pytest.mark.parametrize("method", [*LISTS, "server/discover"])
def test_results_of_the_stateless_version_say_how_long_they_last(method: str) -> None:
    (answer,) = exchange(request(method, NEW))
    result = answer["result"]
    assert (result["resultType"], result["cacheScope"]) == ("complete", "private")
    assert result["ttlMs"] == (300_000 if method in LISTS else 0)
    assert result["_meta"][f"{META}serverInfo"]["name"] == "proctor"


def test_a_database_that_cannot_be_opened_is_a_result_that_the_model_sees() -> None:
    (answer,) = exchange(request("tools/call", DESCRIBE))
    error = answer["result"]["structuredContent"]["error"]
    assert answer["result"]["isError"] and (error["code"], error["message"]) == ("UNAVAILABLE", "the database is locked")
    (answer,) = exchange(request("resources/read", {"uri": "proctor://runs/latest"}))
    assert answer["error"]["code"] == -32603


@pytest.mark.parametrize("more", [{}, NEW], ids=["handshake", "stateless"])
def test_documentation_needs_no_database(more: dict[str, Any]) -> None:
    (answer,) = exchange(request("resources/read", {"uri": "proctor://docs/README.md", **more}))
    (page,) = answer["result"]["contents"]
    assert page["uri"] == "proctor://docs/README.md" and page["text"].startswith("# ")


def test_a_cancelled_call_gets_no_answer_and_others_do() -> None:
    waiting: list[bool] = []
    cancelled: list[bool] = []

    async def wait() -> Any:
        waiting.append(True)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def talk(connection: Connection) -> None:
        for id in (1, 2):
            connection.receive(json.dumps(request("tools/call", DESCRIBE, id=id)).encode())
        while len(waiting) < 2:
            await asyncio.sleep(0.001)
        connection.receive(b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}')
        connection.receive(json.dumps(request("ping", id=3)).encode())
        while len(connection.calls) > 1:
            await asyncio.sleep(0.001)
        await connection.close()

    answers = asyncio.run(answers_in(talk, wait))
    assert [answer["id"] for answer in answers] == [3] and cancelled == [True, True]


def test_lists_load_no_code_of_the_tools(tmp_path: Path) -> None:
    hello = request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    sent = [hello, *(request(method, id=method) for method in LISTS)]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "proctor", "mcp"],
        input="".join(f"{json.dumps(message)}\n" for message in sent),
        env={name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")},
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, done.stdout.splitlines())}
    assert all(next(iter(answers[method].values())) for method in LISTS)
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "proctor.mcp_server.stdio" in loaded
    heavy = {"mcp", "mcp_types", "pydantic", "sqlalchemy", "starlette", "httpx2", "yaml", "argparse"}
    assert not loaded & heavy
    parts = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("proctor.")}
    assert parts == {"proctor.cli", "proctor.errors", "proctor.mcp_server", "proctor.model", "proctor.processes"}
    assert not list(tmp_path.iterdir()), "a database was made before a tool was called"
