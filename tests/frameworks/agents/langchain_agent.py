"""langchain's create_agent, which is a langgraph graph; or a graph made by hand of model and tool nodes."""

from __future__ import annotations

import os
from typing import Any

from tests.frameworks import shop


def make_model(settings: dict[str, Any]) -> Any:
    if settings.get("provider") == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=shop.ANTHROPIC_MODEL, base_url=os.environ["MODEL_URL"], api_key="sk-none")
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        model=shop.MODEL,
        base_url=os.environ["MODEL_URL"] + "/v1",
        api_key="sk-none",
        stream_usage=True,
        use_responses_api=settings.get("api") == "responses",
    )


def make_tools() -> list[Any]:
    from langchain_core.tools import tool

    return [tool(function) for function in shop.TOOLS.values()]


def refund_or_report(id: int, amount: float) -> dict[str, Any]:
    from langchain_core.tools import ToolException

    try:
        return shop.refund(id, amount)
    except ValueError as error:
        raise ToolException(str(error)) from error


def describe_error(error: Exception) -> str:
    return f"Error: {error}"


def make_graph(settings: dict[str, Any]) -> Any:
    """Two nodes and a loop, as langgraph's users write it."""
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    tools = make_tools()
    model = make_model(settings).bind_tools(tools)

    def shop_agent(state: Any) -> Any:
        return {"messages": [model.invoke([("system", shop.SYSTEM), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("shop_agent", shop_agent)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=describe_error))
    graph.add_edge(START, "shop_agent")
    graph.add_conditional_edges("shop_agent", tools_condition)
    graph.add_edge("tools", "shop_agent")
    return graph.compile(name="shop_graph")


def make_agent(settings: dict[str, Any]) -> Any:
    from langchain.agents import create_agent
    from langchain.agents.middleware import wrap_tool_call
    from langchain_core.messages import ToolMessage

    @wrap_tool_call
    def handle_errors(request: Any, handler: Any) -> Any:
        try:
            return handler(request)
        except ValueError as error:
            return ToolMessage(content=f"Error: {error}", tool_call_id=request.tool_call["id"], status="error")

    return create_agent(make_model(settings), make_tools(), system_prompt=shop.SYSTEM, name="shop_agent", middleware=[handle_errors])


class Executor:
    """langchain's AgentExecutor of before version 1, in the form of a graph."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from langchain.agents import AgentExecutor, create_tool_calling_agent
        from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

        places = [
            ("system", shop.SYSTEM),
            MessagesPlaceholder("chat_history"),
            ("human", "{input}"),
            MessagesPlaceholder("agent_scratchpad"),
        ]
        tools = make_tools()
        # An AgentExecutor reports only this exception to the model.
        tools[1].func, tools[1].handle_tool_error = refund_or_report, True
        agent = create_tool_calling_agent(make_model(settings), tools, ChatPromptTemplate.from_messages(places))
        self.executor = AgentExecutor(agent=agent, tools=tools, name="shop_agent")

    def invoke(self, given: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
        from langchain_core.messages import AIMessage

        *history, question = given["messages"]
        done = self.executor.invoke({"input": question.content, "chat_history": history}, config=config)
        return {"messages": [*given["messages"], AIMessage(done["output"])]}

    def stream(self, given: dict[str, Any], config: dict[str, Any], stream_mode: Any) -> Any:
        from langchain_core.messages import AIMessage

        *history, question = given["messages"]
        for chunk in self.executor.stream({"input": question.content, "chat_history": history}, config=config):
            if "output" in chunk:
                yield "values", {"messages": [*given["messages"], AIMessage(chunk["output"])]}


def prepare(settings: dict[str, Any]) -> Any:
    if settings.get("executor"):
        return lambda: Conversation(Executor(settings), {})
    graph = make_graph(settings) if settings.get("graph") else make_agent(settings)
    config: dict[str, Any] = {}
    if settings.get("handler") == "langfuse":
        from langfuse.langchain import CallbackHandler

        config["callbacks"] = [CallbackHandler()]
    return lambda: Conversation(graph, config)


class Conversation:
    """One conversation."""

    def __init__(self, graph: Any, config: dict[str, Any]) -> None:
        self.graph, self.config = graph, config
        self.state: dict[str, Any] = {"messages": []}

    def ask(self, text: str, streamed: bool) -> str:
        from langchain_core.messages import HumanMessage

        given = {"messages": [*self.state["messages"], HumanMessage(text)]}
        if streamed:
            for kind, chunk in self.graph.stream(given, config=self.config, stream_mode=["messages", "values"]):
                if kind == "values":
                    self.state = chunk
        else:
            self.state = self.graph.invoke(given, config=self.config)
        text = self.state["messages"][-1].text
        # A method before langchain 1, a text since.
        return str(text if isinstance(text, str) else text())

    def messages(self) -> dict[str, Any]:
        from langchain_core.load import dumpd
        from langchain_core.messages import convert_to_openai_messages, messages_to_dict

        found = self.state["messages"]
        return {
            "langchain-dict": messages_to_dict(found),
            "langchain-lc": dumpd(found),
            "langchain-openai": convert_to_openai_messages(found),
            "langgraph-dumpd": dumpd(self.state),
        }
