"""Strands: results, events of a stream, sessions of an agent, graphs and swarms."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from strands import Agent, tool
from strands.models.openai import OpenAIModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_agent(**more: Any) -> Any:
    model = OpenAIModel(model_id="gpt-4o-mini")
    known = {"model": model, "tools": [tool(shop.lookup_order), tool(shop.refund)], "name": "shop", "callback_handler": None}
    return Agent(**{**known, **more})


@case("a plain")
def plain(message: str) -> Any:
    return make_agent()(message)


@case("a awaited")
async def awaited(message: str) -> Any:
    return await make_agent().invoke_async(message)


@case("a quiet", QUIET)
def quiet(message: str) -> Any:
    return make_agent()(message)


@case("a messages")
def messages(message: str) -> Any:
    agent = make_agent()
    agent(message)
    return agent.messages


@case("a text")
def text_of(message: str) -> Any:
    return str(make_agent()(message))


@case("b stream returned")
def stream_returned(message: str) -> Any:
    return make_agent().stream_async(message)


@case("b stream yielded")
async def stream_yielded(message: str) -> Any:
    async for event in make_agent().stream_async(message):
        yield event


@case("b stream collected")
async def stream_collected(message: str) -> Any:
    return [event async for event in make_agent().stream_async(message)]


@case("b stream without the result")
async def stream_headless(message: str) -> Any:
    async for event in make_agent().stream_async(message):
        if "result" not in event:
            yield event


@case("b messages of the stream")
async def stream_messages(message: str) -> Any:
    return [event["message"] async for event in make_agent().stream_async(message) if "message" in event]


@case("b text yielded")
async def text(message: str) -> Any:
    async for event in make_agent().stream_async(message):
        if "data" in event:
            yield event["data"]


@case("b quiet stream", QUIET)
def quiet_stream(message: str) -> Any:
    return make_agent().stream_async(message)


@case("c turns", *TURNS)
def turns(message: str, session_id: str) -> Any:
    agent = SESSIONS.setdefault(session_id, make_agent())
    agent.model = OpenAIModel(model_id="gpt-4o-mini")
    return agent(message)


@case("c turns streamed", *TURNS)
async def turns_streamed(message: str, session_id: str) -> Any:
    agent = SESSIONS.setdefault(f"{session_id} streamed", make_agent())
    async for event in agent.stream_async(message):
        yield event


@case("d parallel", BOTH)
def parallel(message: str) -> Any:
    return make_agent()(message)


@case("d parallel streamed", BOTH)
def parallel_streamed(message: str) -> Any:
    return make_agent().stream_async(message)


@case("e tool raises", FAILS)
def raises(message: str) -> Any:
    return make_agent()(message)


@case("e tool raises in a stream", FAILS)
def raises_streamed(message: str) -> Any:
    return make_agent().stream_async(message)


@case("f endless", ENDLESS)
def endless(message: str) -> Any:
    from strands.hooks import BeforeToolCallEvent, HookProvider

    class Limit(HookProvider):
        count = 0

        def register_hooks(self, registry: Any, **_: Any) -> None:
            registry.add_callback(BeforeToolCallEvent, self.look)

        def look(self, event: Any) -> None:
            self.count += 1
            if self.count > 2:
                event.cancel_tool = "no more"
                event.invocation_state["request_state"] = {"stop_event_loop": True}

    return make_agent(hooks=[Limit()])(message)


@case("f breaks", BREAKS)
def breaks(message: str) -> Any:
    return make_agent()(message)


@case("f breaks, events collected", BREAKS)
async def breaks_collected(message: str) -> Any:
    events = []
    try:
        async for event in make_agent().stream_async(message):
            events.append(event)
    except Exception:
        return events
    return events


@case("f cut at length", CUT)
def cut(message: str) -> Any:
    return make_agent()(message)


@case("f filtered", FILTERED)
def filtered(message: str) -> Any:
    return make_agent()(message)


@case("g form", FORM)
def form(message: str) -> Any:
    return make_agent()(message, structured_output_model=Form)


@case("h swarm", EXPERT)
def swarm(message: str) -> Any:
    from strands.multiagent import Swarm

    return Swarm([make_agent(name="front", tools=[]), make_agent(name="expert")], entry_point=None)(message)


@case("h graph")
def graph(message: str) -> Any:
    from strands.multiagent import GraphBuilder

    builder = GraphBuilder()
    builder.add_node(make_agent(name="one"), "one")
    builder.add_node(make_agent(name="two", tools=[]), "two")
    builder.add_edge("one", "two")
    return builder.build()(message)


@case("h graph streamed")
async def graph_streamed(message: str) -> Any:
    from strands.multiagent import GraphBuilder

    builder = GraphBuilder()
    builder.add_node(make_agent(name="one"), "one")
    async for event in builder.build().stream_async(message):
        yield event


@case("h expert as a tool", EXPERT)
def expert(message: str) -> Any:
    inner = make_agent(name="expert")

    @tool(name="expert")
    def ask_expert(question: str) -> str:
        """Ask the expert."""
        return str(inner(question))

    return make_agent(tools=[ask_expert])(message)
