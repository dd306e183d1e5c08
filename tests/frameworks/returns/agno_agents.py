"""Agno: outputs of runs, streams with and without events, sessions, teams."""

from __future__ import annotations

from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai import OpenAIChat, OpenAIResponses
from agno.team import Team
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

DATABASE = InMemoryDb()


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_agent(**more: Any) -> Any:
    known = {"name": "shop", "model": OpenAIChat(id="gpt-4o-mini"), "tools": [shop.lookup_order, shop.refund], "telemetry": False}
    return Agent(**{**known, **more})


@case("a plain")
def plain(message: str) -> Any:
    return make_agent().run(message)


@case("a awaited")
async def awaited(message: str) -> Any:
    return await make_agent().arun(message)


@case("a plain over responses")
def plain_responses(message: str) -> Any:
    return make_agent(model=OpenAIResponses(id="gpt-4o-mini")).run(message)


@case("a quiet", QUIET)
def quiet(message: str) -> Any:
    return make_agent().run(message)


@case("b stream returned")
def stream_returned(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("b stream with events returned")
def events_returned(message: str) -> Any:
    return make_agent().run(message, stream=True, stream_events=True)


@case("b stream with events yielded")
def events_yielded(message: str) -> Any:
    yield from make_agent().run(message, stream=True, stream_events=True)


@case("b stream with events collected")
def events_collected(message: str) -> Any:
    return list(make_agent().run(message, stream=True, stream_events=True))


@case("b stream with events awaited")
async def events_awaited(message: str) -> Any:
    async for event in make_agent().arun(message, stream=True, stream_events=True):
        yield event


@case("b stream with the output")
def with_output(message: str) -> Any:
    return make_agent().run(message, stream=True, yield_run_output=True)


@case("b text yielded")
def text(message: str) -> Any:
    for event in make_agent().run(message, stream=True):
        yield str(event.content or "")


@case("b quiet stream", QUIET)
def quiet_stream(message: str) -> Any:
    return make_agent().run(message, stream=True, stream_events=True)


@case("c turns", *TURNS)
def turns(message: str, session_id: str) -> Any:
    return make_agent(db=DATABASE, add_history_to_context=True).run(message, session_id=session_id)


@case("c turns streamed", *TURNS)
def turns_streamed(message: str, session_id: str) -> Any:
    agent = make_agent(db=DATABASE, add_history_to_context=True)
    return agent.run(message, session_id=f"{session_id} streamed", stream=True, stream_events=True)


@case("d parallel", BOTH)
def parallel(message: str) -> Any:
    return make_agent().run(message)


@case("d parallel streamed", BOTH)
def parallel_streamed(message: str) -> Any:
    return make_agent().run(message, stream=True, stream_events=True)


@case("e tool raises", FAILS)
def raises(message: str) -> Any:
    return make_agent().run(message)


@case("e tool raises in a stream", FAILS)
def raises_streamed(message: str) -> Any:
    return make_agent().run(message, stream=True, stream_events=True)


@case("f endless", ENDLESS)
def endless(message: str) -> Any:
    return make_agent(tool_call_limit=2).run(message)


@case("f breaks", BREAKS)
def breaks(message: str) -> Any:
    return make_agent().run(message)


@case("f breaks in a stream", BREAKS)
def breaks_streamed(message: str) -> Any:
    return make_agent().run(message, stream=True, stream_events=True)


@case("f breaks in a stream with the output", BREAKS)
def breaks_with_output(message: str) -> Any:
    return make_agent().run(message, stream=True, yield_run_output=True)


@case("f cut at length", CUT)
def cut(message: str) -> Any:
    return make_agent().run(message)


@case("f filtered", FILTERED)
def filtered(message: str) -> Any:
    return make_agent().run(message)


@case("f cut at length, events", CUT)
def cut_events(message: str) -> Any:
    return make_agent().run(message, stream=True, stream_events=True)


@case("f cut at length over responses", CUT)
def cut_responses(message: str) -> Any:
    return make_agent(model=OpenAIResponses(id="gpt-4o-mini")).run(message)


@case("g form", FORM)
def form(message: str) -> Any:
    return make_agent(output_schema=Form).run(message)


@case("g form streamed", FORM)
def form_streamed(message: str) -> Any:
    return make_agent(output_schema=Form).run(message, stream=True, stream_events=True)


def make_team(**more: Any) -> Any:
    expert = make_agent(name="expert", role="Knows orders")
    return Team(name="desk", members=[expert], model=OpenAIChat(id="gpt-4o-mini"), telemetry=False, **more)


@case("h team", EXPERT)
def team(message: str) -> Any:
    return make_team().run(message)


@case("h team with its members' runs", EXPERT)
def team_members(message: str) -> Any:
    return make_team(store_member_responses=True).run(message)


@case("h team streamed", EXPERT)
def team_streamed(message: str) -> Any:
    return make_team().run(message, stream=True, stream_events=True)
