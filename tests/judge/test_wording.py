"""Faults of a judge, described without MCPLab's agent checks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.settings import JudgeSettings
from proctor.llm.ports import ChatReply, ChatRequest, ModelFault
from proctor.model.judgement import Material, Opinion, Question
from tests.judge.twins import fill_ids

QUESTIONS = (
    Question(criterion="greets", material=Material(subject="hello")),
    Question(criterion="is kind", material=Material(subject="hello"), label="kind"),
)


class Model:
    """Always gives the same reply, or fails in the same way."""

    provider, name = "scripted", "m"

    def __init__(self, reply: str | ModelFault | ChatReply) -> None:
        self._reply = reply

    async def complete(self, request: ChatRequest) -> ChatReply:
        if isinstance(self._reply, ModelFault):
            raise self._reply
        return self._reply if isinstance(self._reply, ChatReply) else ChatReply(text=fill_ids(self._reply, request))

    async def close(self) -> None:
        """Nothing to close."""


def opinions_about(reply: str | ModelFault | ChatReply, *questions: Question, **settings: Any) -> list[Opinion]:
    chosen = JudgeSettings(name=settings.pop("name", "grader"), retries=0, **settings)
    judge = LlmJudge([Model(reply)], chosen, plain_words=True)
    return list(asyncio.run(judge.judge(questions or QUESTIONS, case="c", attempt=0, tape=LIVE)))


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (ModelFault("transport", "connection refused"), 'the judge "grader" (model m) could not be reached: connection refused'),
        (ModelFault("unauthorized", "401"), 'the judge "grader" (model m) refuses access: 401'),
        ("nonsense", 'the judge "grader" returned invalid JSON'),
        ('{"results": 1}', 'the judge "grader" returned no list `results`'),
        ('{"results": [1]}', 'the judge "grader" returned a result without an id, a reason or a decision of the demanded type'),
        ('{"results": []}', 'the judge did not return a result for "greets"'),
        (
            ChatReply(text="{", finish="length"),
            'the judge "grader" was cut off at the limit of 4000 tokens for a reply (`max_tokens` of the judge)',
        ),
        (ChatReply(finish="content_filter"), 'the judge "grader" did not answer: a content filter held the reply back'),
        ("x" * 1_000_001, 'the judge "grader" returned 1000001 characters, more than is ever looked at'),
    ],
)
def test_a_fault_names_the_judge_and_no_agent_check(reply: Any, reason: str) -> None:
    opinions = opinions_about(reply)
    assert opinions[0].reason == reason
    assert [opinion.outcome for opinion in opinions] == ["error", "error"]
    assert opinions[0].details["samples"][0]["reason"] == reason
    assert "gent check" not in repr([(opinion.reason, opinion.details["samples"]) for opinion in opinions])


@pytest.mark.parametrize("reply", ["nonsense", '{"results": []}', ModelFault("transport", "connection refused")])
def test_a_fault_among_several_judgements_uses_the_same_wording(reply: Any) -> None:
    good = '{"results": [{"id": "agent-check-1", "reason": "so", "pass": true}]}'
    judge = LlmJudge([Model(good), Model(reply)], JudgeSettings(name="grader", retries=0), plain_words=True)
    (opinion,) = asyncio.run(judge.judge(QUESTIONS[:1], case="c", attempt=0, tape=LIVE))
    assert opinion.outcome == "error" and opinion.reason.startswith("1 of 2 judgements were given") and ": the judge " in opinion.reason
    assert "gent check" not in repr((opinion.reason, opinion.details["samples"])) and "Judge did" not in opinion.reason


def test_a_bad_score_is_reported_with_the_claim() -> None:
    scored = Question(criterion="greets", material=Material(subject="hello"), threshold=0.5)
    (opinion,) = opinions_about('{"results": [{"id": "agent-check-1", "reason": "x", "score": 7}]}', scored)
    assert opinion.reason == 'the judge "grader" returned the score 7, which is no number from 0 to 1, for "greets"'


def test_the_judges_reason_is_unchanged_and_silence_is_a_fault() -> None:
    question = Question(criterion="greets", material=Material(subject="hello"))
    (opinion,) = opinions_about(
        '{"results": [{"id": "agent-check-1", "reason": "Agent check failed: judge of wine", "pass": true}]}', question
    )
    assert (opinion.outcome, opinion.reason) == ("pass", "Agent check failed: judge of wine")
    (opinion,) = opinions_about('{"results": [{"id": "agent-check-1", "reason": " ", "pass": true}]}', question)
    assert (opinion.outcome, opinion.code) == ("error", "judge_no_reason")
    assert opinion.reason == 'the judge "grader" gave no reason for "greets"'
