"""LlamaIndex: outputs of workflows, handlers and their events, contexts, handoffs."""

from __future__ import annotations

from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from llama_index.llms.openai import OpenAI
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_model() -> Any:
    import os

    return OpenAI(model="gpt-4o-mini", api_base=os.environ["OPENAI_BASE_URL"], max_retries=0)


def make_agent(**more: Any) -> Any:
    tools = [FunctionTool.from_defaults(function) for function in (shop.lookup_order, shop.refund)]
    return FunctionAgent(**{"tools": tools, "llm": make_model(), "name": "shop", "description": "Shop", **more})


@case("a plain")
async def plain(message: str) -> Any:
    return await make_agent().run(message)


@case("a quiet", QUIET)
async def quiet(message: str) -> Any:
    return await make_agent().run(message)


@case("a without streaming")
async def unstreamed(message: str) -> Any:
    return await make_agent(streaming=False).run(message)


@case("a text")
async def text_of(message: str) -> Any:
    return str(await make_agent().run(message))


@case("b handler returned")
async def handler_returned(message: str) -> Any:
    return make_agent().run(message)


@case("b events returned")
async def events_returned(message: str) -> Any:
    return make_agent().run(message).stream_events()


@case("b events yielded")
async def events_yielded(message: str) -> Any:
    async for event in make_agent().run(message).stream_events():
        yield event


@case("b events collected")
async def events_collected(message: str) -> Any:
    return [event async for event in make_agent().run(message).stream_events()]


@case("b events and result yielded")
async def events_and_result(message: str) -> Any:
    handler = make_agent().run(message)
    async for event in handler.stream_events():
        yield event
    yield await handler


@case("b text yielded")
async def text(message: str) -> Any:
    async for event in make_agent().run(message).stream_events():
        if type(event).__name__ == "AgentStream":
            yield event.delta


@case("b pieces yielded")
async def pieces(message: str) -> Any:
    async for event in make_agent().run(message).stream_events():
        if type(event).__name__ == "AgentStream":
            yield event


@case("b quiet events", QUIET)
async def quiet_events(message: str) -> Any:
    async for event in make_agent().run(message).stream_events():
        yield event


@case("c turns", *TURNS)
async def turns(message: str, session_id: str) -> Any:
    agent = make_agent()
    context = SESSIONS.get(session_id)
    context = Context(agent) if context is None else Context.from_dict(agent, context)
    result = await agent.run(message, ctx=context)
    SESSIONS[session_id] = context.to_dict()
    return result


@case("c turns of events", *TURNS)
async def turns_events(message: str, session_id: str) -> Any:
    agent, key = make_agent(), f"{session_id} events"
    context = SESSIONS.get(key)
    context = Context(agent) if context is None else Context.from_dict(agent, context)
    handler = agent.run(message, ctx=context)
    async for event in handler.stream_events():
        yield event
    await handler
    SESSIONS[key] = context.to_dict()


@case("d parallel", BOTH)
async def parallel(message: str) -> Any:
    return await make_agent().run(message)


@case("d parallel events", BOTH)
async def parallel_events(message: str) -> Any:
    async for event in make_agent().run(message).stream_events():
        yield event


@case("e tool raises", FAILS)
async def raises(message: str) -> Any:
    return await make_agent().run(message)


@case("e tool raises in events", FAILS)
async def raises_events(message: str) -> Any:
    async for event in make_agent().run(message).stream_events():
        yield event


@case("f endless", ENDLESS)
async def endless(message: str) -> Any:
    return await make_agent().run(message, max_iterations=2)


@case("f endless, answered early", ENDLESS)
async def endless_early(message: str) -> Any:
    return await make_agent(early_stopping_method="generate").run(message, max_iterations=2)


@case("f breaks", BREAKS)
async def breaks(message: str) -> Any:
    return await make_agent().run(message)


@case("f breaks, events collected", BREAKS)
async def breaks_collected(message: str) -> Any:
    events = []
    handler = make_agent().run(message)
    try:
        async for event in handler.stream_events():
            events.append(event)
        await handler
    except Exception:
        return events
    return events


@case("f cut at length", CUT)
async def cut(message: str) -> Any:
    return await make_agent().run(message)


@case("f filtered", FILTERED)
async def filtered(message: str) -> Any:
    return await make_agent().run(message)


@case("f cut at length, not streamed", CUT)
async def cut_whole(message: str) -> Any:
    return await make_agent(streaming=False).run(message)


@case("f cut at length, events", CUT)
async def cut_events(message: str) -> Any:
    return make_agent().run(message).stream_events()


@case("f endless, answered early, events", ENDLESS)
async def endless_early_events(message: str) -> Any:
    return make_agent(early_stopping_method="generate").run(message, max_iterations=2).stream_events()


@case("g form", FORM)
async def form(message: str) -> Any:
    return await make_agent(output_cls=Form).run(message)


def make_team() -> Any:
    front = make_agent(name="front", tools=[], can_handoff_to=["expert"])
    return AgentWorkflow(agents=[front, make_agent(name="expert")], root_agent="front")


@case("h handoff", EXPERT)
async def handoff(message: str) -> Any:
    return await make_team().run(message)


@case("h handoff events", EXPERT)
async def handoff_events(message: str) -> Any:
    async for event in make_team().run(message).stream_events():
        yield event
