"""Misbehaving members x jury sizes x budgets: nothing passes without a quorum of real decisions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.scripted import list_ids
from proctor.judge.settings import JudgeSettings
from proctor.llm.ports import ChatReply, ChatRequest, ModelCall, ModelFault
from proctor.model.judgement import Material, Opinion, Question

Reply = Callable[[ChatRequest], "str | ChatReply | ModelFault | Awaitable[str]"]


def yes(request: ChatRequest) -> str:
    decision: dict[str, Any] = {"score": 1.0} if '"score"' in json.dumps(request.answer_schema) else {"pass": True}
    return json.dumps({"results": [{"id": name, "quotes": [], "reason": "good", **decision} for name in list_ids(request)]})


def twist(**members: object) -> Reply:
    """A yes with fields of its entries replaced; `...` removes one."""

    def reply(request: ChatRequest) -> str:
        document = json.loads(yes(request))
        for entry in document["results"]:
            entry.update(members)
            for name in [name for name, value in members.items() if value is ...]:
                del entry[name]
        return json.dumps(document)

    return reply


async def hang(request: ChatRequest) -> str:
    await asyncio.sleep(3600)
    return ""


MISBEHAVIOURS: dict[str, Reply] = {
    "silent": hang,
    "500": lambda request: ModelFault("overloaded", "500", status=500),
    "429": lambda request: ModelFault("rate_limited", "429", status=429),
    "401": lambda request: ModelFault("unauthorized", "401", status=401),
    "404": lambda request: ModelFault("bad_request", "404", status=404),
    "no connection": lambda request: ModelFault("transport", "refused"),
    "too large": lambda request: ModelFault("too_large", "more than 8 MB"),
    "bad answer": lambda request: ModelFault("bad_answer", "HTML"),
    "empty": lambda request: "",
    "junk": lambda request: "I think it passes.",
    "yes in prose": lambda request: "pass: true",
    "empty object": lambda request: "{}",
    "no results": lambda request: '{"results": []}',
    "results of another kind": lambda request: '{"results": true}',
    "null": lambda request: "null",
    "truncated": lambda request: yes(request)[:-5],
    "cut off": lambda request: ChatReply(text=yes(request), finish="length"),
    "filtered": lambda request: ChatReply(text=yes(request), finish="content_filter"),
    "tool call": lambda request: ChatReply(text=yes(request), tool_calls=(ModelCall(id="1", name="pass", arguments={}),)),
    "two answers": lambda request: yes(request) + yes(request).replace("true", "false").replace("1.0", "0.0"),
    "yes and no": lambda request: json.dumps({"results": json.loads(yes(request))["results"] + json.loads(no(request))["results"]}),
    "key twice": lambda request: yes(request).replace('"reason"', '"id": "x", "reason"'),
    "wrong ids": twist(id="agent-check-1"),
    "ids of another request": lambda request: yes(request).replace(list_ids(request)[0][-12:], "0" * 12),
    "without ids": twist(id=...),
    "without a decision": twist(**{"pass": ..., "score": ...}),
    "decision as text": twist(**{"pass": "true", "score": "1"}),
    "decision as a number": twist(**{"pass": 1, "score": True}),
    "score out of range": twist(**{"pass": None, "score": 7}),
    "score is not a number": lambda request: yes(request).replace("1.0", "NaN").replace("true", "NaN"),
    "without a reason": twist(reason=...),
    "unfounded": twist(quotes=["what nobody wrote"]),
    "words left out": twist(quotes=["a ... answer"]),
    "our own key": twist(quotes=["final_answer"]),
    "empty reason": twist(reason=" "),
    "decision first": lambda request: json.dumps(
        {"results": [dict(reversed(entry.items())) for entry in json.loads(yes(request))["results"]]}
    ),
    "two decisions": twist(verdict="fail"),
}
BUDGETS: tuple[int | None, ...] = (None, 0, 1, 2, 4)


def no(request: ChatRequest) -> str:
    return yes(request).replace("true", "false").replace("1.0", "0.0")


class Member:
    provider = "stub"

    def __init__(self, number: int, reply: Reply) -> None:
        self.name = f"m{number}"
        self.reply = reply
        self.decided = 0

    async def complete(self, request: ChatRequest) -> ChatReply:
        reply = self.reply(request)
        reply = await reply if isinstance(reply, Awaitable) else reply
        if isinstance(reply, ModelFault):
            raise ModelFault(reply.code, reply.message, status=reply.status)  # type: ignore[arg-type]
        self.decided += self.reply is yes
        return reply if isinstance(reply, ChatReply) else ChatReply(text=reply)

    async def close(self) -> None: ...


def judge_with(members: list[Member], budget: int | None, threshold: float | None, **settings: object) -> Opinion:
    fields = {"backoff_s": 0.0, "retries": 1, "timeout_s": 0.01, "max_calls": budget, "structured": "schema", **settings}
    judge = LlmJudge(members, JudgeSettings(**fields))  # type: ignore[arg-type]
    question = Question(criterion="It is good.", material=Material(subject="a good answer"), threshold=threshold)
    return asyncio.run(judge.judge([question], case="c", attempt=0, tape=LIVE))[0]


@pytest.mark.in_turn
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_nothing_passes_without_a_quorum_of_decisions(name: str, size: int) -> None:
    for good, budget, threshold in product(range(size + 1), BUDGETS, (None, 0.5)):
        members = [Member(number, yes if number < good else MISBEHAVIOURS[name]) for number in range(size)]
        opinion = judge_with(members, budget, threshold)
        decided = sum(member.decided for member in members)
        place = (good, budget, threshold, opinion.reason)
        assert (opinion.outcome == "pass") == (2 * decided > size), place
        if opinion.outcome != "pass":
            assert opinion.outcome == "error" and opinion.code is not None, place
        # Without a budget every member was called, so the good ones decide.
        if budget is None:
            assert decided == good, place


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_samples_of_one_model_are_a_jury_too(name: str) -> None:
    for good in range(6):
        turns = iter([yes] * good)

        def reply(request: ChatRequest, turns: object = turns) -> object:
            return next(turns, MISBEHAVIOURS[name])(request)  # type: ignore[call-overload]

        opinion = judge_with([Member(0, reply)], None, None, samples=5, retries=0, concurrency=1)  # type: ignore[arg-type]
        assert (opinion.outcome == "pass") == (good > 2), (good, opinion.reason)
