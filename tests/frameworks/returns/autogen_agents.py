"""AutoGen: results of tasks, streams, responses, teams with handoffs."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Handoff
from autogen_agentchat.conditions import ExternalTermination, MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_agent(name: str = "shop", **more: Any) -> Any:
    model = OpenAIChatCompletionClient(model="gpt-4o-mini", include_name_in_message=False)
    tools = [FunctionTool(function, description=function.__doc__ or "") for function in (shop.lookup_order, shop.refund)]
    return AssistantAgent(name, model, **{"tools": tools, "max_tool_iterations": 5, **more})


@case("a plain")
async def plain(message: str) -> Any:
    return await make_agent().run(task=message)


@case("a quiet", QUIET)
async def quiet(message: str) -> Any:
    return await make_agent().run(task=message)


@case("a response")
async def response(message: str) -> Any:
    return await make_agent().on_messages([TextMessage(content=message, source="user")], CancellationToken())


@case("a last message")
async def last_message(message: str) -> Any:
    return (await make_agent().run(task=message)).messages[-1]


@case("a one step")
async def one_step(message: str) -> Any:
    return await make_agent(max_tool_iterations=1).run(task=message)


@case("b stream returned")
def stream_returned(message: str) -> Any:
    return make_agent().run_stream(task=message)


@case("b stream yielded")
async def stream_yielded(message: str) -> Any:
    async for item in make_agent().run_stream(task=message):
        yield item


@case("b stream collected")
async def stream_collected(message: str) -> Any:
    return [item async for item in make_agent().run_stream(task=message)]


@case("b stream without the result")
async def stream_headless(message: str) -> Any:
    async for item in make_agent().run_stream(task=message):
        if type(item).__name__ != "TaskResult":
            yield item


@case("b streamed model")
def streamed_model(message: str) -> Any:
    return make_agent(model_client_stream=True).run_stream(task=message)


@case("b chunks only")
async def chunks_only(message: str) -> Any:
    async for item in make_agent(model_client_stream=True).run_stream(task=message):
        if type(item).__name__ == "ModelClientStreamingChunkEvent":
            yield item


@case("b responses stream")
def responses_stream(message: str) -> Any:
    return make_agent().on_messages_stream([TextMessage(content=message, source="user")], CancellationToken())


@case("b quiet stream", QUIET)
def quiet_stream(message: str) -> Any:
    return make_agent().run_stream(task=message)


@case("c turns", *TURNS)
async def turns(message: str, session_id: str) -> Any:
    agent = make_agent()
    if session_id in SESSIONS:
        await agent.load_state(SESSIONS[session_id])
    result = await agent.run(task=message)
    SESSIONS[session_id] = await agent.save_state()
    return result


@case("c turns streamed", *TURNS)
async def turns_streamed(message: str, session_id: str) -> Any:
    agent, key = make_agent(), f"{session_id} streamed"
    if key in SESSIONS:
        await agent.load_state(SESSIONS[key])
    async for item in agent.run_stream(task=message):
        yield item
    SESSIONS[key] = await agent.save_state()


@case("d parallel", BOTH)
async def parallel(message: str) -> Any:
    return await make_agent().run(task=message)


@case("e tool raises", FAILS)
async def raises(message: str) -> Any:
    return await make_agent().run(task=message)


@case("f endless", ENDLESS)
async def endless(message: str) -> Any:
    return await make_agent(max_tool_iterations=2).run(task=message)


@case("f breaks", BREAKS)
async def breaks(message: str) -> Any:
    return await make_agent().run(task=message)


@case("f team cut short", ENDLESS)
async def cut_short(message: str) -> Any:
    team = RoundRobinGroupChat([make_agent(max_tool_iterations=1)], termination_condition=MaxMessageTermination(3))
    return await team.run(task=message)


@case("f cut at length", CUT)
async def cut(message: str) -> Any:
    return await make_agent().run(task=message)


@case("f filtered", FILTERED)
async def filtered(message: str) -> Any:
    return await make_agent().run(task=message)


@case("f team at max_turns", ENDLESS)
async def team_turns(message: str) -> Any:
    return await RoundRobinGroupChat([make_agent(max_tool_iterations=1)], max_turns=2).run(task=message)


@case("f team at max_turns, streamed", ENDLESS)
def team_turns_streamed(message: str) -> Any:
    return RoundRobinGroupChat([make_agent(max_tool_iterations=1)], max_turns=2).run_stream(task=message)


@case("f team stopped from outside", ENDLESS)
async def team_stopped(message: str) -> Any:
    stop = ExternalTermination()
    team = RoundRobinGroupChat([make_agent(max_tool_iterations=1)], termination_condition=stop, max_turns=9)
    async for item in team.run_stream(task=message):
        stop.set()
        yield item


@case("f team that ends by its word")
async def team_ends(message: str) -> Any:
    team = RoundRobinGroupChat([make_agent()], termination_condition=TextMentionTermination("shipped", sources=["shop"]), max_turns=5)
    return await team.run(task=message)


@case("g form", FORM)
async def form(message: str) -> Any:
    strict = FunctionTool(shop.lookup_order, description="Look up an order", strict=True)
    return await make_agent(output_content_type=Form, tools=[strict]).run(task=message)


@case("h swarm", EXPERT)
async def swarm(message: str) -> Any:
    front = make_agent("front", tools=[], handoffs=[Handoff(target="expert")])
    team = Swarm([front, make_agent("expert")], termination_condition=TextMentionTermination("shipped", sources=["expert"]), max_turns=4)
    return await team.run(task=message)


@case("h swarm streamed", EXPERT)
async def swarm_streamed(message: str) -> Any:
    front = make_agent("front", tools=[], handoffs=[Handoff(target="expert")])
    team = Swarm([front, make_agent("expert")], termination_condition=TextMentionTermination("shipped", sources=["expert"]), max_turns=4)
    async for item in team.run_stream(task=message):
        yield item


@case("h expert as a tool", EXPERT)
async def expert(message: str) -> Any:
    from autogen_agentchat.tools import AgentTool

    inner = make_agent("expert", description="Knows orders")
    return await make_agent(tools=[AgentTool(agent=inner)]).run(task=message)
