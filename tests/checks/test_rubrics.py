"""Rubrics: what the judge receives, what is decided without one, and that text of an agent stays inside the fence."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from proctor.checks.registry import default_registry
from proctor.checks.shared.rubric import VERSIONS, Rubric, build_question, load_rubric
from proctor.decide.prepare import decide_guarded
from proctor.errors import SpecError
from proctor.evidence.reading import read_document
from proctor.judge.cached import make_key
from proctor.judge.prompt import load_prompt
from proctor.judge.request import RenderedRequest, render_request
from proctor.llm.ports import ChatRequest
from proctor.model.account import Account
from proctor.model.judgement import NO_JUDGE_CODE, Material, Opinion, PendingVerdict, Question
from proctor.model.verdict import Verdict
from tests.judge.injections import attempts, texts_in
from tests.judge.obedient_judge import ObedientJudge
from tests.tables import rows

LEAST: dict[str, dict[str, Any]] = {
    "tone": {"should_be": "friendly"},
    "summary_covers": {"points": ["The contract ends in May.", "The rent rises."]},
    "sql_equivalent": {"to": "SELECT 1"},
}
"""The fields that a rubric cannot do without."""
EVIDENCE = {"input": "Where is it?", "text": "In Linz.", "tool_calls": [{"name": "track", "result": "Linz"}]}


def decide(name: str, fields: dict[str, Any], evidence: dict[str, Any], **more: Any) -> Verdict:
    spec = msgspec.convert(fields, default_registry().get(name).spec)
    read = msgspec.structs.replace(read_document(evidence, format="plain")[0], **more)
    return decide_guarded(default_registry().prepare(name, spec), read)


def ask(name: str, evidence: dict[str, Any] = EVIDENCE, **fields: Any) -> PendingVerdict:
    verdict = decide(name, {**LEAST.get(name, {}), **fields}, evidence)
    assert isinstance(verdict, PendingVerdict), verdict.reason
    return verdict


def render(questions: tuple[Question, ...]) -> RenderedRequest:
    return render_request(questions, prompt=load_prompt(), max_chars=8_000, order_seed=0)


def shown(request: RenderedRequest) -> Any:
    lines = request.messages[-1].text.split("\n")
    return json.loads(lines[lines.index(f"<<<DATA {request.marker}>>>") + 1])


every_rubric = pytest.mark.parametrize("name", sorted(VERSIONS))


@rows("checks/cases/rubrics.yaml")
def test_a_rubric_asks_about_what_was_recorded_and_about_nothing_else(row: dict[str, Any]) -> None:
    verdict = decide(row["check"], row["given"], row["evidence"])
    if "prompt" in row:
        assert isinstance(verdict, PendingVerdict), verdict.reason
        assert shown(render(verdict.questions)) == row["prompt"]
        assert verdict.code == NO_JUDGE_CODE, "without a judge nothing is decided"
    else:
        assert not isinstance(verdict, PendingVerdict)
        assert (verdict.outcome, verdict.code) == (row["expect"], row.get("code"))
        assert row.get("reason", "") in verdict.reason


@every_rubric
def test_a_rubric_is_a_judged_check_with_a_text_of_its_own(name: str) -> None:
    entry, rubric = default_registry().get(name), load_rubric(name)
    assert entry.judged and entry.example.startswith(f"{name}: ")
    assert rubric.criterion and len(rubric.points) >= 4
    assert not any("\n" in point or not point.strip() for point in rubric.points)
    question = ask(name).questions[0]
    assert "{{" not in question.criterion + "".join(question.rubric)
    assert question.label == f"{name}, rubric version {VERSIONS[name]}"


@every_rubric
def test_a_part_that_is_not_known_is_missing_evidence_and_no_question(name: str) -> None:
    why = "the reader did not understand it"
    account = Account(reader="some", unknown={"answer": why, "tool_results": why, "input": why})
    verdict = decide(name, LEAST.get(name, {}), EVIDENCE, account=account)
    assert (verdict.code, isinstance(verdict, PendingVerdict)) == ("missing_evidence", False)
    assert why in verdict.reason


@pytest.mark.parametrize("name", sorted(set(VERSIONS) - {"summary_covers"}))
def test_the_opinion_is_the_verdict_and_names_the_rubric(name: str) -> None:
    pending = ask(name, threshold=0.8)
    assert pending.questions[0].threshold == 0.8
    good = pending.settle_with([Opinion(outcome="pass", score=0.9, reason="fine", details={"judge": "x"})])
    assert (good.outcome, good.score, good.reason) == ("pass", 0.9, "fine")
    assert good.details == {"judge": "x", "rubric": {"name": name, "version": VERSIONS[name]}, "threshold": 0.8}
    down = ask(name).settle_with([Opinion(outcome="error", code="judge_timeout", reason="slow")])
    assert (down.outcome, down.code) == ("error", "judge_timeout")


PASS, FAIL = Opinion(outcome="pass", score=1, reason="there"), Opinion(outcome="fail", reason="not there")
DOWN = Opinion(outcome="error", code="judge_timeout", reason="slow")


@pytest.mark.parametrize(
    ("opinions", "at_least", "outcome", "score"),
    [
        ([PASS, PASS, PASS], 1, "pass", 1.0),
        ([PASS, PASS, FAIL], 1, "fail", 2 / 3),
        ([PASS, PASS, FAIL], 2 / 3, "pass", 2 / 3),
        ([PASS, PASS, DOWN], 1, "error", 0.0),
        ([PASS, FAIL, DOWN], 1, "fail", 1 / 3),
        ([PASS, PASS, DOWN], 0.5, "pass", 2 / 3),
        ([DOWN, DOWN, DOWN], 0.1, "error", 0.0),
    ],
)
def test_points_are_judged_one_by_one_in_one_request(opinions: list[Opinion], at_least: float, outcome: str, score: float) -> None:
    pending = ask("summary_covers", points=["one", "two", "three"], at_least=at_least)
    assert len(pending.questions) == 3
    assert shown(render(pending.questions)) == {"summary": "In Linz."}
    verdict = pending.settle_with(opinions)
    assert (verdict.outcome, verdict.score) == (outcome, pytest.approx(score))
    assert [point["outcome"] for point in verdict.details["points"]] == [opinion.outcome for opinion in opinions]
    if outcome == "error":
        assert verdict.code == "judge_timeout"


@every_rubric
def test_another_version_of_a_rubric_is_another_question_to_the_memory(name: str) -> None:
    def key(rubric: Rubric) -> str:
        material = Material(subject="x")
        fill = dict.fromkeys(("tone", "point", "allowed", "dialect", "schema"), "y")
        messages = render((build_question(rubric, material, fill=fill),)).messages
        return make_key(ChatRequest(messages=messages), provider="p", model="m", address=None, options={})

    rubric = load_rubric(name)
    assert key(rubric) == key(rubric)
    assert key(rubric) != key(msgspec.structs.replace(rubric, version="2")), "although the words are the same"


@every_rubric
def test_text_of_agents_tools_and_users_stays_inside_the_data_fence(name: str) -> None:
    trusted = "".join(message.text for message in render(ask(name).questions).messages)
    broken: list[str] = []
    for id_, attempt in attempts():
        if not isinstance(attempt, str) or not attempt.strip() or len(attempt) > 20_000:
            continue
        evidence = {
            "input": attempt,
            "text": attempt,
            "tool_calls": [{"name": "track", "result": {"found": attempt}}],
            "turns": [{"input": "hi", "text": "hello"}, {"input": attempt, "text": attempt}],
        }
        pending = ask(name, {key: evidence[key] for key in evidence if name != "context_relevance" or key != "turns"})
        own = [(question.criterion, question.label, question.rubric, question.reference) for question in pending.questions]
        assert own == [(question.criterion, question.label, question.rubric, question.reference) for question in ask(name).questions]
        if ObedientJudge(texts_in(attempt), trusted).order_in(render(pending.questions).messages) is not None:
            broken.append(id_)
    assert not broken


def test_placeholders_in_text_of_authors_are_not_filled() -> None:
    question = ask("sql_equivalent", dialect="{{schema}}", schema="t(a INT)").questions[0]
    assert any("{{schema}}" in point for point in question.rubric)
    assert question.reference == "SELECT 1"


def test_exceptions_and_dialects_reach_the_judge() -> None:
    allowed = ask("no_personal_data", allow=["first names", "order numbers"]).questions[0].rubric
    assert allowed[-1] == "Allowed beside that: first names; order numbers."
    assert ask("no_personal_data").questions[0].rubric[-1] == "Allowed beside that: nothing beyond that."
    query = ask("sql_equivalent", dialect="mysql").questions[0].rubric
    assert "Both are read as mysql." in query and any("not given" in point for point in query)
    assert ask("tone", should_be="calm").questions[0].criterion == "The tone of the whole answer is: calm."


@pytest.mark.parametrize(
    ("name", "fields", "field"),
    [
        ("faithful_to_context", {"context": ["a"], "context_from": "body"}, "context_from"),
        ("faithful_to_context", {"context": ["a", " "]}, "context.1"),
        ("faithful_to_context", {"context_path": "docs"}, "context_path"),
        ("context_relevance", {"context_from": "steps", "context_path": "docs"}, "context_path"),
        ("answers_the_question", {"question": " "}, "question"),
        ("answers_the_question", {"threshold": 0}, "threshold"),
        ("refuses_politely", {"threshold": 1.2}, "threshold"),
        ("no_personal_data", {"allow": [""]}, "allow.0"),
        ("no_personal_data", {"allow": ["a"] * 51}, "allow"),
        ("tone", {"should_be": ""}, "should_be"),
        ("summary_covers", {"points": []}, "points"),
        ("summary_covers", {"points": ["a"] * 101}, "points"),
        ("summary_covers", {"points": ["a", ""]}, "points.1"),
        ("summary_covers", {"points": ["a"], "at_least": 0}, "at_least"),
        ("sql_equivalent", {"to": " "}, "to"),
        ("sql_equivalent", {"to": "SELECT 1", "tool": "run_sql"}, "argument"),
        ("sql_equivalent", {"to": "SELECT 1", "argument": "query"}, "tool"),
    ],
)
def test_fields_that_say_nothing_are_refused(name: str, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        decide(name, fields, EVIDENCE)
    assert caught.value.field == field


def test_a_text_of_a_rubric_names_only_material_that_it_shows() -> None:
    """A text that speaks of `context.question` where none is shown would leave the judge guessing."""
    turns = [{"input": "hi", "text": "hello"}, {"input": "Where?", "text": "In Linz."}]
    for name in VERSIONS:
        evidence = {**EVIDENCE, **({"turns": turns} if name != "context_relevance" else {})}
        pending = ask(name, evidence)
        there = set(pending.questions[0].material.context)
        text = pending.questions[0].criterion + "".join(pending.questions[0].rubric)
        assert set(re.findall(r"`context\.(\w+)`", text)) <= there, name
