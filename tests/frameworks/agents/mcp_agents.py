"""Agents whose tools come from an MCP server over stdio."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.frameworks import shop
from tests.frameworks.agents import openai_sdk, shared_loop

COMMAND = ["-m", "tests.frameworks.mcp_shop"]


def prepare(settings: dict[str, Any]) -> Any:
    return lambda: Conversation(MAKERS[settings["framework"]](settings))


class Conversation:
    """One conversation: a maker returns a generator that takes inputs and yields answers, and runs in one task."""

    def __init__(self, talk: Any) -> None:
        self.talk = talk

    def ask(self, text: str, streamed: bool) -> str:
        return str(shared_loop().run_until_complete(self.talk(text, streamed)))


def pydantic_ai(settings: dict[str, Any]) -> Any:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset

    from tests.frameworks.agents.pydantic_ai_agent import make_model

    Agent.instrument_all()
    history: list[Any] = []

    async def talk(text: str, streamed: bool) -> str:
        transport = StdioTransport(sys.executable, COMMAND, env=dict(os.environ), keep_alive=False)
        agent = Agent(make_model(settings), name="shop_agent", instructions=shop.SYSTEM, toolsets=[MCPToolset(transport, init_timeout=60)])
        async with agent:
            if streamed:
                async with agent.run_stream(text, message_history=history) as result:
                    answer = str(await result.get_output())
            else:
                result = await agent.run(text, message_history=history)
                answer = str(result.output)
        history[:] = result.all_messages()
        return answer

    return talk


def openai_agents(settings: dict[str, Any]) -> Any:
    from agents import Agent, OpenAIResponsesModel, Runner
    from agents.mcp import MCPServerStdio
    from openai import AsyncOpenAI

    history: list[Any] = []

    async def talk(text: str, streamed: bool) -> str:
        client = AsyncOpenAI(base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-none")
        async with MCPServerStdio(
            params={"command": sys.executable, "args": COMMAND, "env": dict(os.environ)}, name="shop", client_session_timeout_seconds=60
        ) as server:
            agent = Agent(
                name="Shop agent",
                instructions=shop.SYSTEM,
                mcp_servers=[server],
                model=OpenAIResponsesModel(model=shop.MODEL, openai_client=client),
            )
            given = [*history, {"role": "user", "content": text}]
            if streamed:
                result = Runner.run_streamed(agent, given)
                async for _ in result.stream_events():
                    pass
            else:
                result = await Runner.run(agent, given)
        history[:] = result.to_input_list()
        return str(result.final_output)

    return talk


def langchain(settings: dict[str, Any]) -> Any:
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    from tests.frameworks.agents.langchain_agent import make_model

    state: dict[str, Any] = {"messages": []}

    async def talk(text: str, streamed: bool) -> str:
        client = MultiServerMCPClient({"shop": {"transport": "stdio", "command": sys.executable, "args": COMMAND, "env": dict(os.environ)}})
        async with client.session("shop") as session:
            tools = await load_mcp_tools(session)
            for tool in tools:
                tool.handle_tool_error = True
            agent = create_agent(make_model(settings), tools, system_prompt=shop.SYSTEM, name="shop_agent")
            given = {"messages": [*state["messages"], HumanMessage(text)]}
            if streamed:
                async for kind, chunk in agent.astream(given, stream_mode=["messages", "values"]):
                    if kind == "values":
                        state["messages"] = chunk["messages"]
            else:
                state["messages"] = (await agent.ainvoke(given))["messages"]
        return str(state["messages"][-1].text)

    return talk


def strands(settings: dict[str, Any]) -> Any:
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client
    from strands import Agent
    from strands.models.openai import OpenAIModel
    from strands.tools.mcp import MCPClient

    history: list[Any] = []

    async def talk(text: str, streamed: bool) -> str:
        model = OpenAIModel(client_args={"api_key": "sk-none", "base_url": os.environ["MODEL_URL"] + "/v1"}, model_id=shop.MODEL)
        client = MCPClient(lambda: stdio_client(StdioServerParameters(command=sys.executable, args=COMMAND, env=dict(os.environ))))
        with client:
            agent = Agent(
                model=model,
                tools=client.list_tools_sync(),
                system_prompt=shop.SYSTEM,
                name="shop_agent",
                callback_handler=None,
                messages=list(history),
            )
            answer = str(await agent.invoke_async(text)).strip()
        history[:] = agent.messages
        return answer

    return talk


def agent_framework(settings: dict[str, Any]) -> Any:
    from agent_framework import Agent, MCPStdioTool
    from agent_framework.observability import enable_instrumentation
    from agent_framework.openai import OpenAIChatCompletionClient

    enable_instrumentation(enable_sensitive_data=True)
    state: dict[str, Any] = {}

    async def talk(text: str, streamed: bool) -> str:
        client = OpenAIChatCompletionClient(model=shop.MODEL, api_key="sk-none", base_url=os.environ["MODEL_URL"] + "/v1")
        async with MCPStdioTool(
            name="shop", command=sys.executable, args=COMMAND, env=dict(os.environ), approval_mode="never_require"
        ) as tool:
            agent = Agent(client, instructions=shop.SYSTEM, name="shop_agent", tools=[tool])
            session = state.setdefault("session", agent.create_session())
            if not streamed:
                return str((await agent.run(text, session=session)).text)
            stream = agent.run(text, session=session, stream=True)
            async for _ in stream:
                pass
            return str((await stream.get_final_response()).text)

    return talk


def openai(settings: dict[str, Any]) -> Any:
    """The openai package and the MCP client by hand."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    loop = openai_sdk.Chat(openai_sdk.make_client(settings))

    async def talk(text: str, streamed: bool) -> str:
        parameters = StdioServerParameters(command=sys.executable, args=COMMAND, env=dict(os.environ))
        async with stdio_client(parameters) as (reader, writer), ClientSession(reader, writer) as session:
            await session.initialize()
            await session.list_tools()
            loop.history.append({"role": "user", "content": text})
            while True:
                message = loop.stream() if streamed else loop.complete()
                loop.history.append(message)
                if not message.get("tool_calls"):
                    return str(message["content"])
                for call in message["tool_calls"]:
                    result = await session.call_tool(call["function"]["name"], json.loads(call["function"]["arguments"]))
                    content = "\n".join(block.text for block in result.content)
                    loop.history.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    return talk


MAKERS = {
    "pydantic_ai": pydantic_ai,
    "openai_agents": openai_agents,
    "langchain": langchain,
    "strands": strands,
    "agent_framework": agent_framework,
    "openai": openai,
}
