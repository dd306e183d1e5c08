"""The fixtures, used by tests in real pytest sessions."""

from __future__ import annotations

import json

import pytest

from tests.integration.judge_server import judge_server
from tests.pytest_plugin.test_plugin import BAD, GOOD, HELLO, SUITE, Session, lines, session

pytest_plugins = ["pytester"]
__all__ = ["session"]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    folder = pytester.mkdir("agent")
    (folder / "desk.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "good.jsonl").write_text(lines(GOOD, HELLO), encoding="utf-8")
    (folder / "one.json").write_text(json.dumps(BAD), encoding="utf-8")
    return pytester


def write(project: pytest.Pytester, body: str) -> None:
    (project.path / "agent" / "test_it.py").write_text(body, encoding="utf-8")


def test_a_passing_check_returns_the_result_and_paths_are_relative_to_the_test(project: pytest.Pytester, session: Session) -> None:
    write(
        project,
        """
def test_all(proctor_check):
    assert proctor_check("desk.yaml", "good.jsonl").counts["pass"] == 2

def test_one_case_on_a_file_of_all(proctor_check):
    assert [case.id for case in proctor_check("desk.yaml", "good.jsonl", case="greeting").cases] == ["greeting"]

def test_text(proctor_check):
    proctor_check("proctor: 1\\ncases:\\n  - {id: x, expect: [no_tools_called]}\\n", {"tool_calls": []})
""",
    )
    session().assert_outcomes(passed=3)


def test_a_failing_check_is_reported_with_the_line_of_the_test(project: pytest.Pytester, session: Session) -> None:
    write(
        project,
        'def helper(check, run):\n    check("desk.yaml", run)\n\ndef test_it(proctor_check, proctor_evidence):\n'
        '    run = proctor_evidence("one.json")\n    helper(proctor_check, run)\n',
    )
    result = session()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "agent/test_it.py:2: in test_it",
            "✗ FAIL  refund-1 · Charged twice",
            "*17*",
            "*71*",
            "      written   agent/desk.yaml:9:9",
            "FAILED agent/test_it.py::test_it - tool_called*",
        ]
    )
    result.stdout.no_fnmatch_line("*fixtures.py*")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('proctor_check("nowhere.yaml", {})', "error: no suite at*"),
        ('proctor_check("desk.yaml", "nowhere.json")', "error: no evidence at*"),
        ('proctor_check("desk.yaml", {"case": "greting", "text": ""})', "error: the evidence names the case 'greting'*nearest: 'greeting'"),
        ('proctor_check("desk.yaml", {}, case="greting")', "error: the suite 'Desk' has no case 'greting'; nearest: 'greeting'"),
        ('proctor_evidence("good.jsonl")', "error: expected one run, found 2*"),
        ('proctor_target("shop", "hi")', "error: *shop*"),
    ],
)
def test_mistakes_are_reported_without_a_traceback(project: pytest.Pytester, session: Session, line: str, message: str) -> None:
    write(project, f"def test_it(proctor_check, proctor_evidence, proctor_target):\n    {line}\n")
    result = session()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["agent/test_it.py:2: in test_it", message])
    result.stdout.no_fnmatch_line("*fixtures.py*")


def test_a_check_without_any_evidence_fails_the_test(project: pytest.Pytester, session: Session) -> None:
    write(
        project,
        'def test_it(proctor_check):\n    proctor_check("desk.yaml", "good.jsonl", case="refund-1")\n    proctor_check("desk.yaml", [])\n',
    )
    result = session()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["error: no evidence answers any case of the suite, so that nothing was decided*"])


def test_a_check_that_its_suite_skips_skips_the_test(project: pytest.Pytester, session: Session) -> None:
    suite = "proctor: 1\ncases: [{id: a, expect: [{tokens_within: {total: 5}, when_missing: skip}]}]\n# \n"
    write(project, f"def test_it(proctor_check):\n    proctor_check({suite!r}, [{{'case': 'a', 'text': 'x'}}])\n")
    session("-rs").assert_outcomes(skipped=1)


def test_a_target_is_driven_by_name_over_several_turns(project: pytest.Pytester, session: Session) -> None:
    (project.path / "agent" / "proctor.yaml").write_text(
        'targets:\n  echo: {type: callable, function: "echo_agent_of_fixture_test:answer"}\n', encoding="utf-8"
    )
    (project.path / "agent" / "echo_agent_of_fixture_test.py").write_text(
        'def answer(message, context, turn):\n    return f"{turn} {message} {context}"\n', encoding="utf-8"
    )
    write(
        project,
        """
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def test_one(proctor_target):
    assert proctor_target("echo", "hi", context={"A": 1}).text == "0 hi {'A': 1}"

def test_default_and_turns(proctor_target):
    run = proctor_target(None, "hi", "there")
    assert [turn.text for turn in run.turns] == ["0 hi {}", "1 there {}"]

def test_address(proctor_target):
    class Agent(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"text": "hello over HTTP"}')

    server = ThreadingHTTPServer(("127.0.0.1", 0), Agent)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    assert proctor_target(f"http://127.0.0.1:{server.server_port}/chat", "hi").text == "hello over HTTP"
    server.shutdown()
    server.server_close()

def test_function(proctor_target):
    assert proctor_target(lambda message: message.upper(), "hi").text == "HI"

def test_captured(proctor_target):
    run = proctor_target(lambda message: message.upper(), "hi", capture="otel")
    assert "no span was recorded" in run.account.unknown["tool_calls"]
""",
    )
    session().assert_outcomes(passed=5)


def test_a_driven_target_is_checked_with_any_suite(project: pytest.Pytester, session: Session) -> None:
    write(
        project,
        """
import pytest

def test_checked(proctor_target, proctor_check):
    suite = "proctor: 1\\ncases: [{id: a, input: hi, expect: [{response_equals: HI}]}, {id: b, input: ho, expect: [{response_equals: HO}]}]"
    proctor_check(suite, proctor_target(lambda message: message.upper(), "ho"))
    with pytest.raises(AssertionError):
        proctor_check(suite, proctor_target(lambda message: "NO", "ho"))
    conversation = "proctor: 1\\ncases: [{id: a, turns: [hi, {input: ho, expect: [{response_equals: HO}]}]}]"
    proctor_check(conversation, proctor_target(lambda message: message.upper(), "hi", "ho"))
""",
    )
    session().assert_outcomes(passed=1)


def test_an_agent_that_breaks_fails_the_test_with_its_reason(project: pytest.Pytester, session: Session) -> None:
    write(project, "def agent(message):\n    return 1 / 0\n\ndef test_it(proctor_target):\n    proctor_target(agent, 'hi')\n")
    result = session()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["agent/test_it.py:5: in test_it", "error: agent() raised ZeroDivisionError*"])


def test_tests_that_need_a_judge_are_skipped_with_a_reason(project: pytest.Pytester, session: Session) -> None:
    write(project, "def test_it(proctor_judge):\n    raise SystemExit\n")
    result = session("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *proctor_judge: no judge is configured; *"])


def test_a_judge_decides_a_test_and_fails_it_with_its_reason(project: pytest.Pytester, session: Session) -> None:
    with judge_server() as judge:
        document = {"models": {"j": {"provider": "openai", "model": "m", "base_url": judge.url}}, "judge": {"model": "j"}}
        (project.path / "proctor.yaml").write_text(json.dumps(document))
        write(
            project,
            """
def test_good(proctor_judge):
    assert proctor_judge("a good answer", "is good").outcome == "pass"
    assert proctor_judge.opinion("a bad answer", "is good").outcome == "fail"

def test_bad(proctor_judge):
    proctor_judge("a bad answer", "is good")
""",
        )
        result = session()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["not met: is good", "*read it", "*judge * m", "FAILED *test_bad - not met: is good"])


def test_an_async_test_gets_a_hint_how_to_drive_an_agent(project: pytest.Pytester, session: Session) -> None:
    write(
        project,
        """
import asyncio

def test_inside(proctor_target):
    async def inside():
        proctor_target(str, "hi")
    asyncio.run(inside())

def test_in_a_thread(proctor_target):
    async def main():
        return await asyncio.to_thread(proctor_target, lambda message: message, "hi")
    assert asyncio.run(main()).text == "hi"
""",
    )
    result = session("-W", "error")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["error: an agent cannot be driven from inside a running event loop; *asyncio.to_thread*"])
