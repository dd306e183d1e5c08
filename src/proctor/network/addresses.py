"""Decides which untrusted addresses may be reached.

Only addresses of the public internet may be reached: not this machine, private or shared networks, link-local, multicast or reserved
addresses, or the metadata services of clouds. An IPv6 address that embeds an IPv4 one (mapped, compatible, 6to4, NAT64, Teredo, ISATAP) is
treated like that one. An administrator can list exceptions.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator

from proctor.errors import InputError, ProctorError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_V6 = ipaddress.IPv6Network
_V4 = ipaddress.IPv4Network
# Addresses that `is_global` allows, or did in one of the supported versions of Python.
_CLOSED = (
    _V4("0.0.0.0/8"),
    _V4("100.64.0.0/10"),
    _V4("168.63.129.16/32"),  # Azure: the metadata service
    _V4("192.0.0.0/24"),
    _V4("192.88.99.0/24"),
    _V4("198.18.0.0/15"),
    _V4("240.0.0.0/4"),
    _V6("100::/64"),
    _V6("2001:db8::/32"),
    _V6("3fff::/20"),
    _V6("5f00::/16"),
    _V6("fc00::/7"),  # with fd00:ec2::254
    _V6("fe80::/10"),
    _V6("fec0::/10"),
)
_COMPATIBLE = _V6("::/96")
_NAT64 = (_V6("64:ff9b::/96"), _V6("64:ff9b:1::/48"))
_ISATAP = (0x00005EFE, 0x02005EFE)


class AddressRefused(ProctorError):
    """An address that must not be reached from here."""


class Allowed:
    """An administrator's list: host names (`*.example.com` for all below), addresses, networks."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._networks: list[Network] = []
        self._names: set[str] = set()
        self._below: list[str] = []
        for entry in entries:
            self._add(entry.strip())

    def _add(self, entry: str) -> None:
        if not entry:
            raise InputError("an allowed address is empty; expected a host, an address or a network such as 10.0.0.0/8")
        try:
            # Not strict: users write `10.1.2.3/8` for the network.
            self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            return
        except ValueError:
            if "/" in entry or ":" in entry:
                raise InputError(f"the allowed address {entry!r} cannot be read; expected a host, an address or a network") from None
        name = normalise_name(entry)
        if name.startswith("*."):
            self._below.append(name[1:])
        else:
            self._names.add(name)

    def has_name(self, host: str) -> bool:
        """Return whether a host name is listed, whatever its address."""
        name = normalise_name(host)
        return name in self._names or any(name.endswith(end) for end in self._below)

    def has_address(self, address: Address) -> bool:
        """Return whether an address is in a listed network."""
        return any(address in network for network in self._networks)


def normalise_name(host: str) -> str:
    """Return a host name in comparable form: lower case, without a trailing dot."""
    return host.strip().rstrip(".").lower()


def parse_address(host: str) -> Address | None:
    """Return the address that a host is written as, including the old short, decimal, octal and hexadecimal forms; None for a name."""
    text = host.strip("[]").partition("%")[0].rstrip(".")
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        pass
    # The old forms that the C library accepts: `127.1`, `0x7f.1`, `2130706433`, `0177.0.0.1`.
    if not text or not text.isascii() or not set(text.lower()) <= set("0123456789abcdefx."):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(text))
    except OSError:
        return None


def explain_refusal(address: Address, allowed: Allowed) -> str | None:
    """Return why an address must not be reached; None if it may be."""
    # First, because a listed address may be reached although it is private.
    if allowed.has_address(address):
        return None
    for candidate in _list_meant_addresses(address):
        if candidate is not address and allowed.has_address(candidate):
            return None
        kind = _explain_closed(candidate)
        if kind is not None:
            return f"{address} is {kind}" if candidate is address else f"{address} embeds {candidate}, which is {kind}"
    return None


def _list_meant_addresses(address: Address) -> Iterator[Address]:
    """Yield the IPv4 addresses embedded in an IPv6 one, then the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        # The system connects to the IPv4 address itself, so only that one counts.
        if address.ipv4_mapped is not None:
            yield address.ipv4_mapped
            return
        # `::` and `::1` are in the same range but have other meanings.
        if address in _COMPATIBLE and int(address) > 1:
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address.sixtofour is not None:
            yield address.sixtofour
        # Both the server and the client, since packets go through one to the other.
        if address.teredo is not None:
            yield from address.teredo
        if any(address in network for network in _NAT64):
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
            return
        if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    yield address


def _explain_closed(address: Address) -> str | None:
    if address.is_unspecified:
        return "no address at all"
    if address.is_loopback:
        return "this machine itself"
    if address.is_multicast:
        return "a group of machines"
    if address.is_link_local:
        return "on the local link, where clouds keep the credentials of machines"
    if address.is_private:
        return "in a private network"
    if address.is_reserved or not address.is_global or any(address in network for network in _CLOSED):
        return "not on the public internet"
    return None
