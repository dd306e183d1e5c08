"""What a judge could not do, told to people who never heard of MCPLab's agent checks."""

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
    """Says the same again and again, or fails in the same way."""

    provider, name = "scripted", "m"

    def __init__(self, said: str | ModelFault | ChatReply) -> None:
        self._said = said

    async def complete(self, request: ChatRequest) -> ChatReply:
        if isinstance(self._said, ModelFault):
            raise self._said
        return self._said if isinstance(self._said, ChatReply) else ChatReply(text=fill_ids(self._said, request))

    async def close(self) -> None:
        """Nothing to give back."""


def heard(said: str | ModelFault | ChatReply, *questions: Question, **settings: Any) -> list[Opinion]:
    chosen = JudgeSettings(name=settings.pop("name", "grader"), retries=0, **settings)
    judge = LlmJudge([Model(said)], chosen, plain_words=True)
    return list(asyncio.run(judge.judge(questions or QUESTIONS, case="c", attempt=0, tape=LIVE)))


@pytest.mark.parametrize(
    ("said", "told"),
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
def test_a_fault_is_told_of_the_judge_and_of_no_agent_check(said: Any, told: str) -> None:
    opinions = heard(said)
    assert opinions[0].reason == told
    assert [opinion.outcome for opinion in opinions] == ["error", "error"]
    assert opinions[0].details["samples"][0]["reason"] == told
    assert "gent check" not in repr([(opinion.reason, opinion.details["samples"]) for opinion in opinions])


@pytest.mark.parametrize("said", ["nonsense", '{"results": []}', ModelFault("transport", "connection refused")])
def test_a_fault_among_several_judgements_is_told_in_the_same_words(said: Any) -> None:
    good = '{"results": [{"id": "agent-check-1", "reason": "so", "pass": true}]}'
    judge = LlmJudge([Model(good), Model(said)], JudgeSettings(name="grader", retries=0), plain_words=True)
    (opinion,) = asyncio.run(judge.judge(QUESTIONS[:1], case="c", attempt=0, tape=LIVE))
    assert opinion.outcome == "error" and opinion.reason.startswith("1 of 2 judgements were given") and ": the judge " in opinion.reason
    assert "gent check" not in repr((opinion.reason, opinion.details["samples"])) and "Judge did" not in opinion.reason


def test_a_bad_score_is_told_with_the_claim() -> None:
    scored = Question(criterion="greets", material=Material(subject="hello"), threshold=0.5)
    (opinion,) = heard('{"results": [{"id": "agent-check-1", "reason": "x", "score": 7}]}', scored)
    assert opinion.reason == 'the judge "grader" returned the score 7, which is no number from 0 to 1, for "greets"'


def test_what_the_judge_says_is_left_alone_and_silence_is_a_fault() -> None:
    question = Question(criterion="greets", material=Material(subject="hello"))
    (opinion,) = heard('{"results": [{"id": "agent-check-1", "reason": "Agent check failed: judge of wine", "pass": true}]}', question)
    assert (opinion.outcome, opinion.reason) == ("pass", "Agent check failed: judge of wine")
    (opinion,) = heard('{"results": [{"id": "agent-check-1", "reason": " ", "pass": true}]}', question)
    assert (opinion.outcome, opinion.code) == ("error", "judge_no_reason")
    assert opinion.reason == 'the judge "grader" gave no reason for "greets"'
