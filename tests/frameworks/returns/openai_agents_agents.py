"""OpenAI Agents: results, streams, sessions, handoffs, agents as tools."""

from __future__ import annotations

from typing import Any

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, SQLiteSession, function_tool
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_agent(**more: Any) -> Any:
    tools = [function_tool(shop.lookup_order), function_tool(shop.refund)]
    return Agent(**{"name": "shop", "model": "gpt-4o-mini", "tools": tools, **more})


def over_chat() -> Any:
    model = OpenAIChatCompletionsModel("gpt-4o-mini", AsyncOpenAI())
    return make_agent(model=model, model_settings=ModelSettings(include_usage=True))


@case("a plain")
async def plain(message: str) -> Any:
    return await Runner.run(make_agent(), message)


@case("a blocking")
def blocking(message: str) -> Any:
    return Runner.run_sync(make_agent(), message)


@case("a plain over chat")
async def plain_chat(message: str) -> Any:
    return await Runner.run(over_chat(), message)


@case("a quiet", QUIET)
async def quiet(message: str) -> Any:
    return await Runner.run(make_agent(), message)


@case("a answer only")
async def answer_only(message: str) -> Any:
    return (await Runner.run(make_agent(), message)).final_output


@case("a items")
async def items(message: str) -> Any:
    return (await Runner.run(make_agent(), message)).to_input_list()


@case("a new items")
async def new_items(message: str) -> Any:
    return (await Runner.run(make_agent(), message)).new_items


@case("b stream returned")
async def stream_returned(message: str) -> Any:
    return Runner.run_streamed(make_agent(), message)


@case("b stream returned over chat")
async def stream_chat(message: str) -> Any:
    return Runner.run_streamed(over_chat(), message)


@case("b stream read, then returned")
async def read_then_returned(message: str) -> Any:
    result = Runner.run_streamed(make_agent(), message)
    async for _ in result.stream_events():
        pass
    return result


@case("b events returned")
async def events_returned(message: str) -> Any:
    return Runner.run_streamed(make_agent(), message).stream_events()


@case("b events yielded")
async def events_yielded(message: str) -> Any:
    async for event in Runner.run_streamed(make_agent(), message).stream_events():
        yield event


@case("b events collected")
async def events_collected(message: str) -> Any:
    return [event async for event in Runner.run_streamed(make_agent(), message).stream_events()]


@case("b text yielded")
async def text(message: str) -> Any:
    async for event in Runner.run_streamed(make_agent(), message).stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield event.data.delta


@case("b quiet events", QUIET)
async def quiet_events(message: str) -> Any:
    async for event in Runner.run_streamed(make_agent(), message).stream_events():
        yield event


@case("c turns", *TURNS)
async def turns(message: str, session_id: str) -> Any:
    return await Runner.run(make_agent(), message, session=SESSIONS.setdefault(session_id, SQLiteSession(session_id)))


@case("c turns streamed", *TURNS)
async def turns_streamed(message: str, session_id: str) -> Any:
    session = SESSIONS.setdefault(f"{session_id} streamed", SQLiteSession(f"{session_id} streamed"))
    return Runner.run_streamed(make_agent(), message, session=session)


@case("c turns of a list", *TURNS)
async def turns_list(message: str, session_id: str) -> Any:
    history = SESSIONS.setdefault(f"{session_id} list", [])
    result = await Runner.run(make_agent(), [*history, {"role": "user", "content": message}])
    history[:] = result.to_input_list()
    return result


@case("d parallel", BOTH)
async def parallel(message: str) -> Any:
    return await Runner.run(make_agent(), message)


@case("d parallel streamed", BOTH)
async def parallel_streamed(message: str) -> Any:
    return Runner.run_streamed(make_agent(), message)


@case("e tool raises", FAILS)
async def raises(message: str) -> Any:
    return await Runner.run(make_agent(), message)


@case("e tool raises through", FAILS)
async def raises_through(message: str) -> Any:
    return await Runner.run(make_agent(tools=[function_tool(shop.refund, failure_error_function=None)]), message)


@case("f endless", ENDLESS)
async def endless(message: str) -> Any:
    return await Runner.run(make_agent(), message, max_turns=2)


@case("f endless, stream returned", ENDLESS)
async def endless_streamed(message: str) -> Any:
    return Runner.run_streamed(make_agent(), message, max_turns=2)


@case("f endless, stream collected", ENDLESS)
async def endless_collected(message: str) -> Any:
    result = Runner.run_streamed(make_agent(), message, max_turns=2)
    try:
        async for _ in result.stream_events():
            pass
    except Exception:
        return result
    return result


@case("f breaks", BREAKS)
async def breaks(message: str) -> Any:
    return await Runner.run(make_agent(), message)


@case("f breaks, stream collected", BREAKS)
async def breaks_collected(message: str) -> Any:
    result = Runner.run_streamed(make_agent(), message)
    try:
        async for _ in result.stream_events():
            pass
    except Exception:
        return result
    return result


@case("f cut at length", CUT)
async def cut(message: str) -> Any:
    return await Runner.run(make_agent(), message)


@case("f filtered", FILTERED)
async def filtered(message: str) -> Any:
    return await Runner.run(make_agent(), message)


@case("f cut at length over chat", CUT)
async def cut_chat(message: str) -> Any:
    return await Runner.run(over_chat(), message)


@case("f cut at length, stream returned", CUT)
async def cut_streamed(message: str) -> Any:
    return Runner.run_streamed(make_agent(), message)


@case("f endless, handled", ENDLESS)
async def endless_handled(message: str) -> Any:
    handlers = {"max_turns": lambda given: "I could not finish."}
    return await Runner.run(make_agent(), message, max_turns=2, error_handlers=handlers)


@case("f endless, handled in a stream", ENDLESS)
async def endless_handled_stream(message: str) -> Any:
    handlers = {"max_turns": lambda given: "I could not finish."}
    return Runner.run_streamed(make_agent(), message, max_turns=2, error_handlers=handlers)


@case("f endless, events collected", ENDLESS)
async def endless_events(message: str) -> Any:
    events = []
    try:
        async for event in Runner.run_streamed(make_agent(), message, max_turns=2).stream_events():
            events.append(event)
    except Exception:
        return events
    return events


@case("g form", FORM)
async def form(message: str) -> Any:
    return await Runner.run(make_agent(output_type=Form), message)


@case("h handoff", EXPERT)
async def handoff(message: str) -> Any:
    return await Runner.run(make_agent(name="front", tools=[], handoffs=[make_agent(name="expert")]), message)


@case("h handoff streamed", EXPERT)
async def handoff_streamed(message: str) -> Any:
    return Runner.run_streamed(make_agent(name="front", tools=[], handoffs=[make_agent(name="expert")]), message)


@case("h expert as a tool", EXPERT)
async def expert(message: str) -> Any:
    inner = make_agent(name="expert").as_tool(tool_name="expert", tool_description="Ask the expert")
    return await Runner.run(make_agent(tools=[inner]), message)
