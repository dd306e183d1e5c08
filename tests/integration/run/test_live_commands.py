"""Runs as a user starts them: executed, stored, resumed, compared, reported."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import proctor as package
from proctor.store.files.run_files import RunFiles
from tests.integration.running import proctor

AGENT = """\
import os, time
from pathlib import Path

def answer(message):
    with open(Path(__file__).parent / "inputs.log", "a") as log:
        log.write(message + "\\n")
    time.sleep(float(os.environ.get("AGENT_SECONDS", "0")))
    if os.environ.get("AGENT_FAILS") and message.endswith("7"):
        return "no idea"
    return {"text": f"you sent {message}", "tool_calls": [{"name": "search", "arguments": {"q": message}}]}
"""
WORKSPACE = 'targets: {agent: {type: callable, function: "agent:answer"}}\n'


def suite_text(count: int) -> str:
    cases = "\n".join(
        f"  - {{id: c{number}, input: hello {number}, expect: [response_contains: you sent, tool_called: search]}}"
        for number in range(count)
    )
    return f"proctor: 1\nname: Live\ncases:\n{cases}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "proctor.yaml").write_text(WORKSPACE)
    (tmp_path / "suite.yaml").write_text(suite_text(10))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "agent", raising=False)
    return tmp_path


def read_inputs(place: Path) -> list[str]:
    path = place / "inputs.log"
    return path.read_text().splitlines() if path.exists() else []


def test_a_suite_is_run_stored_and_shown_again(place: Path) -> None:
    done = proctor("run", "suite.yaml", "--format", "json")
    assert done.code == 0, done
    document = json.loads(done.out)
    assert document["counts"]["pass"] == 10
    assert len(read_inputs(place)) == 10
    listed = proctor("list")
    assert document["run_id"] in listed.out and "10 pass" in listed.out
    shown = json.loads(proctor("show", "latest", "--format", "json").out)
    assert [case["id"] for case in shown["cases"]] == [f"c{number}" for number in range(10)]
    assert shown["cases"][0]["assertions"][0]["origin"]["file"] == "suite.yaml"
    again = proctor("recheck", "latest")
    assert again.code == 0 and "10 passed" in again.out
    assert len(read_inputs(place)) == 10, "rechecking sends no request"


def test_a_run_of_chosen_cases_is_shown_with_the_places_of_its_claims(place: Path) -> None:
    ran = json.loads(proctor("run", "suite.yaml", "-k", "c3", "--format", "json").out)
    shown = json.loads(proctor("show", "latest", "--format", "json").out)
    assert [case["assertions"][0]["origin"] for case in shown["cases"]] == [case["assertions"][0]["origin"] for case in ran["cases"]]
    assert shown["cases"][0]["assertions"][0]["origin"]["file"] == "suite.yaml"


def test_recheck_decides_with_another_suite(place: Path) -> None:
    proctor("run", "suite.yaml", "--quiet")
    (place / "strict.yaml").write_text(suite_text(10).replace("you sent", "goodbye"))
    done = proctor("recheck", "latest", "--suite", "strict.yaml", "--format", "json")
    assert (done.code, json.loads(done.out)["counts"]["fail"]) == (1, 10)


def test_repeats_have_statistics_and_a_gate(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FAILS", "1")
    done = proctor("run", "suite.yaml", "-n", "3", "--min-pass-rate", "0.85", "--format", "json", "--quiet")
    document = json.loads(done.out)
    assert (done.code, document["counts"]["pass"], document["counts"]["fail"]) == (0, 27, 3)
    statistics = {entry["id"]: entry["statistics"] for entry in document["summary"]}
    assert statistics["c7"]["pass_rate"] == 0.0 and statistics["c1"]["pass_rate"] == 1.0
    assert statistics["c1"]["interval"][0] == pytest.approx(0.4385, abs=1e-3)
    assert proctor("run", "suite.yaml", "-n", "3", "--min-pass-rate", "0.95", "--quiet").code == 1


def test_two_runs_are_compared_and_gate(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proctor("run", "suite.yaml", "-n", "3", "--quiet")
    base = RunFiles(place / ".proctor").list_ids()[0]
    monkeypatch.setenv("AGENT_FAILS", "1")
    proctor("run", "suite.yaml", "-n", "3", "--quiet")
    candidate = next(run for run in RunFiles(place / ".proctor").list_ids() if run != base)
    done = proctor("compare", base, candidate, "--format", "json", "--fail-on", "new-failure")
    assert done.code == 1
    assert json.loads(done.out)["comparison"]["newly_failing"] == ["c7"]
    compared = proctor("compare", base, candidate)
    assert compared.code == 0 and "Newly failing  1\n" in compared.out and re.search("  c7 +3/3 -> 0/3 +response_contains", compared.out)


def test_reports_of_a_stored_run(place: Path) -> None:
    proctor("run", "suite.yaml", "--quiet")
    assert proctor("report", "latest").code == 0
    page = (place / "report.html").read_text()
    assert page.startswith("<!") and "http-equiv" in page
    assert proctor("report", "latest", "--format", "junit", "--output", "r.xml").code == 0
    assert "<testsuite" in (place / "r.xml").read_text()


@pytest.mark.timeout(60)
def test_a_killed_run_is_resumed_without_repeating_finished_cases(place: Path) -> None:
    (place / "suite.yaml").write_text(suite_text(200))
    environment = {**os.environ, "AGENT_SECONDS": "0.02"}
    command = [sys.executable, "-m", "proctor", "run", "suite.yaml", "-j", "4", "--quiet", "--format", "jsonl"]
    process = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.DEVNULL)
    results = place / ".proctor" / "runs"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = list(results.glob("*/results.jsonl"))
        if found and found[0].read_bytes().count(b"\n") >= 40:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = RunFiles(place / ".proctor").open("latest")
    before = [entry.case for entry in run.entries()]
    assert 40 <= len(before) < 200 and run.read_end() is None
    done = proctor("run", "suite.yaml", "--resume", "latest", "--quiet", "--format", "json")
    document = json.loads(done.out)
    assert (done.code, document["counts"]["pass"], len(document["cases"])) == (0, 200, 200)
    times: dict[str, int] = {}
    for line in read_inputs(place):
        times[line] = times.get(line, 0) + 1
    assert len(times) == 200
    assert all(times[f"hello {case.removeprefix('c')}"] == 1 for case in before), "a finished case was driven again"


def test_a_run_is_resumed_only_with_its_own_suite(place: Path) -> None:
    proctor("run", "suite.yaml", "--max-failures", "1", "--quiet")
    (place / "suite.yaml").write_text(suite_text(11))
    done = proctor("run", "suite.yaml", "--resume", "latest")
    assert done.code == 4 and "another suite" in done.err


def test_ctrl_c_keeps_finished_results_of_a_run(place: Path) -> None:
    (place / "my suite.yaml").write_text(suite_text(100))
    environment = {**os.environ, "AGENT_SECONDS": "0.05"}
    command = [sys.executable, "-m", "proctor", "run", "my suite.yaml", "-j", "2", "--format", "json"]
    process = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while len(read_inputs(place)) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 2, err
    assert 4 <= len(json.loads(out)["cases"]) < 100
    assert "go on with: proctor run 'my suite.yaml' --resume" in err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run", "suite.yaml", "--target", "agnt"], "nearest: agent"),
        (["run", "suite.yaml", "--resume", "nothing"], "no run 'nothing'"),
        (["run", "suite.yaml", "--record", "a", "--replay", "b"], "not both"),
        (["show", "latest"], "there are no runs"),
        (["compare", "a", "b"], "no run 'a'"),
    ],
)
def test_input_errors_exit_with_4(place: Path, arguments: list[str], word: str) -> None:
    done = proctor(*arguments)
    assert (done.code, word in done.err) == (4, True), done


def test_a_missing_variable_is_named(place: Path) -> None:
    (place / "proctor.yaml").write_text(
        'targets: {agent: {type: http, url: "http://127.0.0.1:9/", auth: {type: bearer, token: "${NO_SUCH_TOKEN}"}}}\n'
    )
    done = proctor("run", "suite.yaml")
    assert (done.code, "NO_SUCH_TOKEN" in done.err) == (4, True), done


def test_python_runs_a_function(place: Path) -> None:
    def agent(message: str) -> str:
        return f"you sent {message}"

    suite = package.parse_suite("{proctor: 1, cases: [{id: a, input: hi, expect: [response_contains: you sent hi]}]}")
    assert package.run(suite, target=agent, home=place / "home").passed

    async def inside() -> bool:
        return (await package.run_async(suite, target=agent, home=place / "home")).passed

    assert asyncio.run(inside())


def test_failures_are_annotations_on_github(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_FAILS", "1")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = proctor("run", "suite.yaml")
    notes = [line for line in done.err.splitlines() if line.startswith("::error")]
    place_and_title = "::error file=suite.yaml,line=11,col=39,title=c7%3A response_contains · you sent::"
    assert notes[0].startswith(place_and_title + "expected the answer to contain")
    assert "10/10" in done.err and "fail  c7  expected" in done.err


def test_the_progress_line_counts_and_is_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    from proctor.cli.show.live_progress import _MovingLine
    from proctor.model.case import Case
    from proctor.model.result import CaseResult
    from proctor.runner.ports import Event

    moving = _MovingLine()
    moving(Event(kind="planned", total=2))
    for name, outcome in (("a", "pass"), ("b\x1b[31m", "fail")):
        moving(Event(kind="started", case=name))
        moving(Event(kind="finished", case=name, result=CaseResult(Case(id=name), outcome, 1.0, ())))
    moving.finish()
    shown = capsys.readouterr().err
    assert "2/2 done, 1 failed" in shown
    assert "b\\x1b[31m" in shown, "hostile names are shown, not obeyed"


@pytest.mark.timeout(60)
def test_a_disk_that_fills_up_ends_the_run_and_loses_nothing(place: Path) -> None:
    (place / "suite.yaml").write_text(suite_text(200))
    # A file size limit acts like a full disk.
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)); from proctor.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", limited, "run", "suite.yaml", "--quiet", "--format", "jsonl"]
    process = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert process.returncode == 4, process.stderr
    assert "cannot be stored" in process.stderr and "Traceback" not in process.stderr
    before = [entry.case for entry in RunFiles(place / ".proctor").open("latest").entries()]
    assert 20 < len(before) < 200
    document = json.loads(proctor("run", "suite.yaml", "--resume", "latest", "--quiet", "--format", "json").out)
    assert (document["counts"]["pass"], len(document["cases"])) == (200, 200)
    lines = read_inputs(place)
    assert all(lines.count(f"hello {case.removeprefix('c')}") == 1 for case in before), "a finished case was driven again"


LOUD = """\
import sys, threading

print("the module is loaded")

def answer(message):
    print("hello from the agent")
    thread = threading.Thread(target=lambda: print("and from a thread of it"))
    thread.start()
    thread.join()
    if message == "interrupt":
        raise KeyboardInterrupt
    if message == "generator":
        raise GeneratorExit
    if message == "exit":
        sys.exit(3)
    return "hi"

async def later(message):
    return answer(message)
"""


@pytest.mark.parametrize("function", ["answer", "later"])
def test_agent_output_and_errors_stay_out_of_results_and_end_no_run(place: Path, function: str) -> None:
    cases = [
        {"id": word, "input": word, "expect": [{"response_contains": "hi"}]} for word in ("one", "interrupt", "generator", "exit", "two")
    ]
    (place / "loud.py").write_text(LOUD)
    (place / "loud.yaml").write_text(json.dumps({"proctor": 1, "cases": cases}))
    (place / "proctor.yaml").write_text(f'targets: {{agent: {{type: callable, function: "loud:{function}"}}}}\n')
    done = subprocess.run(
        [sys.executable, "-m", "proctor", "run", "loud.yaml", "--format", "json", "--quiet", "-j", "1", "-n", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    found = [(case["id"], case["outcome"], case.get("code")) for case in json.loads(done.stdout)["cases"]]
    failed = ("error", "agent_failed")
    once = [("one", "pass", None), ("interrupt", *failed), ("generator", *failed), ("exit", *failed), ("two", "pass", None)]
    assert sorted(found, key=str) == sorted(once * 2, key=str)
    assert "the module is loaded" in done.stderr and "and from a thread of it" in done.stderr


def test_every_line_of_progress_names_its_attempt(place: Path) -> None:
    done = proctor("run", "suite.yaml", "-n", "2", "-k", "c1")
    assert "pass  c1\n" in done.err and "pass  c1 (attempt 2)\n" in done.err
