"""Problems of the first hour: each is reported well or avoided."""

from __future__ import annotations

import builtins
import csv
import io
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from proctor.actions.judging.judges import estimate_judging
from proctor.actions.workspace.suites import parse_suite
from proctor.checks.registry import default_registry
from proctor.cli.commands import serve
from proctor.formats.text.building import describe_struct_type
from proctor.judge.settings import JudgeSettings
from proctor.model.show import explain_alike
from tests.integration.running import proctor


def write_suite(path: Path, *cases: dict[str, object]) -> None:
    path.write_text(json.dumps({"proctor": 1, "name": "First", "cases": list(cases)}))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "agent", raising=False)
    return tmp_path


@pytest.mark.parametrize("summary", ("", "summary.md"))
def test_an_unreachable_agent_is_reported_once(place: Path, monkeypatch: pytest.MonkeyPatch, summary: str) -> None:
    (place / "agent.py").write_text("def answer(message):\n    raise RuntimeError('the shop is closed')\n")
    (place / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    write_suite(place / "suite.yaml", *({"id": f"c{n}", "input": "x", "expect": [{"response_contains": "a"}] * 6} for n in range(30)))
    if summary:
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = proctor("run", "suite.yaml")
    assert done.code == 1
    assert done.out.count("the shop is closed") == 1 and "6 claims not decided" in done.out
    assert "the same 29 times more:" in done.out and "30 errors" in done.out and "not shown here" not in done.out
    assert done.err.count("the shop is closed") == (2 if summary else 1), "the progress, and one annotation"
    found = json.loads(proctor("show", "latest", "--format", "json").out)
    assert all(claim["code"] == "agent_failed" for case in found["cases"] for claim in case["assertions"]), "nothing is lost in JSON"


PRINTING = """\
import os, subprocess

def answer(message):
    print("printed")
    os.write(1, b"written to the descriptor\\n")
    subprocess.run(["echo", "from a process"], check=True)
    return "hi"
"""


@pytest.mark.timeout(30)
def test_an_agent_that_prints_does_not_break_the_result(place: Path) -> None:
    (place / "agent.py").write_text(PRINTING)
    (place / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    write_suite(place / "suite.yaml", {"id": "a", "input": "x", "expect": [{"response_contains": "hi"}]})
    command = [sys.executable, "-m", "proctor", "run", "suite.yaml", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["pass"] == 1
    assert all(text in done.stderr for text in ("printed", "written to the descriptor", "from a process"))


REPEATED = {"id": "b", "input": "Where is it?", "expect": [{"response_contains": "on its way"}]}


def test_equal_failures_are_reported_once_with_their_attempts(place: Path) -> None:
    (place / "agent.py").write_text("def answer(message):\n    return 'no idea' if 'Where' in message else 'hi'\n")
    passing = {"id": "a", "input": "x", "expect": [{"response_contains": "hi"}]}
    write_suite(place / "suite.yaml", passing, REPEATED)
    done = proctor("run", "suite.yaml", "--target", "agent:answer", "-n", "3")
    assert done.out.count("✗ FAIL  b\n  attempt   1\n") == 1 and "  the same in attempts 2, 3\n" in done.out, done.out
    assert "  input     Where is it?\n  answered  no idea\n" in done.out and "not shown here" not in done.out
    assert "3 failed, 3 passed" in done.out
    write_suite(place / "suite.yaml", passing)
    done = proctor("run", "suite.yaml", "--target", "agent:answer", "-n", "2")
    assert "✓ PASS  a  attempt 1\n✓ PASS  a  attempt 2\n" in done.out
    done = proctor("run", "suite.yaml", "--target", "agent:answer")
    assert "✓ PASS  a\n" in done.out


def test_missing_text_is_reported_with_the_remedy_and_the_run_name(place: Path) -> None:
    (place / "agent.py").write_text("def answer(message):\n    return 'hi'\n")
    write_suite(place / "suite.yaml", {"id": "a", "input": "x", "expect": [{"tool_called": "look"}]})
    done = proctor("run", "suite.yaml", "--target", "agent:answer")
    run_id = json.loads(proctor("show", "latest", "--format", "json").out)["run_id"]
    shown = " ".join(done.out.split())
    assert f"`proctor show {run_id} --evidence` shows what was read" in shown
    assert "→ return the result, state or messages of your framework" in shown and "capture: otel" in shown


def test_missing_prices_are_reported_once_without_evidence(place: Path) -> None:
    (place / "agent.py").write_text("def answer(message):\n    return {'text': 'hi', 'usage': {'input_tokens': 1, 'output_tokens': 1}}\n")
    write_suite(place / "suite.yaml", {"id": "a", "input": "x", "expect": [{"cost_within": 0.1}]})
    done = proctor("run", "suite.yaml", "--target", "agent:answer")
    assert done.out.count("there are no prices") == 1 and "--evidence" not in done.out


def test_the_score_of_a_case_names_its_undecided_claim(place: Path) -> None:
    (place / "agent.py").write_text("def answer(message):\n    return 'hi'\n")
    claims = [{"response_contains": "hi"}, {"response_contains": "no"}, {"judged": "It is polite."}]
    write_suite(place / "suite.yaml", {"id": "a", "input": "x", "expect": claims})
    done = proctor("run", "suite.yaml", "--target", "agent:answer", "--allow-missing-judge")
    assert "score 0.50 of what was decided" in done.out, done.out


def test_a_recheck_takes_chosen_cases_and_fills_a_table(place: Path) -> None:
    (place / "agent.py").write_text(
        "def answer(message):\n    return {'text': 'hi ' + message, 'usage': {'input_tokens': 7, 'output_tokens': 1}}\n"
    )
    write_suite(place / "suite.yaml", *({"id": name, "input": name, "expect": [{"response_contains": "hi"}]} for name in ("a", "b")))
    proctor("run", "suite.yaml", "--target", "agent:answer")
    done = proctor("recheck", "latest", "-k", "id=b", "--format", "csv")
    assert done.code == 0 and "hi b" in done.out and ",8," in done.out and "hi a" not in done.out, done
    assert "cases that are not in the suite" not in proctor("recheck", "latest", "-k", "id=b").out
    assert proctor("recheck", "latest", "-k", "id=c").code == 5


def test_validate_without_a_path_takes_the_suites_of_the_folder(place: Path) -> None:
    write_suite(place / "suite.yaml", {"id": "a", "input": "x", "expect": [{"response_contains": "hi"}]})
    done = proctor("validate")
    assert done.code == 0 and "suites: suite.yaml" in done.err and "1 suite with 1 case" in done.err


def test_a_refused_resume_leaves_the_run_as_it_ended(place: Path) -> None:
    (place / "agent.py").write_text("def answer(message):\n    return 'hi'\n")
    (place / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    write_suite(place / "suite.yaml", {"id": "a", "input": "x", "expect": [{"response_contains": "hi"}]})
    proctor("run", "suite.yaml", "--quiet")
    before = proctor("list").out
    write_suite(place / "suite.yaml", {"id": "b", "input": "x", "expect": [{"response_contains": "hi"}]})
    assert proctor("run", "suite.yaml", "--resume", "latest").code == 4
    assert proctor("list").out == before and "not ended" not in before


NO_FIELDS = [entry.name for entry in default_registry() if not describe_struct_type(entry.spec).fields]


@pytest.mark.parametrize("check", NO_FIELDS)
def test_a_check_without_fields_is_switched_on_by_true(check: str) -> None:
    suites = [parse_suite(f"proctor: 1\ncases: [{{id: a, expect: [{{{check}: {value}}}]}}]\n") for value in ("true", "{}")]
    assert suites[0].cases[0].assertions[0].spec == suites[1].cases[0].assertions[0].spec


def test_a_check_without_fields_is_not_switched_off(place: Path) -> None:
    write_suite(place / "suite.yaml", {"id": "a", "expect": [{"no_tools_called": False}]})
    done = proctor("validate", "suite.yaml")
    assert done.code == 4 and "found true/false false" in done.out


def test_validate_warns_where_check_does(place: Path) -> None:
    write_suite(place / "suite.yaml", {"id": "a"})
    done = proctor("validate", "suite.yaml")
    assert done.code == 0 and "case 'a' asserts nothing, so it is skipped" in done.out and "1 warning" in done.err


def test_an_unknown_dialect_is_reported_with_the_known_ones(place: Path) -> None:
    write_suite(place / "suite.yaml", {"id": "a"})
    assert proctor("validate", "suite.yaml", "--dialect", "xyz").out.rstrip().endswith("mcpjam, pydantic-evals, deepeval")
    assert "nearest: mibo" in proctor("validate", "suite.yaml", "--dialect", "mibbo").out


def test_calls_out_of_order_are_reported_without_a_bare_number(place: Path) -> None:
    write_suite(place / "suite.yaml", {"id": "a", "expect": [{"tools_in_order": ["x", "y"]}]})
    (place / "evidence.jsonl").write_text(json.dumps({"case": "a", "tool_calls": [{"name": "x"}]}) + "\n")
    out = proctor("check", "suite.yaml", "evidence.jsonl").out
    assert "found     1" not in out and "tools called: x" in out


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"
BOUGHT = {"tool_calls": [{"name": "buy", "arguments": {"what": DECOMPOSED}}]}


@pytest.mark.parametrize(
    ("expect", "evidence"),
    (
        ({"response_equals": COMPOSED}, {"text": DECOMPOSED}),
        ({"response_contains": COMPOSED}, {"text": f"one {DECOMPOSED} please"}),
        ({"response_contains": DECOMPOSED}, {"text": f"one {COMPOSED} please"}),
        (
            {"tool_called": {"name": "buy", "arguments": {"what": COMPOSED}}},
            {"tool_calls": [{"name": "buy", "arguments": {"what": DECOMPOSED}}]},
        ),
    ),
)
def test_similar_texts_are_distinguished(place: Path, expect: dict[str, object], evidence: dict[str, object]) -> None:
    write_suite(place / "suite.yaml", {"id": "a", "expect": [expect]})
    (place / "evidence.jsonl").write_text(json.dumps({"case": "a", **evidence}) + "\n")
    found = json.loads(proctor("check", "suite.yaml", "evidence.jsonl", "--format", "json").out)
    reason = found["cases"][0]["assertions"][0]["reason"]
    assert found["outcome"] == "fail" and r"caf\xe9" in reason and r"cafe\u0301" in reason, reason


@pytest.mark.parametrize(("one", "other"), ((COMPOSED, COMPOSED), ("a", "b"), (COMPOSED, "cafe"), ("a b", "a  b")))
def test_other_differences_are_not_reported_as_formatting(one: str, other: str) -> None:
    assert explain_alike(one, other) is None


def test_the_help_of_the_service_names_the_missing_extra(capsys: pytest.CaptureFixture[str]) -> None:
    real = builtins.__import__

    def load(name: str, *rest: Any) -> Any:
        if name == "proctor.rest.settings":
            raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
        return real(name, *rest)

    with mock.patch("builtins.__import__", load), pytest.raises(SystemExit) as ended:
        serve.run(["--help"])
    out = capsys.readouterr().out
    assert ended.value.code == 0 and "REST, MCP and OTLP" in out and "pip install 'proctor-evals[serve]'" in out


def test_the_estimate_counts_the_requests_that_the_claims_of_a_case_take() -> None:
    suite = parse_suite("""
proctor: 1
cases:
  - id: late-parcel
    expect:
      - judged: The answer says when the parcel arrives.
      - judged: {criteria: It is friendly., threshold: 0.8, negative_constraints: [promises a refund, blames the customer]}
      - judged: {criteria: Nothing in the answer is invented., kind: hallucination}
      - judged: The answer is short.
""")
    assert estimate_judging(suite, JudgeSettings()).calls == 3


def test_the_estimate_counts_both_orders_and_every_request_of_a_metric() -> None:
    long = " ".join(f"Fact {number}." for number in range(45))
    suite = parse_suite(f"""
proctor: 1
cases:
  - id: late-parcel
    expect:
      - pairwise: other
      - toxicity: {{}}
      - bias: {{}}
      - context_recall: {{reference: {long}, context: [a]}}
      - context_recall: {{reference: [a, b], context: [a]}}
      - rating: {{criteria: c, anchors: {{1: a, 5: b}}, at_least: 4}}
""")
    assert estimate_judging(suite, JudgeSettings(samples=2), jurors=2, repeat=3).calls == 12 * (2 + 1 + 1 + 3 + 1 + 1)


def test_examples_are_written_as_files_and_overwrite_nothing(place: Path) -> None:
    assert proctor("demo", "--files", "mine") == (0, "wrote 10 files below mine\n", "")
    assert proctor("check", "mine/mcpjam/calculator.yaml", "mine/mcpjam/messages.json").code == 0
    again = proctor("demo", "--files", "mine")
    assert again.code == 4 and "native/suite.yaml" in again.err and "would be overwritten" in again.err
    (place / "taken").write_text("")
    assert proctor("demo", "--files", "taken").code == 4


def test_a_table_has_the_model_and_the_cost_of_each_attempt(place: Path) -> None:
    usage = "{'input_tokens': 1000000, 'output_tokens': 0}"
    agent = f"def answer(message):\n    return {{'text': 'hi', 'model': 'm' if message == 'x' else 'other', 'usage': {usage}}}\n"
    (place / "agent.py").write_text(agent)
    (place / "proctor.yaml").write_text("prices: {m: {input: 3.0, output: 1.0}}\n")
    claims = [{"response_contains": "hi"}]
    write_suite(place / "suite.yaml", {"id": "a", "input": "x", "expect": claims}, {"id": "b", "input": "y", "expect": claims})
    done = proctor("run", "suite.yaml", "--target", "agent:answer", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [(row["model"], row["cost"], row["currency"]) for row in rows] == [("m", "3.0", "USD"), ("other", "", "")]


def test_no_full_score_is_shown_with_an_error(place: Path) -> None:
    (place / "agent.py").write_text("def answer(message):\n    return 'hi' if message == 'x' else 1 / 0\n")
    claims = [{"response_contains": "hi"}]
    write_suite(place / "suite.yaml", {"id": "a", "input": "x", "expect": claims}, {"id": "b", "input": "y", "expect": claims})
    done = proctor("run", "suite.yaml", "--target", "agent:answer")
    assert "ERROR  1 error, 1 passed" in done.out and "score" not in done.out, done.out
    assert "score" not in proctor("show", "latest", "--format", "markdown").out.splitlines()[0]


def test_a_trial_reports_an_error_once(place: Path) -> None:
    class Broken(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(500)
            self.end_headers()
            self.wfile.write(b"boom")

        def log_message(self, format: str, *args: object) -> None:
            """Do not log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    done = proctor("try", "hi", "--target", f"http://127.0.0.1:{server.server_port}/chat")
    server.shutdown()
    server.server_close()
    thread.join()
    assert done.code == 1 and done.out.count("answered status 500") == 1, done.out


def test_validate_takes_the_flag_for_no_colours_as_other_commands_do(place: Path) -> None:
    write_suite(place / "suite.yaml", {"id": "a", "input": "x", "expect": [{"response_contains": "hi"}]})
    assert proctor("validate", "suite.yaml", "--no-color").code == 0


@pytest.mark.parametrize(
    "suite",
    [
        {"name": "x", "input_utterance": "hello", "assertions": {"procedural": []}},
        {"agents": [{"id": "a", "provider": "openai", "model": "m"}], "scenarios": [{"id": "x", "prompt": "hi"}]},
        {"proctor": 1, "cases": [{"id": "x", "input": "hi", "expect": []}]},
    ],
)
@pytest.mark.parametrize("command", ["check", "validate"])
def test_a_case_without_claims_is_warned_about_once(suite: object, command: str, tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    (tmp_path / "runs.jsonl").write_text('{"text": "hi"}\n')
    done = proctor(command, tmp_path / "suite.json", *([tmp_path / "runs.jsonl", "--format", "json"] if command == "check" else []))
    assert (done.err if command == "check" else done.out + done.err).count(": warning: ") == 1, done
