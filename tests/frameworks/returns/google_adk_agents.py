"""Google ADK: the events of a runner, streamed and not, sessions, transfers."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

RUNNERS: dict[str, Any] = {}
STREAMED = RunConfig(streaming_mode=StreamingMode.SSE)


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def describe_error(tool: Any, args: Any, tool_context: Any, error: Exception) -> Any:
    return {"error": str(error)}


def make_agent(**more: Any) -> Any:
    return LlmAgent(**{"name": "shop", "model": "gemini-2.5-flash", "tools": [shop.lookup_order, shop.refund], **more})


async def ask(message: str, agent: Any = None, config: Any = None, key: str | None = None) -> Any:
    runner = RUNNERS.get(key or "") or InMemoryRunner(agent=agent or make_agent(), app_name="shop")
    if key:
        RUNNERS[key] = runner
    known = await runner.session_service.list_sessions(app_name="shop", user_id="u")
    session = known.sessions[0] if known.sessions else await runner.session_service.create_session(app_name="shop", user_id="u")
    content = types.Content(role="user", parts=[types.Part(text=message)])
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=content, run_config=config or RunConfig()):
        yield event


async def find_session(key: str) -> Any:
    runner = RUNNERS[key]
    known = await runner.session_service.list_sessions(app_name="shop", user_id="u")
    return await runner.session_service.get_session(app_name="shop", user_id="u", session_id=known.sessions[0].id)


@case("a collected")
async def collected(message: str) -> Any:
    return [event async for event in ask(message)]


@case("a quiet", QUIET)
async def quiet(message: str) -> Any:
    return [event async for event in ask(message)]


@case("a last event")
async def last_event(message: str) -> Any:
    return [event async for event in ask(message)][-1]


@case("a session")
async def session(message: str) -> Any:
    async for _ in ask(message, key="session"):
        pass
    return await find_session("session")


@case("a blocking")
def blocking(message: str) -> Any:
    import asyncio

    runner = InMemoryRunner(agent=make_agent(), app_name="shop")
    made = asyncio.run(runner.session_service.create_session(app_name="shop", user_id="u"))
    content = types.Content(role="user", parts=[types.Part(text=message)])
    return list(runner.run(user_id="u", session_id=made.id, new_message=content))


@case("b events returned")
def events_returned(message: str) -> Any:
    return ask(message)


@case("b streamed events returned")
def streamed_returned(message: str) -> Any:
    return ask(message, config=STREAMED)


@case("b streamed events yielded")
async def streamed_yielded(message: str) -> Any:
    async for event in ask(message, config=STREAMED):
        yield event


@case("b streamed events collected")
async def streamed_collected(message: str) -> Any:
    return [event async for event in ask(message, config=STREAMED)]


@case("b final events only")
async def final_only(message: str) -> Any:
    return [event async for event in ask(message) if event.is_final_response()]


@case("b text yielded")
async def text(message: str) -> Any:
    async for event in ask(message, config=STREAMED):
        for part in (event.content and event.content.parts) or []:
            if part.text and event.partial:
                yield part.text


@case("b quiet streamed", QUIET)
def quiet_streamed(message: str) -> Any:
    return ask(message, config=STREAMED)


@case("c turns", *TURNS)
async def turns(message: str, session_id: str) -> Any:
    return [event async for event in ask(message, key=session_id)]


@case("c turns of a session", *TURNS)
async def turns_session(message: str, session_id: str) -> Any:
    async for _ in ask(message, key=f"{session_id} session"):
        pass
    return await find_session(f"{session_id} session")


@case("d parallel", BOTH)
async def parallel(message: str) -> Any:
    return [event async for event in ask(message)]


@case("d parallel streamed", BOTH)
def parallel_streamed(message: str) -> Any:
    return ask(message, config=STREAMED)


@case("e tool raises, reported", FAILS)
def raises_reported(message: str) -> Any:
    return ask(message, make_agent(on_tool_error_callback=describe_error))


@case("e tool raises", FAILS)
def raises(message: str) -> Any:
    return ask(message)


@case("f endless", ENDLESS)
def endless(message: str) -> Any:
    return ask(message, config=RunConfig(max_llm_calls=2))


@case("f endless, events collected", ENDLESS)
async def endless_collected(message: str) -> Any:
    events = []
    try:
        async for event in ask(message, config=RunConfig(max_llm_calls=2)):
            events.append(event)
    except Exception:
        return events
    return events


@case("f breaks", BREAKS)
def breaks(message: str) -> Any:
    return ask(message)


@case("f cut at length", CUT)
def cut(message: str) -> Any:
    return ask(message)


@case("f filtered", FILTERED)
def filtered(message: str) -> Any:
    return ask(message)


@case("f cut at length, streamed", CUT)
def cut_streamed(message: str) -> Any:
    return ask(message, config=STREAMED)


@case("g form", FORM)
def form(message: str) -> Any:
    return ask(message, make_agent(output_schema=Form))


@case("h transfer", EXPERT)
def transfer(message: str) -> Any:
    return ask(message, make_agent(name="front", tools=[], sub_agents=[make_agent(name="expert", description="Knows orders")]))


@case("h transfer streamed", EXPERT)
def transfer_streamed(message: str) -> Any:
    team = make_agent(name="front", tools=[], sub_agents=[make_agent(name="expert", description="Knows orders")])
    return ask(message, team, STREAMED)


@case("h expert as a tool", EXPERT)
def expert(message: str) -> Any:
    from google.adk.tools.agent_tool import AgentTool

    return ask(message, make_agent(name="front", tools=[AgentTool(make_agent(name="expert", description="Knows orders"))]))
