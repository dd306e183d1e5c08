"""Sends messages of alerts, with retries: signed to webhooks, as text to Slack-compatible webhooks, by e-mail.

    x-proctor-delivery: ald_...                     the same for every attempt
    x-proctor-timestamp: 1794723000
    x-proctor-signature: sha256=<hex>               HMAC-SHA-256 of "<timestamp>.<body>" with the rule's secret

A response of 200 to 299 accepts the message; its body is not read. Redirects are not followed. There are eight attempts with growing delays
over about a day; 410 ends them. The queue survives a restart, and only one of several servers sends a message. The number of concurrent
messages is limited per organization and project; the longest waiting one is next, in turns.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import hmac
import logging
import smtplib
import ssl
from collections import Counter
from collections.abc import Collection, Mapping
from email.message import EmailMessage
from email.utils import formatdate
from smtplib import SMTPException
from typing import TYPE_CHECKING, Any

import msgspec

from proctor.cassettes.redaction import redact_text
from proctor.errors import ProctorError, StoreError
from proctor.model.evidence import Json
from proctor.network.addresses import AddressRefused
from proctor.processes.threads import run_in_thread
from proctor.report.words.neutral import to_one_line
from proctor.service.access.secrets import make_box
from proctor.service.hub import Hub
from proctor.service.notify.alert_kinds import KINDS
from proctor.service.notify.alerts import check_rules
from proctor.service.settings import ServiceSettings
from proctor.store.accounts import alerts as rows
from proctor.store.sql.compressed_json import to_json
from proctor.store.sql.pages import Row

if TYPE_CHECKING:
    import httpx2

ATTEMPTS_AFTER_S = (10.0, 60.0, 300.0, 1_800.0, 7_200.0, 21_600.0, 43_200.0)
"""Seconds between a failed attempt and the next; after the last of them it is given up."""
TIMEOUT_S = 10.0
AT_ONCE = 20
PER_ORGANIZATION = 10
PER_PROJECT = 4
STOP_S = 5.0
"""Seconds to wait at the end for responses; messages without one are sent again."""
# Much longer than one message may take, so that it is sent twice only after a crash.
_LEASE_S = 60.0
_LOOK_S = 2.0
_RULES_EVERY_S = 10.0
_LONGEST_ERROR = 500
_SENDER_ENDED = "the sending process ended before a response arrived, also at the last attempt"
_LOG = logging.getLogger("proctor.serve")


async def watch_alerts(hub: Hub, stop: asyncio.Event) -> None:
    """Check the rules and send due messages until `stop` is set: a worker of the service."""
    loop = asyncio.get_running_loop()
    rules_at = loop.time()
    stopped = asyncio.create_task(stop.wait())
    try:
        async with WebhookSender(hub) as sending:
            while not stop.is_set():
                started = 0
                try:
                    if loop.time() >= rules_at:
                        rules_at = loop.time() + _RULES_EVERY_S
                        await check_rules(hub)
                    started = await sending.start_due()
                except StoreError as error:
                    _LOG.warning("alerts cannot be checked now", extra={"error": str(error)})
                # There may be more to send when one was answered.
                waited = (stopped, *sending.under_way) if started else (stopped,)
                await asyncio.wait(waited, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()


class WebhookSender:
    """Messages in flight. Those without a response at the end of the block are left to a later attempt."""

    def __init__(self, hub: Hub) -> None:
        self.sent = 0
        self._hub = hub
        self._client: httpx2.AsyncClient | None = None
        self._tasks: dict[asyncio.Task[None], Row] = {}

    async def __aenter__(self) -> WebhookSender:
        """Return the sender; nothing is opened before there is something to send."""
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._tasks:
            # Unanswered messages stay leased and are sent again: at least once.
            await asyncio.wait(self._tasks, timeout=0 if any(error) else STOP_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    @property
    def under_way(self) -> Collection[asyncio.Task[None]]:
        """The messages without a response yet."""
        return self._tasks.keys()

    async def start_due(self) -> int:
        """Lease due messages within the limits, start sending them, and return their number."""
        slots = AT_ONCE - len(self._tasks)
        if slots <= 0:
            return 0
        now = self._hub.clock()
        shares = {"per_project": PER_PROJECT, "per_organization": PER_ORGANIZATION}
        busy = Counter(id for row in self._tasks.values() for id in (row["project_id"], row["organization_id"]))
        # A read first, which takes no lock: nearly always nothing is due.
        async with self._hub.database.reading() as connection:
            due = await rows.list_due_deliveries(connection, now, slots, busy=dict(busy), **shares)
        if not due:
            return 0
        async with self._hub.database.writing() as connection:
            leased = [row for row in due if await rows.lease_delivery(connection, row, now + _LEASE_S)]
        for row in leased:
            task = asyncio.create_task(self._send(row))
            self._tasks[task] = row
            task.add_done_callback(self._forget_task)
        return len(leased)

    async def _send(self, row: Row) -> None:
        # Leased as often as it may be sent, without a recorded outcome: it may be what crashes the sender.
        over = row["attempts"] > len(ATTEMPTS_AFTER_S)
        error = _SENDER_ENDED if over else await _send_message(self._hub, self._get_client(), row)
        async with self._hub.database.writing() as connection:
            await rows.finish_delivery(connection, row["id"], _make_changes(self._hub, row, error))
        if error is None:
            self.sent += 1
            self._hub.counters.add("alerts_sent")

    def _get_client(self) -> httpx2.AsyncClient:
        if self._client is None:
            # Loading an HTTP client takes time, and most services have nothing to send.
            from proctor.network.guard import Guard, guarded_client

            self._client = guarded_client(Guard(self._hub.settings.allowed_addresses), timeout_s=TIMEOUT_S)
        return self._client

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its lease expires, and it is sent again.
            _LOG.warning("the outcome of an alert could not be stored", extra={"error": str(error)})


async def _send_message(hub: Hub, client: httpx2.AsyncClient, row: Row) -> str | None:
    """Send one message and return why it was not accepted, or None."""
    if row["channel"] == "email":
        try:
            return await send_mail(hub, row, TIMEOUT_S)
        except TimeoutError:
            return f"no answer within {TIMEOUT_S:g} s"
        except (OSError, SMTPException, ValueError) as error:
            return f"{type(error).__name__}: {error}"
    import httpx2  # as above

    is_slack = row["channel"] == "slack"
    body = to_json(write_slack(write_message(hub.settings, row["payload"])) if is_slack else row["payload"])
    timestamp = str(int(hub.clock()))
    headers = {
        "content-type": "application/json",
        "user-agent": "proctor",
        "x-proctor-delivery": row["id"],
        "x-proctor-timestamp": timestamp,
    }
    try:
        if row["secret"] is not None:
            headers["x-proctor-signature"] = f"sha256={sign_message(make_box(hub).unlock(row['secret']), timestamp, body)}"
        # Streamed without reading the body, which may be endless. One timeout around everything, since that of the client restarts with
        # every chunk.
        async with asyncio.timeout(TIMEOUT_S), client.stream("POST", row["webhook_url"], content=body, headers=headers) as answer:
            if 200 <= answer.status_code < 300:
                return None
            return "gone: 410" if answer.status_code == 410 else f"answered {answer.status_code}"
    except TimeoutError:
        return f"no answer within {TIMEOUT_S:g} s"
    except AddressRefused as error:
        return f"refused: {error}"
    except (httpx2.HTTPError, httpx2.InvalidURL, ProctorError, OSError, ValueError) as error:
        # The failure of one receiver must not stop the others.
        return f"{type(error).__name__}: {error}"


def sign_message(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a message in hexadecimal."""
    # The time is signed as well, so that a receiver can reject a replayed message.
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def _make_changes(hub: Hub, row: Row, error: str | None) -> dict[str, Any]:
    if error is None:
        return {"delivered_at": hub.now(), "next_at": None, "error": None, "updated_at": hub.now()}
    # The row is from before the lease, which has counted this attempt in the database.
    attempts = row["attempts"] + 1
    if error == _SENDER_ENDED:
        # The lease has counted an attempt that was not made.
        return {"next_at": None, "error": error, "attempts": row["attempts"], "updated_at": hub.now()}
    over = error == "gone: 410" or attempts > len(ATTEMPTS_AFTER_S)
    following = None if over else hub.clock() + ATTEMPTS_AFTER_S[attempts - 1]
    # The error of a client may quote the address, and a key in it.
    return {"next_at": following, "error": redact_text(error)[:_LONGEST_ERROR], "updated_at": hub.now()}


_LONGEST_NAME = 120
_EVENTS = {"alert.firing": "Firing", "alert.resolved": "Resolved", "alert.test": "Test"}


class Message(msgspec.Struct, frozen=True):
    """What people read."""

    title: str
    text: str
    url: str | None
    """The page of the rule, if the service knows its public address."""


def write_message(settings: ServiceSettings, payload: Mapping[str, Json]) -> Message:
    """Return the text of a message, on single lines and without secrets."""
    rule, observed = payload["rule"], payload["observed"]
    title = f"{_EVENTS[payload['event']]}: {to_one_line(redact_text(rule['name']), _LONGEST_NAME)}"
    text = f"{KINDS[rule['kind']].title}."
    if "results" in observed:
        lacking = f", {observed['missing_evidence']} lack evidence" if observed["missing_evidence"] else ""
        finding = KINDS[rule["kind"]].watched.finding.format(**observed, failed=observed["results"] - observed["passed"])
        text += f" In the time window {finding}{lacking}."
    url = None if settings.public_url is None else f"{settings.public_url}/ui/p/{rule['project_id']}/alerts/{rule['id']}"
    return Message(title, text, url)


def write_slack(message: Message) -> dict[str, Json]:
    """Return a message for an incoming webhook; nothing in it mentions or links what a rule is named after."""
    title, text = (part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for part in (message.title, message.text))
    link = f"\n<{message.url}|Open the rule>" if message.url else ""
    block: Json = {"type": "section", "text": {"type": "mrkdwn", "text": f"*{title}*\n{text}{link}"}}
    return {"text": f"{title}. {text}{link}", "blocks": [block]}


async def send_mail(hub: Hub, row: Row, timeout_s: float) -> None:
    """Send a message by e-mail. Raises `OSError`, `smtplib.SMTPException` or `TimeoutError`."""
    written, settings = write_message(hub.settings, row["payload"]), hub.settings
    mail = EmailMessage()
    mail["Subject"] = f"[proctor] {written.title}"
    mail["From"], mail["To"] = settings.smtp_from, row["email"]
    mail["Date"] = formatdate(hub.clock())
    # The same for every attempt, so that a mail client shows a repeated one once.
    mail["Message-ID"] = f"<{row['id']}@{(settings.smtp_from or '').rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n\n".join(part for part in (written.title, written.text, written.url) if part))
    async with asyncio.timeout(timeout_s):
        _, error = await run_in_thread(lambda: _send(settings, mail, timeout_s), contextvars.copy_context(), "send e-mail")
    if error is not None:
        raise error


def _send(settings: ServiceSettings, mail: EmailMessage, timeout_s: float) -> None:
    assert settings.smtp_host is not None
    # A name for the greeting: the default looks up this machine in DNS, which may take long.
    own = str(mail["From"]).rpartition("@")[2]
    context = ssl.create_default_context()
    if settings.smtp_security == "tls":
        connection = smtplib.SMTP_SSL(settings.smtp_host, settings.smtp_port, own, timeout=timeout_s, context=context)
    else:
        connection = smtplib.SMTP(settings.smtp_host, settings.smtp_port, own, timeout=timeout_s)
    with connection:
        if settings.smtp_security == "starttls":
            connection.starttls(context=context)
        if settings.smtp_user is not None:
            connection.login(settings.smtp_user, settings.smtp_password or "")
        connection.send_message(mail)
