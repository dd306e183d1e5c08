"""A tool server that dies during a call: the case is an error with the server's last output, whatever its checks decide."""

from __future__ import annotations

import pytest

import proctor
from proctor.cassettes.ports import LIVE
from proctor.decide.prepare import PreparedSuite
from proctor.model.evidence import Evidence
from proctor.model.result import CaseResult
from proctor.targets.mcp.agent import McpAgent
from proctor.targets.mcp.servers import McpServers
from proctor.targets.mcp.settings import ServerSettings
from tests.targets.dying_http import dying_server
from tests.targets.mcp_agent.test_agent import DONE, attempt, calls
from tests.targets.mcp_twins import ScriptedModel, bare_shop, run

CHECKS = {
    "a negative claim that holds": "response_not_contains: sorry",
    "a forbidden tool that was not called": "tool_not_called: delete",
    "a positive claim that holds": "tool_called: search",
    "a claim that certainly fails": "tool_called: checkout",
    "a forbidden tool that was called": "tool_not_called: search",
    "no claim at all": "",
}


async def died_in_a_call(settings: ServerSettings) -> Evidence:
    model = ScriptedModel(calls(("search", {"query": "tea"}), ("die", {})), DONE)
    agent = McpAgent("agent", servers=McpServers([settings], waits_s=()), model_for=lambda _tape: model)
    await agent.open()
    try:
        return await agent.run(attempt(), LIVE)
    finally:
        await agent.close()


def decide(evidence: Evidence, check: str) -> CaseResult:
    suite = proctor.parse_suite(f"{{proctor: 1, cases: [{{id: a, input: hi, expect: [{check}]}}]}}")
    (case,) = PreparedSuite(suite).cases
    return case.decide(evidence)


@pytest.fixture(scope="module")
def over_stdio() -> Evidence:
    return run(died_in_a_call(bare_shop()))


@pytest.fixture(scope="module")
def over_http() -> Evidence:
    async def main() -> Evidence:
        async with dying_server() as url:
            return await died_in_a_call(ServerSettings(id="shop", transport="http", url=url, era="handshake"))

    return run(main())


@pytest.mark.parametrize("check", CHECKS.values(), ids=list(CHECKS))
def test_a_server_that_dies_over_stdio_makes_the_case_an_error_with_its_last_words(over_stdio: Evidence, check: str) -> None:
    result = decide(over_stdio, check)
    assert (result.outcome, result.code, result.score) == ("error", "server_gone", None)
    assert "exit code 3" in str(result.reason) and "the shop is open" in str(result.reason)


@pytest.mark.parametrize("check", CHECKS.values(), ids=list(CHECKS))
def test_a_server_that_dies_over_http_makes_the_case_an_error(over_http: Evidence, check: str) -> None:
    result = decide(over_http, check)
    assert (result.outcome, result.code) == ("error", "server_gone"), (result, over_http.error)
    assert "'shop'" in str(result.reason)
