"""Guards requests to untrusted addresses: webhooks, and the targets of uploaded suites.

A name is resolved once, all of its addresses are checked, and the connection goes to exactly one of those, so a later change of the name
has no effect. That applies to every connection, and so to every redirect. A proxy of the environment is not used: it could reach forbidden
addresses. Only TCP connections to a host are possible.

    guard = Guard(allowed=("10.1.0.0/16", "hooks.internal"))
    async with guarded_client(guard, timeout_s=10) as client: ...
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import httpcore2
import httpx2

from proctor.network.addresses import Address, AddressRefused, Allowed, explain_refusal, normalise_name, parse_address

if TYPE_CHECKING:
    import ssl

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name."""

CONNECT_S = 10.0
"""Seconds for connecting to one address before the next one is tried."""
_LONGEST_NAME = 253
"""The maximum length of a host name in DNS."""


async def _resolve(host: str, port: int) -> Sequence[str]:
    # In a thread of the loop, since the system's resolver blocks; the caller's `asyncio.timeout` limits it.
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class Guard:
    """Decides where a connection may go."""

    def __init__(self, allowed: Iterable[str] = (), *, resolve: Resolve = _resolve) -> None:
        self._allowed = Allowed(allowed)
        self._resolve = resolve

    def check_url(self, url: str) -> None:
        """Raise `AddressRefused` for an obviously forbidden address, without resolving anything: for use when it is saved."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise AddressRefused("the address cannot be read") from None
        if parts.scheme not in ("http", "https"):
            raise AddressRefused(f"expected an address that begins with https:// or http://, got {parts.scheme[:20]!r}")
        if not host:
            raise AddressRefused("the address names no host")
        # They would be stored and shown with the address; secrets are stored elsewhere.
        if parts.username is not None or parts.password is not None:
            raise AddressRefused("the address holds a user name or a password")
        if not self._allowed.has_name(host):
            known = parse_address(host)
            if known is not None:
                self._check(host, known)
            elif (name := normalise_name(host)) in ("localhost", "localhost.localdomain") or name.endswith(".localhost"):
                raise AddressRefused(f"{host} is this machine itself")

    async def resolve_checked(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host after checking each. Raises `AddressRefused`."""
        if not host or len(host) > _LONGEST_NAME:
            raise AddressRefused("the address names no host")
        if self._allowed.has_name(host):
            return list(await self._look_up(host, port))
        known = parse_address(host)
        if known is not None:
            self._check(host, known)
            return [str(known)]
        addresses = await self._look_up(host, port)
        for text in addresses:
            address = parse_address(text)
            if address is None:
                raise AddressRefused(f"{host} has an address that cannot be read")
            # One forbidden address is enough: the owner of the name chooses which one answers.
            self._check(host, address)
        # Connect to the checked addresses themselves: a second resolution of the name could differ (DNS rebinding).
        return [str(parse_address(text)) for text in addresses]

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        known = parse_address(host)
        if known is not None:
            return [str(known)]
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the host {host} cannot be found: {error}") from error
        if not addresses:
            raise httpcore2.ConnectError(f"the host {host} has no address")
        return addresses

    def _check(self, host: str, address: Address) -> None:
        why = explain_refusal(address, self._allowed)
        if why is not None:
            shown = why if host == str(address) else f"{host}: {why}"
            raise AddressRefused(f"{shown}; an administrator can allow it with --allowed-address")


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects only to addresses that the guard has checked."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._inner = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to one of the addresses of a host."""
        limit = CONNECT_S if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                addresses = await self._guard.resolve_checked(host, port)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"the host {host} could not be looked up within {limit:g} s") from None
        last: Exception | None = None
        # A name may have hundreds of addresses, each of which takes time to fail.
        for address in addresses[:4]:
            try:
                return await self._inner.connect_tcp(address, port, limit, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = error
        raise last or httpcore2.ConnectError(f"the host {host} has no address")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Refuse: a socket in the file system is on this machine."""
        raise AddressRefused("a socket in the file system may not be reached")

    async def sleep(self, seconds: float) -> None:
        """Sleep for the given time."""
        await asyncio.sleep(seconds)


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """A transport for `httpx2.AsyncClient` that connects only where its guard allows."""

    def __init__(self, guard: Guard, *, verify: ssl.SSLContext | bool = True, limits: httpx2.Limits | None = None) -> None:
        super().__init__(verify=verify, trust_env=False)
        # A private attribute: if it has another name in a later version, replacing it would have no effect.
        if not isinstance(getattr(self, "_pool", None), httpcore2.AsyncConnectionPool):
            raise RuntimeError("this version of httpx2 stores its connection pool elsewhere, so requests cannot be guarded")
        # Created here, because the pool that was built with the given context is replaced.
        context = verify if not isinstance(verify, bool) else httpx2.create_ssl_context(verify=verify, trust_env=False)
        bounds = limits or httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=5.0)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=bounds.max_connections,
            max_keepalive_connections=bounds.max_keepalive_connections,
            keepalive_expiry=bounds.keepalive_expiry,
            network_backend=_GuardedBackend(guard),
        )


def guarded_client(guard: Guard, *, timeout_s: float, verify: ssl.SSLContext | bool = True) -> httpx2.AsyncClient:
    """Return a client that connects only where `guard` allows, follows no redirects by itself, and ignores the environment."""
    return httpx2.AsyncClient(transport=GuardedTransport(guard, verify=verify), timeout=timeout_s, trust_env=False, follow_redirects=False)
