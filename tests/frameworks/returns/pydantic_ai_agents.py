"""Pydantic AI: results, streams, events, nodes, histories, delegation."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def refund(id: int) -> str:
    """Refund an order."""
    try:
        return shop.refund(id)
    except ValueError as error:
        raise ModelRetry(str(error)) from error


def make_agent(**more: Any) -> Any:
    return Agent(OpenAIChatModel("gpt-4o-mini"), **{"tools": [shop.lookup_order, refund], "name": "shop", **more})


@case("a plain")
async def plain(message: str) -> Any:
    return await make_agent().run(message)


@case("a blocking")
def blocking(message: str) -> Any:
    return make_agent().run_sync(message)


@case("a quiet", QUIET)
async def quiet(message: str) -> Any:
    return await make_agent().run(message)


@case("a messages")
async def messages(message: str) -> Any:
    return (await make_agent().run(message)).all_messages()


@case("a answer only")
async def answer_only(message: str) -> Any:
    return (await make_agent().run(message)).output


@case("b stream read, then returned")
async def read_then_returned(message: str) -> Any:
    async with make_agent().run_stream(message) as result:
        async for _ in result.stream_text():
            pass
    return result


@case("b stream not read")
async def not_read(message: str) -> Any:
    async with make_agent().run_stream(message) as result:
        return result


@case("b context of a stream returned")
async def context_returned(message: str) -> Any:
    return make_agent().run_stream(message)


@case("b blocking stream returned")
def blocking_stream(message: str) -> Any:
    return make_agent().run_stream_sync(message)


@case("b text yielded")
async def text(message: str) -> Any:
    async with make_agent().run_stream(message) as result:
        async for piece in result.stream_text(delta=True):
            yield piece


@case("b events returned")
def events_returned(message: str) -> Any:
    return make_agent().run_stream_events(message)


@case("b events yielded")
async def events_yielded(message: str) -> Any:
    stream = make_agent().run_stream_events(message)
    if hasattr(stream, "__aenter__"):
        async with stream as events:
            async for event in events:
                yield event
    else:
        async for event in stream:
            yield event


@case("b events collected")
async def events_collected(message: str) -> Any:
    return [event async for event in events_yielded(message)]


@case("b events without a result")
async def events_headless(message: str) -> Any:
    async for event in events_yielded(message):
        if type(event).__name__ != "AgentRunResultEvent":
            yield event


@case("b nodes yielded")
async def nodes_yielded(message: str) -> Any:
    async with make_agent().iter(message) as run:
        async for node in run:
            yield node


@case("b nodes collected")
async def nodes_collected(message: str) -> Any:
    return [node async for node in nodes_yielded(message)]


@case("b run of nodes returned")
async def run_returned(message: str) -> Any:
    async with make_agent().iter(message) as run:
        async for _ in run:
            pass
    return run


@case("b run of nodes not read")
async def run_not_read(message: str) -> Any:
    async with make_agent().iter(message) as run:
        return run


@case("b quiet events", QUIET)
async def quiet_events(message: str) -> Any:
    async for event in events_yielded(message):
        yield event


@case("c turns", *TURNS)
async def turns(message: str, session_id: str) -> Any:
    result = await make_agent().run(message, message_history=SESSIONS.get(session_id))
    SESSIONS[session_id] = result.all_messages()
    return result


@case("c turns of all messages", *TURNS)
async def turns_all(message: str, session_id: str) -> Any:
    return (await turns(message, f"{session_id} all")).all_messages()


@case("c turns streamed", *TURNS)
async def turns_streamed(message: str, session_id: str) -> Any:
    key = f"{session_id} streamed"
    async with make_agent().run_stream(message, message_history=SESSIONS.get(key)) as result:
        async for _ in result.stream_text():
            pass
    SESSIONS[key] = result.all_messages()
    return result


@case("d parallel", BOTH)
async def parallel(message: str) -> Any:
    return await make_agent().run(message)


@case("d parallel events", BOTH)
async def parallel_events(message: str) -> Any:
    async for event in events_yielded(message):
        yield event


@case("e tool asks to try again", FAILS)
async def retries(message: str) -> Any:
    return await make_agent().run(message)


@case("e tool raises", FAILS)
async def raises(message: str) -> Any:
    return await make_agent(tools=[shop.lookup_order, shop.refund]).run(message)


@case("f endless", ENDLESS)
async def endless(message: str) -> Any:
    return await make_agent().run(message, usage_limits=UsageLimits(request_limit=2))


@case("f endless, run collected", ENDLESS)
async def endless_collected(message: str) -> Any:
    last_run: Any = None
    try:
        async with make_agent().iter(message, usage_limits=UsageLimits(request_limit=2)) as run:
            last_run = run
            async for _ in run:
                pass
    except Exception:
        return last_run
    return last_run


@case("f breaks", BREAKS)
async def breaks(message: str) -> Any:
    return await make_agent().run(message)


@case("f cut at length", CUT)
async def cut(message: str) -> Any:
    return await make_agent().run(message)


@case("f filtered", FILTERED)
async def filtered(message: str) -> Any:
    return await make_agent().run(message)


@case("f cut at length, stream read", CUT)
async def cut_streamed(message: str) -> Any:
    async with make_agent().run_stream(message) as result:
        async for _ in result.stream_text():
            pass
    return result


@case("g form", FORM)
async def form(message: str) -> Any:
    return await make_agent(output_type=Form).run(message)


@case("g form by the provider", FORM)
async def form_native(message: str) -> Any:
    from pydantic_ai import NativeOutput

    return await make_agent(output_type=NativeOutput(Form)).run(message)


@case("g form, events", FORM)
async def form_events(message: str) -> Any:
    stream = make_agent(output_type=Form).run_stream_events(message)
    if hasattr(stream, "__aenter__"):
        async with stream as events:
            async for event in events:
                yield event
    else:
        async for event in stream:
            yield event


@case("h expert as a tool", EXPERT)
async def expert(message: str) -> Any:
    async def ask_expert(question: str) -> str:
        """Ask the expert."""
        return str((await make_agent().run(question)).output)

    return await make_agent(tools=[ask_expert]).run(message)
