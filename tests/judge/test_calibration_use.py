"""When a stored calibration applies, when a newer one replaces it, and how cut context is judged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proctor.cassettes.ports import LIVE
from proctor.judge.llm_judge import LlmJudge
from proctor.judge.settings import JudgeSettings
from proctor.judge.stamps import ENOUGH, Stamp, read_stamps, write_stamp
from proctor.llm.scripted import ScriptedModel
from proctor.model.evidence import Json
from proctor.model.judgement import Material, Opinion, Question
from tests.judge.twins import deciding

YES_NO: dict[str, Json] = {"kappa": 1.0, "threshold": None}


def ask_one(judge: LlmJudge, question: Question) -> Opinion:
    (opinion,) = asyncio.run(judge.judge([question], case="a", attempt=1, tape=LIVE))
    return opinion


def make_stamp(labels: int, kappa: float) -> Stamp:
    return Stamp(models=("a/b",), prompt="v1", kappa=kappa, low=None, high=None, labels=labels, date="2026-01-31")


@pytest.mark.parametrize(
    ("labels", "kappa"),
    [(2, 1.0), (ENOUGH, 0.0), (79, 0.0)],
)
def test_a_newer_calibration_replaces_an_older_one_unless_it_has_few_labels(tmp_path: Path, labels: int, kappa: float) -> None:
    assert write_stamp(tmp_path, make_stamp(80, 1.0))
    assert write_stamp(tmp_path, make_stamp(labels, kappa)) is (labels >= ENOUGH)
    (stored,) = read_stamps(tmp_path)
    assert stored.labels == (labels if labels >= ENOUGH else 80)


@pytest.mark.parametrize(
    ("question", "stamped"),
    [({}, True), ({"threshold": 0.8}, False), ({"worded_by": "tone"}, False)],
    ids=["same form", "score", "rubric"],
)
def test_a_calibration_applies_only_to_questions_of_its_form(question: dict[str, Any], stamped: bool) -> None:
    model = ScriptedModel(deciding(1.0 if "threshold" in question else True))
    judge = LlmJudge([model], JudgeSettings(), calibrations={"yes_no": YES_NO})
    opinion = ask_one(judge, Question(criterion="It is polite.", material=Material(subject="Good morning."), **question))
    assert opinion.outcome == "pass"
    assert ("calibration" in opinion.details) is stamped


@pytest.mark.parametrize(
    "question", [{"grounded": True}, {"worded_by": "faithful_to_context"}, {"worded_by": "context_relevance"}], ids=str
)
@pytest.mark.parametrize("verdict", [True, False])
def test_part_of_the_context_decides_nothing_about_the_whole(question: dict[str, Any], verdict: bool) -> None:
    material = Material(subject="RX-91 is in Linz", context={"tool_results": "x" * 5_000 + " RX-91 is in Graz " + "y" * 5_000})
    judge = LlmJudge([ScriptedModel(deciding(verdict))], JudgeSettings(max_chars=4_000))
    opinion = ask_one(judge, Question(criterion="Nothing is invented.", material=material, **question))
    assert (opinion.outcome, opinion.code) == ("error", "judge_cut_material")


@pytest.mark.parametrize(
    "criterion",
    [
        "It never lies.",
        "It is free of promises.",
        "It uses only facts of the results.",
        "La réponse n'invente rien.",
        "La respuesta no miente.",
        "Non inventa nulla.",
        "It is kind.",
    ],
)
def test_part_of_the_context_passes_no_claim_of_absence(criterion: str) -> None:
    material = Material(subject="RX-91 is in Linz", context={"tool_results": "x" * 10_000})
    judge = LlmJudge([ScriptedModel(deciding(True))], JudgeSettings(max_chars=4_000))
    opinion = ask_one(judge, Question(criterion=criterion, material=material))
    assert opinion.code == (None if "kind" in criterion else "judge_cut_material")
