"""What suites that were sent to the service may reach: their models go by a guarded transport."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from proctor.llm.client import Dialect, HttpModel
from proctor.llm.ports import ChatReply, ModelFault
from proctor.llm.settings import ModelSettings
from proctor.service.settings import ServiceSettings
from proctor.service.suites.outbound import Outbound
from tests.llm.provider_server import ScriptedResponse, provider


def guarded_wire(*allowed: str) -> HttpModel:
    outbound = Outbound(ServiceSettings(home=Path("unused"), allowed_addresses=allowed))
    dialect = Dialect(
        provider="any",
        url=lambda _: "http://any",
        headers=lambda _: {"authorization": "Bearer key"},
        body=lambda request, settings, conceded: {},
        reply=lambda answer, request, conceded: ChatReply(),
    )
    return HttpModel(dialect, ModelSettings(provider="any", timeout_s=10), transport=outbound.model_transport)


async def test_a_model_on_this_machine_is_not_reached_and_learns_nothing() -> None:
    async with provider([ScriptedResponse(body={"fine": True})]) as server:
        wire = guarded_wire()
        with pytest.raises(ModelFault, match="this machine itself") as caught:
            await wire.post(server.url, {"a": 1})
        assert caught.value.code == "transport" and server.connections == 0
        await wire.close()


async def test_a_model_that_an_administrator_allowed_is_called_over_reused_connections() -> None:
    async with provider(lambda request: ScriptedResponse(body={"number": request.body["number"]})) as server:
        wire = guarded_wire("127.0.0.1")
        for _ in range(2):
            answers = await asyncio.gather(*(wire.post(server.url, {"number": number}) for number in range(5)))
            assert [answer["number"] for answer in answers] == list(range(5))
        assert server.connections == 5
        await wire.close()
        await server.none_open.wait()


async def test_a_model_that_redirects_to_this_machine_is_not_followed() -> None:
    async with provider([ScriptedResponse(status=302, headers={"location": "http://127.0.0.1:1/secrets"})]) as server:
        wire = guarded_wire("127.0.0.1")
        with pytest.raises(ModelFault, match="redirects are not followed"):
            await wire.post(server.url, {"a": 1})
        assert len(server.requests) == 1
        await wire.close()


def test_certificates_to_trust_are_read_once_for_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    real = httpx2.create_ssl_context
    monkeypatch.setattr(httpx2, "create_ssl_context", lambda **settings: read.append(settings) or real(**settings))
    outbound = Outbound(ServiceSettings(home=Path("unused")))
    for _ in range(3):
        outbound.model_transport(True)
    assert len(read) == 1
