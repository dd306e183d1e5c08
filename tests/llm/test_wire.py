"""HTTP between a client and a provider: responses of servers of all kinds."""

from __future__ import annotations

import asyncio
import datetime
import gc
import gzip
import ssl
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proctor.llm import client, connections
from proctor.llm.client import Dialect, HttpModel
from proctor.llm.ports import ChatReply, ModelFault
from proctor.llm.settings import ModelSettings
from tests.llm.provider_server import ReceivedRequest, ScriptedResponse, provider

BODY = b'{"fine": true}'
FINE = {"fine": True}
LENGTH = b"content-length: %d\r\n" % len(BODY)


def made(**settings: Any) -> HttpModel:
    dialect = Dialect(
        provider="any",
        url=lambda _: "http://any",
        headers=lambda _: {},
        body=lambda request, settings, conceded: {},
        reply=lambda answer, request, conceded: ChatReply(),
    )
    return HttpModel(dialect, ModelSettings(provider="any", timeout_s=settings.pop("timeout_s", 10), headers=settings))


class Raw:
    """The bytes a raw server received."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.none_open = asyncio.Event()
        self.heads: list[bytes] = []
        self.sent_afterwards = asyncio.Event()


@asynccontextmanager
async def raw_server(
    answer: bytes,
    *,
    stay: bool = False,
    early: bool = False,
    afterwards: bytes = b"",
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
) -> AsyncGenerator[Raw]:
    """A server that answers every request with these bytes, then closes unless it is to stay open."""
    seen = Raw()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        seen.connections += 1
        seen.none_open.clear()
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                seen.heads.append(head)
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(0 if early else length)
                for start in range(0, len(answer), 7 if len(answer) < 400 else 65536):
                    writer.write(answer[start : start + (7 if len(answer) < 400 else 65536)])
                    await writer.drain()
                    await asyncio.sleep(0)
                await reader.readexactly(length if early else 0)
                if afterwards:
                    await asyncio.sleep(0.02)
                    writer.write(afterwards)
                    seen.sent_afterwards.set()
                if not stay:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            if not tasks:
                seen.none_open.set()
            writer.close()

    server = await asyncio.start_server(serve, host, 0, ssl=tls)
    shown = f"[{host}]" if ":" in host else host
    seen.url = f"http{'s' if tls else ''}://{shown}:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield seen
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def outcome(answer: bytes, **server: Any) -> dict[str, Any] | str:
    async with raw_server(answer, **server) as seen:
        wire = made()
        try:
            return await wire.post(seen.url, {"a": 1})
        except ModelFault as fault:
            return f"{fault.code}: {fault.message}"
        finally:
            await wire.close()


def packed(content: bytes, how: int) -> bytes:
    packing = zlib.compressobj(wbits=how)
    return packing.compress(content) + packing.flush()


def with_encoding(name: str, content: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-encoding: %s\r\ncontent-length: %d\r\n\r\n%s" % (name.encode(), len(content), content)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

PROPER: dict[str, bytes] = {
    "with a length": b"HTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "in chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n"
    + BODY[:5]
    + b"\r\n9;note=1\r\n"
    + BODY[5:]
    + b"\r\n0\r\nx-end: 1\r\n\r\n",
    "until the end of the connection": b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + BODY,
    "of HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
    "after a word in advance": b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "after going on is allowed": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "in gzip": with_encoding("gzip", gzip.compress(BODY)),
    "in deflate": with_encoding("deflate", packed(BODY, 15)),
    "in bare deflate": with_encoding("deflate", packed(BODY, -15)),
    "packed in no way": with_encoding("identity", BODY),
    "with a header twice": b"HTTP/1.1 200 OK\r\nVia: a\r\nvia: b\r\n" + LENGTH + b"\r\n" + BODY,
    "without a reason": b"HTTP/1.1 200\r\n" + LENGTH + b"\r\n" + BODY,
}


@pytest.mark.parametrize("how", PROPER)
def test_a_valid_response_is_read_in_any_encoding(how: str) -> None:
    assert asyncio.run(outcome(PROPER[how])) == FINE


IMPROPER: dict[str, tuple[bytes, str]] = {
    "no HTTP at all": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "transport"),
    "nothing": (b"", "transport"),
    "half a head": (b"HTTP/1.1 200 OK\r\ncontent-le", "transport"),
    "half a body": (b"HTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + BODY[:4], "transport"),
    "half of the chunks": (CHUNKED + b"5\r\n" + BODY[:5], "transport"),
    "two lengths": (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 14\r\n\r\n" + BODY, "transport"),
    "a length below zero": (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "transport"),
    "a head without end": (b"HTTP/1.1 200 OK\r\n" + b"x-a: " + b"y" * 300_000, "transport"),
    "a switch of protocols": (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", "transport"),
}


@pytest.mark.parametrize("how", IMPROPER)
def test_an_invalid_response_is_a_fault_with_the_address(how: str) -> None:
    answer, code = IMPROPER[how]
    result = asyncio.run(outcome(answer))
    assert isinstance(result, str) and result.startswith(f"{code}: cannot talk to http://127.0.0.1:"), result


PACKED_BADLY: dict[str, tuple[bytes, str]] = {
    "an encoding that was not requested": (with_encoding("br", b"\x0b\x02\x80"), "not read here ('br')"),
    "no gzip": (with_encoding("gzip", BODY), "it is not gzip"),
    "half of the gzip": (with_encoding("gzip", gzip.compress(BODY)[:-6]), "breaks off"),
    "a bomb": (with_encoding("gzip", gzip.compress(b" " * 3_000_000)), "more than 1 MB"),
    "too many chunks": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + (b"fffff\r\n" + b" " * 0xFFFFF + b"\r\n") * 3,
        "more than 1 MB",
    ),
}


@pytest.mark.parametrize("how", PACKED_BADLY)
def test_corrupt_and_oversized_bodies_are_refused(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", 1024 * 1024)
    answer, expected = PACKED_BADLY[how]
    result = asyncio.run(outcome(answer))
    code = "too_large: " if "more than" in expected else "bad_answer: "
    assert isinstance(result, str) and result.startswith(code) and expected in result, result


async def test_concurrent_requests_get_their_own_responses_and_close() -> None:
    def answer(request: ReceivedRequest) -> ScriptedResponse:
        return ScriptedResponse(body={"number": request.body["number"]})

    async with provider(answer) as server:
        wire = made()
        answers = await asyncio.gather(*(wire.post(f"{server.url}/v1", {"number": number}) for number in range(60)))
        assert [answer["number"] for answer in answers] == list(range(60))
        again = await asyncio.gather(*(wire.post(f"{server.url}/v1", {"number": number}) for number in range(60)))
        assert [answer["number"] for answer in again] == list(range(60))
        assert server.connections == 60, "the second sixty use the connections of the first"
        await wire.close()
        await server.none_open.wait()


def count_connections(answer: bytes, **server: Any) -> int:
    """Return how many connections three requests took; closing the wire closes them all."""

    async def ask() -> int:
        async with raw_server(answer, **server) as seen:
            wire = made()
            for _ in range(3):
                assert await wire.post(seen.url, {"a": 1}) == FINE
                if "afterwards" in server:
                    await seen.sent_afterwards.wait()
                    seen.sent_afterwards.clear()
                await asyncio.sleep(0.05)
            await wire.close()
            await seen.none_open.wait()
            return seen.connections

    return asyncio.run(ask())


def test_an_open_connection_is_reused() -> None:
    assert count_connections(PROPER["with a length"], stay=True) == 1


def test_a_connection_the_server_closed_is_not_reused() -> None:
    assert count_connections(PROPER["with a length"]) == 3


def test_a_connection_marked_close_is_not_reused() -> None:
    answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n" + LENGTH + b"\r\n" + BODY
    assert count_connections(answer, stay=True) == 3


def test_a_connection_idle_for_too_long_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEEPALIVE_S", 0.01)
    assert count_connections(PROPER["with a length"], stay=True) == 3


def test_unrequested_bytes_close_a_connection() -> None:
    forged = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n" + b'{"fine": false}'
    assert count_connections(PROPER["with a length"], stay=True, afterwards=forged) == 3
    assert count_connections(PROPER["with a length"] + forged, stay=True) == 3, "in one piece with the answer"


async def test_a_response_before_the_request_was_read_counts() -> None:
    answer = b"HTTP/1.1 413 Too Large\r\ncontent-length: 26\r\n\r\n" + b'{"error": "far too large"}'
    async with raw_server(answer, early=True, stay=True) as seen:
        wire = made()
        with pytest.raises(ModelFault, match="far too large") as caught:
            await wire.post(seen.url, {"a": "x" * 30_000_000})
        assert caught.value.status == 413
        await wire.close()


async def test_an_abandoned_request_closes_its_connection() -> None:
    async with provider(lambda request: ScriptedResponse(silent=request.body["a"] == "silent", body=FINE)) as server:
        wire = made(timeout_s=0.05)
        with pytest.raises(ModelFault, match=r"0\.05 s") as caught:
            await wire.post(server.url, {"a": "silent"})
        assert caught.value.code == "timeout"
        await server.none_open.wait()
        assert await wire.post(server.url, {"a": "other"}) == FINE
        await wire.close()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # sockets of a loop that has ended are closed when they are collected
def test_a_wire_works_in_several_event_loops() -> None:
    wire = made()

    async def ask() -> None:
        async with provider([ScriptedResponse(body=FINE)]) as server:
            assert await wire.post(server.url, {}) == FINE

    async def close() -> None:
        await wire.close()

    asyncio.run(ask())
    asyncio.run(ask())
    asyncio.run(close())
    gc.collect()


@pytest.mark.parametrize(
    ("path", "arrives"),
    [
        ("/v1/chat", b"/v1/chat"),
        ("/v1/é a", b"/v1/%C3%A9%20a"),
        ("/v1/a%2Fb?x=1&y=ü#part", b"/v1/a%2Fb?x=1&y=%C3%BC"),
        ("?api-version=2", b"/?api-version=2"),
        ("", b"/"),
    ],
)
def test_the_request_target_is_encoded(path: str, arrives: bytes) -> None:
    async def ask() -> bytes:
        async with raw_server(PROPER["with a length"]) as seen:
            wire = made()
            await wire.post(seen.url.removesuffix("/v1") + path, {"a": 1})
            await wire.close()
            return seen.heads[0].split(b" ")[1]

    assert asyncio.run(ask()) == arrives


def test_userinfo_becomes_basic_authorization_unless_a_header_is_set() -> None:
    async def ask(**headers: str) -> bytes:
        async with raw_server(PROPER["with a length"]) as seen:
            wire = made(**headers)
            await wire.post(seen.url.replace("http://", "http://me:p%40ss@"), {"a": 1})
            await wire.close()
            return next(line for line in seen.heads[0].split(b"\r\n") if line.lower().startswith(b"authorization:"))

    assert asyncio.run(ask()).split(b" ")[1:] == [b"Basic", b"bWU6cEBzcw=="]
    assert asyncio.run(ask(authorization="Bearer key")).split(b" ")[1:] == [b"Bearer", b"key"]


async def test_a_key_invalid_in_a_header_is_a_bad_request_that_hides_it() -> None:
    async with provider([ScriptedResponse(body=FINE)]) as server:
        wire = made(authorization="Bearer sk-secret\r\nx-other: 1")
        with pytest.raises(ModelFault) as caught:
            await wire.post(server.url, {"a": 1})
        assert caught.value.code == "bad_request" and "secret" not in caught.value.message
        assert server.requests == []
        await wire.close()


def test_an_ipv6_address_is_reached_and_shown_in_brackets() -> None:
    async def ask() -> bytes:
        try:
            async with raw_server(PROPER["with a length"], host="::1") as seen:
                wire = made()
                assert await wire.post(seen.url, {"a": 1}) == FINE
                await wire.close()
                return seen.heads[0]
        except OSError as error:
            pytest.skip(f"this machine has no IPv6: {error}")

    assert b"host: [::1]:" in asyncio.run(ask()).lower()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return file


def _tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_an_untrusted_certificate_is_refused_before_anything_is_sent(certificate: Path) -> None:
    async with raw_server(PROPER["with a length"], tls=_tls(certificate)) as seen:
        wire = made(authorization="Bearer secret")
        with pytest.raises(ModelFault, match="certificate verify failed") as caught:
            await wire.post(seen.url, {"a": 1})
        assert caught.value.code == "transport"
        assert seen.heads == []
        await wire.close()


async def test_tls_checks_host_names_and_reuses_connections(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr(httpx2, "create_ssl_context", lambda **_: trusting)  # pyright: ignore[reportUnknownLambdaType]
    async with raw_server(PROPER["with a length"], tls=_tls(certificate), stay=True) as seen:
        wire = made()
        with pytest.raises(ModelFault, match="certificate verify failed"):
            await wire.post(seen.url, {"a": 1})
        right = seen.url.replace("127.0.0.1", "localhost")
        for _ in range(3):
            assert await wire.post(right, {"a": 1}) == FINE
        assert seen.connections == 1, "the one that was refused never came about"
        await wire.close()
