"""smolagents: full results, steps of a stream, memories, managed agents."""

from __future__ import annotations

from typing import Any

from smolagents import CodeAgent, OpenAIModel, Tool, ToolCallingAgent

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Lookup(Tool):
    """Looks up an order."""

    name = "lookup_order"
    description = "Look up an order by its number."
    inputs = {"id": {"type": "integer", "description": "its number"}}  # noqa: RUF012 - as smolagents wants it
    output_type = "string"

    def forward(self, id: int) -> str:
        return shop.lookup_order(id)


class Refund(Tool):
    """Refunds an order."""

    name = "refund"
    description = "Refund an order."
    inputs = {"id": {"type": "integer", "description": "its number"}}  # noqa: RUF012 - as smolagents wants it
    output_type = "string"

    def forward(self, id: int) -> str:
        return shop.refund(id)


def make_agent(**more: Any) -> Any:
    model = OpenAIModel(model_id="gpt-4o-mini")
    known = {"tools": [Lookup(), Refund()], "model": model, "verbosity_level": 0, "name": "shop", "description": "Shop"}
    return ToolCallingAgent(**{**known, **more})


@case("a plain")
def plain(message: str) -> Any:
    return make_agent().run(message, return_full_result=True)


@case("a answer only")
def answer_only(message: str) -> Any:
    return make_agent().run(message)


@case("a quiet", QUIET)
def quiet(message: str) -> Any:
    return make_agent().run(message, return_full_result=True)


@case("a memory")
def memory(message: str) -> Any:
    agent = make_agent()
    agent.run(message)
    return agent.memory


@case("b stream returned")
def stream_returned(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("b stream yielded")
def stream_yielded(message: str) -> Any:
    yield from make_agent().run(message, stream=True)


@case("b stream collected")
def stream_collected(message: str) -> Any:
    return list(make_agent().run(message, stream=True))


@case("b stream with outputs")
def stream_outputs(message: str) -> Any:
    return make_agent(stream_outputs=True).run(message, stream=True)


@case("b final step only")
def final_step(message: str) -> Any:
    return list(make_agent().run(message, stream=True))[-1]


@case("b final step yielded")
def final_step_yielded(message: str) -> Any:
    for step in make_agent().run(message, stream=True):
        if type(step).__name__ == "FinalAnswerStep":
            yield step


@case("b quiet stream", QUIET)
def quiet_stream(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("c turns", *TURNS)
def turns(message: str, session_id: str) -> Any:
    is_new = session_id not in SESSIONS
    return SESSIONS.setdefault(session_id, make_agent()).run(message, reset=is_new, return_full_result=True)


@case("c turns streamed", *TURNS)
def turns_streamed(message: str, session_id: str) -> Any:
    key = f"{session_id} streamed"
    is_new = key not in SESSIONS
    return SESSIONS.setdefault(key, make_agent()).run(message, reset=is_new, stream=True)


@case("d parallel", BOTH)
def parallel(message: str) -> Any:
    return make_agent().run(message, return_full_result=True)


@case("d parallel streamed", BOTH)
def parallel_streamed(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("e tool raises", FAILS)
def raises(message: str) -> Any:
    return make_agent(max_steps=2).run(message, return_full_result=True)


@case("f endless", ENDLESS)
def endless(message: str) -> Any:
    return make_agent(max_steps=2).run(message, return_full_result=True)


@case("f breaks", BREAKS)
def breaks(message: str) -> Any:
    return make_agent().run(message, return_full_result=True)


@case("f breaks in a stream", BREAKS)
def breaks_streamed(message: str) -> Any:
    return make_agent().run(message, stream=True)


@case("f cut at length", CUT)
def cut(message: str) -> Any:
    return make_agent(max_steps=2).run(message, return_full_result=True)


@case("f filtered", FILTERED)
def filtered(message: str) -> Any:
    return make_agent(max_steps=2).run(message, return_full_result=True)


@case("f endless, answer only", ENDLESS)
def endless_text(message: str) -> Any:
    return make_agent(max_steps=2).run(message)


@case("f endless, streamed", ENDLESS)
def endless_streamed(message: str) -> Any:
    return make_agent(max_steps=2).run(message, stream=True)


@case("f endless, memory", ENDLESS)
def endless_memory(message: str) -> Any:
    agent = make_agent(max_steps=2)
    agent.run(message)
    return agent.memory


class Broken(OpenAIModel):
    """A model that fails when it is called for a last answer."""

    def generate(self, messages: Any, *arguments: Any, **options: Any) -> Any:
        if not options.get("tools_to_call_from"):
            raise ConnectionError("the model is gone")
        return super().generate(messages, *arguments, **options)


@case("f endless, no last answer", ENDLESS)
def endless_broken(message: str) -> Any:
    return make_agent(max_steps=2, model=Broken(model_id="gpt-4o-mini")).run(message)


@case("h managed agent", EXPERT)
def managed(message: str) -> Any:
    expert = make_agent(name="expert", description="Knows orders")
    return make_agent(tools=[], managed_agents=[expert]).run(message, return_full_result=True)


@case("h managed agent streamed", EXPERT)
def managed_streamed(message: str) -> Any:
    expert = make_agent(name="expert", description="Knows orders")
    return make_agent(tools=[], managed_agents=[expert]).run(message, stream=True)


class Coder(OpenAIModel):
    """A model that writes code."""

    def generate(self, messages: Any, *arguments: Any, **options: Any) -> Any:
        from smolagents.models import ChatMessage, MessageRole

        code = 'print(lookup_order(id=17))\nfinal_answer("Order 17 has shipped.")'
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: I look.\n<code>\n{code}\n</code>")


@case("a code")
def code(message: str) -> Any:
    agent = CodeAgent(tools=[Lookup()], model=Coder(model_id="gpt-4o-mini"), verbosity_level=0)
    return agent.run(message, return_full_result=True)
