"""`evidence:` gives the same answer at every entry point, and the nearest declaration wins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from proctor.actions.checking.convert import convert
from proctor.cli.main import run as main
from proctor.evidence.unknowns.account import find_known
from proctor.model.evidence import Evidence
from proctor.model.mapping import DeclaredEvidence, EvidenceMap, merge_declared

MAPPING = '{text: $.reply, tool_calls: {each: "$.actions[*]", name: $.tool, arguments: $.params}}'
CASES = "cases: [{id: a, expect: [tool_not_called: refund, response_contains: found]}]\n"
LOG = [
    {"reply": "I found it", "actions": [{"tool": "search", "params": {"q": 1}}]},
    {"reply": "I found it"},
    {"reply": "I found it", "actions": [{"tool": "refund", "params": {}}]},
]
OUTCOMES = ["pass", "error", "fail"]
"""Of the log without a declaration of completeness: the second record has no list of calls."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in LOG), encoding="utf-8")
    (tmp_path / "suite.yaml").write_text(f"proctor: 1\nevidence:\n  map: {MAPPING}\n{CASES}", encoding="utf-8")
    return tmp_path


def outcomes(result: proctor.RunResult) -> list[str]:
    return [case.outcome for case in result.cases]


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main(["check", *arguments, "--format", "json"])
    return json.loads(capsys.readouterr().out)


def test_every_entry_point_reads_by_the_mapping_of_the_suite(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = proctor.load_suite("suite.yaml")
    assert outcomes(proctor.check(suite, LOG)) == OUTCOMES
    assert outcomes(proctor.check(suite, "log.jsonl")) == OUTCOMES
    assert outcomes(proctor.check("suite.yaml", Path("log.jsonl"))) == OUTCOMES
    assert [case["outcome"] for case in check(capsys, "suite.yaml", "log.jsonl")["cases"]] == OUTCOMES
    assert suite.evidence is not None
    read = [proctor.read_evidence(record, mapping=suite.evidence.map) for record in LOG]
    assert outcomes(proctor.check(suite, read)) == OUTCOMES


@pytest.mark.timeout(60)
def test_a_batch_reads_lines_and_rows_by_the_mapping(folder: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"reply": record["reply"], "actions": json.dumps(record["actions"]) if "actions" in record else None} for record in LOG]
    parquet.write_table(arrow.Table.from_pylist(rows), "log.parquet")
    for name in ("log.jsonl", "log.parquet"):
        summary = proctor.batch("suite.yaml", name, output=f"out-{name}", workers=1)
        (case,) = summary.cases
        assert case.rate.counts == {"pass": 1, "error": 1, "fail": 1}, name


@pytest.mark.timeout(60)
def test_a_batch_reads_the_lines_of_each_run_together(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    lines = [{"run": number % 50, "event": event, "text": "I found it"} for event in ("start", "answer") for number in range(50)]
    Path("lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    mapping = "{group: $.run, text: \"$[?@.event == 'answer'].text\", tool_calls: {each: \"$[?@.event == 'tool']\"}}"
    Path("suite.yaml").write_text(f"proctor: 1\nevidence:\n  map: {mapping}\n{CASES}", encoding="utf-8")
    summary = proctor.batch("suite.yaml", "lines.jsonl", output="out", workers=1)
    assert [(case.rate.passed, summary.errors) for case in summary.cases] == [(50, 0)]
    assert outcomes(proctor.check("suite.yaml", "lines.jsonl")) == ["pass"] * 50


def test_the_workspace_declares_for_suites_of_every_dialect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("suite.yaml").write_text(f"proctor: 1\n{CASES}", encoding="utf-8")
    assert [case["outcome"] for case in check(capsys, "suite.yaml", "log.jsonl")["cases"]] != ["pass", "pass", "fail"]
    Path("proctor.yaml").write_text(f"evidence:\n  map: {MAPPING}\n  complete: [tool_calls]\n", encoding="utf-8")
    result = check(capsys, "suite.yaml", "log.jsonl")
    assert [case["outcome"] for case in result["cases"]] == ["pass", "pass", "fail"]
    assert result["cases"][1]["evidence"]["account"]["notes"] == ["tool calls complete: declared in proctor.yaml:3"]
    Path("cases.json").write_text('[{"id": "t", "query": "x", "expectedToolCalls": []}]', encoding="utf-8")
    assert proctor.load_suite("cases.json").find_declared() == proctor.load_suite("suite.yaml").find_declared()


def test_the_command_line_wins_over_the_suite_and_the_suite_over_the_workspace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"proctor: 1\nevidence:\n  map: {MAPPING}\n  complete: [answer]\n{CASES}"
    Path("suite.yaml").write_text(text, encoding="utf-8")
    Path("proctor.yaml").write_text("evidence: {complete: [tool_calls]}\n", encoding="utf-8")
    assert [case["outcome"] for case in check(capsys, "suite.yaml", "log.jsonl")["cases"]] == OUTCOMES
    result = check(capsys, "suite.yaml", "log.jsonl", "--complete", "tool_calls")
    assert [case["outcome"] for case in result["cases"]] == ["pass", "pass", "fail"]
    assert result["cases"][1]["evidence"]["account"]["notes"] == ["tool calls complete: declared in --complete"]


def test_an_unknown_part_on_the_command_line_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "suite.yaml", "log.jsonl", "--complete", "tool_cals"]) == 4
    assert "unknown part 'tool_cals'; nearest: tool_calls" in capsys.readouterr().err


def test_the_key_survives_conversion_and_suites_that_differ_are_not_joined(folder: Path) -> None:
    suite = proctor.load_suite("suite.yaml")
    again = proctor.parse_suite(convert("suite.yaml")[0])
    assert suite.evidence is not None
    assert again.evidence is not None
    assert again.evidence.map == suite.evidence.map
    (folder / "suites").mkdir()
    for name, complete in (("a", "tool_calls"), ("b", "answer")):
        text = f"proctor: 1\nevidence: {{complete: [{complete}]}}\ncases: [{{id: {name}, expect: no_tools_called}}]\n"
        (folder / "suites" / f"{name}.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(proctor.InputError, match="declare different `evidence`"):
        proctor.load_suite("suites")


def test_a_recorded_target_and_recheck_use_the_declaration(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("suite.yaml").write_text(f"proctor: 1\nevidence:\n  map: {MAPPING}\n{CASES}", encoding="utf-8")
    Path("one.json").write_text(json.dumps(LOG[1]), encoding="utf-8")
    Path("proctor.yaml").write_text("targets: {old: {type: recorded, evidence: [one.json]}}\n", encoding="utf-8")
    result = proctor.run("suite.yaml", target="old")
    assert outcomes(result) == ["error"]
    main(["recheck", result.run_id, "--complete", "tool_calls", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["cases"][0]["outcome"] == "pass"


async def test_a_target_declares_its_own_and_the_suite_wins(folder: Path) -> None:
    Path("agent.py").write_text("def answer(message):\n    return 'I found it'\n", encoding="utf-8")
    Path("suite.yaml").write_text("proctor: 1\ncases: [{id: a, input: x, expect: [tool_not_called: refund]}]\n", encoding="utf-8")
    settings = {"type": "callable", "function": "agent:answer"}
    assert outcomes(await proctor.run_async("suite.yaml", target=settings)) == ["error"]
    declared = {**settings, "evidence": {"complete": ["tool_calls"]}}
    assert outcomes(await proctor.run_async("suite.yaml", target=declared)) == ["pass"]
    with pytest.raises(proctor.InputError, match="is for targets of type http"):
        await proctor.run_async("suite.yaml", target={**settings, "evidence": {"map": {"text": "$.a"}}})


def test_the_first_declaration_of_each_kind_counts() -> None:
    first = DeclaredEvidence(complete=("answer",), source="a")
    second = DeclaredEvidence(map=EvidenceMap(text="$.x"), complete=("tool_calls",), source="b")
    assert merge_declared(None, first, second) == DeclaredEvidence(map=second.map, complete=("answer",), source="a")
    assert merge_declared(None, None) is None


def test_a_log_is_described_with_a_mapping_that_reads_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "evidence", "log.jsonl", "--format", "json"]) == 0
    proposed = json.loads(capsys.readouterr().out)["proposed"]
    read: list[Evidence] = [proctor.read_evidence(record, mapping=msgspec.convert(proposed["map"], EvidenceMap)) for record in LOG]
    assert [find_known(evidence).parts["answer"].status for evidence in read] == ["recorded"] * 3
    assert main(["describe", "evidence", "log.jsonl"]) == 0
    shown = capsys.readouterr().out
    assert proposed["yaml"] in shown
    Path("proctor.yaml").write_text(proposed["yaml"], encoding="utf-8")
    main(["describe", "evidence", "log.jsonl", "--format", "json"])
    assert ["error" in record for record in json.loads(capsys.readouterr().out)["records"]] == [False] * 3


def test_calls_below_the_data_of_a_service_are_proposed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"status": "ok", "data": {"result": {"answer": "R", "tool_calls": [{"name": "refund", "arguments": {"id": 17}}]}}}
    (folder / "service.jsonl").write_bytes(msgspec.json.encode(record))
    assert main(["describe", "evidence", "service.jsonl"]) == 0
    assert 'each: "$.data.result.tool_calls[*]"' in capsys.readouterr().out


def test_an_unrecognised_record_points_to_the_proposal(folder: Path) -> None:
    with pytest.raises(proctor.EvidenceError, match="`proctor describe evidence FILE` proposes it"):
        proctor.read_evidence({"zzz": 1})
