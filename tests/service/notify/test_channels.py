"""Alerts to people: Slack-compatible webhooks and e-mail over a real connection, and the rule over scheduled runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.errors import InputError
from proctor.rest.settings import read_settings
from proctor.service.access.callers import LOCAL
from proctor.service.access.projects import update_project
from proctor.service.hub import Hub
from proctor.service.notify import deliveries
from proctor.service.notify.alerts import (
    AlertDraft,
    NewAlert,
    check_rules,
    create_alert,
    get_alert,
    list_deliveries,
    preview_alert,
    send_test,
    update_alert,
)
from proctor.service.notify.deliveries import write_message, write_slack
from proctor.service.refusals import Refusal
from proctor.service.runs.schedules import get_schedule, run_now, start_due_runs
from proctor.service.settings import MAIL_ADDRESS, ServiceSettings
from proctor.store.sql.tables import runs
from tests.databases import TestDatabase
from tests.service.notify.mail_server import mail_server, make_certificate
from tests.service.notify.test_deliveries import deliver_due, webhook
from tests.service.schedules.test_schedules import START, TARGET, a_schedule, at
from tests.service.trace_world import Clock, world

pytestmark = pytest.mark.timeout(30)
MAIL = {"smtp_host": "127.0.0.1", "smtp_from": "proctor@example.com", "smtp_security": "none", "public_url": "https://proctor.example.com"}
HOOK = "https://hooks.example.com/x"


async def a_rule(hub: Hub, **more: Any) -> str:
    project, _ = await world(hub)
    given: dict[str, Any] = {"name": "quality", "kind": "pass_rate", "channel": "email", "email": "team@example.com", **more}
    return (await create_alert(hub, LOCAL, NewAlert(project_id=project, **given)))["id"]


async def only(hub: Hub, rule: str) -> dict[str, Any]:
    (delivery,) = (await list_deliveries(hub, LOCAL, rule))["data"]
    return delivery


def with_mail(database: TestDatabase, use: Any, port: int, clock: Any = None, **more: Any) -> None:
    database.run_hub(use, **({"clock": clock} if clock else {}), **{**MAIL, "smtp_port": port, **more})


def run_with_server(database: TestDatabase, use: Any, *, settings: dict[str, Any] | None = None, clock: Any = None, **server: Any) -> None:
    """Use a hub whose mail server is started inside the same event loop."""
    import msgspec

    async def whole(hub: Hub) -> None:
        async with mail_server(**server) as mails:
            more = {**MAIL, "smtp_port": mails.port, **(settings or {})}
            await use(msgspec.structs.replace(hub, settings=msgspec.structs.replace(hub.settings, **more)), mails)

    database.run_hub(whole, **({"clock": clock} if clock else {}))


def test_an_alert_is_an_e_mail(database: TestDatabase) -> None:
    async def use(hub: Hub, mails: Any) -> None:
        rule = await a_rule(hub)
        await send_test(hub, LOCAL, rule)
        assert await deliver_due(hub) == 1 and await deliver_due(hub) == 0
        (mail,) = mails.mails
        assert (mail["subject"], mail["to"], mail["from"]) == ("[proctor] Test: quality", "team@example.com", "proctor@example.com")
        delivery = await only(hub, rule)
        assert mail["message-id"] == f"<{delivery['id']}@example.com>" and mail["auto-submitted"] == "auto-generated"
        project = (await get_alert(hub, LOCAL, rule))["project_id"]
        assert f"https://proctor.example.com/ui/p/{project}/alerts/{rule}" in mail.get_content()
        assert (delivery["status"], delivery["attempts"], delivery["error"]) == ("delivered", 1, None)
        assert mails.recipients == ["team@example.com"] and mails.commands[0] == "ehlo example.com"
        assert not any(line.startswith("AUTH") for line in mails.commands)

    run_with_server(database, use)


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_the_connection_is_encrypted_before_the_password_is_sent(
    database: TestDatabase, security: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(database.home)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def use(hub: Hub, mails: Any) -> None:
        rule = await a_rule(hub)
        await send_test(hub, LOCAL, rule)
        assert await deliver_due(hub) == 1, (await only(hub, rule))["error"]
        assert len(mails.mails) == 1
        assert ("STARTTLS" in mails.commands) == (security == "starttls")

    settings = {"smtp_security": security, "smtp_user": "proctor", "smtp_password": "s3cret-word"}
    run_with_server(database, use, settings=settings, certificate=certificate, tls=security == "tls", login="proctor:s3cret-word")


@pytest.mark.parametrize(
    ("server", "settings", "error"),
    [
        ({"refuse": "RCPT"}, {}, "SMTPRecipientsRefused"),
        ({"refuse": "DATA"}, {}, "SMTPDataError"),
        ({"refuse": "MAIL"}, {}, "SMTPSenderRefused"),
        ({}, {"smtp_security": "starttls"}, "SMTPNotSupportedError: STARTTLS"),
        ({"silent": True}, {}, "no answer within 0.3 s"),
        ({}, {"smtp_port": 1}, "ConnectionRefusedError"),
        ({}, {"smtp_security": "tls"}, "SSLError"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_e_mail_that_is_not_accepted_is_sent_again_later(
    database: TestDatabase, server: dict[str, Any], settings: dict[str, Any], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if server.get("silent"):
        monkeypatch.setattr(deliveries, "TIMEOUT_S", 0.3)
    clock = Clock()

    async def use(hub: Hub, mails: Any) -> None:
        rule = await a_rule(hub)
        await send_test(hub, LOCAL, rule)
        assert await deliver_due(hub) == 0
        delivery = await only(hub, rule)
        assert delivery["status"] == "waiting" and delivery["attempts"] == 1 and error in delivery["error"]
        clock.now += 11
        await deliver_due(hub)
        assert (await only(hub, rule))["attempts"] == 2
        assert mails.mails == []

    run_with_server(database, use, settings=settings, clock=clock, **server)


def test_an_untrusted_certificate_is_refused_and_no_password_sent(database: TestDatabase) -> None:
    certificate = make_certificate(database.home)

    async def use(hub: Hub, mails: Any) -> None:
        rule = await a_rule(hub)
        await send_test(hub, LOCAL, rule)
        assert await deliver_due(hub) == 0
        assert "CERTIFICATE_VERIFY_FAILED" in (await only(hub, rule))["error"]
        assert not any(line.startswith("AUTH") for line in mails.commands)

    settings = {"smtp_security": "starttls", "smtp_user": "proctor", "smtp_password": "s3cret-word"}
    run_with_server(database, use, settings=settings, certificate=certificate, login="proctor:s3cret-word")


def test_a_wrong_password_is_not_in_the_error(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(database.home)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def use(hub: Hub, mails: Any) -> None:
        rule = await a_rule(hub)
        await send_test(hub, LOCAL, rule)
        assert await deliver_due(hub) == 0
        error = (await only(hub, rule))["error"]
        assert "SMTPAuthenticationError" in error and "wr0ng" not in error

    settings = {"smtp_security": "starttls", "smtp_user": "proctor", "smtp_password": "wr0ng-word"}
    run_with_server(database, use, settings=settings, certificate=certificate, login="proctor:s3cret-word")


def test_a_name_begins_no_header_and_no_line(database: TestDatabase) -> None:
    async def use(hub: Hub, mails: Any) -> None:
        rule = await a_rule(
            hub, name="quality\r\nBcc: victim@example.com\r\n\r\nBuy \u202e now \u2028 sk-ant-api03-0123456789abcdef0123456789abcdef"
        )
        await send_test(hub, LOCAL, rule)
        assert await deliver_due(hub) == 1
        (mail,) = mails.mails
        assert mail["bcc"] is None and mails.recipients == ["team@example.com"]
        assert "\n" not in mail["subject"] and "\u202e" not in mail["subject"] and "0123456789abcdef" not in str(mail)

    run_with_server(database, use)


@pytest.mark.parametrize(
    "address",
    [
        "team", "a@b@c", "a b@example.com", "a@example.com, b@example.com", "Team <team@example.com>",
        "a@example.com\r\nBcc: b@example.com",
        "a@-example.com", "@example.com", "a@", "ä@example.com", '"a"@example.com', "a@example.com\n", "a@[127.0.0.1]",
    ],
)  # fmt: skip
def test_an_address_is_one_recipient(address: str) -> None:
    assert MAIL_ADDRESS.fullmatch(address) is None


@pytest.mark.parametrize("address", ["team@example.com", "a.b+proctor@mail.example.co.uk", "o'neill@localhost", "x_y-z@1.example"])
def test_usual_addresses_are_accepted(address: str) -> None:
    assert MAIL_ADDRESS.fullmatch(address)


def test_an_alert_is_a_message_for_slack(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        async with webhook(200) as (url, seen):
            rule = await a_rule(hub, channel="slack", webhook_url=url, email=None, name="<!channel> & co")
            await send_test(hub, LOCAL, rule)
            assert await deliver_due(hub) == 1
            ((headers, body),) = seen
            message = json.loads(body)
            project = (await get_alert(hub, LOCAL, rule))["project_id"]
            link = f"<https://proctor.example.com/ui/p/{project}/alerts/{rule}|Open the rule>"
            assert message["text"] == f"Test: &lt;!channel&gt; &amp; co. Low pass rate.\n{link}"
            (block,) = message["blocks"]
            assert block == {
                "type": "section",
                "text": {"type": "mrkdwn", "text": f"*Test: &lt;!channel&gt; &amp; co*\nLow pass rate.\n{link}"},
            }
            assert "x-proctor-signature" not in headers and headers["content-type"] == "application/json"

    database.run_hub(use, allowed_addresses=("127.0.0.1",), public_url="https://proctor.example.com")


def test_a_slack_message_that_is_not_accepted_is_sent_again(database: TestDatabase) -> None:
    clock = Clock()

    async def use(hub: Hub) -> None:
        async with webhook(500, 200) as (url, seen):
            rule = await a_rule(hub, channel="slack", webhook_url=url, email=None)
            await send_test(hub, LOCAL, rule)
            assert await deliver_due(hub) == 0
            clock.now += 11
            assert await deliver_due(hub) == 1 and len(seen) == 2

    database.run_hub(use, clock=clock, allowed_addresses=("127.0.0.1",))


def test_without_a_public_address_there_is_no_link(database: TestDatabase) -> None:
    seen = {"results": 10, "passed": 8, "missing_evidence": 1}
    payload = {"event": "alert.firing", "rule": {"id": "a", "name": "n", "kind": "pass_rate", "project_id": "p"}, "observed": seen}
    message = write_message(ServiceSettings(home=database.home), payload)
    assert message.text == "Low pass rate. In the time window 2 of 10 results did not pass, 1 lack evidence." and message.url is None
    assert "|" not in write_slack(message)["text"]


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"email": None}, ["email"]),
        ({"email": "nobody"}, ["email"]),
        ({"webhook_url": HOOK}, ["webhook_url"]),
        ({"channel": "slack"}, ["email"]),
        ({"channel": "slack", "email": None}, ["webhook_url"]),
        ({"channel": "slack", "email": None, "webhook_url": "http://127.0.0.1/"}, ["webhook_url"]),
        ({"channel": "webhook", "email": None}, ["webhook_url"]),
        ({"kind": "scheduled_run", "agent_id": "agent_1"}, ["agent_id"]),
        ({"kind": "scheduled_run", "settings": {"schedule_id": 3}}, ["settings.schedule_id"]),
    ],
    ids=str,
)
def test_a_destination_fits_its_channel(database: TestDatabase, given: dict[str, Any], fields: list[str]) -> None:
    async def use(hub: Hub) -> None:
        with pytest.raises(Refusal) as caught:
            await a_rule(hub, **given)
        assert list(caught.value.fields) == fields

    with_mail(database, use, 25)


def test_a_rule_keeps_its_channel_when_it_is_changed(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        rule = await a_rule(hub)
        changed = await update_alert(hub, LOCAL, rule, {"email": "others@example.com"})
        assert (changed["email"], changed["webhook_url"], changed["channel"]) == ("others@example.com", None, "email")
        for wrong in ({"webhook_url": HOOK}, {"secret": "long enough as a secret"}, {"email": "x"}, {"email": None}):
            with pytest.raises(Refusal):
                await update_alert(hub, LOCAL, rule, wrong)
        assert (await get_alert(hub, LOCAL, rule)) == changed

    with_mail(database, use, 25)


async def test_a_service_without_a_mail_server_names_the_missing_setting(hub: Hub) -> None:
    with pytest.raises(Refusal) as caught:
        await a_rule(hub)
    assert caught.value.code == "CONFLICT" and "--smtp-host" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        ({"smtp_host": "mail"}, {}, "--smtp-from"),
        ({"smtp_host": "mail", "smtp_from": "a@b.c", "smtp_user": "u"}, {}, "PROCTOR_SMTP_PASSWORD"),
        ({"smtp_host": "mail", "smtp_from": "a@b.c"}, {"PROCTOR_SMTP_PASSWORD": "p"}, "--smtp-user"),
        ({"smtp_host": "m", "smtp_from": "a@b.c", "smtp_user": "u", "smtp_security": "none"}, {"PROCTOR_SMTP_PASSWORD": "p"}, "encrypted"),
        ({"smtp_from": "Team <a@b.c>"}, {}, "e-mail address without a name"),
        ({"smtp_security": "ssl"}, {}, "starttls, tls or none"),
        ({"smtp_port": "0"}, {}, "from 1 to 65535"),
        ({"public_url": "proctor.example.com"}, {}, "https://"),
    ],
)
def test_incomplete_mail_settings_are_refused_at_the_start(
    flags: dict[str, str], environment: dict[str, str], message: str, tmp_path: Any
) -> None:
    with pytest.raises(InputError, match=message):
        read_settings(flags, environment, lambda _: tmp_path)


def test_complete_mail_settings_are_read(tmp_path: Any) -> None:
    flags = {"smtp_host": "mail.example.com", "smtp_user": "u", "smtp_from": "a@b.c", "public_url": "https://p.example/ui-of/"}
    found = read_settings(flags, {"PROCTOR_SMTP_PASSWORD": "p"}, lambda _: tmp_path).service
    assert (found.smtp_port, found.smtp_security, found.smtp_password, found.public_url) == (
        587,
        "starttls",
        "p",
        "https://p.example/ui-of",
    )


# --- the rule over scheduled runs


def test_a_scheduled_run_that_fails_or_does_not_start_fires(database: TestDatabase) -> None:
    clock = Clock(START)

    async def use(hub: Hub) -> None:
        schedule, other = await a_schedule(hub), await a_schedule(hub)
        project = (await get_schedule(hub, LOCAL, schedule))["project_id"]
        own = {"project_id": project, "kind": "scheduled_run", "webhook_url": HOOK}
        rule = (await create_alert(hub, LOCAL, NewAlert(name="all", **own, settings={"window_s": 5_400})))["id"]  # type: ignore[arg-type]
        one = (await create_alert(hub, LOCAL, NewAlert(name="other", **own, settings={"schedule_id": other})))["id"]  # type: ignore[arg-type]

        async def check() -> list[str | None]:
            await check_rules(hub)
            return [(await get_alert(hub, LOCAL, id))["state"] for id in (rule, one)]

        assert await check() == ["quiet", "quiet"]
        clock.now = at("2026-11-18T11:00")
        await start_due_runs(hub)
        async with hub.database.writing() as connection:
            over = {"status": "completed", "outcome": "pass", "completed_at": hub.now()}
            await connection.execute(sa.update(runs).values(over))
        assert await check() == ["quiet", "quiet"], "a run that passed"
        await update_project(hub, LOCAL, project, {"settings": {}})
        clock.now = at("2026-11-18T12:00")
        await start_due_runs(hub)
        assert await check() == ["firing", "quiet"], "it did not start"
        (message,) = (await list_deliveries(hub, LOCAL, rule))["data"]
        assert message["payload"]["observed"] == {"results": 2, "passed": 1, "missing_evidence": 0}
        await update_project(hub, LOCAL, project, {"settings": {"targets": {"shop": TARGET}}})
        run = await run_now(hub, LOCAL, schedule)
        async with hub.database.writing() as connection:
            over = {"status": "completed", "outcome": "fail", "completed_at": hub.now()}
            await connection.execute(sa.update(runs).where(runs.c.id == run["id"]).values(over))
        clock.now = at("2026-11-18T13:31")
        assert await check() == ["quiet", "quiet"], "the window has passed"
        preview = await preview_alert(
            hub, LOCAL, AlertDraft(project_id=project, kind="scheduled_run", settings={"window_s": 5_400}, days=1)
        )
        assert (preview["results"], preview["fired"]) == (3, 1)

    database.run_hub(use, clock=clock, allowed_addresses=("127.0.0.1",))


def test_a_rule_names_a_schedule_that_exists(database: TestDatabase) -> None:
    async def use(hub: Hub) -> None:
        with pytest.raises(Refusal, match="schedule"):
            await a_rule(hub, kind="scheduled_run", settings={"schedule_id": "sch_gone"})

    with_mail(database, use, 25)
