"""How much of a server's response is read: no compressed ones, and never an unlimited amount."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx2
import pytest

from proctor.errors import TargetError
from proctor.targets.mcp import connection as mcp_answers
from proctor.targets.mcp.connection import Connection
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import ClientCredentials, ServerFault, ServerSettings
from tests.targets.loopback import ReceivedRequest, Reply, serve
from tests.targets.mcp_twins import http_shop, run

BOMB = gzip.compress(gzip.compress(b"[" * 20_000_000, 1), 9)
PACKED = Reply(data=BOMB, headers={"content-encoding": "gzip, gzip"})
LONG = Reply(data=b'{"a": "' + b"x" * 2000 + b'"}')


def server(url: str, **more: Any) -> ServerSettings:
    return ServerSettings(id="shop", transport="http", url=f"{url}/mcp", **more)


def with_token(url: str) -> ServerSettings:
    return server(url, auth=ClientCredentials(token_url=f"{url}/token", client_id="me", client_secret="s3cr3t-word"))


async def fault_of(settings: ServerSettings) -> str:
    with pytest.raises(TargetError) as caught:
        await McpServers([settings], waits_s=(9.0,)).open()
    assert isinstance(caught.value, ServerFault) and caught.value.code == "protocol", caught.value
    return str(caught.value)


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_answers, "MAX_ANSWER_BYTES", 1024)


@pytest.mark.parametrize("era", ["auto", "handshake"])
@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("encoding", ["gzip, gzip", "identity, GZIP", "br"])
def test_a_compressed_response_is_refused_and_not_requested(era: Any, content_type: str, encoding: str) -> None:
    async def main() -> None:
        packed = Reply(data=BOMB, headers={"content-encoding": encoding, "content-type": content_type})
        async with serve(lambda _: packed) as there:
            fault = await fault_of(server(there.url, era=era, headers={"Accept-Encoding": "gzip"}))
            assert "compressed" in fault and encoding in fault and f"{there.url}/mcp" in fault
            assert [request.headers["accept-encoding"] for request in there.requests] == ["identity"]

    run(main())


@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_response_beyond_the_limit_is_not_read(status: int, small_limit: None) -> None:
    async def main() -> None:
        async with serve(lambda _: Reply(status=status, data=LONG.data)) as there:
            assert "larger than" in await fault_of(server(there.url))
            assert len(there.requests) == 1

    run(main())


def test_a_response_without_a_length_is_limited(small_limit: None) -> None:
    async def main() -> None:
        chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
        raw = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * 3 + b"0\r\n\r\n"
        async with serve(lambda _: Reply(raw=raw)) as there:
            assert "larger than" in await fault_of(server(there.url))

    run(main())


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (PACKED, "compressed"),
        (LONG, "larger than"),
        # A response that is read as a whole is limited, whatever its content type.
        (Reply(data=LONG.data, headers={"content-type": "text/event-stream"}), "larger than"),
        (Reply(status=500, data=LONG.data), "larger than"),
    ],
)
def test_the_response_of_a_token_endpoint_is_limited(reply: Reply, words: str, small_limit: None) -> None:
    async def main() -> None:
        async with serve(lambda _: reply) as there:
            fault = await fault_of(with_token(there.url))
            assert words in fault and f"{there.url}/token" in fault
            assert there.requests[0].headers["accept-encoding"] == "identity"

    run(main())


@pytest.mark.parametrize(
    ("more", "words"), [({}, "larger than"), ({"content-type": "text/event-stream"}, "larger than"), (PACKED.headers, "compressed")]
)
def test_a_refusal_is_limited(more: dict[str, str], words: str, small_limit: None) -> None:
    def answer(request: ReceivedRequest) -> Reply:
        return Reply(body={"access_token": "t"}) if request.path == "/token" else Reply(status=401, data=LONG.data, headers=more)

    async def main() -> None:
        async with serve(answer) as there:
            assert words in await fault_of(with_token(there.url))

    run(main())


def _shop(request: ReceivedRequest) -> Reply:
    """A server of the older era that responds with JSON, and with far too much when its tool is called."""
    if request.method != "POST":
        return Reply(status=405)
    call = request.json
    if "id" not in call:
        # A proxy's header about a missing body has no effect.
        return Reply(status=202, data=b"", headers={"content-encoding": "gzip"})
    results: dict[str, Any] = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}},
        "tools/list": {"tools": [{"name": "dump", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "x" * 5000}]},
    }
    return Reply(data=json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": results[call["method"]]}).encode())


def test_a_result_beyond_the_limit_is_a_failed_call_with_a_reason(small_limit: None) -> None:
    async def main() -> None:
        async with serve(_shop) as there, McpServers([server(there.url, era="handshake")], waits_s=()) as servers:
            result = await servers.call_tool("shop", "dump", {})
            assert result.error is not None and "larger than" in result.error

    run(main())


def test_an_event_stream_has_no_total_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_answers, "MAX_ANSWER_BYTES", 8)

    async def main(url: str) -> Any:
        async with McpServers([server(url, era="handshake")], waits_s=()) as servers:
            return await servers.call_tool("shop", "lookup_order", {"id": 17})

    with http_shop() as (url, _):
        assert run(main(url)).error is None


@pytest.mark.parametrize(
    ("url", "token_url", "expected"),
    [
        ("http://shop.test/mcp", "https://login.test/token", True),
        ("HTTPS://shop.test/mcp", "http://login.test/token", True),
        ("http://shop.test/mcp", "http://login.test/token", False),
        ("http://shop.test/mcp", None, False),
    ],
)
def test_certificates_are_loaded_if_server_or_token_endpoint_needs_them(url: str, token_url: str | None, expected: bool) -> None:
    loaded: list[bool] = []

    def transport(certificates: bool) -> httpx2.AsyncBaseTransport:
        loaded.append(certificates)
        return httpx2.MockTransport(lambda _: httpx2.Response(500))

    auth = ClientCredentials(token_url=token_url, client_id="me", client_secret="s3cr3t-word") if token_url else None
    settings = ServerSettings(id="shop", transport="http", url=url, auth=auth)

    async def main() -> None:
        with pytest.raises(ServerFault):
            await Connection(settings, waits_s=(), transport=transport).get_listing()

    run(main())
    assert loaded == [expected]
