"""The labelled sets of the rubrics are large and balanced, and are judged by the rubric itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.actions.calibration.calibrate import RUBRICS, calibrate, rubric_labels
from proctor.errors import InputError
from proctor.judge.scripted import ScriptedJudge
from proctor.model.judgement import Question
from proctor.report.builders.calibration import build_calibration
from proctor.report.document.terminal import write_terminal
from proctor.scoring.calibration import Calibration
from proctor.sources.labels import read_labels

every_rubric = pytest.mark.parametrize("name", RUBRICS)


def run(name: str, decide: Any, **more: Any) -> tuple[Calibration, list[Question]]:
    judge = ScriptedJudge(decide)
    items = read_labels([rubric_labels(name)], name).items
    return asyncio.run(calibrate(items, judge, **more)), judge.questions


@every_rubric
def test_a_set_is_large_balanced_varied_and_explained(name: str) -> None:
    labels = read_labels([rubric_labels(name)], name)
    items = labels.items
    assert not labels.warnings, "no item counts twice"
    assert len(items) >= 30
    assert 0.4 <= sum(item.label for item in items) / len(items) <= 0.6
    assert all(item.id and item.why and item.tags for item in items)
    for tag, least in (("injection", 2), ("language", 2)):
        tagged = [item for item in items if tag in item.tags]
        assert len(tagged) >= least, tag
        assert {item.label for item in tagged} == {True, False}, f"{tag}: both labels, so that neither can be learned from the tag"
    assert len({tag for item in items for tag in item.tags}) >= 15


@every_rubric
def test_the_judge_sees_neither_label_nor_reason_nor_tags(name: str) -> None:
    found, questions = run(name, lambda question: True)
    seen = json.dumps([[q.criterion, q.label, q.rubric, q.reference, q.material.subject, q.material.context] for q in questions])
    for one in found.items:
        assert json.dumps(one.item.why)[1:-1] not in seen and one.item.id not in seen
    assert {question.threshold for question in questions} == {None}


@every_rubric
def test_a_judge_that_passes_everything_agrees_no_more_than_chance(name: str) -> None:
    found, _ = run(name, lambda question: True)
    assert found.table.kappa == 0 and found.table.true_fail == 0
    assert found.decided == len(found.items)
    assert "labelled wrong, but the judge passed it" in write_terminal(build_calibration(found, "terminal"))


def test_a_rubric_with_a_threshold_requests_scores() -> None:
    found, questions = run("tone", lambda question: 0.7, threshold=0.6)
    assert {question.threshold for question in questions} == {0.6}
    assert found.threshold == 0.6 and found.table.true_fail == 0
    found, questions = run("summary_covers", lambda question: True, threshold=0.6)
    assert found.threshold is None and {question.threshold for question in questions} == {None}, "it asks about each point, without scores"


def test_every_point_of_a_summary_is_judged_and_gives_one_decision() -> None:
    found, questions = run("summary_covers", lambda question: "budget" not in question.criterion)
    assert len(questions) > len(found.items)
    by_id = {one.item.id: one for one in found.items}
    assert not by_id["summary-09"].passed and by_id["summary-10"].passed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"evidence": {"text": "hi"}, "label": true}', "tone needs 'should_be'"),
        ('{"with": {"should_be": "calm", "shuold": 1}, "evidence": {"text": "hi"}, "label": true}', "shuold"),
        ('{"with": {"should_be": ""}, "evidence": {"text": "hi"}, "label": true}', "expected text, found an empty one"),
        ('{"with": {"should_be": "calm"}, "evidence": {"input": "hi"}, "label": true}', "there is nothing to judge"),
        ('{"with": {"should_be": "calm"}, "evidence": {"text": "hi"}, "label": 1}', "label"),
        ('{"with": {"should_be": "calm"}, "label": true}', "evidence"),
        ('{"with": {"should_be": "calm"}, "evidence": {"tool_calls": 3}, "label": true}', "tool_calls"),
    ],
)
def test_an_unusable_line_is_reported_at_its_place(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(f'{{"with": {{"should_be": "calm"}}, "evidence": {{"text": "ok"}}, "label": true}}\n{line}\n')
    with pytest.raises(InputError) as caught:
        read_labels([path], "tone")
    assert message in str(caught.value) and f"{path}:2:" in str(caught.value)


def test_two_lines_that_disagree_are_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    line = '{{"with": {{"should_be": "calm"}}, "evidence": {{"text": "ok"}}, "label": {}}}\n'
    path.write_text(line.format("true") + line.format("false"))
    with pytest.raises(InputError, match="have the other label"):
        read_labels([path], "tone")
