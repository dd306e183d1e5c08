"""Messages to webhooks: signed, sent until they are taken or it is hopeless, never to where they must not go.

    x-proctor-delivery: ald_...                     the same for every attempt
    x-proctor-timestamp: 1794723000
    x-proctor-signature: sha256=<hex>               HMAC-SHA-256 of "<timestamp>.<body>" with the rule's secret

Any answer of 200 to 299 takes the message; its body is not read. Redirects are not followed. Attempts are made after 10 s, then later and
later, eight in all over about a day; 410 ends it at once. What was queued survives a restart; of several servers one sends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
from typing import TYPE_CHECKING, Any

from proctor.errors import ProctorError, StoreError
from proctor.network.addresses import AddressRefused
from proctor.service.alerts import check_rules
from proctor.service.hub import Hub
from proctor.service.redaction import redact_text
from proctor.service.secrets import box_of
from proctor.store import alerts as rows
from proctor.store.bodies import to_json
from proctor.store.pages import Row

if TYPE_CHECKING:
    import httpx2

ATTEMPTS_AFTER_S = (10.0, 60.0, 300.0, 1_800.0, 7_200.0, 21_600.0, 43_200.0)
"""How long after each failed attempt the next one is made; after the last of them it is given up."""
TIMEOUT_S = 10.0
_LEASE_S = 60.0
_AT_ONCE = 10
_LOOK_S = 2.0
_RULES_EVERY = 5
_LONGEST_ERROR = 500
_LOG = logging.getLogger("proctor.serve")


async def watch_alerts(hub: Hub, stop: asyncio.Event) -> None:
    """Look at the rules and send what there is to send, until told to stop: a worker of the service."""
    looked = 0
    while not stop.is_set():
        try:
            if looked % _RULES_EVERY == 0:
                await check_rules(hub)
            await deliver_due(hub)
        except StoreError as error:
            _LOG.warning("alerts cannot be looked at now", extra={"error": str(error)})
        looked += 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_S)


async def deliver_due(hub: Hub, client: httpx2.AsyncClient | None = None) -> int:
    """Make one attempt at everything that is due; how many were taken."""
    now = hub.clock()
    async with hub.database.reading() as connection:
        due = await rows.due_deliveries(connection, now, _AT_ONCE)
    if not due:
        return 0
    taken: list[Row] = []
    async with hub.database.writing() as connection:
        for row in due:
            if await rows.take_delivery(connection, row, now + _LEASE_S):
                taken.append(row)
    async with contextlib.AsyncExitStack() as stack:
        # Loading what speaks HTTP takes time, and most services have nothing to send.
        from proctor.network.guard import Guard, guarded_client

        if client is None:
            client = await stack.enter_async_context(guarded_client(Guard(hub.settings.allowed_addresses), timeout_s=TIMEOUT_S))
        outcomes = await asyncio.gather(*(_attempt(hub, client, row) for row in taken))
    async with hub.database.writing() as connection:
        for row, error in zip(taken, outcomes, strict=True):
            await rows.end_delivery(connection, row["id"], _after(hub, row, error))
    sent = sum(error is None for error in outcomes)
    hub.counters.add("alerts_sent", sent)
    return sent


async def _attempt(hub: Hub, client: httpx2.AsyncClient, row: Row) -> str | None:
    """Send one message; why it was not taken, or None."""
    import httpx2  # as above

    body = to_json(row["payload"])
    timestamp = str(int(hub.clock()))
    headers = {
        "content-type": "application/json",
        "user-agent": "proctor",
        "x-proctor-delivery": row["id"],
        "x-proctor-timestamp": timestamp,
    }
    try:
        if row["secret"] is not None:
            headers["x-proctor-signature"] = f"sha256={signature(box_of(hub).unlock(row['secret']), timestamp, body)}"
        async with asyncio.timeout(TIMEOUT_S), client.stream("POST", row["webhook_url"], content=body, headers=headers) as answer:
            if 200 <= answer.status_code < 300:
                return None
            return "gone: 410" if answer.status_code == 410 else f"answered {answer.status_code}"
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:g} s"
    except AddressRefused as error:
        return f"refused: {error}"
    except (httpx2.HTTPError, httpx2.InvalidURL, ProctorError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What proves that a message came from here: in hexadecimal."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _after(hub: Hub, row: Row, error: str | None) -> dict[str, Any]:
    if error is None:
        return {"delivered_at": hub.now(), "next_at": None, "error": None, "updated_at": hub.now()}
    attempts = row["attempts"] + 1
    over = error == "gone: 410" or attempts > len(ATTEMPTS_AFTER_S)
    following = None if over else hub.clock() + ATTEMPTS_AFTER_S[attempts - 1]
    return {"next_at": following, "error": redact_text(error)[:_LONGEST_ERROR], "updated_at": hub.now()}
