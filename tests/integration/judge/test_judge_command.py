"""`proctor judge`: a judge on loopback is calibrated from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.actions.calibration.calibrate import rubric_labels, starter_labels
from tests.integration.judge_server import Judge, checks_of, data_of, judge_server
from tests.integration.running import proctor

ITEMS = [
    {"id": "sure", "answer": "good, score 0.9", "criterion": "It is good.", "label": True},
    {"id": "strict", "answer": "good, score 0.6", "criterion": "It is good.", "label": True},
    {
        "id": "fooled",
        "answer": "good, they say, score 0.95",
        "criterion": "It is good.",
        "label": False,
        "why": "hearsay",
        "tags": ["hearsay"],
    },
    {"id": "bad", "answer": "poor, score 0.1", "criterion": "It is good.", "label": False, "context": "the facts"},
]


@pytest.fixture
def labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("PROCTOR_JUDGE_MODEL", "PROCTOR_JUDGE_BASE_URL", "PROCTOR_JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps({**item, "threshold": 0.8}) + "\n" for item in ITEMS), encoding="utf-8")
    yield path


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judge]:
    with judge_server() as server:
        monkeypatch.setenv("PROCTOR_JUDGE_BASE_URL", server.url)
        monkeypatch.setenv("PROCTOR_JUDGE_API_KEY", "k-123456789")
        monkeypatch.setenv("PROCTOR_JUDGE_MODEL", "stub")
        yield server


def test_each_label_is_one_request_and_the_report_goes_to_standard_output(labels: Path, judge: Judge) -> None:
    done = proctor("judge", "calibrate", labels)
    assert done.code == 0, done.err
    assert len(judge.requests) == 4
    assert "stub (prompt 2) · 4 labelled answers, 2 right and 2 wrong" in done.out
    assert "fooled  [hearsay]" in done.out and "passed it with 0.95: read it" in done.out
    assert "judging with openai/stub: 4 answers, 4 requests" in done.err
    sent = json.dumps([data_of(body) for body in judge.requests])
    assert "the facts" in sent
    assert "hearsay" not in json.dumps(judge.requests), "neither why nor tags are shown to the judge"


def test_a_second_calibration_is_cached_unless_disabled(labels: Path, judge: Judge) -> None:
    proctor("judge", "calibrate", labels)
    again = proctor("judge", "calibrate", labels)
    assert len(judge.requests) == 4
    assert "4 cached" in again.out
    uncached = proctor("judge", "calibrate", "--no-cache", labels)
    assert len(judge.requests) == 8 and "remembered" not in uncached.out


def test_json_and_html_are_written_to_files(labels: Path, judge: Judge, tmp_path: Path) -> None:
    done = proctor("judge", "calibrate", "--format", "json", labels, "--quiet")
    document: dict[str, Any] = json.loads(done.out)
    assert document["schema"] == "proctor.calibration/1"
    assert document["table"] == {"true_pass": 1, "false_fail": 1, "false_pass": 1, "true_fail": 1}
    assert document["judge"] == {"names": ["stub"], "models": ["stub"], "prompt_versions": ["2"]}
    assert document["usage"] == {"total_tokens": 440, "cost": None, "remembered": 0}
    assert done.err == ""
    page = tmp_path / "page.html"
    assert proctor("judge", "calibrate", labels, "--format", "html", "--output", page).code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def without_thresholds(labels: Path) -> Path:
    lines = [json.loads(line) for line in labels.read_text(encoding="utf-8").splitlines()]
    plain = labels.with_name("plain.jsonl")
    plain.write_text("".join(json.dumps({**line, "threshold": None}) + "\n" for line in lines), encoding="utf-8")
    return plain


def test_the_threshold_and_yes_or_no_reach_the_judge(labels: Path, judge: Judge) -> None:
    lower = json.loads(proctor("judge", "calibrate", labels, "--threshold", "0.5", "--format", "json").out)
    assert lower["threshold"] == 0.5 and lower["table"]["true_pass"] == 2
    plain = json.loads(proctor("judge", "calibrate", without_thresholds(labels), "--format", "json").out)
    assert plain["threshold"] is None and plain["sweep"] == [] and plain["cut"] is None
    assert plain["table"] == {"true_pass": 2, "false_fail": 0, "false_pass": 1, "true_fail": 1}


def test_samples_multiply_the_requests_and_a_budget_bounds_them(labels: Path, judge: Judge) -> None:
    proctor("judge", "calibrate", labels, "--samples", "3", "-j", "2")
    assert len(judge.requests) == 12
    judge.requests.clear()
    done = proctor("judge", "calibrate", labels, "--no-cache", "--max-judge-calls", "3", "--format", "json")
    document = json.loads(done.out)
    assert len(judge.requests) == 3
    assert document["undecided"] == {"judge_budget": 1} and document["decided"] == 3


def test_a_kappa_that_is_too_low_fails_the_command(labels: Path, judge: Judge) -> None:
    done = proctor("judge", "calibrate", labels, "--min-kappa", "0.7")
    assert done.code == 1 and "kappa: 0.000" in done.err and "--min-kappa demands a lower bound of 0.7" in done.err


def write_labels(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps({"criterion": "it is good", **row}) + "\n" for row in rows), encoding="utf-8")


def test_a_gate_holds_the_lower_bound_of_kappa_and_not_the_luck_of_few_labels(labels: Path, judge: Judge) -> None:
    right = [{"answer": f"good {number}, score 0.9", "label": True} for number in range(40)]
    wrong = [{"answer": f"bad {number}, score 0.1", "label": False} for number in range(40)]
    write_labels(labels, [right[0], wrong[0]])
    assert proctor("judge", "calibrate", labels, "--min-kappa", "0.5").code == 1
    write_labels(labels, [*right, *wrong])
    assert proctor("judge", "calibrate", labels, "--min-kappa", "0.8").code == 0
    write_labels(labels, [{**row, "id": f"{turn} {row['answer']}"} for turn in range(20) for row in (*right[:2], *wrong[:2])])
    done = proctor("judge", "calibrate", labels, "--min-kappa", "0.8")
    assert done.code == 1 and "the same as" in done.err, "four answers are no eighty, however often they are repeated"


def test_a_gate_requires_nearly_all_labels_to_be_decided(labels: Path, judge: Judge) -> None:
    write_labels(
        labels,
        [{"answer": f"{'good' if number % 2 else 'bad'} {number}, score {number % 2}", "label": bool(number % 2)} for number in range(60)],
    )
    command = ("judge", "calibrate", labels, "--no-cache", "--max-judge-calls", "50", "--min-kappa", "0.5")
    done = proctor(*command)
    assert done.code == 1 and "the judge decided 50 of 60 answers (83.3 %); --min-decided demands 95 %" in done.err
    assert proctor(*command, "--min-decided", "0.8").code == 0
    assert proctor(*command[:-2]).code == 1, "a calibration of a part of the labels is no success without a gate either"
    assert proctor(*command[:-2], "--min-decided", "0").code == 0


def test_labels_are_sent_in_the_form_of_the_claim(labels: Path, judge: Judge) -> None:
    claim = {
        "threshold": 0.8,
        "kind": "hallucination",
        "reference": "Good.",
        "rubric": ["one", "two"],
        "negative_constraints": ["rude"],
        "context": "c",
    }
    write_labels(labels, [{"answer": "good, score 1", "label": True, **claim}])
    assert proctor("judge", "calibrate", labels).code == 0
    (check,), (constraint,) = sorted((checks_of(body) for body in judge.requests), key=lambda checks: checks[0]["rule"])
    assert (check["grounded"], check["reference"], check["rubric"]) == (True, "Good.", ["one", "two"])
    assert (constraint["rule"], constraint["criterion"]) == ("must_not", "rude")


def test_labels_of_one_batch_are_one_request(labels: Path, judge: Judge) -> None:
    rows = [{"answer": "good, score 1", "label": True, "criterion": f"it is good {number}", "batch": "a"} for number in range(3)]
    write_labels(labels, [*rows, {"answer": "good, score 1", "label": True}])
    done = proctor("judge", "calibrate", labels)
    assert sorted(len(checks_of(body)) for body in judge.requests) == [1, 3]
    assert "judging with openai/stub: 4 answers\n" in done.err


def test_an_unreachable_judge_fails_the_command(labels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_JUDGE_MODEL", "stub")
    monkeypatch.setenv("PROCTOR_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    (labels.parent / "proctor.yaml").write_text("judge: {retries: 0, timeout_s: 2}\n", encoding="utf-8")
    done = proctor("judge", "calibrate", labels)
    assert done.code == 1
    assert "4 judge_unreachable" in done.out and "the judge decided nothing" in done.err


def test_a_missing_judge_is_reported_with_the_next_step(labels: Path) -> None:
    done = proctor("judge", "calibrate", labels)
    assert done.code == 4
    assert "there is no judge to calibrate" in done.err and "--judge-model provider/name" in done.err


def test_bad_labels_are_reported_before_any_request(labels: Path, judge: Judge) -> None:
    labels.write_text('{"answer": "x"}\n{"answer": "x", "criterion": "y", "label": 1}\n', encoding="utf-8")
    done = proctor("judge", "calibrate", labels)
    assert done.code == 4 and judge.requests == []
    assert "labels.jsonl:1:1: a labelled answer needs 'criterion'" in done.err
    assert "labels.jsonl:2:44: label: expected true or false, found number 1" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("judge",), "required: action"),
        (("judge", "calibrte"), "nearest: calibrate"),
        (("judge", "calibrate"), "--starter"),
        (("judge", "starter", "x.jsonl"), "takes no files"),
        (("judge", "calibrate", "--starter", "--threshold", "7"), "from 0 to 1"),
        (("judge", "calibrate", "--starter", "--samples", "0"), "at least 1"),
        (("judge", "calibrate", "nothing.jsonl"), "cannot read 'nothing.jsonl'"),
        (("judge", "calibrate", "--rubric", "tones"), "nearest: tone"),
        (("judge", "calibrate", "--rubric", "tone", "--starter"), "a set of its own"),
        (("judge", "calibrate", "--rubric", "summary_covers", "--threshold", "0.5"), "has no threshold"),
        (("judge", "calibrate", "--rubric", "tone", "labels.jsonl"), "a label of tone needs 'evidence'"),
        (("judge", "calibrate", "--rubric", "faithfulness"), "faithfulness comes without a labelled set; `proctor judge labels RUN"),
        (("judge", "starter", "--rubric", "toxicity"), "toxicity comes without a labelled set"),
        (("judge", "improve"), "improve: name a file of labels"),
    ],
)
def test_a_wrong_command_line_is_explained(labels: Path, arguments: tuple[str, ...], message: str) -> None:
    done = proctor(*arguments)
    assert done.code == 4 and message in done.err


def test_the_starter_set_can_be_printed_and_used(labels: Path, judge: Judge) -> None:
    printed = proctor("judge", "starter")
    assert printed.code == 0
    assert printed.out == starter_labels().read_text(encoding="utf-8")
    done = proctor("judge", "calibrate", "--starter", labels, "--format", "json", "-j", "32")
    assert json.loads(done.out)["items"] == len(printed.out.splitlines()) + 4


def test_a_judge_is_measured_on_the_set_of_a_rubric(labels: Path, judge: Judge) -> None:
    items = [json.loads(line) for line in rubric_labels("tone").read_text(encoding="utf-8").splitlines()]
    done = proctor("judge", "calibrate", "--rubric", "tone", "--format", "json", "-j", "32")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["items"], found["threshold"], len(judge.requests)) == (len(items), None, len(items))
    assert {"name": "tone", "version": "1"} in [one["details"]["rubric"] for one in found["results"] if one["outcome"] != "error"]
    sent = json.dumps(judge.requests, ensure_ascii=False)
    assert "tone, rubric version 1" in sent and not [item["why"] for item in items if item["why"] in sent]


def test_a_rubric_is_measured_on_the_users_labels(labels: Path, judge: Judge) -> None:
    own = labels.with_name("own.jsonl")
    own.write_text(proctor("judge", "starter", "--rubric", "sql_equivalent").out, encoding="utf-8")
    with own.open("a", encoding="utf-8") as file:
        file.write('{"with": {"to": "SELECT 1"}, "evidence": {"text": "SELECT 2"}, "label": false}\n')
    done = proctor("judge", "calibrate", "--rubric", "sql_equivalent", own, "--threshold", "0.5", "--format", "json", "-j", "32")
    found = json.loads(done.out)
    assert (found["items"], found["threshold"]) == (len(own.read_text(encoding="utf-8").splitlines()), 0.5)


SUITE = """
proctor: 1
name: judged
cases:
  - id: hello
    input: hi
    expect: [judged: It is good.]
"""


def check_suite(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The calibration on the verdict, and the warnings, of one check."""
    (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "evidence.jsonl").write_text('{"input": "hi", "text": "good"}\n', encoding="utf-8")
    done = proctor("check", "suite.yaml", "evidence.jsonl", "--format", "json")
    verdict = json.loads(done.out)["cases"][0]["assertions"][0]
    return verdict["details"].get("calibration"), [line for line in done.err.splitlines() if "calibrat" in line]


def test_a_calibration_is_stamped_on_every_verdict(labels: Path, judge: Judge, tmp_path: Path) -> None:
    stamp, warnings = check_suite(tmp_path)
    assert stamp is None and len(warnings) == 1 and "openai/stub is not calibrated; `proctor judge calibrate LABELS`" in warnings[0]
    report = json.loads(proctor("judge", "calibrate", without_thresholds(labels), "--format", "json").out)
    stamp, warnings = check_suite(tmp_path)
    kappa = report["figures"]["kappa"]
    assert warnings == [] and stamp is not None
    assert (stamp["kappa"], stamp["low"], stamp["labels"]) == (kappa["value"], kappa["interval"][0], 4)
    assert stamp["models"] == ["openai/stub"] and stamp["prompt"].startswith("2/") and len(stamp["date"]) == 10


def test_a_calibration_of_another_prompt_or_model_is_not_stamped(
    labels: Path, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert proctor("judge", "calibrate", labels).code == 0
    (tmp_path / "own.md").write_text("Be strict.", encoding="utf-8")
    (tmp_path / "proctor.yaml").write_text("judge: {model: openai/stub, prompt: own.md}", encoding="utf-8")
    stamp, warnings = check_suite(tmp_path)
    assert stamp is None and "the prompt of the judge openai/stub changed since its calibration on" in warnings[0]
    (tmp_path / "proctor.yaml").unlink()
    monkeypatch.setenv("PROCTOR_JUDGE_MODEL", "other")
    stamp, warnings = check_suite(tmp_path)
    assert stamp is None and "the judge openai/other is not calibrated: the calibration of" in warnings[0]


def test_a_damaged_file_of_calibrations_counts_as_missing(labels: Path, judge: Judge, tmp_path: Path) -> None:
    (tmp_path / ".proctor").mkdir()
    (tmp_path / ".proctor" / "calibrations.json").write_text("{", encoding="utf-8")
    assert "is not calibrated" in check_suite(tmp_path)[1][0]
    assert proctor("judge", "calibrate", without_thresholds(labels)).code == 0
    assert check_suite(tmp_path)[1] == []


def test_a_calibration_of_another_form_is_reported(labels: Path, judge: Judge, tmp_path: Path) -> None:
    assert proctor("judge", "calibrate", labels).code == 0
    stamp, warnings = check_suite(tmp_path)
    assert stamp is None and len(warnings) == 1
    assert "openai/stub is calibrated on scores alone, and claims ask for yes or no" in warnings[0]


def learning(body: dict[str, Any]) -> str:
    """Passes everything, until an example shows that people dislike exclamation marks."""
    if body["messages"][0]["content"].startswith("You improve"):
        return "I cannot improve it."
    strict = "!" in body["messages"][0]["content"]
    answer = data_of(body)["final_answer"]
    entries = [{"id": check["id"], "reason": "read it", "pass": not (strict and "!" in answer)} for check in checks_of(body)]
    return json.dumps({"results": entries})


def test_helpful_examples_are_written_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"answer": f"Order {n}{'!' if n % 2 else '.'}", "criterion": "polite", "label": n % 2 == 0} for n in range(30)]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with judge_server(learning) as server:
        model = {"provider": "openai", "model": "stub", "base_url": server.url, "api_key": "k-123456789"}
        (tmp_path / "proctor.yaml").write_text(json.dumps({"models": {"main": model}, "judge": {"model": "main"}}), encoding="utf-8")
        done = proctor("judge", "improve", "labels.jsonl")
        assert done.code == 0 and "0.000 without examples, 1.000 with" in done.out, done.out + done.err
        assert f"\n{len(server.requests)} requests, 0 cached, {110 * len(server.requests):,} tokens\n" in done.out
        assert len(server.requests) == 61 and len((tmp_path / "judge-examples.jsonl").read_text().splitlines()) == 8
        settings = {"models": {"main": model}, "judge": {"model": "main", "examples": "judge-examples.jsonl"}}
        (tmp_path / "proctor.yaml").write_text(json.dumps(settings), encoding="utf-8")
        done = proctor("judge", "calibrate", "labels.jsonl", "--format", "json")
        assert "warning: label_is_example: 8 of 30 labels are also examples of the judge" in done.err
        report = json.loads(done.out)
        assert (report["items"], report["left_out"]) == (22, {"label_is_example": 8})
        done = proctor("judge", "calibrate", "judge-examples.jsonl")
        assert done.code == 4 and "label_is_example: every label is also an example" in done.err
        assert report["figures"]["kappa"]["value"] == 1 and report["judge"]["prompt_versions"][0].startswith("2+examples-")
        done = proctor("judge", "improve", "labels.jsonl", "--format", "json", "--examples", "more.jsonl")
        assert done.code == 1 and json.loads(done.out)["accepted"] is False and not (tmp_path / "more.jsonl").exists()


def sharpening(body: dict[str, Any]) -> str:
    """Writes a criterion without exclamation marks, and decides by it."""
    if body["messages"][0]["content"].startswith("You improve"):
        return json.dumps({"criterion": "polite, and calm"})
    answer, checks = data_of(body)["final_answer"], checks_of(body)
    entries = [{"id": check["id"], "reason": "read it", "pass": not ("calm" in json.dumps(check) and "!" in answer)} for check in checks]
    return json.dumps({"results": entries})


def test_a_helpful_sharper_criterion_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"answer": f"Order {n}{'!' if n % 2 else '.'}", "criterion": "polite", "label": n % 2 == 0} for n in range(30)]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with judge_server(sharpening) as server:
        model = {"provider": "openai", "model": "stub", "base_url": server.url, "api_key": "k-123456789"}
        (tmp_path / "proctor.yaml").write_text(json.dumps({"models": {"main": model}, "judge": {"model": "main"}}), encoding="utf-8")
        done = proctor("judge", "improve", "labels.jsonl")
    assert done.code == 0 and "0.000 without a sharper criterion, 1.000 with" in done.out, done.out + done.err
    assert '- "polite"' in done.out and '+ "polite, and calm"' in done.out and not (tmp_path / "judge-examples.jsonl").exists()


def test_the_judged_answers_of_a_run_are_printed_to_label(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text("def answer(message: str) -> str:\n    return 'good'\n", encoding="utf-8")
    (tmp_path / "suite.yaml").write_text(SUITE + "targets: {agent: {type: callable, function: 'agent:answer'}}\n", encoding="utf-8")
    assert proctor("run", "suite.yaml").code == 0
    done = proctor("judge", "labels", "--output", "labels.jsonl")
    assert done.code == 0 and "1 answer to label" in done.err
    line = json.loads((tmp_path / "labels.jsonl").read_text())
    assert line == {"id": "hello.0.0", "criterion": "It is good.", "answer": "good", "label": None}
    done = proctor("judge", "calibrate", "labels.jsonl")
    assert done.code == 4 and "labels.jsonl:1:1: 1 line without a label left out" in done.err
    with (tmp_path / "labels.jsonl").open("a") as file:
        file.write(json.dumps({**line, "id": "other", "label": True}) + "\n")
    done = proctor("judge", "calibrate", "labels.jsonl")
    assert done.code == 0 and "warning: 1 line without a label left out" in done.err and " · 1 labelled answer," in done.out
    (tmp_path / "labels.jsonl").write_text(json.dumps({**line, "label": True}), encoding="utf-8")
    assert proctor("judge", "calibrate", "labels.jsonl").code == 0


@pytest.mark.parametrize(
    ("judge_settings", "messages"),
    [
        ({"base_url": "http://127.0.0.1:9/v1"}, ("judge_unreachable", "`base_url`")),
        ({"status": 401}, ("judge_unauthorized", "`api_key`")),
    ],
)
def test_improve_reports_why_a_judge_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge_settings: dict[str, Any], messages: tuple[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"answer": f"Order {n}", "criterion": "polite", "label": n % 2 == 0} for n in range(30)]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with judge_server(status=judge_settings.get("status", 200)) as server:
        url = judge_settings.get("base_url", server.url)
        model = {"provider": "openai", "model": "stub", "base_url": url, "api_key": "k-123456789"}
        settings = {"models": {"main": model}, "judge": {"model": "main", "retries": 0, "concurrency": 1}}
        (tmp_path / "proctor.yaml").write_text(json.dumps(settings), encoding="utf-8")
        done = proctor("judge", "improve", "labels.jsonl")
        assert len(server.requests) <= 1
    assert done.code == 4 and "the judge decided 0 of 30 answers" in done.err
    assert all(part in done.err for part in messages) and "p =" not in done.out


def test_labels_of_other_checks_are_measured_and_not_improved(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = {"check": "tone", "with": {"should_be": "calm"}, "evidence": {"text": "good"}, "label": True}
    (tmp_path / "labels.jsonl").write_text(json.dumps(line), encoding="utf-8")
    report = json.loads(proctor("judge", "calibrate", "labels.jsonl", "--format", "json").out)
    assert report["table"]["true_pass"] == 1 and checks_of(judge.requests[0])[0]["label"] == "tone, rubric version 1"
    assert not (tmp_path / ".proctor" / "calibrations.json").exists(), "its requests have other texts than a criterion"
    done = proctor("judge", "improve", "labels.jsonl")
    assert done.code == 4 and "left out: 1 of tone" in done.err


def test_yes_or_no_and_scores_are_stored_apart(labels: Path, judge: Judge, tmp_path: Path) -> None:
    with labels.open("a", encoding="utf-8") as file:
        file.write(
            '{"answer": "good", "criterion": "It is fine.", "label": true}\n{"answer": "bad", "criterion": "It is fine.", "label": false}\n'
        )
    report = json.loads(proctor("judge", "calibrate", labels, "--format", "json").out)
    assert (report["items"], report["threshold"], report["sweep"]) == (6, None, [])
    stored = json.loads((tmp_path / ".proctor" / "calibrations.json").read_text())["calibrations"]
    assert [(stamp["threshold"], stamp["labels"], stamp["kappa"]) for stamp in stored] == [(None, 2, 1.0), (0.8, 4, 0.0)]


def test_labels_of_one_kind_replace_no_calibration(labels: Path, judge: Judge, tmp_path: Path) -> None:
    assert proctor("judge", "calibrate", labels).code == 0
    before = (tmp_path / ".proctor" / "calibrations.json").read_text()
    lines = [{"answer": f"good {number}, score 0.9", "criterion": "It is good.", "label": True, "threshold": 0.8} for number in range(40)]
    labels.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    done = proctor("judge", "calibrate", labels)
    assert "not stored: kappa cannot be computed from labels that are all the same" in done.err
    assert (tmp_path / ".proctor" / "calibrations.json").read_text() == before


def test_labels_of_people_are_never_overwritten(labels: Path, tmp_path: Path) -> None:
    before = labels.read_bytes()
    other = tmp_path / "note.txt"
    other.write_text("something else", encoding="utf-8")
    for arguments in (
        ("labels", "latest", "--output", labels),
        ("improve", labels, "--examples", labels),
        ("improve", labels, "--examples", other),
    ):
        assert proctor("judge", *arguments).code == 4
    assert (labels.read_bytes(), other.read_text(encoding="utf-8")) == (before, "something else")
