"""LangChain and LangGraph: states, every mode of `stream`, checkpoints, subgraphs, handoffs."""

from __future__ import annotations

from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, ToolCallLimitMiddleware, wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SAVED = InMemorySaver()
TOOLS = [tool(shop.lookup_order), tool(shop.refund)]


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


@wrap_tool_call
def handle_errors(request: Any, handler: Any) -> Any:
    try:
        return handler(request)
    except ValueError as error:
        return ToolMessage(content=f"Error: {error}", tool_call_id=request.tool_call["id"], status="error")


def make_agent(**more: Any) -> Any:
    model = ChatOpenAI(model="gpt-4o-mini", stream_usage=True, max_retries=0)
    return create_agent(**{"model": model, "tools": TOOLS, "middleware": [handle_errors], "name": "shop", **more})


def given(message: str) -> Any:
    return {"messages": [("user", message)]}


def stream(message: str, mode: Any, **more: Any) -> Any:
    return make_agent().stream(given(message), stream_mode=mode, **more)


@case("a plain")
def plain(message: str) -> Any:
    return make_agent().invoke(given(message))


@case("a awaited")
async def awaited(message: str) -> Any:
    return await make_agent(middleware=[]).ainvoke(given(message))


@case("a quiet", QUIET)
def quiet(message: str) -> Any:
    return make_agent().invoke(given(message))


@case("a last message")
def last_message(message: str) -> Any:
    return make_agent().invoke(given(message))["messages"][-1]


@case("a messages")
def messages(message: str) -> Any:
    return make_agent().invoke(given(message))["messages"]


for _mode in ("values", "updates", "messages"):
    case(f"b {_mode} returned")(lambda message, mode=_mode: stream(message, mode))
    case(f"b {_mode} collected")(lambda message, mode=_mode: list(stream(message, mode)))
    case(f"b quiet {_mode}", QUIET)(lambda message, mode=_mode: stream(message, mode))
    case(f"d parallel {_mode}", BOTH)(lambda message, mode=_mode: stream(message, mode))


@case("b several modes")
def several_modes(message: str) -> Any:
    return stream(message, ["updates", "messages"])


@case("b messages and custom")
def several_more(message: str) -> Any:
    return stream(message, ["messages", "custom"])


@case("b three modes with subgraphs")
def three_modes(message: str) -> Any:
    return stream(message, ["updates", "messages", "values"], subgraphs=True)


@case("b version 2")
def version_2(message: str) -> Any:
    return stream(message, ["updates", "messages"], version="v2")


@case("b debug")
def debug(message: str) -> Any:
    return stream(message, "debug")


@case("b events")
async def events(message: str) -> Any:
    async for event in make_agent(middleware=[]).astream_events(given(message), version="v2"):
        yield event


@case("b updates awaited")
async def updates_awaited(message: str) -> Any:
    async for chunk in make_agent(middleware=[]).astream(given(message), stream_mode="updates"):
        yield chunk


@case("b text yielded")
def text(message: str) -> Any:
    for piece, _ in stream(message, "messages"):
        yield piece.text if isinstance(piece.text, str) else piece.text()


@case("b model chunks")
def model_chunks(message: str) -> Any:
    for piece, _ in stream(message, "messages"):
        if type(piece).__name__ == "AIMessageChunk" and piece.text:
            yield piece


@case("c turns", *TURNS)
def turns(message: str, session_id: str) -> Any:
    return make_agent(checkpointer=SAVED).invoke(given(message), {"configurable": {"thread_id": session_id}})


@case("c turns streamed", *TURNS)
def turns_streamed(message: str, session_id: str) -> Any:
    thread = {"configurable": {"thread_id": f"{session_id} streamed"}}
    return make_agent(checkpointer=SAVED).stream(given(message), thread, stream_mode="values")


@case("c turns of updates", *TURNS)
def turns_updates(message: str, session_id: str) -> Any:
    thread = {"configurable": {"thread_id": f"{session_id} updates"}}
    return make_agent(checkpointer=SAVED).stream(given(message), thread, stream_mode="updates")


@case("d parallel", BOTH)
def parallel(message: str) -> Any:
    return make_agent().invoke(given(message))


@case("e tool raises", FAILS)
def raises(message: str) -> Any:
    return make_agent().invoke(given(message))


@case("e tool raises through", FAILS)
def raises_through(message: str) -> Any:
    return make_agent(middleware=[]).invoke(given(message))


@case("f endless", ENDLESS)
def endless(message: str) -> Any:
    return make_agent().invoke(given(message), {"recursion_limit": 6})


@case("f endless, chunks collected", ENDLESS)
def endless_collected(message: str) -> Any:
    chunks = []
    try:
        for chunk in make_agent().stream(given(message), {"recursion_limit": 6}, stream_mode="updates"):
            chunks.append(chunk)
    except Exception:
        return chunks
    return chunks


@case("f breaks", BREAKS)
def breaks(message: str) -> Any:
    return make_agent().invoke(given(message))


@case("f cut at length", CUT)
def cut(message: str) -> Any:
    return make_agent().invoke(given(message))


@case("f filtered", FILTERED)
def filtered(message: str) -> Any:
    return make_agent().invoke(given(message))


@case("f cut at length, messages", CUT)
def cut_messages(message: str) -> Any:
    return stream(message, "messages")


@case("f limit of model calls", ENDLESS)
def model_limit(message: str) -> Any:
    return make_agent(middleware=[ModelCallLimitMiddleware(run_limit=2, exit_behavior="end")]).invoke(given(message))


@case("f limit of model calls, updates", ENDLESS)
def model_limit_updates(message: str) -> Any:
    agent = make_agent(middleware=[ModelCallLimitMiddleware(run_limit=2, exit_behavior="end")])
    return agent.stream(given(message), stream_mode="updates")


@case("f limit of model calls, text", ENDLESS)
def model_limit_text(message: str) -> Any:
    return model_limit(message)["messages"][-1].text


@case("f limit of tool calls", ENDLESS)
def tool_limit(message: str) -> Any:
    return make_agent(middleware=[ToolCallLimitMiddleware(run_limit=2, exit_behavior="end")]).invoke(given(message))


@case("f limit of tool calls, reported to the model", ENDLESS)
def tool_limit_reported(message: str) -> Any:
    return make_agent(middleware=[ToolCallLimitMiddleware(run_limit=2)]).invoke(given(message))


@case("g form", FORM)
def form(message: str) -> Any:
    return make_agent(response_format=Form).invoke(given(message))


@case("g form by a tool", FORM)
def form_by_tool(message: str) -> Any:
    from langchain.agents.structured_output import ToolStrategy

    return make_agent(response_format=ToolStrategy(Form)).invoke(given(message))


def make_team() -> Any:
    @tool("transfer_to_expert")
    def hand_over(reason: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Hand over to the expert."""
        handover = ToolMessage("handed over", tool_call_id=tool_call_id, name="transfer_to_expert")
        return Command(goto="expert", graph=Command.PARENT, update={"messages": [handover]})

    graph = StateGraph(MessagesState)
    graph.add_node("front", make_agent(tools=[hand_over], name="front"), destinations=("expert",))
    graph.add_node("expert", make_agent(name="expert"))
    graph.add_edge(START, "front")
    return graph.compile()


@case("h handoff", EXPERT)
def handoff(message: str) -> Any:
    return make_team().invoke(given(message))


@case("h handoff streamed", EXPERT)
def handoff_streamed(message: str) -> Any:
    return make_team().stream(given(message), stream_mode="updates", subgraphs=True)


@case("h expert as a tool", EXPERT)
def expert(message: str) -> Any:
    @tool("expert")
    def ask_expert(question: str) -> str:
        """Ask the expert."""
        return str(make_agent().invoke(given(question))["messages"][-1].text)

    return make_agent(tools=[ask_expert]).invoke(given(message))
