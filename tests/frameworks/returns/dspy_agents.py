"""DSPy: predictions of `ReAct`, streams of `streamify`, histories, programs of several modules."""

from __future__ import annotations

from typing import Any

import dspy
from pydantic import BaseModel

from tests.frameworks.returns import shop
from tests.frameworks.returns.shop import BOTH, BREAKS, CUT, ENDLESS, FAILS, FILTERED, FORM, QUIET, TURNS, case

dspy.configure(lm=dspy.LM("openai/gpt-4o-mini", cache=False, num_retries=0))
SESSIONS: dict[str, Any] = {}


class Form(BaseModel):
    """A form."""

    order_id: int
    order_status: str


class Filled(dspy.Signature):
    """Fill in the form."""

    question: str = dspy.InputField()
    form: Form = dspy.OutputField()


class Conversed(dspy.Signature):
    """Answer with the history in mind."""

    question: str = dspy.InputField()
    history: dspy.History = dspy.InputField()
    answer: str = dspy.OutputField()


def make_agent(signature: Any = "question -> answer", **more: Any) -> Any:
    return dspy.ReAct(signature, tools=[shop.lookup_order, shop.refund], **more)


def make_stream(**more: Any) -> Any:
    return dspy.streamify(make_agent(), **more)


@case("a plain")
def plain(message: str) -> Any:
    return make_agent()(question=message)


@case("a awaited")
async def awaited(message: str) -> Any:
    return await make_agent().acall(question=message)


@case("a plain with its usage")
def with_usage(message: str) -> Any:
    with dspy.context(track_usage=True):
        return make_agent()(question=message)


@case("a quiet", QUIET)
def quiet(message: str) -> Any:
    return make_agent()(question=message)


@case("a without a trajectory")
def no_trajectory(message: str) -> Any:
    return dspy.ChainOfThought("question -> answer")(question=message)


@case("b stream returned")
def stream_returned(message: str) -> Any:
    return make_stream()(question=message)


@case("b stream yielded")
async def stream_yielded(message: str) -> Any:
    async for item in make_stream()(question=message):
        yield item


@case("b stream collected")
async def stream_collected(message: str) -> Any:
    return [item async for item in make_stream()(question=message)]


@case("b stream that blocks")
def stream_blocking(message: str) -> Any:
    return make_stream(async_streaming=False)(question=message)


@case("b stream with listeners")
def stream_listeners(message: str) -> Any:
    return make_stream(stream_listeners=[dspy.streaming.StreamListener(signature_field_name="answer")])(question=message)


@case("b stream without a prediction")
async def stream_headless(message: str) -> Any:
    listeners = [dspy.streaming.StreamListener(signature_field_name="answer")]
    async for item in make_stream(stream_listeners=listeners)(question=message):
        if not isinstance(item, dspy.Prediction):
            yield item


@case("b quiet stream", QUIET)
def quiet_stream(message: str) -> Any:
    return make_stream()(question=message)


@case("c turns", *TURNS)
def turns(message: str, session_id: str) -> Any:
    history = SESSIONS.setdefault(session_id, [])
    found = make_agent(Conversed)(question=message, history=dspy.History(messages=list(history)))
    history.append({"question": message, "answer": found.answer})
    return found


@case("d one after the other", BOTH)
def sequential(message: str) -> Any:
    return make_agent()(question=message)


@case("e tool raises", FAILS)
def raises(message: str) -> Any:
    return make_agent()(question=message)


@case("f endless", ENDLESS)
def endless(message: str) -> Any:
    return make_agent(max_iters=2)(question=message)


@case("f breaks", BREAKS)
def breaks(message: str) -> Any:
    return make_agent()(question=message)


@case("f cut at length", CUT)
def cut(message: str) -> Any:
    return make_agent()(question=message)


@case("f filtered", FILTERED)
def filtered(message: str) -> Any:
    return make_agent()(question=message)


@case("g form", FORM)
def form(message: str) -> Any:
    return make_agent(Filled)(question=message)


class Team(dspy.Module):
    """A program in which one module works for another."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = make_agent()
        self.front = dspy.ChainOfThought("question, found -> answer")

    def forward(self, question: str) -> Any:
        found = self.expert(question=question)
        return self.front(question=question, found=found.answer)


@case("h program of two modules")
def team(message: str) -> Any:
    return Team()(question=message)
