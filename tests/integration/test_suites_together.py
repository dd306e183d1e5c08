"""Several suites in one run: each is driven and judged as it would be alone, and the results are those of one run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.judge_server import Judge, judge_server
from tests.integration.running import proctor


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PROCTOR_JUDGE_MODEL", "PROCTOR_JUDGE_BASE_URL", "PROCTOR_JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def judge() -> Iterator[Judge]:
    with judge_server() as running:
        yield running


@pytest.fixture
def other() -> Iterator[Judge]:
    with judge_server() as running:
        yield running


def model(judge: Judge, name: str = "stub-1") -> dict[str, Any]:
    return {"provider": "openai", "model": name, "base_url": judge.url, "api_key": "sk-judge-secret"}


def workspace(tmp_path: Path, judge: Judge | None = None) -> None:
    (tmp_path / "agents.py").write_text(
        "def shared(message: str) -> str:\n    return 'a good answer of all to ' + message\n"
        "def own(message: str) -> str:\n    return 'a good answer of one to ' + message\n"
    )
    document: dict[str, Any] = {"targets": {"shared": function("shared"), "own": function("own")}, "default_target": "shared"}
    if judge is not None:
        document |= {"models": {"main": model(judge)}, "judge": {"model": "main"}}
    (tmp_path / "proctor.yaml").write_text(json.dumps(document))


def function(name: str) -> dict[str, Any]:
    return {"type": "callable", "function": f"agents:{name}"}


def suite(path: Path, *expect: Any, case: str | None = None, **settings: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    case = case or f"hello-{path.stem}"
    cases = [{"id": case, "input": case, "expect": list(expect) or [{"judged": f"is good for {path.stem}"}]}]
    path.write_text(json.dumps({"proctor": 1, "name": path.stem, **settings, "cases": cases}))
    return path


def ran(*arguments: object, code: int = 0) -> dict[str, Any]:
    done = proctor("run", *arguments, "--format", "json")
    assert done.code == code, done.err + done.out
    return json.loads(done.out)


def test_each_suite_has_its_own_judge(tmp_path: Path, judge: Judge, other: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path / "suites" / "one.json")
    suite(tmp_path / "suites" / "two.json", models={"mine": model(other, "stub-2")}, judge={"model": "mine", "samples": 3})
    done = ran("suites")
    assert done["counts"]["pass"] == 2 and done["warnings"] == []
    assert judge.criteria == ["is good for one"] and other.criteria == ["is good for two"] * 3
    judges = {case["id"]: case["assertions"][0]["details"]["judge"] for case in done["cases"]}
    assert judges == {"hello-one": "stub-1", "hello-two": "stub-2"}


def test_judge_costs_are_reported_for_all_judges(tmp_path: Path, judge: Judge, other: Judge) -> None:
    workspace(tmp_path, judge)
    one = suite(tmp_path / "one.json")
    two = suite(tmp_path / "two.json", models={"mine": model(other, "stub-2")}, judge={"model": "mine", "samples": 3})
    err = proctor("run", one, two).err
    assert "judge: openai/stub-1; estimate: at least 1 request, " in err and "judge: openai/stub-2; estimate: at least 3 requests, " in err


def test_each_suite_has_its_own_target(tmp_path: Path) -> None:
    workspace(tmp_path)
    one = suite(tmp_path / "one.json", {"response_contains": "answer of all"})
    two = suite(tmp_path / "two.json", {"response_contains": "answer of one"}, default_target="own")
    assert ran(one, two)["counts"]["pass"] == 2
    # A target that is named with the command is that of all.
    assert ran(one, two, "--target", "own", code=1)["counts"]["pass"] == 1


def test_a_relative_file_is_resolved_from_its_suite(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path / "suites" / "one.json")
    suite(tmp_path / "suites" / "two.json", models={"mine": model(judge)}, judge={"model": "mine", "prompt": "strict.md"})
    (tmp_path / "suites" / "strict.md").write_text("Be strict, says the second suite.")
    ran("suites")
    assert [("Be strict" in json.dumps(body)) for body in judge.requests] in ([True, False], [False, True])


def test_suites_without_a_judge_share_one(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    for name in ("one", "two"):
        suite(tmp_path / "suites" / f"{name}.json")
    suite(tmp_path / "suites" / "three.json", {"response_contains": "of one"}, default_target="own")
    assert ran("suites", "--max-judge-calls", "1", code=1)["counts"] == {"pass": 2, "fail": 0, "error": 1, "skip": 0}


def test_a_limit_of_judge_calls_holds_for_all_judges_together(tmp_path: Path, judge: Judge, other: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path / "suites" / "one.json")
    suite(tmp_path / "suites" / "two.json", models={"mine": model(other, "stub-2")}, judge={"model": "mine"})
    assert ran("suites", "--max-judge-calls", "1", code=1)["counts"] == {"pass": 1, "fail": 0, "error": 1, "skip": 0}
    assert len(judge.requests) + len(other.requests) == 1


def test_recordings_are_judged_by_the_judge_of_their_suite(tmp_path: Path, judge: Judge, other: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path / "suites" / "one.json", case="first")
    suite(tmp_path / "suites" / "two.json", case="second", models={"mine": model(other)}, judge={"model": "mine"})
    (tmp_path / "evidence.jsonl").write_text('{"case": "first", "text": "good"}\n{"case": "second", "text": "good"}\n')
    assert proctor("check", "--trust", "suites", "evidence.jsonl").code == 0
    assert judge.criteria == ["is good for one"] and other.criteria == ["is good for two"]

    ran("suites")
    done = proctor("recheck", "latest", "--no-cache", "--trust")
    assert done.code == 0 and (judge.criteria[2:], other.criteria[2:]) == (["is good for one"], ["is good for two"])


def test_an_error_is_reported_with_its_suite(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    one = suite(tmp_path / "one.json")
    two = suite(tmp_path / "two.json", judge={"model": "mian"})
    done = proctor("run", one, two)
    assert done.code == 4 and "two.json:1:" in done.err and "there is no model 'mian'" in done.err and "nearest: 'main'" in done.err
    suite(tmp_path / "two.json", targets={"mine": {"type": "callable", "function": "agents:own"}})
    done = proctor("run", one, two, "--target", "mine")
    assert done.code == 4 and "suite 'one': there is no target 'mine'" in done.err


def test_a_suite_without_a_judge_is_reported_before_any_request(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path)
    one = suite(tmp_path / "one.json")
    two = suite(tmp_path / "two.json", case="bye", models={"mine": model(judge)}, judge={"model": "mine"})
    done = proctor("run", one, two)
    assert done.code == 4 and "claims of 1 case need a judge, and none is configured: 'hello-one'\n" in done.err and "'bye'" not in done.err
    assert judge.requests == []
    assert ran(one, two, "--allow-missing-judge", code=1)["counts"] == {"pass": 1, "fail": 0, "error": 1, "skip": 0}


def test_a_run_of_several_suites_is_recorded_replayed_and_resumed(tmp_path: Path, judge: Judge, other: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path / "suites" / "one.json")
    suite(tmp_path / "suites" / "two.json", models={"mine": model(other, "stub-2")}, judge={"model": "mine"})
    ran("suites", "--record", "tape.jsonl", "--no-cache")
    requests = len(judge.requests) + len(other.requests)
    done = ran("suites", "--replay", "tape.jsonl", "--no-cache")
    assert done["counts"]["pass"] == 2 and len(judge.requests) + len(other.requests) == requests == 2
    assert "sk-judge-secret" not in (tmp_path / "tape.jsonl").read_text()
    assert ran("suites", "--resume", done["run_id"])["counts"]["pass"] == 2


def test_only_selected_cases_decide_what_is_needed(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    suite(tmp_path / "suites" / "one.json", case="first")
    suite(tmp_path / "suites" / "two.json", case="second", judge={"model": "mian"}, default_target="nowhere")
    assert ran("suites", "-k", "first")["counts"]["pass"] == 1


def test_a_list_of_suites_written_into_a_file_is_ignored(tmp_path: Path, judge: Judge) -> None:
    workspace(tmp_path, judge)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.md").write_text("the content of another folder")
    own = {"models": {"mine": model(judge)}, "judge": {"model": "mine", "prompt": "secret.md"}}
    forged = [{"name": "x", "dialect": "native", "file": "../elsewhere/x.json", "cases": ["hello"], "settings": own}]
    path = suite(tmp_path / "suites" / "one.json", settings={"suites": forged, "version": 1})
    for given in ("suites", path):
        assert ran(given, "--no-cache")["counts"]["pass"] == 1
    assert len(judge.requests) == 2 and "another folder" not in json.dumps(judge.requests)


def test_a_folder_with_one_suite_runs_like_the_suite(tmp_path: Path) -> None:
    workspace(tmp_path)
    own = {"type": "recorded", "evidence": "answers.jsonl"}
    suite(tmp_path / "suites" / "one.json", {"response_contains": "found"}, targets={"mine": own}, default_target="mine")
    (tmp_path / "suites" / "answers.jsonl").write_text('{"case": "hello-one", "text": "found next to the suite"}\n')
    alone, inside = ran("suites/one.json"), ran("suites")
    assert alone["counts"] == inside["counts"] == {"pass": 1, "fail": 0, "error": 0, "skip": 0}


def test_a_converted_folder_keeps_what_one_suite_can_express(tmp_path: Path) -> None:
    suite(tmp_path / "suites" / "one.json", {"response_contains": "x"}, judge={"model": "openai/m"})
    done = proctor("convert", "suites")
    assert done.code == 0 and done.err == "" and "\njudge: {model: openai/m}\ncases:" in done.out
    suite(tmp_path / "suites" / "two.json", {"response_contains": "y"})
    done = proctor("convert", "suites")
    assert done.code == 0 and "judge" not in done.out
    assert "suites/one.json: warning: not written: `judge` of this suite; what is written is one suite" in done.err
