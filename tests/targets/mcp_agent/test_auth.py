"""Authentication to a server over HTTP, and to no other server."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest

from proctor.errors import TargetError
from proctor.targets.mcp.auth import ServerAuth
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import ApiKey, Bearer, ClientCredentials, ServerFault, ServerSettings
from tests.targets.mcp_twins import http_shop, run


async def visit(settings: ServerSettings) -> Any:
    async with McpServers([settings], waits_s=()) as servers:
        return await servers.call_tool(settings.id, "search", {"query": "tea", "limit": 1})


def refusal(settings: ServerSettings) -> ServerFault:
    async def main() -> ServerFault:
        with pytest.raises(TargetError) as caught:
            await McpServers([settings], waits_s=(9.0,)).open()
        assert isinstance(caught.value, ServerFault)
        return caught.value

    return run(main())


def server(url: str, **more: Any) -> ServerSettings:
    return ServerSettings(id="shop", transport="http", url=f"{url}/mcp", **more)


def credentials(url: str, **more: Any) -> ClientCredentials:
    return ClientCredentials(token_url=f"{url}/token?tenant=hush", client_id="me", client_secret="s3cr3t-word", **more)


def test_a_bearer_token_is_sent_with_every_request() -> None:
    with http_shop() as (url, gate):
        gate.accepted = {"Bearer let-me-in"}
        assert run(visit(server(url, auth=Bearer(token="let-me-in")))).error is None
        assert {seen["authorization"] for seen in gate.seen} == {"Bearer let-me-in"}


def test_an_api_key_is_sent_under_its_header() -> None:
    with http_shop() as (url, gate):
        run(visit(server(url, auth=ApiKey(value="k-123", header_name="X-Shop-Key"), headers={"X-Team": "qa"})))
        assert {(seen["x-shop-key"], seen["x-team"]) for seen in gate.seen} == {("k-123", "qa")}


def test_headers_win_over_auth() -> None:
    with http_shop() as (url, gate):
        run(visit(server(url, auth=Bearer(token="from-auth"), headers={"authorization": "Bearer from-headers"})))
        assert {seen["authorization"] for seen in gate.seen} == {"Bearer from-headers"}


def test_a_refused_token_fails_at_once_and_is_not_shown() -> None:
    with http_shop() as (url, gate):
        gate.accepted = set()
        fault = refusal(server(url, auth=Bearer(token="wrong-token")))
    assert fault.code == "unauthorized" and "401" in str(fault) and "wrong-token" not in str(fault)


def test_a_token_is_not_sent_to_a_redirect_target() -> None:
    with http_shop() as (url, gate), http_shop() as (elsewhere, trap):
        gate.answer = (307, {"location": f"{elsewhere}/mcp"})
        fault = refusal(server(url, auth=Bearer(token="let-me-in"), timeout_s=5))
        assert trap.seen == []
    assert "not followed" in str(fault) and "let-me-in" not in str(fault)


def test_client_credentials_fetch_one_token_for_many_requests() -> None:
    with http_shop() as (url, gate):
        gate.accepted = {"Bearer fresh-token"}
        gate.tokens = [{"access_token": "fresh-token", "expires_in": 3600}]
        auth = credentials(url, scope="shop:read", audience="shop", token_params={"resource": "r 1"})
        assert run(visit(server(url, auth=auth))).error is None
        assert len(gate.seen) >= 3
        assert [parse_qs(form) for form in gate.forms] == [
            {
                "grant_type": ["client_credentials"],
                "client_id": ["me"],
                "client_secret": ["s3cr3t-word"],
                "scope": ["shop:read"],
                "audience": ["shop"],
                "resource": ["r 1"],
            }
        ]


def test_a_refused_token_is_fetched_once_more() -> None:
    with http_shop() as (url, gate):
        gate.accepted = {"Bearer second-token"}
        gate.tokens = [{"access_token": "first-token"}, {"access_token": "second-token"}]
        assert run(visit(server(url, auth=credentials(url)))).error is None
        assert len(gate.forms) == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"status": 401, "error": "invalid_client", "hint": "s3cr3t-word"}, "answered 401 Unauthorized (invalid_client)"),
        ({"status": 500, "error": "s3cr3t-word"}, "answered 500"),
        ({"token": "x"}, "has no 'access_token'"),
        ({"access_token": 5}, "has no 'access_token'"),
    ],
)
def test_a_failed_token_request_hides_the_secret(answer: dict[str, Any], words: str) -> None:
    with http_shop() as (url, gate):
        gate.tokens = [answer] * 2
        fault = refusal(server(url, auth=credentials(url)))
    assert fault.code == "unauthorized" and words in str(fault)
    assert "s3cr3t-word" not in str(fault) and "hush" not in str(fault)


def test_a_token_is_used_until_thirty_seconds_before_it_expires() -> None:
    now = [1000.0]
    fetched: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/token":
            fetched.append(f"token-{len(fetched)}")
            return httpx2.Response(200, json={"access_token": fetched[-1], "expires_in": 100})
        return httpx2.Response(200, text=request.headers["authorization"])

    settings = server("http://shop.test", auth=credentials("http://shop.test"))
    auth = ServerAuth(settings, clock=lambda: now[0])

    async def main() -> list[str]:
        found: list[str] = []
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), auth=auth) as client:
            for moment in (1000.0, 1069.9, 1070.0, 1100.0):
                now[0] = moment
                found.append((await client.get("http://shop.test/mcp")).text)
        return found

    assert run(main()) == ["Bearer token-0", "Bearer token-0", "Bearer token-1", "Bearer token-1"]
    assert auth.list_secrets() == ("token-0", "token-1")
