"""Semantic Kernel: responses with their threads, streams, histories, handoffs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from semantic_kernel.agents import ChatCompletionAgent, ChatHistoryAgentThread
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.functions import KernelArguments, kernel_function

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


class Shop:
    """The plugin."""

    @kernel_function
    def lookup_order(self, id: int) -> str:
        """Look up an order by its number."""
        return shop.lookup_order(id)

    @kernel_function
    def refund(self, id: int) -> str:
        """Refund an order."""
        return shop.refund(id)


def make_agent(**more: Any) -> Any:
    service = OpenAIChatCompletion(ai_model_id="gpt-4o-mini")
    return ChatCompletionAgent(**{"service": service, "name": "shop", "plugins": [Shop()], **more})


@case("a plain")
async def plain(message: str) -> Any:
    return await make_agent().get_response(messages=message)


@case("a message only")
async def message_only(message: str) -> Any:
    return (await make_agent().get_response(messages=message)).message


@case("a quiet", QUIET)
async def quiet(message: str) -> Any:
    return await make_agent().get_response(messages=message)


@case("a history")
async def history(message: str) -> Any:
    thread = ChatHistoryAgentThread()
    await make_agent().get_response(messages=message, thread=thread)
    return thread._chat_history


@case("a thread")
async def thread_returned(message: str) -> Any:
    return (await make_agent().get_response(messages=message)).thread


@case("b invoke returned")
def invoke_returned(message: str) -> Any:
    return make_agent().invoke(messages=message)


@case("b invoke yielded")
async def invoke_yielded(message: str) -> Any:
    async for response in make_agent().invoke(messages=message):
        yield response


@case("b stream returned")
def stream_returned(message: str) -> Any:
    return make_agent().invoke_stream(messages=message)


@case("b stream yielded")
async def stream_yielded(message: str) -> Any:
    async for response in make_agent().invoke_stream(messages=message):
        yield response


@case("b stream collected")
async def collected(message: str) -> Any:
    return [response async for response in make_agent().invoke_stream(messages=message)]


@case("b messages of a stream yielded")
async def stream_messages(message: str) -> Any:
    async for response in make_agent().invoke_stream(messages=message):
        yield response.message


@case("b text yielded")
async def text(message: str) -> Any:
    async for response in make_agent().invoke_stream(messages=message):
        yield str(response.message.content or "")


@case("b quiet stream", QUIET)
def quiet_stream(message: str) -> Any:
    return make_agent().invoke_stream(messages=message)


@case("c turns", *TURNS)
async def turns(message: str, session_id: str) -> Any:
    response = await make_agent().get_response(messages=message, thread=SESSIONS.get(session_id))
    SESSIONS[session_id] = response.thread
    return response


@case("c turns streamed", *TURNS)
async def turns_streamed(message: str, session_id: str) -> Any:
    key = f"{session_id} streamed"
    async for response in make_agent().invoke_stream(messages=message, thread=SESSIONS.get(key)):
        SESSIONS[key] = response.thread
        yield response


@case("d parallel", BOTH)
async def parallel(message: str) -> Any:
    return await make_agent().get_response(messages=message)


@case("d parallel streamed", BOTH)
def parallel_streamed(message: str) -> Any:
    return make_agent().invoke_stream(messages=message)


@case("e tool raises", FAILS)
async def raises(message: str) -> Any:
    return await make_agent().get_response(messages=message)


@case("e tool raises in a stream", FAILS)
def raises_streamed(message: str) -> Any:
    return make_agent().invoke_stream(messages=message)


@case("f endless", ENDLESS)
async def endless(message: str) -> Any:
    from semantic_kernel.connectors.ai import FunctionChoiceBehavior

    agent = make_agent(function_choice_behavior=FunctionChoiceBehavior.Auto(maximum_auto_invoke_attempts=2))
    return await agent.get_response(messages=message)


@case("f breaks", BREAKS)
async def breaks(message: str) -> Any:
    return await make_agent().get_response(messages=message)


@case("f breaks, responses collected", BREAKS)
async def breaks_collected(message: str) -> Any:
    responses = []
    try:
        async for response in make_agent().invoke_stream(messages=message):
            responses.append(response)
    except Exception:
        return responses
    return responses


@case("f cut at length", CUT)
async def cut(message: str) -> Any:
    return await make_agent().get_response(messages=message)


@case("f filtered", FILTERED)
async def filtered(message: str) -> Any:
    return await make_agent().get_response(messages=message)


@case("f cut at length, streamed", CUT)
def cut_streamed(message: str) -> Any:
    return make_agent().invoke_stream(messages=message)


@case("g form", FORM)
async def form(message: str) -> Any:
    settings = OpenAIChatPromptExecutionSettings()
    settings.response_format = Form
    return await make_agent(arguments=KernelArguments(settings=settings)).get_response(messages=message)


@case("h expert as a plugin", EXPERT)
async def expert(message: str) -> Any:
    inner = make_agent(name="expert", description="Knows orders")
    return await make_agent(plugins=[inner]).get_response(messages=message)


@case("h group chat")
async def group_chat(message: str) -> Any:
    from semantic_kernel.agents import AgentGroupChat

    chat = AgentGroupChat(agents=[make_agent(name="expert")])
    await chat.add_chat_message(message)
    async for found in chat.invoke():
        yield found
        break
