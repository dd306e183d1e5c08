"""Calibration of a judge: every item is one question, as in a suite, and undecided items are in no figure."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from proctor.actions.calibration.calibrate import calibrate, starter_labels
from proctor.cassettes.ports import Tape
from proctor.errors import InputError
from proctor.judge.scripted import ScriptedJudge
from proctor.model.judgement import JudgedAnswer, LabelledAnswer, Opinion, Question
from proctor.scoring.calibration import name_strength
from proctor.sources.labels import read_labels


def item(answer: str, label: bool, **more: object) -> LabelledAnswer:
    return LabelledAnswer(answer=answer, criterion="It is right.", label=label, **more)  # type: ignore[arg-type]


def run(items: Sequence[LabelledAnswer], judge: object, **more: object):  # type: ignore[no-untyped-def]
    return asyncio.run(calibrate(items, judge, **{"threshold": 0.8, **more}))  # type: ignore[arg-type]


def test_the_judge_sees_answer_criterion_and_context_and_neither_label_nor_reason() -> None:
    judge = ScriptedJudge(lambda question: 0.9)
    run([item("yes", True, context="the facts", why="SECRET", tags=("SECRET",), id="SECRET"), item("no", False)], judge, threshold=0.6)
    first, second = judge.questions
    assert (first.criterion, first.material.subject, first.material.context) == ("It is right.", "yes", {"context": "the facts"})
    assert (first.threshold, second.threshold, second.material.context) == (0.6, 0.6, {})
    assert "SECRET" not in repr(judge.questions)


def test_table_disagreements_and_undecided_items_are_separate() -> None:
    opinions: dict[str, float | Opinion] = {
        "a": 0.9, "b": 0.2, "c": 0.95, "d": 0.1,
        "e": Opinion(outcome="error", code="judge_timeout", reason="too slow"),
    }  # fmt: skip
    labels = {"a": True, "b": True, "c": False, "d": False, "e": True}
    found = run([item(name, label) for name, label in labels.items()], ScriptedJudge(lambda question: opinions[question.material.subject]))
    table = found.table
    assert (table.true_pass, table.false_fail, table.false_pass, table.true_fail) == (1, 1, 1, 1)
    assert [one.item.answer for one in found.false_passes] == ["c"]
    assert [one.item.answer for one in found.false_fails] == ["b"]
    assert [one.item.answer for one in found.without_decision] == ["e"]
    assert found.undecided == {"judge_timeout": 1}
    assert (found.decided, found.figures["accuracy"].value, found.figures["kappa"].value) == (4, 0.5, 0.0)
    assert len(found.sweep) == 4, "an item without a decision has no score"


def test_an_unavailable_judge_gives_no_figures() -> None:
    broken = ScriptedJudge(lambda question: Opinion(outcome="error", code="judge_unreachable", reason="down"))
    found = run([item("a", True), item("b", False)], broken)
    assert found.decided == 0 and found.undecided == {"judge_unreachable": 2}
    assert all(figure.value is None for figure in found.figures.values())
    assert (found.strength, found.cut, found.sweep) == ("unknown", None, ())


def test_yes_or_no_questions_have_no_sweep() -> None:
    judge = ScriptedJudge(lambda question: question.material.subject == "a")
    found = run([item("a", True), item("b", False)], judge, threshold=None)
    assert (found.sweep, found.cut, found.threshold) == ((), None, None)
    assert {question.threshold for question in judge.questions} == {None}
    assert found.table.kappa == 1


class Slow:
    """A judge that counts concurrent questions and answers them out of order."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> list[Opinion]:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(10 - int(questions[0].material.subject) % 10):
            await asyncio.sleep(0)
        self.now -= 1
        return [Opinion(outcome="pass", score=int(question.material.subject) / 100) for question in questions]

    async def close(self) -> None: ...


def test_items_are_judged_concurrently_up_to_the_limit_and_keep_their_order() -> None:
    judge, heard = Slow(), list[JudgedAnswer]()
    found = run([item(str(number), True) for number in range(40)], judge, concurrency=5, on_item=heard.append)
    assert judge.most == 5
    assert [one.opinion.score for one in found.items] == [number / 100 for number in range(40)]
    assert sorted(one.item.answer for one in heard) == sorted(str(number) for number in range(40))


def test_an_error_that_ends_judging_is_passed_on() -> None:
    def refuse(question: Question) -> bool:
        raise InputError("the cassette is full")

    with pytest.raises(InputError, match="the cassette is full"):
        run([item("a", True), item("b", True)], ScriptedJudge(refuse))


def test_a_judge_with_too_many_answers_is_rejected() -> None:
    class Chatty(Slow):
        async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> list[Opinion]:
            return [Opinion(outcome="pass")] * 2

    with pytest.raises(ValueError, match="2 opinions on 1 question"):
        run([item("a", True)], Chatty())


def test_cached_answers_are_not_counted_as_spent() -> None:
    def decide(question: Question) -> Opinion:
        details = {"judge": "mini", "models": ["m-1"], "prompt_version": "1", "usage": {"total_tokens": 100}, "cost": 0.5}
        return Opinion(outcome="pass", score=1.0, details=details if question.material.subject != "b" else {**details, "cached": True})

    spent = run([item("a", True), item("b", True), item("c", False)], ScriptedJudge(decide)).spent
    assert (spent.judges, spent.models, spent.prompts) == (("mini",), ("m-1",), ("1",))
    assert (spent.tokens, spent.cost, spent.remembered) == (200, 1.0, 1)


def test_tags_are_counted_separately_hardest_first() -> None:
    items = [item("a", True, tags=("x", "y")), item("b", False, tags=("x",)), item("c", True, tags=("y", "y"))]
    rows = run(items, ScriptedJudge(lambda question: question.material.subject != "c")).tags
    assert [(row.tag, row.items, row.agreed, row.false_pass, row.false_fail) for row in rows] == [("x", 2, 1, 1, 0), ("y", 2, 1, 0, 1)]


@pytest.mark.parametrize(
    ("kappa", "word"),
    [
        (None, "unknown"),
        (-0.3, "none"),
        (0.0, "none"),
        (0.1, "slight"),
        (0.4, "fair"),
        (0.41, "moderate"),
        (0.7, "substantial"),
        (0.81, "almost perfect"),
    ],
)
def test_a_kappa_has_its_landis_and_koch_label(kappa: float | None, word: str) -> None:
    assert name_strength(kappa) == word


def test_a_judge_that_knows_the_labels_of_the_starter_set_is_perfect_and_one_that_always_passes_is_chance() -> None:
    items = read_labels([starter_labels()]).items
    known = {(one.criterion, repr(one.answer), repr(one.context)): one.label for one in items}

    def read_context(question: Question) -> object:
        return question.material.context.get("context", question.material.context or None)

    def right(question: Question) -> bool:
        return known[question.criterion, repr(question.material.subject), repr(read_context(question))]

    assert run(items, ScriptedJudge(right)).table.kappa == 1
    always = run(items, ScriptedJudge(lambda question: True))
    assert (always.table.kappa, always.table.accuracy) == (0, 0.5)


@pytest.mark.parametrize("seed", range(20))
def test_the_figures_are_those_of_scikit_learn(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="the oracle of these figures")
    chance = random.Random(seed)
    share, skill = chance.uniform(0.1, 0.9), chance.uniform(0.0, 1.0)
    items = [item(str(number), chance.random() < share) for number in range(chance.randint(20, 300))]
    decided = {each.answer: each.label if chance.random() < skill else chance.random() < 0.5 for each in items}
    found = run(items, ScriptedJudge(lambda question: decided[question.material.subject]), threshold=None)
    labels, decisions = [each.label for each in items], [decided[each.answer] for each in items]
    expected = {
        "accuracy": metrics.accuracy_score(labels, decisions),
        "kappa": metrics.cohen_kappa_score(labels, decisions),
        "precision": metrics.precision_score(labels, decisions),
        "recall": metrics.recall_score(labels, decisions),
        "f1": metrics.f1_score(labels, decisions),
    }
    assert {name: found.figures[name].value for name in expected} == pytest.approx(expected, abs=1e-9)


def test_every_item_is_judged_in_its_own_form() -> None:
    judge = ScriptedJudge(lambda question: True)
    items = [item("a", True), item("b", True, threshold=0.5), item("c", True, threshold=0.5)]
    assert run(items, judge, threshold=None).threshold is None
    assert [question.threshold for question in judge.questions] == [None, 0.5, 0.5]
    assert run(items[1:], judge, threshold=None).threshold == 0.5
    assert run(items, judge, threshold=0.7).threshold == 0.7 and {question.threshold for question in judge.questions[-3:]} == {0.7}
