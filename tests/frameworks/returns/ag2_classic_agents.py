"""AG2 Classic: the response of `run`, its events, chats of two, group chats with a handoff."""

from __future__ import annotations

from typing import Any

from autogen import ConversableAgent, LLMConfig, register_function
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, EXPERT, FAILS, FILTERED, FORM, QUIET, TURNS, case

SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


def make_model(**more: Any) -> Any:
    return LLMConfig(config_list=[{"model": "gpt-4o-mini", **more}], cache_seed=None)


def make_agent(**more: Any) -> Any:
    known = {"llm_config": make_model(), "functions": [shop.lookup_order, shop.refund], "human_input_mode": "NEVER"}
    return ConversableAgent("shop", **{**known, **more})


def make_pair(**more: Any) -> tuple[Any, Any]:
    """A customer who runs the tools, and the agent that calls them."""
    agent = ConversableAgent("shop", **{"llm_config": make_model(), "human_input_mode": "NEVER", **more})
    is_over = lambda found: not found.get("tool_calls")  # noqa: E731 - as the guides write it
    user = ConversableAgent("customer", llm_config=False, human_input_mode="NEVER", default_auto_reply="", is_termination_msg=is_over)
    for function in (shop.lookup_order, shop.refund):
        register_function(function, caller=agent, executor=user, description=function.__doc__ or "")
    return user, agent


@case("a plain")
def plain(message: str) -> Any:
    response = make_agent().run(message=message, max_turns=3, user_input=False)
    response.process()
    return response


@case("a quiet", QUIET)
def quiet(message: str) -> Any:
    return make_agent().run(message=message, max_turns=3, user_input=False)


@case("a chat")
def chat(message: str) -> Any:
    user, agent = make_pair()
    return user.initiate_chat(agent, message=message, max_turns=4, silent=True)


@case("a chat awaited")
async def chat_awaited(message: str) -> Any:
    user, agent = make_pair()
    return await user.a_initiate_chat(agent, message=message, max_turns=4, silent=True)


@case("a history")
def history(message: str) -> Any:
    user, agent = make_pair()
    return user.initiate_chat(agent, message=message, max_turns=4, silent=True).chat_history


@case("a summary")
def summary(message: str) -> Any:
    user, agent = make_pair()
    return user.initiate_chat(agent, message=message, max_turns=4, silent=True).summary


@case("b response returned")
def response_returned(message: str) -> Any:
    return make_agent().run(message=message, max_turns=3, user_input=False)


@case("b response awaited")
async def response_awaited(message: str) -> Any:
    return await make_agent().a_run(message=message, max_turns=3, user_input=False)


@case("b events returned")
def events_returned(message: str) -> Any:
    return iter(make_agent().run(message=message, max_turns=3, user_input=False).events)


@case("b events yielded")
def events_yielded(message: str) -> Any:
    yield from make_agent().run(message=message, max_turns=3, user_input=False).events


@case("b events collected")
def events_collected(message: str) -> Any:
    return list(make_agent().run(message=message, max_turns=3, user_input=False).events)


@case("b events awaited")
async def events_awaited(message: str) -> Any:
    response = await make_agent().a_run(message=message, max_turns=3, user_input=False)
    async for event in response.events:
        yield event


@case("b quiet events", QUIET)
def quiet_events(message: str) -> Any:
    return list(make_agent().run(message=message, max_turns=3, user_input=False).events)


@case("b streamed model")
def streamed_model(message: str) -> Any:
    response = make_agent(llm_config=make_model(stream=True)).run(message=message, max_turns=3, user_input=False)
    response.process()
    return response


@case("c turns", *TURNS)
def turns(message: str, session_id: str) -> Any:
    is_new = session_id not in SESSIONS
    user, agent = SESSIONS.setdefault(session_id, make_pair())
    return user.initiate_chat(agent, message=message, max_turns=4, silent=True, clear_history=is_new)


@case("d parallel", BOTH)
def parallel(message: str) -> Any:
    return make_agent().run(message=message, max_turns=3, user_input=False)


@case("d parallel chat", BOTH)
def parallel_chat(message: str) -> Any:
    return chat(message)


@case("e tool raises", FAILS)
def raises(message: str) -> Any:
    return make_agent().run(message=message, max_turns=3, user_input=False)


@case("e tool raises in a chat", FAILS)
def raises_in_chat(message: str) -> Any:
    return chat(message)


@case("f endless", ENDLESS)
def endless(message: str) -> Any:
    return make_agent().run(message=message, max_turns=3, user_input=False)


@case("f endless chat", ENDLESS)
def endless_chat(message: str) -> Any:
    return chat(message)


@case("f breaks", BREAKS)
def breaks(message: str) -> Any:
    return make_agent().run(message=message, max_turns=3, user_input=False)


@case("f breaks, events collected", BREAKS)
def breaks_collected(message: str) -> Any:
    events = []
    try:
        for event in make_agent().run(message=message, max_turns=3, user_input=False).events:
            events.append(event)
    except Exception:
        return events
    return events


@case("f cut at length", CUT)
def cut(message: str) -> Any:
    return make_agent().run(message=message, max_turns=3, user_input=False)


@case("f filtered", FILTERED)
def filtered(message: str) -> Any:
    return make_agent().run(message=message, max_turns=3, user_input=False)


@case("g form", FORM)
def form(message: str) -> Any:
    user, agent = make_pair(llm_config=LLMConfig(config_list=[{"model": "gpt-4o-mini", "response_format": Form}], cache_seed=None))
    return user.initiate_chat(agent, message=message, max_turns=4, silent=True)


def make_team() -> tuple[Any, Any]:
    from autogen.agentchat.group import AgentTarget, OnCondition, RevertToUserTarget, StringLLMCondition
    from autogen.agentchat.group.patterns import DefaultPattern

    expert = ConversableAgent("expert", llm_config=make_model(), functions=[shop.lookup_order], human_input_mode="NEVER")
    front = ConversableAgent("front", llm_config=make_model(), human_input_mode="NEVER")
    condition = StringLLMCondition("when the customer wants an expert")
    front.handoffs.add_llm_conditions([OnCondition(target=AgentTarget(expert), condition=condition)])
    expert.handoffs.set_after_work(RevertToUserTarget())
    return front, DefaultPattern(initial_agent=front, agents=[front, expert], group_after_work=RevertToUserTarget())


@case("h handoff", EXPERT)
def handoff(message: str) -> Any:
    from autogen.agentchat import initiate_group_chat

    _, pattern = make_team()
    result, _, _ = initiate_group_chat(pattern=pattern, messages=message, max_rounds=6)
    return result


@case("h handoff run", EXPERT)
def handoff_run(message: str) -> Any:
    from autogen.agentchat import run_group_chat

    _, pattern = make_team()
    return run_group_chat(pattern=pattern, messages=message, max_rounds=6)
