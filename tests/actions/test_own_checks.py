"""Checks in one Python file: named in proctor.yaml, decided on the evidence, and never passing without reading it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.actions.checking.validate import validate
from proctor.actions.workspace.custom_checks import find_registry, registry_of
from proctor.checks.shared.custom_checks import read_own_check
from proctor.cli.main import run
from proctor.decide.prepare import decide_guarded
from proctor.errors import InputError
from proctor.formats.native.schema import build_native_schema
from proctor.formats.suites import read_suite
from proctor.model.account import Account
from proctor.model.evidence import Evidence, EvidenceTurn, Node, ToolCall, Usage
from proctor.model.verdict import Verdict

CHECKS = '''"""Checks of this shop."""
import proctor


@proctor.check
def words_within(evidence: proctor.Evidence, *, most: int):
    """The answer has at most so many words.

    Words are what white space separates.
    """
    words = len(evidence.text.split())
    return words <= most or f"expected at most {most} words, found {words}"


@proctor.check
def refunds_below(evidence: proctor.Evidence, *, limit: float, tools: list[str] = ["refund"]):
    for call in evidence.tool_calls:
        if call.name in tools and call.arguments["amount"] >= limit:
            return f"{call.name} of {call.arguments['amount']}"
    return True
'''
SUITE = {
    "proctor": 1,
    "name": "Own",
    "cases": [{"id": "a", "input": "hello", "expect": [{"words_within": 3}, {"refunds_below": {"limit": 100}}]}],
}
GOOD = {"case": "a", "text": "All done.", "tool_calls": [{"name": "refund", "arguments": {"amount": 5}}]}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proctor.yaml").write_text("checks: checks.py\n", encoding="utf-8")
    (tmp_path / "checks.py").write_text(CHECKS, encoding="utf-8")
    (tmp_path / "suite.yaml").write_text(json.dumps(SUITE), encoding="utf-8")
    write_evidence(tmp_path, GOOD)
    return tmp_path


def write_evidence(folder: Path, *records: dict[str, Any]) -> None:
    (folder / "evidence.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def decide(function: Any, evidence: Evidence, **fields: Any) -> Verdict:
    entry = read_own_check(function)
    return decide_guarded(registry_of([function]).prepare(entry.name, entry.spec(**fields)), evidence)


def test_a_check_of_the_file_that_the_workspace_names_is_decided(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "suite.yaml", "evidence.jsonl"]) == 0
    write_evidence(shop, {**GOOD, "text": "one two three four"})
    assert run(["check", "suite.yaml", "evidence.jsonl"]) == 1
    assert "at most 3 words" in capsys.readouterr().out


def test_a_suite_cannot_load_checks(shop: Path) -> None:
    (shop / "proctor.yaml").write_text("# nothing\n", encoding="utf-8")
    (shop / "checks.py").write_text("raise SystemExit('loaded')", encoding="utf-8")
    for more in ({"checks": "checks.py"}, {"settings": {"checks": "checks.py"}}):
        (shop / "suite.yaml").write_text(json.dumps({**SUITE, **more}), encoding="utf-8")
        with pytest.raises(InputError, match="unknown check 'words_within'"):
            proctor.load_suite("suite.yaml")


def test_only_the_workspace_of_the_working_folder_counts(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(InputError, match="unknown check 'words_within'"):
        proctor.load_suite(shop / "suite.yaml")


def test_a_service_and_the_mcp_server_read_suites_without_them(shop: Path) -> None:
    with pytest.raises(InputError, match="unknown check 'words_within'"):
        read_suite(json.dumps(SUITE))
    with pytest.raises(InputError, match="unknown check 'words_within'"):
        proctor.load_suite("suite.yaml", checks=())


def test_an_unknown_check_is_reported_with_the_nearest_and_the_file(shop: Path) -> None:
    suite = {**SUITE, "cases": [{"id": "a", "expect": [{"word_within": 3}]}]}
    (shop / "suite.yaml").write_text(json.dumps(suite), encoding="utf-8")
    (problem,) = validate(["suite.yaml"]).problems
    assert "words_within" in problem.nearest
    assert problem.hint is not None and problem.hint.endswith("own ones were looked for in checks.py")


def test_fields_are_checked_like_those_of_any_check(shop: Path) -> None:
    suite = {**SUITE, "cases": [{"id": "a", "expect": [{"words_within": "three"}, {"refunds_below": {"limit": 1, "tool": "x"}}]}]}
    (shop / "suite.yaml").write_text(json.dumps(suite), encoding="utf-8")
    messages = "\n".join(problem.message for problem in validate(["suite.yaml"]).problems)
    assert "words_within: expected a whole number, found text" in messages
    assert "unknown key 'tool'" in messages


def test_describe_and_the_schema_list_them(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", "check", "words_within"]) == 0
    printed = capsys.readouterr().out
    assert "The answer has at most so many words." in printed and "most (whole number), required" in printed
    assert "From checks.py." in printed
    assert "assert_words_within" in build_native_schema(find_registry())["$defs"]
    assert "words_within" not in registry_of([]).list_names()


def test_a_stored_run_is_rechecked_with_custom_checks_and_shown_without_them(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proctor.run("suite.yaml", target=lambda message: {"text": "All done.", "tool_calls": []})
    assert run(["recheck", "latest"]) == 0
    (shop / "checks.py").write_text(CHECKS.replace("words <= most", "words <= 1"), encoding="utf-8")
    assert run(["recheck", "latest"]) == 1
    (shop / "proctor.yaml").write_text("# no checks any more\n", encoding="utf-8")
    capsys.readouterr()
    assert run(["show", "latest"]) == 0
    assert run(["recheck", "latest"]) == 1
    assert "the check 'words_within' is not here" in capsys.readouterr().out


def test_all_invalid_check_functions_are_reported_at_once(shop: Path) -> None:
    text = "import proctor\n@proctor.check\nasync def later(evidence):\n    return True\n@proctor.check\ndef bare():\n    return True\n"
    (shop / "checks.py").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        proctor.load_suite("suite.yaml")
    message = str(caught.value)
    assert (
        "checks.py:2: the check 'later' must be a plain function" in message
        and "checks.py:5: the first parameter of the check 'bare'" in message
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import proctor\n\ndef broken(:\n", "checks.py:3: "),
        ("import proctor\nimport no_such_thing\n", "checks.py:2: loading the checks raised ModuleNotFoundError"),
        ("x = 1\n", "no check in this file"),
        ("import proctor\n@proctor.check\ndef Loud(evidence):\n    return True\n", "checks.py:2: a check is named in lower case"),
        ("import proctor\n@proctor.check\nasync def later(evidence):\n    return True\n", "must be a plain function"),
        ("import proctor\n@proctor.check\ndef bare():\n    return True\n", "the first parameter of the check 'bare' must be the evidence"),
        ("import proctor\n@proctor.check\ndef many(evidence, *rest):\n    return True\n", "fields of a check have names"),
        ("import proctor\n@proctor.check\ndef odd(evidence, *, when: bytes):\n    return True\n", "a suite cannot carry"),
        ("import proctor\n@proctor.check\ndef tool_called(evidence):\n    return True\n", "'tool_called' is defined twice"),
        ("import proctor\nraise SystemExit(3)\n", "checks.py:2: loading the checks raised SystemExit"),
    ],
)
def test_an_unusable_file_is_reported_with_its_line(shop: Path, text: str, message: str) -> None:
    (shop / "checks.py").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        proctor.load_suite("suite.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("checks: [checks.txt]", "expected a Python file"),
        ("checks: 3", "checks"),
        ("checks: other.py", "other.py cannot be read"),
    ],
)
def test_a_workspace_that_names_no_file_of_checks_is_refused(shop: Path, text: str, message: str) -> None:
    (shop / "proctor.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        proctor.load_suite("suite.yaml")


ANSWERS: list[tuple[Any, str, str | None, float]] = [
    (True, "pass", None, 1.0),
    (False, "fail", None, 0.0),
    ("too long", "fail", None, 0.0),
    (1, "pass", None, 1.0),
    (0.4, "fail", None, 0.4),
    (proctor.Verdict("fail", 0.3, "so"), "fail", None, 0.3),
    (None, "error", "no_verdict", 0.0),
    ("", "error", "no_verdict", 0.0),
    (1.5, "error", "no_verdict", 0.0),
    (float("nan"), "error", "no_verdict", 0.0),
    ([], "error", "no_verdict", 0.0),
    (proctor.Verdict("maybe", 1.0, "so"), "error", "no_verdict", 0.0),  # type: ignore[arg-type]  # a likely mistake
]


@pytest.mark.parametrize(("answer", "outcome", "code", "score"), ANSWERS)
def test_the_return_value_of_a_check_is_its_verdict(answer: Any, outcome: str, code: str | None, score: float) -> None:
    def claim(evidence: Evidence) -> Any:
        assert evidence.text is not None
        return answer

    verdict = decide(claim, Evidence(text="hi"))
    assert (verdict.outcome, verdict.code, verdict.score) == (outcome, code, score)


def test_a_score_passes_from_the_authors_threshold() -> None:
    @proctor.check(name="near_enough", pass_at=0.5)
    def claim(evidence: Evidence) -> float:
        return len(evidence.text or "") / 10

    assert decide(claim, Evidence(text="hello")).outcome == "pass"
    assert decide(claim, Evidence(text="hell")).outcome == "fail"


def test_a_check_that_raises_is_an_error_with_file_and_line() -> None:
    def claim(evidence: Evidence) -> bool:
        return evidence.text["no"] == 1  # type: ignore[call-overload,index]  # the mistake of this test

    verdict = decide(claim, Evidence(text="hi"))
    line = claim.__code__.co_firstlineno + 1
    assert (verdict.outcome, verdict.code) == ("error", "check_raised")
    assert verdict.reason.startswith(f"{__file__}:{line}: TypeError: ")


def test_a_check_that_exits_or_recurses_ends_itself_alone() -> None:
    def leaves(evidence: Evidence) -> bool:
        raise SystemExit(evidence.text)

    def recurses(evidence: Evidence) -> bool:
        return recurses(evidence)

    for function in (leaves, recurses):
        assert decide(function, Evidence(text="hi")).code == "check_raised"


TOUCHES: dict[str, tuple[Any, Evidence]] = {
    "calls": (lambda e: not e.tool_calls, Evidence(text="hi")),
    "text": (lambda e: e.text is None, Evidence(tool_calls=())),
    "arguments": (lambda e: not e.tool_calls[0].arguments, Evidence(tool_calls=(ToolCall(name="a", arguments=None),))),
    "a result": (lambda e: e.tool_calls[0].result is None, Evidence(tool_calls=(ToolCall(name="a"),))),
    "usage": (lambda e: not e.usage, Evidence(text="hi")),
    "tokens": (lambda e: not e.usage.output_tokens, Evidence(usage=Usage(input_tokens=1))),
    "a total": (lambda e: e.usage.total() < 5, Evidence(usage=Usage(input_tokens=1))),
    "calls of a turn": (lambda e: not e.turns[0].tool_calls, Evidence(turns=(EvidenceTurn(text="a"),))),
    "output of a node": (lambda e: not e.nodes[0].output, Evidence(nodes=(Node(name="a"),))),
    "state": (lambda e: not e.state, Evidence(text="hi")),
    "a part that is unknown": (lambda e: not e.tool_calls, Evidence(tool_calls=(), account=Account(unknown={"tool_calls": "lost"}))),
    "how calls ended": (
        lambda e: not e.tool_calls[0].failed(),
        Evidence(tool_calls=(ToolCall(name="a", result=1),), account=Account(unknown={"tool_results": "lost"})),
    ),
    "how a call ended": (lambda e: not e.tool_calls[0].failed(), Evidence(tool_calls=(ToolCall(name="a"),))),
    "why a call failed": (lambda e: e.tool_calls[0].failure() is None, Evidence(tool_calls=(ToolCall(name="a"),))),
}


@pytest.mark.parametrize("what", TOUCHES)
def test_reading_unrecorded_evidence_is_missing_evidence(what: str) -> None:
    touch, evidence = TOUCHES[what]

    def claim(evidence: Evidence) -> bool:
        return bool(touch(evidence))

    def stubborn(evidence: Evidence) -> bool:
        try:
            return bool(touch(evidence))
        except Exception:
            return True

    for function in (claim, stubborn):
        verdict = decide(function, evidence)
        assert (verdict.outcome, verdict.code) == ("error", "missing_evidence"), verdict.reason


def test_unused_unknown_evidence_does_not_matter() -> None:
    def claim(evidence: Evidence) -> bool:
        return evidence.text == "hi" and isinstance(evidence, Evidence) and not evidence.is_recorded("tool_calls")

    assert decide(claim, Evidence(text="hi", account=Account(unknown={"tool_calls": "lost"}))).outcome == "pass"


def test_a_check_that_reads_no_evidence_does_not_pass() -> None:
    def claim(evidence: Evidence) -> bool:
        return True

    assert decide(claim, Evidence(text="hi")).code == "looked_at_nothing"


def test_changes_by_one_check_are_invisible_to_the_next() -> None:
    def claim(evidence: Evidence) -> bool:
        assert evidence.tool_calls is not None
        evidence.tool_calls[0].arguments.clear()
        return True

    evidence = Evidence(tool_calls=(ToolCall(name="a", arguments={"x": 1}),))
    decide(claim, evidence)
    assert evidence.tool_calls is not None and evidence.tool_calls[0].arguments == {"x": 1}


def test_functions_are_passed_from_python_too(shop: Path) -> None:
    def greets(evidence: Evidence, *, names: list[str] = []) -> bool:  # noqa: B006 - as people write it
        assert isinstance(names, list)
        return "hello" in (evidence.text or "")

    suite = proctor.parse_suite("proctor: 1\ncases:\n  - id: a\n    expect: [greets]\n", checks=[greets])
    assert proctor.check(suite, {"text": "hello"}).passed
    assert not proctor.check(suite, {"text": "bye"}).passed
    (shop / "other.yaml").write_text("proctor: 1\ncases:\n  - id: a\n    expect: [{greets: {names: x}}]\n", encoding="utf-8")
    assert proctor.check("other.yaml", {"text": "hello"}, checks=[greets]).passed
