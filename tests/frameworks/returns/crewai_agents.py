"""CrewAI: crews, streamed and not, agents on their own, flows, delegation."""

from __future__ import annotations

from typing import Any

from crewai import LLM, Agent, Crew, Process, Task
from crewai.tools import tool
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}
TOOLS = [tool("lookup_order")(shop.lookup_order), tool("refund")(shop.refund)]


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_agent(role: str = "Clerk", **more: Any) -> Any:
    known = {"goal": "Help the customer", "backstory": "You work in a shop.", "tools": TOOLS, "llm": "gpt-4o-mini"}
    return Agent(role=role, **{**known, **more})


def make_crew(message: str, *, agent: Any = None, task: dict[str, Any] | None = None, **more: Any) -> Any:
    agent = agent or make_agent()
    one = Task(description=message, expected_output="An answer to the customer", agent=agent, **(task or {}))
    return Crew(agents=[agent], tasks=[one], **more)


@case("a plain")
def plain(message: str) -> Any:
    return make_crew(message).kickoff()


@case("a awaited")
async def awaited(message: str) -> Any:
    return await make_crew(message).kickoff_async()


@case("a native awaited")
async def akickoff(message: str) -> Any:
    return await make_crew(message).akickoff()


@case("a agent alone")
def alone(message: str) -> Any:
    return make_agent().kickoff(message)


@case("a agent alone awaited")
async def alone_awaited(message: str) -> Any:
    return await make_agent().kickoff_async(message)


@case("a quiet", QUIET)
def quiet(message: str) -> Any:
    return make_crew(message).kickoff()


@case("a text")
def text(message: str) -> Any:
    return str(make_crew(message).kickoff())


@case("b stream returned")
def stream_returned(message: str) -> Any:
    return make_crew(message, stream=True).kickoff()


@case("b stream returned, awaited")
async def stream_awaited(message: str) -> Any:
    return await make_crew(message, stream=True).kickoff_async()


@case("b stream returned, native awaited")
async def stream_akickoff(message: str) -> Any:
    return await make_crew(message, stream=True).akickoff()


@case("b chunks yielded")
def chunks_yielded(message: str) -> Any:
    yield from make_crew(message, stream=True).kickoff()


@case("b chunks collected")
def chunks_collected(message: str) -> Any:
    return list(make_crew(message, stream=True).kickoff())


@case("b chunks and result yielded")
def chunks_and_result(message: str) -> Any:
    stream = make_crew(message, stream=True).kickoff()
    yield from stream
    yield stream.result


@case("b text yielded")
def text_yielded(message: str) -> Any:
    for chunk in make_crew(message, stream=True).kickoff():
        yield chunk.content


@case("b streamed model")
def streamed_model(message: str) -> Any:
    return make_crew(message, agent=make_agent(llm=LLM(model="gpt-4o-mini", stream=True))).kickoff()


@case("b quiet stream", QUIET)
def quiet_stream(message: str) -> Any:
    return make_crew(message, stream=True).kickoff()


@case("c turns of one agent", *TURNS)
def turns(message: str, session_id: str) -> Any:
    agent = SESSIONS.setdefault(session_id, make_agent())
    return make_crew(message, agent=agent).kickoff()


@case("c turns of an agent alone", *TURNS)
def turns_alone(message: str, session_id: str) -> Any:
    agent = SESSIONS.setdefault(f"{session_id} alone", make_agent())
    return agent.kickoff(message)


@case("d parallel", BOTH)
def parallel(message: str) -> Any:
    return make_crew(message).kickoff()


@case("e tool raises", FAILS)
def raises(message: str) -> Any:
    return make_crew(message).kickoff()


@case("e tool raises, agent alone", FAILS)
def raises_alone(message: str) -> Any:
    return make_agent().kickoff(message)


@case("f endless", ENDLESS)
def endless(message: str) -> Any:
    return make_crew(message, agent=make_agent(max_iter=2)).kickoff()


@case("f breaks", BREAKS)
def breaks(message: str) -> Any:
    return make_crew(message).kickoff()


@case("f cut at length", CUT)
def cut(message: str) -> Any:
    return make_crew(message).kickoff()


@case("f filtered", FILTERED)
def filtered(message: str) -> Any:
    return make_crew(message).kickoff()


@case("f cut at length, agent alone", CUT)
def cut_alone(message: str) -> Any:
    return make_agent().kickoff(message)


@case("f endless, agent alone", ENDLESS)
def endless_alone(message: str) -> Any:
    return make_agent(max_iter=2).kickoff(message)


@case("g form", FORM)
def form(message: str) -> Any:
    return make_crew(message, task={"output_pydantic": Form}).kickoff()


@case("g form, agent alone", FORM)
def form_alone(message: str) -> Any:
    return make_agent().kickoff(message, response_format=Form)


@case("h two tasks")
def two_tasks(message: str) -> Any:
    first, second = make_agent(), make_agent("Writer", tools=[])
    one = Task(description=message, expected_output="What was found", agent=first)
    other = Task(description=f"Write it up: {QUIET}", expected_output="An answer", agent=second, context=[one])
    return Crew(agents=[first, second], tasks=[one, other]).kickoff()


@case("h delegation", EXPERT)
def delegation(message: str) -> Any:
    front = make_agent("Front", allow_delegation=True, tools=[])
    expert = make_agent("expert")
    one = Task(description=message, expected_output="An answer", agent=front)
    return Crew(agents=[front, expert], tasks=[one]).kickoff()


@case("h hierarchy", EXPERT)
def hierarchy(message: str) -> Any:
    expert = make_agent("expert")
    one = Task(description=message, expected_output="An answer")
    return Crew(agents=[expert], tasks=[one], process=Process.hierarchical, manager_llm="gpt-4o-mini").kickoff()


@case("h flow")
def flow(message: str) -> Any:
    from crewai.flow.flow import Flow, start

    class Desk(Flow):  # type: ignore[type-arg]
        @start()
        def begin(self) -> Any:
            return make_crew(message).kickoff()

    return Desk().kickoff()
