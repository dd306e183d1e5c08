"""Suites of MCPLab and Mibo decided with a judge, compared with the verdicts of the originals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.checks.registry import default_registry
from proctor.decide.judging import settle
from proctor.decide.prepare import PreparedCase
from proctor.formats.suites import read_suite
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.scripted import ScriptedJudge
from proctor.judge.settings import JudgeSettings
from proctor.llm.ports import ChatRequest
from proctor.llm.scripted import ScriptedModel, read_script
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.judgement import Question
from proctor.model.result import CaseResult
from proctor.runner.ports import Judge
from tests.conformance.running import evidence_of
from tests.judge.twins import follow, ids_in
from tests.tables import load, rows

MCPLAB_CASE = """
id: greeting
prompt: Where is my order?
eval:
  response_assertions:
    - {type: contains, value: Hello}
  agent_context: {include_prompt: true, include_tool_sequence: true}
  agent_assertions:
    - {label: greets, prompt: Confirm that it greets.}
    - {label: names the order, prompt: Confirm that it names the order.}
"""
TABLES = ("conformance/mcplab/judge_replies.yaml", "conformance/mibo/semantic_scores.yaml")


def case_of(text: str, dialect: str) -> Case:
    (case,) = read_suite(text, file="suite.json" if text.startswith("{") else "suite.yaml", dialect=dialect).cases
    return case


def decided(text: str, dialect: str, evidence: Evidence, judge: Judge) -> CaseResult:
    case = case_of(text, dialect)
    prepared = PreparedCase(case, default_registry())
    return asyncio.run(settle(prepared.deliberate(evidence), lambda questions: judge.judge(questions, case=case.id, attempt=0, tape=LIVE)))


@rows("conformance/mcplab/judge_replies.yaml")
def test_reply_table_rows_affect_the_same_checks_as_the_original(row: dict[str, Any]) -> None:
    script = list(read_script(row["replies"]))
    model = ScriptedModel(lambda request: follow(script.pop(0) if len(script) > 1 else script[0], request), name="m")
    judge = LlmJudge([model], JudgeSettings(name="grader", backoff_s=0.0), takes_first_entry=True)
    result = decided(MCPLAB_CASE, "mcplab", evidence_of({"text": "Hello", "tool_calls": []}), judge)
    plain, *judged = result.verdicts
    assert plain.outcome == "pass"
    assert [verdict.outcome for verdict in judged] == row["expect"]["outcomes"]
    assert [verdict.reason for verdict in judged] == row["expect"]["reasons"]
    assert [verdict.code for verdict in judged] == row.get("codes", [None, None])
    assert len(model.requests) == row["requests"]
    assert len(ids_in(model.requests[0])) == 2
    for number, verdict in enumerate(judged, 1):
        assert verdict.details["check_id"] == f"agent-check-{number}"
        assert (verdict.details["judge"], verdict.details["models"], verdict.details["provider"]) == ("grader", ["m"], "scripted")


async def test_cancelling_propagates_as_in_the_original() -> None:
    called = asyncio.Event()

    async def silence(_: ChatRequest) -> str:
        called.set()
        await asyncio.Event().wait()
        return ""

    judge = LlmJudge([ScriptedModel(silence)], JudgeSettings())
    case = case_of(MCPLAB_CASE, "mcplab")
    deliberation = PreparedCase(case, default_registry()).deliberate(evidence_of({"text": "Hello", "tool_calls": []}))
    work = asyncio.ensure_future(settle(deliberation, lambda questions: judge.judge(questions, case="c", attempt=0, tape=LIVE)))
    await called.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


@rows("conformance/mibo/semantic_scores.yaml")
def test_mibo_semantic_assertions_use_score_and_threshold(row: dict[str, Any]) -> None:
    def decide(question: Question) -> bool | float:
        scores = [score for start, score in row["scores"].items() if question.criterion.startswith(start)]
        assert scores or question.forbidden, f"the row says nothing about {question.criterion!r}"
        return scores[0] if scores else True

    judge = ScriptedJudge(decide)
    result = decided(row["suite"], "mibo", evidence_of(row["given"]), judge)
    assert [verdict.outcome for verdict in result.verdicts] == row["expect"]["outcomes"]
    assert [verdict.score for verdict in result.verdicts] == row["expect"]["scores"]
    for start, subject in row.get("subjects", {}).items():
        assert [each.material.subject for each in judge.questions if each.criterion.startswith(start)] == [subject]


@pytest.mark.parametrize("path", TABLES)
def test_every_difference_from_the_original_has_a_reason(path: str) -> None:
    for row in load(path):
        assert row["source"].startswith(("mcplab: ", "mibo: "))
        assert (row["original"] != row["expect"]) == ("why" in row), row["id"]
