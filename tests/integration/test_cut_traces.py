"""MCPLab cuts long texts in `trace.jsonl`: the full text is read from the results file, and is unknown without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.model.cuts import ANSWER_LIMIT, RESULT_LIMIT, count_units, cut_text, text_before_cut
from proctor.sources.records import read_records
from tests.integration.running import proctor

SUITE = """\
proctor: 1
name: Long answers
cases:
  - id: long
    expect:
      - response_not_contains: forbidden
      - response_contains: beginning
      - response_contains: conclusion
      - no_tool_errors
"""
WHOLE = "the beginning " + "x" * 5000 + " forbidden conclusion"


def as_written(text: str, limit: int) -> str:
    """As JavaScript cuts: in the middle of a character, if that is where the limit is."""
    units = text.encode("utf-16-le")
    return text if len(units) <= 2 * limit else units[: 2 * limit].decode("utf-16-le", "surrogatepass") + "..."


def write_run(folder: Path, answer: str, *, result: str = "{}", results: Any = None, agent: str = "a") -> Path:
    folder.mkdir(exist_ok=True)
    use = {"type": "tool_use", "id": "u", "name": "lookup", "input": {}, "server": "shop"}
    content = [{"type": "text", "text": as_written(result, RESULT_LIMIT)}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [use]},
        {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": "u", "name": "lookup", "is_error": False, "content": content}]},
        {"role": "assistant", "content": [{"type": "text", "text": as_written(answer, ANSWER_LIMIT)}]},
    ]
    run = {"type": "scenario_run", "trace_version": 3, "scenario_id": "long", "agent": agent, "run_index": 0, "messages": messages}
    lines = [{"type": "trace_meta", "trace_version": 3, "run_id": "r", "ts": "2026-11-15T09:00:00Z"}, run]
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if results is not None:
        (folder / "results.json").write_text(results if isinstance(results, str) else json.dumps(results))
    return folder


def results_of(text: str, **more: Any) -> dict[str, Any]:
    run = {"run_index": 0, "final_text": text, **more}
    return {"metadata": {"run_id": "r"}, "summary": {}, "scenarios": [{"scenario_id": "long", "agent": "a", "runs": [run]}]}


def verdicts(folder: Path, *evidence: object) -> list[tuple[str, str | None]]:
    (folder / "suite.yaml").write_text(SUITE)
    done = proctor("check", folder / "suite.yaml", *evidence, "--format", "json")
    (case,) = json.loads(done.out)["cases"]
    assert done.code == 1, done.err
    return [(assertion["outcome"], assertion["code"]) for assertion in case["assertions"]]


@pytest.mark.parametrize("given_as", ["run", "run/trace.jsonl"])
def test_forbidden_text_after_the_cut_is_found_in_the_full_file(tmp_path: Path, given_as: str) -> None:
    write_run(tmp_path / "run", WHOLE, results=results_of(WHOLE))
    assert verdicts(tmp_path, tmp_path / given_as) == [("fail", None), ("pass", None), ("pass", None), ("pass", None)]


NOT_KNOWN = [("error", "missing_evidence"), ("pass", None), ("fail", "missing_evidence"), ("pass", None)]


@pytest.mark.parametrize(
    "results",
    [
        None,
        "not json",
        "[]",
        {"metadata": {}, "summary": {}, "scenarios": []},
        results_of(WHOLE, run_index=1),
        results_of("another answer " + WHOLE),
        results_of(WHOLE[:4000]),
        results_of(""),
    ],
    ids=["none", "not JSON", "not results", "no such scenario", "another attempt", "another answer", "no more of it", "empty"],
)
def test_text_after_the_cut_is_unknown_without_the_full_file(tmp_path: Path, results: Any) -> None:
    run = write_run(tmp_path / "run", WHOLE, results=results)
    assert verdicts(tmp_path, run / "trace.jsonl") == NOT_KNOWN


def test_the_marks_of_a_cut_are_not_part_of_the_answer(tmp_path: Path) -> None:
    (record,) = read_records([str(write_run(tmp_path / "run", "x" * 4001))])
    assert record.evidence is not None and record.evidence.text == "x" * 4000
    assert record.evidence.account is not None
    assert record.evidence.account.unknown == {"answer": "the recording was cut at 4,000 characters"}


@pytest.mark.parametrize("answer", ["x" * 4000, "x" * 3997 + "...", "x" * 100 + "...", "😀" * 2000])
def test_a_whole_answer_is_whole(tmp_path: Path, answer: str) -> None:
    (record,) = read_records([str(write_run(tmp_path / "run", answer))])
    assert record.evidence is not None and record.evidence.text == answer
    assert record.evidence.account is None or "answer" not in record.evidence.account.unknown


def test_a_cut_tool_result_may_contain_an_error(tmp_path: Path) -> None:
    failed = json.dumps({"content": [{"type": "text", "text": "y" * 13_000}], "isError": True})
    run = write_run(tmp_path / "run", WHOLE, result=failed, results=results_of(WHOLE))
    assert verdicts(tmp_path, run)[-1] == ("error", "missing_evidence")


def test_results_are_not_searched_in_other_folders_or_for_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", WHOLE, results=results_of(WHOLE))
    line = (run / "trace.jsonl").read_bytes()
    monkeypatch.chdir(run)
    (tmp_path / "suite.yaml").write_text(SUITE)
    done = proctor("check", tmp_path / "suite.yaml", "trace.jsonl", "-", "--format", "jsonl", stdin=line)
    found = [[a["code"] for a in json.loads(each)["assertions"]] for each in done.out.splitlines()]
    assert found == [[None] * 4, ["missing_evidence", None, "missing_evidence", None]]


def test_a_document_named_results_that_is_evidence_is_read(tmp_path: Path) -> None:
    write_run(tmp_path / "run", "the beginning", results='{"case": "long", "text": "x"}')
    assert [record.evidence.text for record in read_records([str(tmp_path / "run")]) if record.evidence] == ["x", "the beginning"]


@given(text=st.text(alphabet="ab😀\u20ac.", max_size=60), limit=st.integers(4, 40))
def test_a_cut_is_recognised_by_the_remaining_length(text: str, limit: int) -> None:
    for written in (as_written(text, limit), cut_text(text, limit)):
        before = text_before_cut(written, limit)
        assert (before is None) == (count_units(text) <= limit)
        if before is not None:
            assert text.startswith(before) and count_units(before) >= limit - 1


@pytest.mark.parametrize(("named", "known"), [(["lookup"], True), (["lookup", "refund"], False)])
def test_a_call_found_only_in_the_results_makes_trace_calls_unknown(tmp_path: Path, named: list[str], known: bool) -> None:
    write_run(tmp_path / "run", "short", results=results_of("short", tool_calls=named))
    (record,) = read_records([str(tmp_path / "run")])
    assert record.evidence is not None and record.evidence.account is not None
    assert ("tool_calls" not in record.evidence.account.unknown) == known
