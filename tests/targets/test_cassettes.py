"""Targets with a real cassette: recorded once, replayed under other ids without a server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proctor.cassettes.cassette import open_tape
from proctor.errors import TargetError
from proctor.model.evidence import Evidence
from proctor.targets.build import build_target
from tests.targets.loopback import ReceivedRequest, Reply, attempt, serve

SECRET = "token-that-must-stay-here"


async def drive(settings: dict[str, Any], go: Any, tape: Any) -> Evidence:
    target = build_target("shop", settings)
    await target.open()
    try:
        return await target.run(go, tape)
    finally:
        await target.close()


def test_a_run_is_recorded_without_secrets_and_replayed_without_a_server(tmp_path: Path) -> None:
    path = tmp_path / "shop.cassette.jsonl"

    def answer(request: ReceivedRequest) -> Reply:
        if request.json["m"] == "break":
            return Reply(raw=b"")
        return Reply(body={"text": f"{request.json['m']} for {request.headers['x-request-id']}", "usage": {"total_tokens": 3}})

    async def record() -> tuple[dict[str, Any], Evidence, TargetError]:
        async with serve(answer) as server:
            auth = {"type": "bearer", "token": SECRET}
            settings = {"type": "http", "url": f"{server.url}/chat", "auth": auth, "template": {"m": "{input}", "s": "{session_id}"}}
            with open_tape(path, "record") as cassette:
                evidence = await drive(settings, attempt("one", "two"), cassette.scope("case-1", 0))
                with pytest.raises(TargetError) as caught:
                    await drive(settings, attempt("one", "break"), cassette.scope("case-2", 0))
            return settings, evidence, caught.value

    async def replay(settings: dict[str, Any]) -> tuple[Evidence, TargetError]:
        with open_tape(path, "replay") as cassette:
            evidence = await drive(settings, attempt("one", "two", marker="b"), cassette.scope("case-1", 0))
            with pytest.raises(TargetError) as caught:
                await drive(settings, attempt("one", "break", marker="b"), cassette.scope("case-2", 0))
            return evidence, caught.value

    settings, recorded, fault = asyncio.run(record())
    assert SECRET not in path.read_text(encoding="utf-8")
    replayed, same_fault = asyncio.run(replay(settings))
    assert recorded.turns is not None and replayed.turns is not None
    assert [turn.text for turn in replayed.turns] == ["one for request-b-0001-1", "two for request-b-0001-2"]
    assert (replayed.duration_ms, replayed.usage) == (recorded.duration_ms, recorded.usage)
    assert (same_fault.code, same_fault.message) == (fault.code, fault.message)
    assert fault.message.startswith("turn 2 of 2: POST http://127.0.0.1:")
