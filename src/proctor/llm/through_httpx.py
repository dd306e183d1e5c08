"""Sends requests to a model provider through httpx2: where there is a proxy, or where somebody else decides what may be reached."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from proctor.llm.carrier import Answer, CarrierFault, refuse_address, refuse_too_large

if TYPE_CHECKING:
    import httpx2

MakeTransport = Callable[[bool], "httpx2.AsyncBaseTransport"]
"""How connections are made where they may not go everywhere; told whether certificates are looked at."""


class HttpxCarrier:
    """One client, made with the first request."""

    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        limit: int,
        timeout_s: float,
        certificates: Callable[[], ssl.SSLContext],
        proxy: str | None,
        transport: MakeTransport | None,
    ) -> None:
        self._headers = headers
        self._limit = limit
        self._timeout_s = timeout_s
        self._certificates = certificates
        self._proxy = proxy
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None

    async def send(self, url: str, content: bytes) -> Answer:
        """Post `content` and return the answer. Raises `CarrierFault`."""
        import httpx2  # a fifth of a second; most runs never need it

        if self._client is None:
            self._client = self._make_client(url)
        try:
            async with self._client.stream("POST", url, content=content) as response:
                return Answer(response.status_code, dict(response.headers), await self._read_bounded(response))
        except httpx2.TimeoutException:
            raise CarrierFault("timeout", "") from None
        except (httpx2.InvalidURL, UnicodeError):
            raise refuse_address() from None
        except httpx2.HTTPError as error:
            raise CarrierFault("transport", str(error) or type(error).__name__) from None

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _make_client(self, url: str) -> httpx2.AsyncClient:
        import httpx2  # loaded by the caller

        secure = not url.lower().startswith("http:")
        return httpx2.AsyncClient(
            timeout=self._timeout_s,
            follow_redirects=False,
            trust_env=False,
            proxy=self._proxy,
            # Plain HTTP trusts nobody, and reading whom to trust takes as long as dozens of requests.
            verify=self._certificates() if secure or self._proxy is not None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            transport=self._transport(secure) if self._transport is not None else None,
            headers=dict(self._headers),
            # How many requests run at a time is the runner's decision, not the connection pool's.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
        )

    async def _read_bounded(self, response: httpx2.Response) -> bytes:
        if "," in (how := response.headers.get("content-encoding", "")):
            # Unpacked layer by layer, little becomes much in one go.
            raise CarrierFault("bad_answer", f"answered packed more than once ({how[:40]!r})")
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > self._limit:
                raise refuse_too_large(self._limit)
            chunks.append(chunk)
        return b"".join(chunks)
