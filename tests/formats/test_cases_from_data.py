"""Cases from rows of data, and a matrix of them: what is read, and the problems that are reported."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import proctor
from proctor.checks.registry import default_registry
from proctor.formats.native import rows as native_rows
from proctor.formats.native.promptfoo_rows import read_claim, read_number
from proctor.formats.native.rows import MOST_PROBLEMS
from proctor.formats.native.schema import build_native_schema
from proctor.formats.text.foreign_names import COUNTERPARTS, find_counterpart
from proctor.formats.text.row_shapes import TableOptions, convert_cell
from proctor.model.case import Suite
from proctor.model.lazy_cases import is_lazy
from proctor.sources.tables.open import DataFiles
from proctor.sources.tables.text import CsvTable
from tests.tables import rows


def load(folder: Path, document: dict[str, Any], **files: str) -> Suite:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8", newline="")
    (folder / "suite.yaml").write_text(yaml.safe_dump({"proctor": 1, **document}, sort_keys=False), encoding="utf-8")
    return proctor.load_suite(folder / "suite.yaml")


@rows("formats/cases/data_problems.yaml")
def test_unusable_values_are_reported_at_their_line(row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in row["files"].items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    matrix = f"matrix: {json.dumps(row['matrix'])}\n" if "matrix" in row else ""
    Path("suite.yaml").write_text(f"proctor: 1\ncases: {json.dumps(row['cases'])}\n{matrix}")
    with pytest.raises(proctor.InputError) as caught:
        proctor.load_suite("suite.yaml")
    for part in row["message"]:
        assert part in str(caught.value)
    if "once" in row:
        assert str(caught.value).count(row["once"]) == 1


def test_a_row_becomes_a_case_with_its_line_and_types(tmp_path: Path) -> None:
    template = {
        "id": "order-{order}",
        "input": "{question} {{literally}}",
        "tags": {"amount": "{amount}"},
        "expect": [{"tool_called": {"name": "lookup", "arguments": {"id": "{order}"}}}, "no_tool_errors"],
    }
    text = '\ufefforder,question,amount\n17,"Where\nis it?",9.50\n\n18,"a ""b""",\n'
    suite = load(
        tmp_path, {"cases": {"from": "rows.csv", "types": {"order": "integer", "amount": "number"}, "as": template}}, rows_csv=text
    )
    first, second = suite.cases
    assert (first.id, first.input, first.tags) == ("order-17", "Where\nis it? {literally}", {"amount": 9.5})
    assert (first.origin.line, second.origin.line) == (2, 5)
    assert (first.origin.file or "").endswith("rows.csv")
    assert first.assertions[0].spec.arguments == {"id": 17}
    assert (second.input, second.tags) == ('a "b" {literally}', {"amount": None})
    assert first.assertions[1] is second.assertions[1], "a claim without a placeholder is shared"


def test_ids_come_from_template_column_or_row_number(tmp_path: Path) -> None:
    document = {"cases": [{"id": "by-hand", "input": "x"}, {"from": ["rows.csv", "more.jsonl"], "as": {"input": "{q}"}}]}
    suite = load(tmp_path, document, rows_csv="id,q\na,1\n,2\na,3\n", more_jsonl='{"q": "4"}\n{"q": "5", "id": 9}\n')
    assert [case.id for case in suite.cases] == ["by-hand", "a", "rows-2", "a-row-3", "more-1", "9"]
    assert [problem.code for problem in suite.warnings] == ["duplicate_id"]
    assert suite.warnings[0].origin.line == 4


def test_rows_of_native_cases_need_no_template(tmp_path: Path) -> None:
    line = '{"id": "a", "input": "hi", "expect": [{"response_contains": "hello"}]}\n'
    (case,) = load(tmp_path, {"cases": {"from": "rows.jsonl"}}, rows_jsonl=line).cases
    assert (case.id, case.input, case.assertions[0].check) == ("a", "hi", "response_contains")


def test_warnings_drop_no_rows_and_shared_ones_are_reported_once(tmp_path: Path) -> None:
    text = "id,q\n" + "".join(f"same,{n}\n" for n in range(301))
    template = {"input": "{q}", "timezone": "Mars/Olympus", "expect": [{"response_contains": "{q}"}]}
    suite = load(tmp_path, {"cases": {"from": "rows.csv", "as": template}}, rows_csv=text)
    assert len({case.id for case in suite.cases}) == 301
    counts = Counter(warning.code for warning in suite.warnings)
    assert counts["duplicate_id"] + 1 == MOST_PROBLEMS and counts["too_many_problems"] == 1, counts
    assert sum(warning.message.startswith("201 more warnings about rows of ") for warning in suite.warnings) == 1
    assert sum("Mars/Olympus" in warning.message for warning in suite.warnings) == 1


def test_a_json_list_keeps_types_and_lines(tmp_path: Path) -> None:
    text = '[\n {"q": "a", "n": {"x": [1]}},\n {"q": "b", "n": null}\n]\n'
    suite = load(tmp_path, {"cases": {"from": "rows.json", "as": {"input": "{q}", "context": {"n": "{n}"}}}}, rows_json=text)
    assert [(case.context["n"], case.origin.line) for case in suite.cases] == [({"x": [1]}, 2), (None, 3)]


def test_a_suite_without_a_file_cannot_refer_to_files() -> None:
    with pytest.raises(proctor.InputError, match="may not name files") as caught:
        proctor.parse_suite("proctor: 1\ncases: {from: rows.csv, as: {input: x}}\n")
    assert caught.value.problems[0].code == "data_not_allowed"


def test_a_link_out_of_the_folder_is_followed_only_for_trusted_suites(tmp_path: Path) -> None:
    outside, folder = tmp_path / "rows.csv", tmp_path / "suites"
    outside.write_text("q\nx\n")
    folder.mkdir()
    (folder / "link.csv").symlink_to(outside)
    document = {"cases": {"from": "link.csv", "as": {"input": "{q}"}}}
    with pytest.raises(proctor.InputError, match="leads out of it"):
        load(folder, document)
    assert len(proctor.load_suite(folder / "suite.yaml", trust=True).cases) == 1


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"q\na\ncaf\xe9\n")
    with pytest.raises(proctor.InputError, match=r"rows\.csv:3: not UTF-8 text: byte 0xe9"):
        load(tmp_path, {"cases": {"from": "rows.csv", "as": {"input": "{q}"}}})


@pytest.mark.parametrize("bound", ["MAX_ROWS", "MAX_FIELD", "MAX_LINE"])
def test_data_files_have_a_size_limit(bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"proctor.sources.tables.text.{bound}", 2)
    with pytest.raises(proctor.InputError, match="2"):
        load(tmp_path, {"cases": {"from": "rows.csv", "as": {"input": "{q}"}}}, rows_csv="q\naaaa\nb\nc\n")


def test_many_rows_are_not_kept_in_memory_and_give_the_same_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "q,n\n" + "".join(f"question {number},{number}\n" for number in range(50))
    template = {
        "input": "{p}: {q}",
        "tags": {"n": "{n}"},
        "expect": [{"response_contains": "{n}"}, {"response_matches": {"pattern": "{n}"}}],
    }
    document = {"matrix": {"p": ["a", "b"]}, "cases": {"from": "rows.csv", "as": template}}
    held = load(tmp_path, document, rows_csv=text)
    monkeypatch.setattr(native_rows, "HELD", 10)
    lazy = load(tmp_path, document, rows_csv=text)
    assert is_lazy(lazy.cases) and not is_lazy(held.cases)
    assert tuple(lazy.cases) == held.cases
    assert lazy.cases[-1] == held.cases[-1]
    selected = proctor.check(lazy, [{"case": "rows-7[p=b]", "text": "6"}])
    assert selected.counts["pass"] == 1


def test_the_fast_path_and_the_reader_give_the_same_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a,b,c\nx,1,one\ny,2,two\n,3,\n"
    template = {
        "name": "{a} and {b}",
        "input": "{c}",
        "body": None,
        "context": {"all": ["{a}", {"b": "{b}"}]},
        "tags": {"a": "{a}"},
        "expect": [
            {"response_contains": {"text": "{c}.", "ignore_case": False}, "weight": 2},
            {"tool_called": {"name": "t{b}", "arguments": {"v": "{b}"}}, "label": "said"},
            {"json_path": {"path": "$.{a}x", "equals": "{b}"}},
            {"no_tool_errors": {}},
        ],
    }
    del template["body"]
    document = {"cases": {"from": "rows.csv", "types": {"b": "integer"}, "as": template}}
    quick = load(tmp_path, document, rows_csv=text)
    monkeypatch.setattr(native_rows, "learn_shape", lambda *arguments: None)
    assert load(tmp_path, document, rows_csv=text).cases == quick.cases


CELLS = st.text("ab\"',;\n é\t=", max_size=6)


@pytest.mark.timeout(60)
@given(header=st.sampled_from([["a"], ["a", "b c"], ["é", "x", "y"]]), data=st.data())
def test_any_csv_is_read_like_pythons_csv_module(tmp_path_factory: pytest.TempPathFactory, header: list[str], data: st.DataObject) -> None:
    table = data.draw(st.lists(st.lists(CELLS, min_size=len(header), max_size=len(header)), max_size=6))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=data.draw(st.sampled_from(["\n", "\r\n"])), quoting=csv.QUOTE_ALL)
    writer.writerows([header, *table])
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_bytes(out.getvalue().encode())
    found = list(CsvTable(path, "rows.csv", TableOptions()).rows())
    lines = out.getvalue().split("\n")
    assert [list(row.values.values()) for row in found] == list(csv.reader(io.StringIO(out.getvalue(), newline="")))[1:]
    for row, wanted in zip(found, table, strict=True):
        assert row.origin.line is not None
        assert lines[row.origin.line - 1].startswith('"' + wanted[0].replace('"', '""').split("\n")[0])


@pytest.mark.timeout(60)
@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.json"):
        (folder / name).write_bytes(content)
        try:
            list(DataFiles(folder).open(name, TableOptions()).rows())
        except proctor.InputError as error:
            assert name in str(error)


@rows("formats/cases/promptfoo_claims.yaml")
def test_a_promptfoo_claim_is_converted_or_fails(row: dict[str, Any]) -> None:
    claims = read_claim(row["cell"], str)
    if "unsupported" in row:
        assert row["unsupported"] in claims[0]["unsupported"]["reason"]
    else:
        assert claims == row["expect"]
    # The reader of suites accepts the value.
    text = yaml.safe_dump({"proctor": 1, "cases": [{"id": "a", "input": "x", "expect": claims}]})
    assert proctor.parse_suite(text).cases[0].assertions


@pytest.mark.parametrize(
    ("cell", "meant"),
    [
        ("contians: shipped", "contains"),
        ("Contains: shipped", "contains"),
        ("not-icontain:x", "icontains"),
        ("levenstein(5):abc", "levenshtein"),
        ("contains: shipped", None),
        ("Note: it was shipped", None),
        ("Answer: 42", None),
        ("https://example.com", None),
        ("shipped", None),
    ],
)
def test_a_misspelt_promptfoo_claim_gives_a_warning(tmp_path: Path, cell: str, meant: str | None) -> None:
    suite = load(tmp_path, {"cases": {"from": "rows.csv"}}, rows_csv=f"q,__expected\nWhere?,{cell}\n")
    warnings = [warning for warning in suite.warnings if warning.code == "misspelt_claim"]
    assert [warning.hint for warning in warnings] == ([] if meant is None else [f"did you mean {meant}:?"])


@pytest.mark.parametrize("name", ["tests.csv", "tests.xlsx"])
def test_a_data_file_used_as_a_suite_is_refused_with_advice(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("q,__expected\nWhere?,contains:x\n")
    with pytest.raises(proctor.InputError, match=rf"cases: \{{from: {name}\}}"):
        proctor.load_suite(tmp_path / name)


def test_a_promptfoo_configuration_is_refused_with_advice() -> None:
    with pytest.raises(proctor.InputError, match=r"its tests in a CSV file are: docs/how-to/cases-from-data\.md"):
        proctor.parse_suite("prompts: [a]\nproviders: [openai:gpt-4]\ntests: []\n")


@pytest.mark.parametrize(
    ("name", "ours"), [("llm-rubric", "judged"), ("not-contains", "response_contains"), ("latency", "responded_within")]
)
def test_a_claim_of_another_system_is_refused_with_our_name(name: str, ours: str) -> None:
    text = yaml.safe_dump({"proctor": 1, "cases": [{"id": "a", "input": "x", "expect": [{name: "polite"}]}]})
    with pytest.raises(proctor.InputError, match=f"what is '{name}' elsewhere is `{ours}` here"):
        proctor.parse_suite(text)


def test_every_counterpart_is_an_existing_check() -> None:
    assert set(COUNTERPARTS.values()) <= set(default_registry().list_names())


def test_every_metric_in_the_table_is_known() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/metrics.md").read_text(encoding="utf-8").partition("## Names of other systems")[2]
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")][2:]
    ours: dict[str, set[str]] = {}
    for *others, checks in rows:
        for name in re.findall(r"`([^`.]+)`", "|".join(others)):
            ours.setdefault(name, set()).update(re.findall(r"`(\w+)`", checks))
    assert {name: find_counterpart(name) for name, checks in ours.items() if find_counterpart(name) not in checks} == {
        "rubric": None,
        "Literal": None,
    }


def test_the_promptfoo_example_is_read(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "data" / "promptfoo-simple.csv").read_text(encoding="utf-8")
    suite = load(tmp_path, {"cases": {"from": "tests.csv", "prompt": "Rewrite in {{language}}: {{ body }}"}}, tests_csv=text)
    assert [case.id for case in suite.cases] == [f"tests-{number}" for number in range(1, 5)]
    third = suite.cases[2]
    assert third.input == "Rewrite in Pirate: Hello world"
    assert third.context["style_config"] == '{"tone":"authentic","length":"moderate"}'
    assert (third.assertions[0].check, third.assertions[0].spec.text) == ("response_contains", "Ahoy")
    assert third.origin.line == 4


def test_promptfoo_metadata_thresholds_and_metrics_are_read(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "data" / "promptfoo-metadata.csv").read_text(encoding="utf-8")
    suite = load(tmp_path, {"cases": {"from": "tests.csv"}}, tests_csv=text)
    second = suite.cases[1]
    assert second.input == "quantum physics"
    assert second.tags == {"category": "science", "tags": ["physics", "advanced,theory", "quantum"]}
    contains, judged = second.assertions
    assert contains.spec.text == "quantum"
    assert (judged.spec.criteria, judged.spec.threshold) == ("Does this describe quantum physics accurately?", 0.75)


def test_a_column_with_a_huge_number_is_refused(tmp_path: Path) -> None:
    text = f"q,__expected,__config:__expected{'9' * 5000}:threshold\nWho?,contains:I,0.5\n"
    with pytest.raises(proctor.InputError, match="no setting that is known"):
        load(tmp_path, {"cases": {"from": "rows.csv"}}, rows_csv=text)


def test_promptfoo_prefixes_descriptions_and_thresholds_are_read(tmp_path: Path) -> None:
    text = (
        "q,__prefix,__suffix,__description,__metric,__threshold,__expected,__expected2\nWho?,Hey: ,!,A name,tone,0.5,contains:I,python:1\n"
    )
    (case,) = load(tmp_path, {"cases": {"from": "rows.csv"}}, rows_csv=text).cases
    assert (case.input, case.name, case.tags) == ("Hey: Who?!", "A name", {"metric": "tone"})
    assert (case.scoring.mode, case.scoring.pass_at) == ("weighted", 0.5)
    result = proctor.check(proctor.load_suite(tmp_path / "suite.yaml"), {"case": case.id, "input": case.input, "text": "I"})
    assert result.outcome == "fail", "code that is not run is never accepted because of the other claims"
    refused = result.cases[0].assertions[1]
    assert (refused.verdict.code, refused.assertion.label) == ("unsupported_assertion", "python:1"), "the cell decides"


def test_a_value_never_changes_the_type_of_a_claim(tmp_path: Path) -> None:
    text = "q,a,__expected\nWho?,contains: x,{{a}}\n"
    (case,) = load(tmp_path, {"cases": {"from": "rows.csv", "prompt": "{{q}}"}}, rows_csv=text).cases
    assert (case.assertions[0].check, case.assertions[0].spec.text) == ("response_equals", "contains: x")


def test_a_matrix_gives_a_case_for_every_combination(tmp_path: Path) -> None:
    document = {
        "matrix": {"model": ["small", "large"], "prompt": {"brief": "Be brief.", "long": "Explain {it}."}, "t": [0, 0.5]},
        "cases": [{"id": "a", "name": "Named", "input": "{prompt} {other} {{x}}", "tags": ["slow"]}],
    }
    suite = load(tmp_path, document)
    assert len(suite.cases) == 8
    case = suite.cases[6]
    assert case.id == "a[model=large,prompt=long,t=0]"
    assert case.input == "Explain {it}. {other} {{x}}"
    assert case.tags == {"slow": True, "model": "large", "prompt": "long", "t": "0"}
    assert case.context == {"model": "large", "prompt": "Explain {it}.", "t": 0}
    assert len({each.name for each in suite.cases}) == 8


def test_a_record_without_a_case_matches_no_variant(tmp_path: Path) -> None:
    suite = load(
        tmp_path, {"matrix": {"model": ["a", "b"]}, "cases": [{"id": "x", "input": "hi", "expect": [{"response_contains": "hello"}]}]}
    )
    result = proctor.check(suite, {"input": "hi", "text": "hello"})
    assert result.counts["pass"] == 0 and result.counts["error"] == 1
    assert "matrix" in (result.cases[0].reason or "")
    named = proctor.check(suite, {"case": "x[model=b]", "input": "hi", "text": "hello"})
    assert named["x[model=b]"].passed and named["x[model=a]"].outcome == "skip"


def test_the_schema_accepts_cases_from_data_and_a_matrix() -> None:
    validator = jsonschema_rs.validator_for(build_native_schema(default_registry()))
    block = {"from": "a.csv", "types": {"a": "number"}, "as": {"input": "{a}", "repeat": "{a}"}}
    for cases in (block, [block, {"id": "a", "input": "x"}], {"from": ["a.csv"], "limit": 3}):
        assert validator.is_valid({"proctor": 1, "matrix": {"m": [1], "p": {"a": "b"}}, "cases": cases})
    assert not validator.is_valid({"proctor": 1, "cases": {"from": "a.csv", "az": {}}})


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [("007", "integer", 7), ("1e3", "number", 1000.0), ("", "number", None), ("TRUE", "boolean", True), ('{"a": [1]}', "json", {"a": [1]})],
)
def test_a_cell_is_read_as_its_declared_type(text: str, kind: str, value: object) -> None:
    assert convert_cell(text, kind) == value


@given(st.text('0123456789+-.eE truefalsno{}[]":,NaInty', max_size=12), st.sampled_from(["number", "integer", "boolean", "json", "text"]))
def test_any_cell_has_its_type_or_is_refused(text: str, kind: str) -> None:
    try:
        convert_cell(text, kind)
    except ValueError as error:
        assert str(error)
    read_number(text)
