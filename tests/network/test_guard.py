"""Which addresses may be reached if they are not chosen by the operator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest

from proctor.errors import InputError
from proctor.network.addresses import AddressRefused
from proctor.network.guard import Guard, guarded_client
from tests.tables import rows


def resolving(*addresses: str) -> Any:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


@rows("network/cases/addresses.yaml")
def test_the_table_of_addresses(row: Any) -> None:
    given = row["given"]
    guard = Guard(given.get("allowed", ()), resolve=resolving(*given.get("resolves", ())))
    if row["expect"] == "allowed":
        assert asyncio.run(guard.resolve_checked(given["host"], 443))
    else:
        with pytest.raises(AddressRefused):
            asyncio.run(guard.resolve_checked(given["host"], 443))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/x",
        "file:///etc/passwd",
        "gopher://example.com",
        "//example.com/x",
        "http://",
        "http://user:secret@example.com/",
        "http://127.0.0.1:99999/",
        "http://[::1/",
        "http://localhost:8080/hook",
        "http://2130706433/hook",
        "http://[::ffff:127.0.0.1]/hook",
        "http://0x7f.1/hook",
    ],
)
def test_visibly_forbidden_addresses_are_refused_when_saved(url: str) -> None:
    with pytest.raises(AddressRefused):
        Guard().check_url(url)


def test_a_public_address_and_a_listed_host_can_be_written_down() -> None:
    Guard().check_url("https://example.com/hook?x=1")
    Guard(["localhost", "10.0.0.0/8"]).check_url("http://localhost:9000/hook")
    Guard(["10.0.0.0/8"]).check_url("http://10.3.4.5/hook")


@pytest.mark.parametrize("entry", ["", "10.0.0.0/99", "fe80::zz", "host:8080"])
def test_an_entry_of_the_allowed_list_that_cannot_be_read_is_an_error(entry: str) -> None:
    with pytest.raises(InputError):
        Guard([entry])


@contextlib.asynccontextmanager
async def small_server(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], seen


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


def test_the_connection_goes_to_the_address_that_was_looked_at_and_the_name_stays_in_the_request() -> None:
    calls: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        calls.append(host)
        # The name resolves to this machine the first time, and to an unreachable address after that.
        return ["127.0.0.1"] if len(calls) == 1 else ["192.0.2.1"]

    async def run() -> None:
        async with small_server(OK) as (port, seen), guarded_client(Guard(["127.0.0.0/8"], resolve=resolve), timeout_s=5) as client:
            answer = await client.get(f"http://hooks.example:{port}/x")
            assert answer.text == "ok"
            assert f"host: hooks.example:{port}".encode() in seen[0].lower()

    asyncio.run(run())
    assert calls == ["hooks.example"]


def test_a_name_that_changes_between_two_connections_is_looked_at_again() -> None:
    answers = iter([["93.184.215.14"], ["127.0.0.1"]])

    async def resolve(host: str, port: int) -> Sequence[str]:
        return next(answers)

    async def run() -> None:
        guard = Guard(resolve=resolve)
        assert await guard.resolve_checked("rebinding.example", 80) == ["93.184.215.14"]
        async with guarded_client(guard, timeout_s=5) as client:
            with pytest.raises(AddressRefused):
                await client.get("http://rebinding.example/")

    asyncio.run(run())


@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:{port}/", "http://localhost:{port}/", "http://[::ffff:127.0.0.2]:{port}/", "http://2130706434:{port}/"]
)
def test_a_redirect_into_the_machine_is_refused_when_it_is_followed(target: str) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async def run() -> None:
        async with small_server(OK) as (inner, seen):
            place = target.format(port=inner).encode()
            moved = b"HTTP/1.1 302 Found\r\nlocation: " + place + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            async with small_server(moved) as (port, _), guarded_client(Guard(["hooks.example"], resolve=resolve), timeout_s=5) as client:
                assert (await client.get(f"http://hooks.example:{port}/")).status_code == 302
                with pytest.raises(AddressRefused):
                    await client.get(f"http://hooks.example:{port}/", follow_redirects=True)
            assert not seen

    asyncio.run(run())


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with small_server(OK) as (port, _), guarded_client(Guard(["127.0.0.1"]), timeout_s=5) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).status_code == 200


def test_an_unresolvable_name_is_a_failed_connection() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise OSError("unknown")

    async def run() -> None:
        async with guarded_client(Guard(resolve=resolve), timeout_s=5) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get("http://nobody.example/")

    asyncio.run(run())
