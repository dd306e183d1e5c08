"""Microsoft Agent Framework: responses, streams as they are and yielded, sessions, workflows."""

from __future__ import annotations

from typing import Any

from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_agent(client: Any = OpenAIChatCompletionClient, **more: Any) -> Any:
    tools = [tool(function, approval_mode="never_require") for function in (shop.lookup_order, shop.refund)]
    given = client if not isinstance(client, type) else client(model="gpt-4o-mini")
    return Agent(given, **{"instructions": "You help.", "name": "shop", "tools": tools, **more})


@case("a plain")
async def plain(message: str) -> Any:
    return await make_agent().run(message)


@case("a plain over responses")
async def plain_responses(message: str) -> Any:
    return await make_agent(OpenAIChatClient).run(message)


@case("a promised")
def promised(message: str) -> Any:
    return make_agent().run(message)


@case("a messages")
async def messages(message: str) -> Any:
    return (await make_agent().run(message)).messages


@case("a quiet", QUIET)
async def quiet(message: str) -> Any:
    return await make_agent().run(message)


@case("b stream returned")
def stream_returned(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("b stream returned over responses")
async def stream_returned_responses(message: str) -> Any:
    return make_agent(OpenAIChatClient).run(message, stream=True)


@case("b updates yielded")
async def updates(message: str) -> Any:
    async for update in make_agent().run(message, stream=True):
        yield update


@case("b updates collected")
async def collected(message: str) -> Any:
    return [update async for update in make_agent().run(message, stream=True)]


@case("b stream read, then returned")
async def read_then_returned(message: str) -> Any:
    stream = make_agent().run(message, stream=True)
    async for _ in stream:
        pass
    return stream


@case("b text yielded")
async def text(message: str) -> Any:
    async for update in make_agent().run(message, stream=True):
        if update.text:
            yield update.text


@case("b text updates only")
async def text_updates(message: str) -> Any:
    async for update in make_agent().run(message, stream=True):
        if update.text:
            yield update


@case("b quiet stream", QUIET)
def quiet_stream(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("c turns", *TURNS)
async def turns(message: str, session_id: str) -> Any:
    agent = make_agent()
    session = SESSIONS.setdefault(session_id, agent.create_session())
    return await agent.run(message, session=session)


@case("c turns streamed", *TURNS)
async def turns_streamed(message: str, session_id: str) -> Any:
    agent = make_agent()
    session = SESSIONS.setdefault(f"{session_id} streamed", agent.create_session())
    return agent.run(message, session=session, stream=True)


@case("d parallel", BOTH)
async def parallel(message: str) -> Any:
    return await make_agent().run(message)


@case("d parallel streamed", BOTH)
async def parallel_streamed(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("e tool raises", FAILS)
async def raises(message: str) -> Any:
    return await make_agent().run(message)


@case("e tool raises in a stream", FAILS)
async def raises_streamed(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("f endless", ENDLESS)
async def endless(message: str) -> Any:
    client = OpenAIChatCompletionClient(model="gpt-4o-mini", function_invocation_configuration={"max_iterations": 2})
    return await make_agent(client).run(message)


@case("f breaks", BREAKS)
async def breaks(message: str) -> Any:
    return await make_agent().run(message)


@case("f breaks in a stream", BREAKS)
async def breaks_streamed(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("f breaks, updates collected", BREAKS)
async def breaks_collected(message: str) -> Any:
    updates = []
    try:
        async for update in make_agent().run(message, stream=True):
            updates.append(update)
    except Exception:
        return updates
    return updates


@case("f cut at length", CUT)
async def cut(message: str) -> Any:
    return await make_agent().run(message)


@case("f filtered", FILTERED)
async def filtered(message: str) -> Any:
    return await make_agent().run(message)


@case("f cut at length, stream returned", CUT)
def cut_streamed(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("f cut at length, updates yielded", CUT)
async def cut_updates(message: str) -> Any:
    async for update in make_agent().run(message, stream=True):
        yield update


@case("f cut at length over responses", CUT)
async def cut_responses(message: str) -> Any:
    return await make_agent(OpenAIChatClient).run(message)


@case("g form", FORM)
async def form(message: str) -> Any:
    return await make_agent().run(message, options={"response_format": Form})


@case("h expert as a tool", EXPERT)
async def expert(message: str) -> Any:
    inner = make_agent(name="expert", description="Knows orders")
    return await make_agent(tools=[inner.as_tool()]).run(message)


@case("h workflow")
async def workflow(message: str) -> Any:
    from agent_framework import WorkflowBuilder

    agent = make_agent()
    return await WorkflowBuilder(start_executor=agent).build().run(message)
