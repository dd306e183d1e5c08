"""Haystack: agents whose run is returned, whose chunks are yielded, with a history, in a pipeline."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import Any

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

PARAMETERS = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
SESSIONS: dict[str, list[Any]] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_agent(**more: Any) -> Any:
    tools = [
        Tool(name=f.__name__, description=f.__doc__ or "", parameters=PARAMETERS, function=f) for f in (shop.lookup_order, shop.refund)
    ]
    return Agent(**{"chat_generator": OpenAIChatGenerator(model="gpt-4o-mini"), "tools": tools, **more})


def ask(message: str, agent: Any = None, **more: Any) -> Any:
    return (agent or make_agent()).run(messages=[ChatMessage.from_user(message)], **more)


@case("a plain")
def plain(message: str) -> Any:
    return ask(message)


@case("a quiet", QUIET)
def quiet(message: str) -> Any:
    return ask(message)


@case("a awaited")
async def awaited(message: str) -> Any:
    return await make_agent().run_async(messages=[ChatMessage.from_user(message)])


@case("a last message")
def last_message(message: str) -> Any:
    return ask(message)["last_message"]


@case("a pipeline")
def pipeline(message: str) -> Any:
    whole = Pipeline()
    whole.add_component("shop", make_agent())
    return whole.run({"shop": {"messages": [ChatMessage.from_user(message)]}})


@case("b chunks yielded")
def chunks(message: str) -> Any:
    found: queue.Queue[Any] = queue.Queue()

    def work() -> None:
        ask(message, streaming_callback=found.put)
        found.put(None)

    threading.Thread(target=work).start()
    while (chunk := found.get()) is not None:
        yield chunk


@case("b chunks and result yielded")
def chunks_and_result(message: str) -> Any:
    found: list[Any] = []
    result = ask(message, streaming_callback=found.append)
    yield from found
    yield result


@case("b chunks collected")
def collected(message: str) -> Any:
    found: list[Any] = []
    ask(message, streaming_callback=found.append)
    return found


@case("b chunks awaited")
async def chunks_awaited(message: str) -> Any:
    found: asyncio.Queue[Any] = asyncio.Queue()

    async def put(chunk: Any) -> None:
        await found.put(chunk)

    async def work() -> None:
        await make_agent().run_async(messages=[ChatMessage.from_user(message)], streaming_callback=put)
        await found.put(None)

    task = asyncio.ensure_future(work())
    while (chunk := await found.get()) is not None:
        yield chunk
    await task


@case("b text yielded")
def text(message: str) -> Any:
    found: list[Any] = []
    ask(message, streaming_callback=found.append)
    for chunk in found:
        yield chunk.content or ""


@case("b quiet chunks", QUIET)
def quiet_chunks(message: str) -> Any:
    return collected(message)


@case("c turns", *TURNS)
def turns(message: str, session_id: str) -> Any:
    history = SESSIONS.setdefault(session_id, [])
    result = make_agent().run(messages=[*history, ChatMessage.from_user(message)])
    history[:] = result["messages"]
    return result


@case("d parallel", BOTH)
def parallel(message: str) -> Any:
    return ask(message)


@case("d parallel chunks", BOTH)
def parallel_chunks(message: str) -> Any:
    return collected(message)


@case("e tool raises", FAILS)
def raises(message: str) -> Any:
    return ask(message, make_agent(raise_on_tool_invocation_failure=False))


@case("e tool raises through", FAILS)
def raises_through(message: str) -> Any:
    return ask(message, make_agent(raise_on_tool_invocation_failure=True))


@case("e tool raises in chunks", FAILS)
def raises_in_chunks(message: str) -> Any:
    found: list[Any] = []
    ask(message, make_agent(raise_on_tool_invocation_failure=False), streaming_callback=found.append)
    return found


@case("f endless", ENDLESS)
def endless(message: str) -> Any:
    return ask(message, make_agent(max_agent_steps=2))


@case("f breaks", BREAKS)
def breaks(message: str) -> Any:
    return ask(message)


@case("f breaks in chunks", BREAKS)
def breaks_in_chunks(message: str) -> Any:
    found: list[Any] = []
    try:
        ask(message, streaming_callback=found.append)
    except Exception:
        return found
    return found


@case("f cut at length", CUT)
def cut(message: str) -> Any:
    return ask(message)


@case("f filtered", FILTERED)
def filtered(message: str) -> Any:
    return ask(message)


@case("f cut at length in chunks", CUT)
def cut_chunks(message: str) -> Any:
    return collected(message)


@case("g form", FORM)
def form(message: str) -> Any:
    generator = OpenAIChatGenerator(model="gpt-4o-mini", tools_strict=True, generation_kwargs={"response_format": Form})
    return ask(message, make_agent(chat_generator=generator))


@case("h expert as a tool", EXPERT)
def expert(message: str) -> Any:
    from haystack.tools import ComponentTool

    inner = ComponentTool(
        component=make_agent(),
        name="expert",
        description="Ask the expert",
        outputs_to_string={"source": "last_message"},
    )
    return ask(message, make_agent(tools=[inner]))
