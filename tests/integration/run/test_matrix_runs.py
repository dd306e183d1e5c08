"""A matrix of models and prompts over rows of data, driven in one run, shown as one table and one page."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from proctor.formats.native import rows as native_rows
from tests.integration.running import proctor

AGENT = """\
def answer(message, context):
    number = int(message.rsplit(" ", 1)[1])
    good = {"small": 2, "medium": 3, "large": 10}[context["model"]]
    text = f"order {number}" if number % 10 < good else "no idea"
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    return {"text": text, "tool_calls": [{"name": "lookup", "arguments": {"id": number}}], "usage": usage}
"""
SUITE = """\
proctor: 1
name: Orders
matrix:
  model: [small, medium, large]
  prompt: {brief: Be brief., long: Explain every step.}
cases:
  from: orders.csv
  types: {order: integer}
  as:
    input: "{prompt} Where is order {order}"
    expect:
      - response_contains: "order {order}"
      - tool_called: {name: lookup, arguments: {id: "{order}"}}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "proctor.yaml").write_text('targets: {agent: {type: callable, function: "agent:answer"}}\n')
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "orders.csv").write_text("order\n" + "".join(f"{number}\n" for number in range(50)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "agent", raising=False)
    return tmp_path


@pytest.mark.in_turn
@pytest.mark.timeout(60)
def test_three_models_two_prompts_and_fifty_cases_make_one_table_and_one_page(place: Path) -> None:
    done = proctor("run", "suite.yaml", "--quiet", "-j", "20")
    assert done.code == 1
    table = done.out[done.out.index("Pass rate by model, prompt") :].splitlines()
    assert table[1].split() == ["model", "prompt=brief", "prompt=long", "all"]
    assert table[2].split()[:5] == ["small", "20.0%", "(11.2", "to", "33.0)"]
    assert table[4].endswith("100.0% (96.3 to 100.0) 100/100")
    assert proctor("report", "latest", "--output", "page.html").code == 0
    page = Path("page.html").read_text()
    assert page.count('<section class="pivot">') == 1 and "20.0% (11.2 to 33.0) 10/50" in page
    rows = list(csv.DictReader(io.StringIO(proctor("show", "latest", "--format", "csv").out)))
    assert len(rows) == 300
    assert rows[0]["case"] == "orders-1[model=small,prompt=brief]" and rows[0]["tag_model"] == "small"
    assert rows[0]["answer"] == "order 0" and rows[0]["total_tokens"] == "7"
    failed = next(row for row in rows if row["outcome"] == "fail")
    assert failed["failed"].startswith("response_contains")
    assert proctor("report", "latest", "--format", "parquet", "--output", "out.parquet").code == 0
    assert pq.read_table("out.parquet").column("total_tokens").to_pylist() == [7] * 300
    pivot = list(csv.DictReader(io.StringIO(proctor("show", "latest", "--format", "csv", "--pivot", "model").out)))
    assert [row["passed"] for row in pivot] == ["20", "30", "100", "150"]

    compared = proctor("compare", "latest", "--by", "model=large,small", "--fail-on", "regression", "--format", "json")
    found = json.loads(compared.out)["comparison"]
    assert compared.code == 1 and found["verdict"] == "regressed" and found["cases"] == 100
    assert proctor("compare", "latest", "--by", "model=small,tiny").code == 4
    assert proctor("compare", "latest").code == 4
    assert proctor("show", "latest", "--format", "json", "--pivot", "model").code == 4

    chosen = proctor("run", "suite.yaml", "--quiet", "-k", "model=large and prompt=brief")
    assert chosen.code == 0 and "50 passed" in chosen.out


def test_an_axis_that_changes_nothing_is_refused(place: Path) -> None:
    (place / "agent.py").write_text("def answer(message):\n    return message\n")
    done = proctor("run", "suite.yaml", "--quiet")
    assert done.code == 4
    assert "the axis 'model' of the matrix changes nothing" in done.err


def test_an_axis_may_name_targets_or_be_used_in_their_settings(place: Path) -> None:
    (place / "agent.py").write_text("def one(message):\n    return 'I am one'\n\ndef two(message):\n    return 'I am two'\n")
    (place / "proctor.yaml").write_text(
        'targets: {first: {type: callable, function: "agent:one"}, any: {type: callable, function: "agent:{which}"}}\n'
    )
    case = "cases: [{id: a, input: hi, expect: [response_contains: %s]}]\n"
    Path("targets.yaml").write_text("proctor: 1\nmatrix: {target: [first, any], which: [two]}\n" + case % "I am")
    done = proctor("run", "targets.yaml", "--quiet", "--format", "csv")
    assert done.code == 4 and "'which' of the matrix changes nothing" in done.err
    Path("which.yaml").write_text("proctor: 1\ndefault_target: any\nmatrix: {which: [one, two]}\n" + case % "I am")
    rows = list(csv.DictReader(io.StringIO(proctor("run", "which.yaml", "--quiet", "--format", "csv").out)))
    assert {row["tag_which"]: row["answer"] for row in rows} == {"one": "I am one", "two": "I am two"}
    assert proctor("run", "targets.yaml", "--target", "first", "--quiet").code == 4


@pytest.mark.timeout(30)
def test_a_run_over_streamed_rows_is_stored_and_shown(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_rows, "HELD", 20)
    monkeypatch.setattr("proctor.actions.workspace.run_history.HELD", 20)
    assert proctor("run", "suite.yaml", "--quiet").code == 1
    shown = proctor("show", "latest", "--format", "csv")
    assert len(list(csv.DictReader(io.StringIO(shown.out)))) == 300
    run = next((place / ".proctor" / "runs").iterdir())
    assert len((run / "cases.jsonl").read_bytes().splitlines()) == 300
    assert "orders.csv:2" in proctor("show", "latest", "-k", "orders-1 and small").out or shown.code == 0
    # The file has changed; the stored run has not.
    (place / "orders.csv").write_text("order\n1\n")
    again = proctor("show", "latest", "--format", "csv")
    assert again.out.replace("\r", "") == shown.out.replace("\r", "")


def test_check_writes_csv_and_parquet_of_recorded_answers(place: Path) -> None:
    template = "{id: 'o{order}', input: '{order}?', expect: {response_contains: x}}"
    Path("suite.yaml").write_text(f"proctor: 1\ncases: {{from: orders.csv, as: {template}}}\n")
    Path("orders.csv").write_text("order\n1\n2\n")
    Path("evidence.jsonl").write_text('{"case": "o1", "text": "=x", "duration_ms": 5}\n{"case": "o2", "text": "y"}\n')
    done = proctor("check", "suite.yaml", "evidence.jsonl", "--format", "csv", "--quiet")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [(row["case"], row["outcome"], row["input"], row["answer"], row["line"]) for row in rows] == [
        ("o1", "pass", "1?", "'=x", "1"),
        ("o2", "fail", "2?", "y", "2"),
    ]
    assert proctor("check", "suite.yaml", "evidence.jsonl", "--format", "parquet", "--quiet").code == 4
    assert proctor("check", "suite.yaml", "evidence.jsonl", "--format", "parquet", "--output", "o.parquet", "--quiet").code == 1
    assert pq.read_table("o.parquet").column("answer").to_pylist() == ["=x", "y"]


def test_a_folder_is_validated_without_taking_its_data_for_evidence(place: Path) -> None:
    Path("rows.jsonl").write_text('{"q": "hi", "unrelated": 1}\n')
    Path("suite.yaml").write_text("proctor: 1\ncases: {from: rows.jsonl, as: {input: '{q}', expect: {response_contains: x}}}\n")
    done = proctor("validate", ".")
    assert done.code == 0 and "1 suite with 1 case, 0 records" in done.err
