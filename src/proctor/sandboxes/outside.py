"""Makes outgoing requests for simulated systems: an EHR that calls the agent's CDS Hooks service, a phone line that calls its webhooks.

The addresses come from an agent, so they go through the guard: public addresses and those that are allowed, which in local runs is
loopback, where a local agent listens, and nothing else of this machine's networks. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from proctor.simulators.exchange import Errand, Fetched

MOST_BYTES = 1_000_000
"""Maximum bytes of an answer."""
TIMEOUT_S = 10.0
"""Maximum seconds for an answer, from connecting to its last byte."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


async def fetch_outside(errand: Errand, *, allowed: Iterable[str] = LOOPBACK) -> Fetched:
    """Return the answer of an address, or why the request failed."""
    try:
        import httpx2

        from proctor.network.guard import Guard, guarded_client
    except ImportError:
        return Fetched(url=errand.url, problem="calling a service needs httpx2, which is not installed (extra live)")
    from proctor.network.addresses import AddressRefused

    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            guarded_client(Guard(allowed), timeout_s=TIMEOUT_S) as client,
            client.stream(errand.method, errand.url, content=errand.body, headers=errand.headers) as answer,
        ):
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > MOST_BYTES:
                    return Fetched(url=errand.url, problem=f"the service answers more than {MOST_BYTES} bytes")
            return Fetched(url=errand.url, status=answer.status_code, body=body)
    except TimeoutError:
        return Fetched(url=errand.url, problem=f"the service has not answered within {TIMEOUT_S:g} s")
    except AddressRefused as error:
        return Fetched(url=errand.url, problem=f"the address is refused: {error}")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        return Fetched(url=errand.url, problem=f"the service cannot be reached: {type(error).__name__}")
