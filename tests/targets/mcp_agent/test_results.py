"""The complete result of a tool reaches the model and the evidence: every content block, structured content, and failures."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.llm.ports import ChatReply
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.targets.mcp.agent import AgentSettings, McpAgent
from proctor.targets.mcp.results import can_be_written, mend_texts
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import ServerSettings
from tests.targets.cart_server import PICTURE, SOUND, cart_server
from tests.targets.mcp_agent.test_sessions import cart
from tests.targets.mcp_twins import ROOT, ScriptedModel, attempt, calls, run

RESULTS: dict[str, dict[str, Any]] = {
    "total": {"content": [], "structuredContent": {"total": 3, "currency": "EUR"}},
    "mixed": {"content": [{"type": "text", "text": "see the data"}], "structuredContent": {"secret": 42}},
    "refuse": {"content": [{"type": "text", "text": "out of stock"}], "structuredContent": {"left": 0}, "isError": True},
    "everything": {
        "content": [
            {"type": "text", "text": "a picture:"},
            {"type": "image", "data": PICTURE, "mimeType": "image/png"},
            {"type": "audio", "data": SOUND, "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "note://1", "text": "buy tea", "mimeType": "text/plain"}},
            {"type": "resource_link", "uri": "https://shop.example/note/2", "name": "note two"},
        ],
        "structuredContent": {"blocks": 5},
    },
}
ARGUMENTS: dict[str, dict[str, Any]] = {"total": {"ids": [1, 2]}}


def ask(server: ServerSettings, *tools: str, **settings: Any) -> tuple[Evidence, list[str]]:
    """The evidence of calling these tools, and the text that the model received for each."""
    model = ScriptedModel(calls(*((tool, ARGUMENTS.get(tool, {})) for tool in tools)), ChatReply(text="done"))

    async def work() -> Evidence:
        target = McpAgent(
            "agent", servers=McpServers([server], waits_s=()), model_for=lambda _tape: model, settings=AgentSettings(**settings)
        )
        await target.open()
        try:
            return await target.run(attempt(Case(id="c", input="go")), LIVE)
        finally:
            await target.close()

    evidence = run(work())
    return evidence, [message.text for message in model.requests[1].messages if message.role == "tool"]


def whole(result: dict[str, Any]) -> dict[str, Any]:
    """A result as a server of the Python package writes it: `isError` is always present."""
    return {**result, "isError": result.get("isError", False)}


def check_whole(server: ServerSettings) -> None:
    evidence, shown = ask(server, *RESULTS)
    for call, text in zip(evidence.tool_calls or (), shown, strict=True):
        assert json.loads(text) == call.result == whole(RESULTS[call.name]), call.name
        assert text == json.dumps(call.result, separators=(",", ":"), ensure_ascii=False), "compact JSON, as the originals send it"
    failed = [call.name for call in evidence.tool_calls or () if call.failed()]
    assert failed == ["refuse"] and (evidence.tool_calls or ())[2].failure() == "out of stock"


def test_a_result_reaches_model_and_evidence_whole() -> None:
    check_whole(ServerSettings(id="cart", transport="in_process", server=cart_server()))


@pytest.mark.live
@pytest.mark.timeout(60)
@pytest.mark.parametrize("era", ["auto", "handshake"])
def test_a_result_over_stdio_reaches_model_and_evidence_whole(era: Any) -> None:
    check_whole(ServerSettings(id="cart", command=sys.executable, args=("-m", "tests.targets.cart_server"), cwd=ROOT, era=era))


def test_a_failed_call_is_reported_as_the_settings_say() -> None:
    server = ServerSettings(id="cart", transport="in_process", server=cart_server())
    _, (text,) = ask(server, "no_such_tool")
    _, (as_json,) = ask(server, "no_such_tool", tool_errors="json")
    assert text.startswith("Error: there is no tool")
    assert list(json.loads(as_json)) == ["error"] and json.loads(as_json)["error"] == text.removeprefix("Error: ")


def test_half_a_surrogate_pair_in_a_result_is_replaced() -> None:
    evidence, (shown,) = ask(cart(), "half")
    (call,) = evidence.tool_calls or ()
    assert call.result == {
        "content": [{"type": "text", "text": "an emoji cut in two: \ufffd"}],
        "structuredContent": {"cut\ufffd": "\ufffd"},
    }, "what a server does not say is not added"
    assert json.loads(shown) == call.result


def test_half_a_surrogate_pair_in_arguments_is_a_failed_call() -> None:
    model = ScriptedModel(calls(("add", {"item": "a\ud800"})), ChatReply(text="done"))

    async def work() -> Evidence:
        target = McpAgent("agent", servers=McpServers([cart()], waits_s=()), model_for=lambda _tape: model)
        await target.open()
        try:
            return await target.run(attempt(Case(id="c", input="go")), LIVE)
        finally:
            await target.close()

    (call,) = run(work()).tool_calls or ()
    assert call.error == "the arguments contain a lone surrogate, which cannot be sent"


def test_only_invalid_values_are_replaced() -> None:
    good = {"a": ["é", {"b": "😀"}], "n": 1.5}
    assert mend_texts(good) is good and can_be_written(good)
    assert mend_texts({"a\ud800": ["x\udc00y", 1, None]}) == {"a\ufffd": ["x\ufffdy", 1, None]}
