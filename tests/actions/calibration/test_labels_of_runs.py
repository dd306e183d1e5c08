"""Labels from stored runs: calibration sends the questions of the run, for every judged check."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from proctor.actions.calibration.calibrate import calibrate
from proctor.actions.calibration.teach import list_run_labels
from proctor.checks.registry import default_registry
from proctor.errors import InputError
from proctor.judge.scripted import ScriptedJudge
from proctor.model.judgement import Opinion, Question
from proctor.sources.labels import read_labels, write_labels
from tests.tables import load, rows

TABLE = "actions/cases/label_forms.yaml"
ANSWER = {
    "text": "It is in Linz. It comes on Friday.",
    "body": {"place": "Linz"},
    "tool_calls": [{"name": "track", "arguments": {"id": "RX-91"}, "result": ["RX-91 is in Linz.", "It comes on Friday."]}],
}


def decide(question: Question) -> bool | str:
    if not question.choices:
        return True
    # In the second of the two orders of a comparison the answer comes second.
    return "second" if "second" in question.accepted else list(question.choices)[-1] if question.threshold else question.accepted[0]


def run_claims(folder: Path, claims: list[Any], judge: Any, **more: Any) -> None:
    suite = {"proctor": 1, "cases": [{"id": "a", "input": "Where is RX-91?", "expect": claims, **more}]}
    proctor.run(proctor.parse_suite(json.dumps(suite)), target=lambda message: ANSWER, home=folder, judge=judge)


def write_questions(judge: ScriptedJudge) -> bytes:
    """The questions to a judge as JSON, without the claims' names."""
    return msgspec.json.encode([msgspec.structs.replace(question, label="") for question in judge.questions])


def fill_in(folder: Path, lines: list[dict[str, Any]]) -> Path:
    path = folder / "labels.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode({**line, "label": True}) + b"\n" for line in lines))
    return path


@rows(TABLE)
def test_a_label_sends_the_question_of_its_claim(row: dict[str, Any], tmp_path: Path) -> None:
    in_run, in_calibration = ScriptedJudge(decide), ScriptedJudge(decide)
    run_claims(tmp_path, [row["claim"]], in_run)
    found = list_run_labels(tmp_path / ".proctor", "latest")
    assert not found.left_out
    (line,) = found.lines
    assert (row["form"] == "check") == ("check" in line) and line["label"] is None
    assert {key: line[key] for key in row.get("has", {})} == row.get("has", {})
    (item,) = read_labels([fill_in(tmp_path, [line])]).items
    calibration = asyncio.run(calibrate([item], in_calibration))
    assert in_run.questions and write_questions(in_calibration) == write_questions(in_run)
    assert calibration.items[0].agrees
    first = in_run.questions[0]
    assert calibration.threshold == (None if first.choices else first.threshold), "a score only if the claim has one"
    (tmp_path / "again.jsonl").write_bytes(write_labels([item]))
    assert msgspec.structs.replace(read_labels([tmp_path / "again.jsonl"]).items[0], origin=item.origin) == item


def test_the_table_has_every_check_that_a_judge_decides() -> None:
    known = default_registry()
    judged = {name for name in known.list_names() if known.get(name).judged}
    of_the_table = {next(iter(row["claim"])) for row in load(TABLE)}
    # Three are judged like `tone`; the last needs the recording of a call.
    assert judged - of_the_table == {"answers_the_question", "refuses_politely", "sql_equivalent", "voice_said"}


def test_all_claims_of_a_run_are_measured_together(tmp_path: Path) -> None:
    run_claims(tmp_path, [row["claim"] for row in load(TABLE)], ScriptedJudge(decide))
    found = list_run_labels(tmp_path / ".proctor", "latest")
    labels = read_labels([fill_in(tmp_path, found.lines)])
    calibration = asyncio.run(calibrate(labels.items, ScriptedJudge(decide)))
    assert calibration.decided == len(found.lines) and calibration.threshold is None
    assert len(found.lines) + sum(found.left_out.values()) == len(load(TABLE))
    assert set(found.left_out) == {("judged", "it repeats another one")}


def test_left_out_labels_are_reported_by_name_and_count(tmp_path: Path) -> None:
    def undecided(question: Question) -> bool | Opinion:
        return (
            Opinion(outcome="error", code="judge_timeout", reason="slow")
            if question.choices or "rubric version" in question.label
            else True
        )

    run_claims(tmp_path, [{"judged": "polite"}, {"toxicity": {}}, {"tone": "calm"}, {"tone": "kind"}], undecided)
    found = list_run_labels(tmp_path / ".proctor", "latest")
    assert [line["criterion"] for line in found.lines] == ["polite"]
    assert found.left_out == {("toxicity", "the judge gave no decision"): 1, ("tone", "the judge gave no decision"): 2}
    assert "2 claims of tone (the judge gave no decision)" in found.describe_left_out()


def test_a_run_without_a_decision_is_refused_with_the_reason(tmp_path: Path) -> None:
    run_claims(tmp_path, [{"tone": "calm"}], lambda question: Opinion(outcome="error", code="judge_timeout", reason="slow"))
    with pytest.raises(InputError, match=r"1 claim of tone \(the judge gave no decision\)"):
        list_run_labels(tmp_path / ".proctor", "latest")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"check": "tone", "with": {"should_be": "calm"}, "label": True}, "needs 'evidence'"),
        ({"check": "tonee", "with": {}, "evidence": {"text": "x"}, "label": True}, "unknown check 'tonee'"),
        ({"check": "response_contains", "with": {"text": "x"}, "evidence": {"text": "x"}, "label": True}, "there is nothing to judge"),
        ({"answer": "x", "criterion": "c", "label": True, "threshold": 2}, "threshold: expected a number from 0 to 1"),
        ({"answer": "x", "criterion": "c", "label": True, "kind": "halucination"}, "expected quality or semantic or hallucination"),
    ],
)
def test_an_unusable_line_is_reported(tmp_path: Path, line: dict[str, Any], message: str) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(json.dumps(line))
    with pytest.raises(InputError) as caught:
        read_labels([path])
    assert message in str(caught.value)


def test_an_object_as_context_has_its_parts_by_name(tmp_path: Path) -> None:
    judge, path = ScriptedJudge(lambda question: True), tmp_path / "labels.jsonl"
    contexts = [{"tool_results": [1]}, "the facts", ["a"]]
    path.write_text("".join(json.dumps({"answer": "x", "criterion": str(c), "label": True, "context": c}) + "\n" for c in contexts))
    asyncio.run(calibrate(read_labels([path]).items, judge))
    assert [question.material.context for question in judge.questions] == [
        {"tool_results": [1]},
        {"context": "the facts"},
        {"context": ["a"]},
    ]


def test_a_label_of_a_turn_is_about_that_turn(tmp_path: Path) -> None:
    in_run, in_calibration = ScriptedJudge(decide), ScriptedJudge(decide)
    turns = [{"input": f"Where is RX-{number}?", "expect": [{"judged": "It names the place."}]} for number in (1, 2)]
    suite = proctor.parse_suite(json.dumps({"proctor": 1, "cases": [{"id": "a", "turns": turns}]}))
    proctor.run(suite, target=lambda message: {"text": f"{message} In Linz."}, home=tmp_path, judge=in_run)
    found = list_run_labels(tmp_path / ".proctor", "latest")
    assert [line["answer"] for line in found.lines] == ["Where is RX-1? In Linz.", "Where is RX-2? In Linz."]
    asyncio.run(calibrate(read_labels([fill_in(tmp_path, found.lines)]).items, in_calibration))
    assert in_run.questions and write_questions(in_calibration) == write_questions(in_run)
