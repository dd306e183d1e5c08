"""AG2 since version 1: replies, runs and the events of their streams, conversations, other agents as tools."""

from __future__ import annotations

import asyncio
from typing import Any

from ag2 import Agent, TaskConfig, tool
from ag2.config import OpenAIConfig
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_agent(streaming: bool = False, **more: Any) -> Any:
    config = OpenAIConfig(model="gpt-4o-mini", streaming=streaming, max_retries=0)
    return Agent(**{"name": "shop", "config": config, "tools": [tool(shop.lookup_order), tool(shop.refund)], **more})


@case("a plain")
async def plain(message: str) -> Any:
    return await make_agent().ask(message)


@case("a blocking")
def blocking(message: str) -> Any:
    return asyncio.run(make_agent().ask(message))


@case("a quiet", QUIET)
async def quiet(message: str) -> Any:
    return await make_agent().ask(message)


@case("a text")
async def text_of(message: str) -> Any:
    return (await make_agent().ask(message)).body


@case("a events of the history")
async def history(message: str) -> Any:
    return list(await (await make_agent().ask(message)).history.get_events())


async def push(message: str, **more: Any) -> Any:
    """Yield every event of a run as the stream emits it."""
    events: asyncio.Queue[Any] = asyncio.Queue()
    async with make_agent(**more).run(message) as run:

        async def keep(event: Any) -> None:
            await events.put(event)

        run.stream.subscribe(keep)
        done = asyncio.ensure_future(run.result())
        while not (done.done() and events.empty()):
            coming = asyncio.ensure_future(events.get())
            await asyncio.wait({coming, done}, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                yield coming.result()
            else:
                coming.cancel()
        await done


@case("b reply of a streamed model")
async def streamed_reply(message: str) -> Any:
    return await make_agent(streaming=True).ask(message)


@case("b events yielded")
async def events_yielded(message: str) -> Any:
    async for event in push(message):
        yield event


@case("b events of a streamed model")
async def events_streamed(message: str) -> Any:
    async for event in push(message, streaming=True):
        yield event


@case("b events collected")
async def events_collected(message: str) -> Any:
    return [event async for event in push(message, streaming=True)]


@case("b events up to the answer")
async def events_until(message: str) -> Any:
    async with make_agent().run(message) as run:
        with run.stream.join() as events:
            run.start()
            async for event in events:
                yield event
                if type(event).__name__ == "ModelResponse" and not event.tool_calls.calls:
                    break


@case("b pieces yielded")
async def pieces(message: str) -> Any:
    async for event in push(message, streaming=True):
        if type(event).__name__ == "ModelMessageChunk":
            yield event


@case("b text yielded")
async def text(message: str) -> Any:
    async for event in push(message, streaming=True):
        if type(event).__name__ == "ModelMessageChunk":
            yield event.content


@case("b run returned")
async def run_returned(message: str) -> Any:
    return make_agent().run(message)


@case("b quiet events", QUIET)
async def quiet_events(message: str) -> Any:
    async for event in push(message, streaming=True):
        yield event


@case("c turns", *TURNS)
async def turns(message: str, session_id: str) -> Any:
    before = SESSIONS.get(session_id)
    SESSIONS[session_id] = await (before.ask(message) if before is not None else make_agent().ask(message))
    return SESSIONS[session_id]


@case("d parallel", BOTH)
async def parallel(message: str) -> Any:
    return await make_agent().ask(message)


@case("d parallel events", BOTH)
async def parallel_events(message: str) -> Any:
    async for event in push(message, streaming=True):
        yield event


@case("e tool raises", FAILS)
async def raises(message: str) -> Any:
    return await make_agent().ask(message)


@case("e tool raises in events", FAILS)
async def raises_events(message: str) -> Any:
    async for event in push(message):
        yield event


@case("f breaks", BREAKS)
async def breaks(message: str) -> Any:
    return await make_agent().ask(message)


@case("f breaks, events collected", BREAKS)
async def breaks_collected(message: str) -> Any:
    events = []
    try:
        async for event in push(message):
            events.append(event)
    except Exception:
        return events
    return events


@case("f endless, cut short", ENDLESS)
async def endless(message: str) -> Any:
    events = []
    async for event in push(message):
        events.append(event)
        if len(events) > 12:
            break
    return events


@case("f cut at length", CUT)
async def cut(message: str) -> Any:
    return await make_agent().ask(message)


@case("f filtered", FILTERED)
async def filtered(message: str) -> Any:
    return await make_agent().ask(message)


@case("f cut at length, streamed model", CUT)
async def cut_streamed(message: str) -> Any:
    return await make_agent(streaming=True).ask(message)


@case("f cut at length, events", CUT)
async def cut_events(message: str) -> Any:
    async for event in push(message):
        yield event


@case("g form", FORM)
async def form(message: str) -> Any:
    return await make_agent(response_schema=Form).ask(message)


@case("h expert as a tool", EXPERT)
async def expert(message: str) -> Any:
    inner = make_agent(name="expert")
    return await make_agent(name="front", tools=[inner.as_tool(description="Knows orders", name="expert")]).ask(message)


@case("h expert as a tool, events", EXPERT)
async def expert_events(message: str) -> Any:
    inner = make_agent(name="expert")
    async for event in push(message, name="front", tools=[inner.as_tool(description="Knows orders", name="expert")]):
        yield event


@case("h subtasks allowed")
async def subtasks(message: str) -> Any:
    return await make_agent(tasks=TaskConfig()).ask(message)
