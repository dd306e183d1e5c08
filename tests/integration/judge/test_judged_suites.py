"""Suites with claims in plain language, through the commands, with a judge on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import proctor as library
from proctor.cli.commands.check import Progress
from proctor.model.case import Case
from proctor.model.result import CaseResult
from tests.integration.judge_server import Judge, checks_of, data_of, judge_server
from tests.integration.running import proctor

CASES = 50


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PROCTOR_JUDGE_MODEL", "PROCTOR_JUDGE_BASE_URL", "PROCTOR_JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def judge() -> Iterator[Judge]:
    with judge_server() as running:
        yield running


def workspace(tmp_path: Path, judge: Judge | None, **settings: Any) -> Path:
    """A workspace whose agent repeats the case's number, and whose judge is the one on loopback."""
    (tmp_path / "agent.py").write_text("def answer(message: str) -> str:\n    return 'a good answer to ' + message\n")
    document: dict[str, Any] = {"targets": {"agent": {"type": "callable", "function": "agent:answer"}}}
    if judge is not None:
        document["models"] = {"judge": {"provider": "openai", "model": "stub-1", "base_url": judge.url, "api_key": "sk-judge-secret"}}
        document["judge"] = {"model": "judge", **settings}
    (tmp_path / "proctor.yaml").write_text(json.dumps(document))
    return tmp_path


def suite(tmp_path: Path, criteria: list[str], name: str = "suite.json", **more: Any) -> Path:
    cases = [
        {"id": f"case-{number}", "input": f"question {number}", "expect": [{"judged": {"criteria": text, **more}}]}
        for number, text in enumerate(criteria)
    ]
    path = tmp_path / name
    path.write_text(json.dumps({"proctor": 1, "name": "judged", "cases": cases}))
    return path


def result_of(out: str) -> dict[str, Any]:
    return json.loads(out)


def run(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = proctor("run", *arguments, "--format", "json")
    return done.code, json.loads(done.out) if done.out else {}, done.err


def test_a_second_run_sends_no_request_and_a_changed_criterion_sends_one(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    criteria = [f"answers question {number}" for number in range(CASES)]
    suite(tmp_path, criteria)
    code, first, err = run(tmp_path, "suite.json")
    assert code == 0, err
    assert first["counts"]["pass"] == CASES
    assert len(judge.requests) == CASES
    assert "estimate: at least 50 requests, more for long answers" in err

    code, second, _ = run(tmp_path, "suite.json")
    assert code == 0
    assert len(judge.requests) == CASES
    assert second["cases"][0]["assertions"][0]["reason"] == first["cases"][0]["assertions"][0]["reason"]

    criteria[17] = "answers question 17 in one sentence"
    suite(tmp_path, criteria)
    assert run(tmp_path, "suite.json")[0] == 0
    assert judge.criteria[CASES:] == ["answers question 17 in one sentence"]

    assert run(tmp_path, "suite.json", "--no-cache")[0] == 0
    assert len(judge.requests) == 2 * CASES + 1


def test_repeats_are_judged_separately_unless_sharing_is_on(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path, ["is good"])
    run(tmp_path, "suite.json", "-n", "3")
    assert len(judge.requests) == 3
    judge.requests.clear()
    suite(tmp_path, ["is very good"])
    # One at a time: a reply can only be shared once it is there.
    run(tmp_path, "suite.json", "-n", "3", "--share-judgements", "-j", "1")
    assert len(judge.requests) == 1


def test_a_run_without_the_judge_it_needs_does_not_start(tmp_path: Path) -> None:
    workspace(tmp_path, None)
    suite(tmp_path, ["is good"])
    code, result, err = run(tmp_path, "suite.json")
    assert (code, result) == (4, {})
    assert "'case-0'" in err and "--allow-missing-judge" in err and "PROCTOR_JUDGE_MODEL" in err
    code, result, _ = run(tmp_path, "suite.json", "--allow-missing-judge")
    assert code == 1
    assert result["cases"][0]["assertions"][0]["code"] == "judge_unavailable"


def test_the_judge_of_the_environment_is_used(tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace(tmp_path, None)
    suite(tmp_path, ["is good"])
    monkeypatch.setenv("PROCTOR_JUDGE_MODEL", "stub-1")
    monkeypatch.setenv("PROCTOR_JUDGE_BASE_URL", judge.url)
    done = proctor("run", "suite.json", "--format", "json")
    assert done.code == 0, done.err
    assert len(judge.requests) == 1


def test_check_and_recheck_use_a_configured_judge_and_work_without_one(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path, ["is good"])
    (tmp_path / "evidence.jsonl").write_text(json.dumps({"case": "case-0", "text": "a good one"}) + "\n")
    done = proctor("check", "suite.json", "evidence.jsonl", "--format", "json")
    assert (done.code, len(judge.requests)) == (0, 1), done.err
    done = proctor("check", "suite.json", "evidence.jsonl", "--format", "json", "--no-judge")
    assert done.code == 1
    assert result_of(done.out)["cases"][0]["assertions"][0]["code"] == "judge_unavailable"
    run(tmp_path, "suite.json")
    requests = len(judge.requests)
    done = proctor("recheck", "latest", "--format", "json")
    assert (done.code, len(judge.requests)) == (0, requests), done.err
    suite(tmp_path, ["is excellent"], name="stricter.json")
    done = proctor("recheck", "latest", "--suite", "stricter.json", "--format", "json")
    assert (done.code, len(judge.requests)) == (0, requests + 1), done.err


def test_deterministic_claims_come_first_and_fail_fast_spares_the_judge(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    path = tmp_path / "suite.json"
    expect: list[Any] = [{"judged": "is good"}, {"response_contains": "nowhere to be found"}]
    path.write_text(json.dumps({"proctor": 1, "name": "s", "cases": [{"id": "a", "input": "q", "expect": expect}]}))
    code, result, _ = run(tmp_path, "suite.json", "--fail-fast")
    assert (code, len(judge.requests)) == (1, 0)
    assert [each["outcome"] for each in result["cases"][0]["assertions"]] == ["skip", "fail"]
    assert result["cases"][0]["assertions"][0]["code"] == "fail_fast"
    _, result, _ = run(tmp_path, "suite.json")
    assert [each["outcome"] for each in result["cases"][0]["assertions"]] == ["pass", "fail"]
    assert len(judge.requests) == 1


def test_dependent_claims_wait_for_their_judged_claim(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    path = tmp_path / "suite.json"
    expect: list[Any] = [
        {"judged": "is written well", "id": "second", "depends_on": "first"},
        {"judged": "is good", "id": "first"},
        {"response_contains": "answer", "id": "third", "depends_on": ["second"]},
    ]
    path.write_text(json.dumps({"proctor": 1, "name": "s", "cases": [{"id": "a", "input": "q", "expect": expect}]}))
    code, result, err = run(tmp_path, "suite.json")
    assert code == 0, err
    assert [each["outcome"] for each in result["cases"][0]["assertions"]] == ["pass", "pass", "pass"]
    assert judge.criteria == ["is good", "is written well"]


def test_the_budget_of_calls_ends_judging_and_not_the_run(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path, [f"is good {number}" for number in range(5)])
    code, result, _ = run(tmp_path, "suite.json", "--max-judge-calls", "2", "-j", "1")
    assert code == 1
    assert result["counts"] == {"pass": 2, "fail": 0, "error": 3, "skip": 0}
    assert {each["assertions"][0]["code"] for each in result["cases"] if each["outcome"] == "error"} == {"judge_budget"}


def test_a_recording_holds_the_judge_and_no_secret(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path, ["is good", "is good too"])
    assert run(tmp_path, "suite.json")[0] == 0
    # Everything is remembered now, and recorded all the same.
    code, recorded, _ = run(tmp_path, "suite.json", "--record", "tape.jsonl")
    assert (code, len(judge.requests)) == (0, 2)
    text = (tmp_path / "tape.jsonl").read_text()
    assert "sk-judge-secret" not in text
    code, replayed, err = run(tmp_path, "suite.json", "--replay", "tape.jsonl", "--no-cache")
    assert (code, len(judge.requests)) == (0, 2), err
    assert [each["assertions"][0]["reason"] for each in replayed["cases"]] == [
        each["assertions"][0]["reason"] for each in recorded["cases"]
    ]


def test_a_verdict_stores_the_judge_and_its_reply(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path, ["is good"])
    _, result, _ = run(tmp_path, "suite.json")
    details = result["cases"][0]["assertions"][0]["details"]
    assert details["prompt_version"] == "2"
    assert "stub-1" in json.dumps(details)
    assert '"total_tokens": 110' in json.dumps(details) or '"total_tokens":110' in json.dumps(details)
    assert "read it" in json.dumps(details)


def test_the_judge_sees_exactly_what_the_claim_shows(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path, ["is good"])
    run(tmp_path, "suite.json")
    assert data_of(judge.requests[-1]) == {"final_answer": "a good answer to question 0"}
    suite(tmp_path, ["is good"], show_prompt=True)
    run(tmp_path, "suite.json")
    assert data_of(judge.requests[-1])["context"] == {"scenario_prompt": "question 0"}
    assert len(checks_of(judge.requests[-1])) == 1


@pytest.mark.parametrize(("score", "outcome"), [("0.8", "pass"), ("0.81", "pass"), ("0.79", "fail"), ("7", "error")])
def test_a_score_decides_against_the_threshold(tmp_path: Path, judge: Judge, score: str, outcome: str) -> None:
    workspace(tmp_path, judge)
    path = tmp_path / "mibo.json"
    case = {"name": "a", "input_utterance": "q", "assertions": {"semantic": [{"criteria": "is good"}]}}
    path.write_text(json.dumps({"test_cases": [case]}))
    (tmp_path / "evidence.json").write_text(json.dumps({"text": f"score {score}"}))
    done = proctor("check", "mibo.json", "evidence.json", "--format", "json")
    assert result_of(done.out)["cases"][0]["outcome"] == outcome, done.out


def test_a_replay_needs_no_judge_key_and_names_the_changed_criterion(tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    home = workspace(tmp_path, judge)
    (home / "proctor.yaml").write_text((home / "proctor.yaml").read_text().replace("sk-judge-secret", "${JUDGE_KEY}"))
    monkeypatch.setenv("JUDGE_KEY", "sk-judge-secret")
    path = suite(tmp_path, ["the answer is friendly"])
    assert run(tmp_path, str(path), "--record", "tape.jsonl", "--no-cache")[0] == 0
    monkeypatch.delenv("JUDGE_KEY")
    code, _, err = run(tmp_path, str(path))
    assert code == 4 and "JUDGE_KEY is not set" in err
    assert run(tmp_path, str(path), "--replay", "tape.jsonl", "--no-cache")[0] == 0

    _, missed, _ = run(tmp_path, str(suite(tmp_path, ["the answer is rude"])), "--replay", "tape.jsonl", "--no-cache")
    (verdict,) = missed["cases"][0]["assertions"]
    recorded, now = (line for line in verdict["reason"].splitlines() if line.startswith(("    recorded ", "    now ")))
    assert verdict["code"] == "cassette_miss" and "is friendly" in recorded and "is rude" in now


def test_a_model_of_the_command_line_is_not_looked_up_in_the_file(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    done = proctor("run", suite(tmp_path, ["good"]), "--judge-model", "jugde")
    assert done.code == 4
    assert done.err.startswith("judge: there is no model 'jugde'; nearest: judge; known: judge\n")
    assert "provider/name" in done.err and "proctor.yaml" not in done.err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"modle": "judge"}, "unknown key 'modle' in judge"),
        ({"model": "jugde"}, "judge: there is no model 'jugde'"),
        ({"model": "judge", "samples": 0}, "expected at least 1, found 0"),
        ([1, 2], "judge: expected an object, found list"),
    ],
)
def test_validate_reports_errors_of_the_judge_of_a_suite(tmp_path: Path, judge: Judge, settings: Any, message: str) -> None:
    workspace(tmp_path, judge)
    path = suite(tmp_path, ["good"])
    path.write_text(json.dumps({**json.loads(path.read_text()), "judge": settings}))
    done = proctor("validate", path)
    assert done.code == 4 and message in done.out and "1 suite with 1 case, 0 records of evidence: 1 problem, 0 warnings" in done.err


def test_validate_accepts_a_judge_by_its_name_its_provider_or_a_variable(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    path = suite(tmp_path, ["good"])
    for model in ("judge", "openai/some-model", "${JUDGE}", ["judge", "anthropic/some-model"]):
        path.write_text(json.dumps({**json.loads(path.read_text()), "judge": {"model": model, "samples": 3}}))
        assert proctor("validate", path).code == 0


def test_a_missing_key_is_reported_with_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    workspace(tmp_path, None)
    done = proctor("run", suite(tmp_path, ["good"]), "--judge-model", "openai/some-model")
    assert done.code == 4 and "needs an API key, for 'some-model'" in done.err and "OPENAI_API_KEY" in done.err


def test_recordings_in_place_of_a_suite_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text('{"text": "hello"}\n{"text": "bye"}\n')
    done = proctor("check", "traces.jsonl", suite(tmp_path, ["good"]))
    assert done.code == 4 and "'traces.jsonl' holds lines of JSON, which is evidence" in done.err


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("judge: {modle: main}", "suite.yaml:3:9", "unknown key 'modle' in judge"),
        ("judge: {model: jugde}", "suite.yaml:3:16", "judge: there is no model 'jugde'"),
        ("judge: {model: judge, samples: 0}", "suite.yaml:3:32", "expected at least 1, found 0"),
        ("judge: {model: judge, samples: many}", "suite.yaml:3:32", "expected a whole number, found text"),
        ("judge: [1, 2]", "suite.yaml:3:8", "judge: expected an object, found list"),
        ("judge: main", "suite.yaml:3:8", "a judge is named by its model: judge: {model: main}"),
    ],
)
def test_judge_errors_of_a_suite_have_line_and_column(tmp_path: Path, judge: Judge, line: str, place: str, message: str) -> None:
    workspace(tmp_path, judge)
    (tmp_path / "suite.yaml").write_text(
        f"proctor: 1\nname: judged\n{line}\ncases:\n  - {{id: a, input: hello, expect: [judged: is good]}}\n"
    )
    validated, ran = proctor("validate", "suite.yaml"), proctor("run", "suite.yaml")
    assert (validated.code, ran.code) == (4, 4)
    for text in (validated.out, ran.err):
        assert f"{place}: " in text and message in text and f"    3 | {line}\n" in text


def test_a_bare_model_name_is_explained(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    (tmp_path / "proctor.yaml").write_text('{"judge": "openai/some-model"}')
    done = proctor("run", suite(tmp_path, ["good"]))
    assert done.code == 4 and "proctor.yaml:1:11: judge: expected an object" in done.err
    assert "judge: {model: openai/some-model}" in done.err


def test_judge_errors_are_reported_in_plain_words(tmp_path: Path) -> None:
    with judge_server(lambda body: "nonsense") as broken:
        workspace(tmp_path, broken)
        _, done, _ = run(tmp_path, str(suite(tmp_path, ["good"])))
    (verdict,) = done["cases"][0]["assertions"]
    assert verdict["reason"] == 'the judge "stub-1" returned invalid JSON' and verdict["code"] == "judge_not_json"


def test_an_unavailable_judge_is_reported_once_during_and_once_after_the_run(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge, retries=0)
    (tmp_path / "proctor.yaml").write_text((tmp_path / "proctor.yaml").read_text().replace(judge.url, "http://127.0.0.1:1/v1"))
    done = proctor("run", suite(tmp_path, [f"is good {number}" for number in range(5)]))
    assert done.out.count("could not be reached") == 1 and "5 checks in 5 cases" in done.out
    assert done.err.count("could not be reached") == 1 and done.err.count("not judged, as above") == 4


def test_a_recheck_shows_the_cases_in_the_order_of_the_suite(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    (tmp_path / "agent.py").write_text(
        "import time\n\n\ndef answer(message: str) -> str:\n    time.sleep(0.2 if message.endswith('0') else 0)\n"
        "    return 'a good answer'\n"
    )
    suite(tmp_path, ["is good", "is very good"])
    run(tmp_path, "suite.json")
    done = proctor("recheck", "latest", "--format", "json")
    assert [case["id"] for case in result_of(done.out)["cases"]] == ["case-0", "case-1"]


def test_python_asks_the_judge_of_the_suite(tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"provider": "openai", "model": "stub-1", "base_url": judge.url, "api_key": "sk-1"}
    cases = [{"id": "a", "expect": [{"judged": "is good"}]}]
    (tmp_path / "suite.json").write_text(json.dumps({"proctor": 1, "judge": {"model": "own"}, "models": {"own": model}, "cases": cases}))
    with pytest.raises(library.InputError, match=r"suite\.json"):
        library.check("suite.json", {"text": "good"})
    assert judge.requests == []
    monkeypatch.setenv("PROCTOR_TRUST", "1")
    assert library.check("suite.json", {"text": "good"}).passed
    assert len(judge.requests) == 1


def test_python_takes_a_jury_of_described_models(judge: Judge) -> None:
    model = {"provider": "openai", "model": "stub-1", "base_url": judge.url, "api_key": "sk-1"}
    suite = library.parse_suite("proctor: 1\ncases: [{id: a, expect: [{judged: is good}]}]")
    result = library.check(suite, {"text": "good"}, judge={"model": [model, {**model, "model": "stub-2"}]})
    assert result.passed and result.cases[0].verdicts[0].details["models"] == ["stub-1", "stub-2"]
    assert len(judge.requests) == 2


def test_a_terminal_shows_that_a_judge_is_working(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr("proctor.actions.workspace.status_line.time.monotonic", lambda: float(next(clock)))
    progress = Progress(enabled=True, judges=("openai/one", "openai/two"))
    assert capsys.readouterr().err == "\r\x1b[2Kjudging with openai/one, openai/two"
    progress.add(CaseResult(case=Case(id="a"), outcome="fail", score=0.0, verdicts=()))
    assert capsys.readouterr().err.endswith("1 checked, 1 failed, 0.2 a second")
    progress.finish()
    assert capsys.readouterr().err == "\r\x1b[2K"
