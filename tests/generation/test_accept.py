"""Accepted proposals keep the comments and order of suites; CI writes nothing; rejected proposals stay rejected."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import msgspec
import pytest

from proctor.actions.generating.accept import apply_proposals, is_frozen, open_pending
from proctor.actions.generating.generate_traces import propose_cases
from proctor.cli.main import run
from proctor.errors import InputError
from proctor.model.evidence import Json

SUITE = """\
# Cases of the refund desk
proctor: 1
name: Refunds

cases:
  # written by hand
  - id: refund
    input: Refund order 17
    expect:
      # the amount matters most
      - tool_called: refund
      - response_contains: done  # in every language
        because: in all 30 traces
      - no_tool_errors: {}
        because: no call failed in all 30 traces

  - id: greeting   # no tools
    input: Hello
    expect: [no_tools_called]
"""
REFUND: dict[str, Json] = {
    "id": "refund",
    "input": "Refund order 17",
    "expect": [
        {"tool_called": "refund", "because": "called once in all 40 traces"},
        {"no_tool_errors": {}, "because": "no call failed in all 40 traces"},
        {"response_contains": "refunded", "because": "a word of the answer in all 40 traces"},
    ],
}
NEW: dict[str, Json] = {"id": "lookup", "input": "Where is 17?", "expect": [{"tool_called": "lookup", "because": "in all 9 traces"}]}
EXPECTED = """\
# Cases of the refund desk
proctor: 1
name: Refunds

cases:
  # written by hand
  - id: refund
    input: Refund order 17
    expect:
      # the amount matters most
      - tool_called: refund
      - no_tool_errors: {}
        because: no call failed in all 30 traces
      - response_contains: refunded
        because: a word of the answer in all 40 traces

  - id: greeting   # no tools
    input: Hello
    expect: [no_tools_called]

  - id: lookup
    input: "Where is 17?"
    expect:
      - tool_called: lookup
        because: in all 9 traces
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE)
    propose_cases(path, [REFUND, NEW], [])
    return path


def test_comments_and_order_stay_and_only_generated_claims_are_removed(suite: Path) -> None:
    assert run(["accept", "--all"]) == 0
    assert suite.read_text() == EXPECTED
    assert not suite.with_name("suite.pending.yaml").exists()


def test_accepting_twice_changes_nothing(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accept", "--all"]) == run(["accept", "--all"]) == 0
    assert capsys.readouterr().out.endswith("nothing is pending\n")
    propose_cases(suite, [REFUND, NEW], [])
    assert not suite.with_name("suite.pending.yaml").exists()
    assert suite.read_text() == EXPECTED


def test_new_and_changed_cases_are_different_acts(suite: Path) -> None:
    assert run(["accept", "--new"]) == 0
    assert "lookup" in suite.read_text() and "refunded" not in suite.read_text()
    assert [each.case for each in open_pending(suite.with_name("suite.pending.yaml")).proposals] == ["refund"]
    assert run(["accept", "suite.yaml", "--changed"]) == 0
    assert suite.read_text() == EXPECTED


def test_the_review_shows_the_difference_and_asks(suite: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("what\ns\na\n"))
    assert run(["accept", "--review"]) == 0
    shown = capsys.readouterr().out
    assert "  - - response_contains: done" in shown and "  + - response_contains: refunded" in shown and "1 proposal left" in shown
    assert "lookup" in suite.read_text() and "done  # in every language" in suite.read_text()


def test_the_end_of_the_answers_leaves_the_rest(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run(["accept", "--review"]) == 0
    assert suite.read_text() == SUITE
    assert len(open_pending(suite.with_name("suite.pending.yaml")).proposals) == 2


def test_a_rejected_case_and_a_rejected_claim_are_not_proposed_again(suite: Path) -> None:
    assert run(["accept", "-k", "lookup", "--reject", "covered elsewhere"]) == 0
    assert run(["accept", "--changed", "--reject"]) == 0
    assert suite.read_text() == SUITE
    assert "covered elsewhere" in suite.with_name("suite.rejected.jsonl").read_text()
    written = propose_cases(suite, [REFUND, NEW], [])
    # The claim that the recordings no longer have is still removed; the rejected one is not added.
    assert [(each.case, each.added, len(each.removed)) for each in written.proposals] == [("refund", (), 1)]


def test_nothing_is_written_in_ci(suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CI", "true")
    before = {path: path.read_bytes() for path in suite.parent.iterdir()}
    suite.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert run(["accept", "--all"]) == 4
        assert "2 proposals pending" in capsys.readouterr().err
        assert run(["generate", "traces", "traces.jsonl"]) == 4
    finally:
        suite.parent.chmod(stat.S_IRWXU)
    assert {path: path.read_bytes() for path in suite.parent.iterdir()} == before
    suite.with_name("suite.pending.yaml").unlink()
    assert run(["accept"]) == 0


def test_frozen_is_what_ci_systems_set() -> None:
    assert [is_frozen({"CI": value}) for value in ("true", "1", "false", "")] == [True, True, False, False]
    assert not is_frozen({})


def test_a_suite_that_is_not_written_line_by_line_is_not_changed(suite: Path) -> None:
    text = "proctor: 1\ncases: [{id: refund, input: Refund order 17, expect: [no_pii]}]\n"
    suite.write_text(text)
    with pytest.raises(InputError, match="own line under"):
        apply_proposals(suite, open_pending(suite.with_name("suite.pending.yaml")).proposals)
    assert run(["accept", "--all"]) == 4
    assert suite.read_text() == text


def test_windows_line_ends_and_a_missing_last_one_stay(suite: Path) -> None:
    suite.write_bytes(SUITE.rstrip("\n").replace("\n", "\r\n").encode())
    assert run(["accept", "--all"]) == 0
    assert suite.read_bytes().count(b"\n") == suite.read_bytes().count(b"\r\n")


def test_a_first_suite_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    propose_cases(tmp_path / "orders.yaml", [NEW], ["not proposed, 1 trace: x"])
    assert run(["accept", "--all"]) == 0
    assert (tmp_path / "orders.yaml").read_text().startswith("proctor: 1\nname: orders\n")


def _run_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect: str) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "proctor.yaml").write_text("targets: {}\n")
    (tmp_path / "agent.py").write_text(
        "def answer(message):\n"
        "    call = {'name': 'refund', 'arguments': {'id': 17, 'key': '123e4567-e89b-12d3-a456-426614174000'}, 'result': {'ok': True}}\n"
        "    return {'text': 'Refunded order 17.', 'tool_calls': [call]}\n"
    )
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"proctor: 1\ncases:\n  - id: a   # the usual case\n    input: Refund order 17\n    expect:\n      - {expect}\n")
    assert run(["run", "suite.yaml", "--target", "agent:answer", "--repeat", "3", "--quiet"]) in (0, 1)
    return suite


def test_a_passing_run_becomes_golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = _run_agent(tmp_path, monkeypatch, "response_contains: refunded")
    assert run(["accept", "latest", "--all"]) == 0
    text = suite.read_text()
    assert "# the usual case" in text and "- response_contains: refunded\n" in text
    assert "golden run: id was in the input in all 3 attempts" in text
    assert "123e4567" not in text and "[0-9a-fA-F]{8}-" in text
    assert run(["run", "suite.yaml", "--target", "agent:answer", "--quiet"]) == 0
    assert run(["accept", "latest", "--all"]) == 0
    again = suite.read_text()
    assert again.count("argument_copied") == 1
    assert run(["accept", "latest", "--all"]) == 0
    assert suite.read_text() == again


def test_a_failed_run_does_not_become_golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = _run_agent(tmp_path, monkeypatch, "response_contains: something else")
    before = suite.read_text()
    assert run(["accept", "latest", "--all"]) == 4
    assert suite.read_text() == before


def test_the_command_generates_from_files_and_from_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _run_agent(tmp_path, monkeypatch, "response_contains: refunded")
    record = {"input": "Cancel 17", "text": "Cancelled 17.", "tool_calls": [{"name": "cancel", "arguments": {"id": 17}, "result": "ok"}]}
    (tmp_path / "traces.jsonl").write_bytes(b"\n".join([msgspec.json.encode(record)] * 3 + [b"{broken"]))
    capsys.readouterr()
    assert run(["generate", "traces", "traces.jsonl"]) == 0
    shown = capsys.readouterr()
    assert "3 traces, 1 group: 1 new" in shown.out and "not used, 1 record: the record cannot be read" in shown.err
    assert run(["generate", "traces", "latest", "--suite", "other.yaml", "--format", "json"]) == 0
    assert '"case": "refund"' in capsys.readouterr().out
    assert run(["generate", "traces", "traces.jsonl", "--least", "9"]) == 5


def test_quitting_a_review_leaves_the_proposals_of_all_files(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    propose_cases(suite.with_name("zeta.yaml"), [NEW], [])
    monkeypatch.setattr("sys.stdin", io.StringIO("q\na\na\n"))
    assert run(["accept", "--review"]) == 0
    assert capsys.readouterr().out.count("[a/r/s/q]") == 1
    assert suite.read_text() == SUITE and not suite.with_name("zeta.yaml").exists()


def test_an_expression_that_selects_nothing_is_exit_code_5(suite: Path) -> None:
    assert run(["accept", "-k", "no-such-case"]) == 5
    assert suite.read_text() == SUITE


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["generate", "traces", "nosuch.jsonl"], 4, "no such file or folder: 'nosuch.jsonl'"),
        (["generate", "tools", "nosuch.json"], 4, "no such file: 'nosuch.json'"),
        (["generate", "traces", "week.jsonl", "--output", "a.yaml"], 4, "expected NAME.pending.yaml"),
        (["generate", "traces", "week.jsonl", "--suite", "suite.json"], 4, "expected a YAML file"),
        (["generate", "workflow", "week.json"], 4, "'week.json': expected a workflow"),
        (["generate", "workflow", "straight.json"], 5, "no branch to cover"),
        (["generate", "traces", "week.jsonl", "--least", "9"], 5, "not proposed, 3 traces: refund (a case needs 9)"),
        (["generate", "traces", "week.jsonl", "broken.jsonl", "--least", "9"], 5, "(first broken.jsonl:1: not JSON"),
        (["generate", "traces", "week.jsonl", "--suite", "deep/a.yaml"], 0, "proctor accept deep/a.pending.yaml --review"),
        (["accept", "nosuch.yaml"], 4, "no such suite or file of proposals: 'nosuch.yaml'"),
        (["mutate", "one.yaml", "broken.jsonl"], 4, "broken.jsonl:1: not JSON"),
        (["mutate", "one.yaml", "empty.jsonl"], 5, "no fault was planted: there is no record"),
        (["mutate", "bare.yaml", "week.jsonl"], 5, "3 records: the case has no claim"),
        (["mutate", "one.yaml", "week.jsonl", "--fail-under", "most"], 4, "expected a number from 0 to 100, found 'most'"),
    ],
)
def test_unusable_values_are_named(
    arguments: list[str], code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    record = {"input": "refund 17", "text": "Refunded.", "tool_calls": [{"name": "refund", "arguments": {"id": 17}, "result": {}}]}
    Path("week.jsonl").write_text((json.dumps(record) + "\n") * 3)
    Path("week.json").write_text(json.dumps(record))
    Path("broken.jsonl").write_text("hello\n")
    Path("empty.jsonl").write_text("")
    Path("straight.json").write_text('{"nodes": [{"name": "a"}, {"name": "b"}], "connections": {"a": {"main": [[{"node": "b"}]]}}}')
    Path("bare.yaml").write_text("proctor: 1\ncases:\n  - id: a\n    input: refund 17\n")
    Path("one.yaml").write_text("proctor: 1\ncases:\n  - id: a\n    input: refund 17\n    expect: [response_not_empty]\n")
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert words in shown.out + shown.err


def test_pending_proposals_of_another_source_are_not_replaced_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    Path("tools.json").write_text(json.dumps([{"name": name, "inputSchema": {"type": "object"}} for name in ("a", "b")]))
    assert run(["generate", "tools", "tools.json"]) == 0
    before = Path("suite.pending.yaml").read_bytes()
    Path("broken.jsonl").write_text("{broken\n")
    assert run(["generate", "traces", "broken.jsonl"]) == 5
    assert Path("suite.pending.yaml").read_bytes() == before
    Path("other.json").write_text(json.dumps([{"name": name, "inputSchema": {"type": "object"}} for name in ("b", "c")]))
    capsys.readouterr()
    assert run(["generate", "tools", "other.json"]) == 0
    assert "replaced, 1 earlier proposal: a-accepts" in capsys.readouterr().err
