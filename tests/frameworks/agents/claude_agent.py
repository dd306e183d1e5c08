"""claude-agent-sdk with tools of an in-process MCP server; the package brings the command line that talks to the model."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import shared_loop


def prepare(settings: dict[str, Any]) -> Any:
    from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

    os.environ["ANTHROPIC_BASE_URL"] = os.environ["MODEL_URL"]
    # The command line refuses to run as root without this setting.
    os.environ["IS_SANDBOX"] = "1"

    def as_tool(name: str) -> Any:
        @tool(name, shop.describe(name), shop.PARAMETERS[name])
        async def call(arguments: dict[str, Any]) -> dict[str, Any]:
            result, failed = shop.use(name, arguments)
            return {"content": [{"type": "text", "text": result}], **({"is_error": True} if failed else {})}

        return call

    def make() -> Conversation:
        server = create_sdk_mcp_server(name="shop", tools=[as_tool(name) for name in shop.TOOLS])
        options = ClaudeAgentOptions(
            system_prompt=shop.SYSTEM,
            model=shop.ANTHROPIC_MODEL,
            mcp_servers={"shop": server},
            allowed_tools=[f"mcp__shop__{name}" for name in shop.TOOLS],
            permission_mode="bypassPermissions",
            max_turns=8,
            setting_sources=[],
            env={
                "ANTHROPIC_BASE_URL": os.environ["MODEL_URL"],
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_TELEMETRY": "1",
                "ENABLE_TOOL_SEARCH": "false",
                **settings.get("cli_env", {}),
            },
        )
        return Conversation(options)

    return make


class Conversation:
    """One conversation."""

    def __init__(self, options: Any) -> None:
        from claude_agent_sdk import ClaudeSDKClient

        self.client = ClaudeSDKClient(options)
        self.open = False

    def ask(self, text: str, streamed: bool) -> str:
        return shared_loop().run_until_complete(self.run(text))

    async def run(self, text: str) -> str:
        if not self.open:
            await self.client.connect()
            self.open = True
        await self.client.query(text)
        answer = ""
        async for message in self.client.receive_response():
            if type(message).__name__ == "ResultMessage":
                answer = str(message.result)
        return answer

    def close(self) -> None:
        shared_loop().run_until_complete(self.client.disconnect())
