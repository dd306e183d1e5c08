"""Pass rates by the axes of a run, and results as tables for spreadsheets."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import InputError
from proctor.model.case import Case
from proctor.model.result import CaseResult, RunResult
from proctor.report.builders.pivot import Pivot, build_pivot, find_matrix_axes, make_pivot_section, read_axes, write_pivot_csv
from proctor.report.document.html import write_block_html
from proctor.report.document.markdown import write_markdown
from proctor.report.document.model import Document
from proctor.report.document.terminal import TerminalWriter
from proctor.report.html.report import render_html
from proctor.report.words.neutral import make_harmless, write_csv
from proctor.report.words.style import Style
from proctor.scoring.intervals import Counts


def make_run(rows: list[tuple[dict[str, object], str]]) -> RunResult:
    cases = [
        CaseResult(Case(id=f"c{number}", tags=tags, settings={"matrix": tags}), outcome, None, ())  # type: ignore[arg-type]
        for number, (tags, outcome) in enumerate(rows)
    ]
    return RunResult(suite_name="S", cases=tuple(cases), counts={"pass": 0, "fail": 0, "error": 0, "skip": 0})


RUN = make_run(
    [
        ({"model": "a", "prompt": "x"}, "pass"),
        ({"model": "a", "prompt": "x"}, "fail"),
        ({"model": "a", "prompt": "all"}, "pass"),
        ({"model": "b", "prompt": "x"}, "error"),
        ({"model": "b", "prompt": "all"}, "skip"),
    ]
)


def write_pivot_lines(pivot: Pivot) -> list[str]:
    return TerminalWriter(Style(colour=False), 120).write_block(make_pivot_section(pivot, "terminal"))


def test_a_cell_counts_errors_and_leaves_out_skips() -> None:
    pivot = build_pivot(RUN, ["model", "prompt"])
    assert pivot.columns == ("x", "all", None)
    found = {line: list(cells) for line, cells in pivot.lines}
    assert found[("a",)] == [Counts(2, 1), Counts(1, 1), Counts(3, 2)]
    assert found[("b",)] == [Counts(1, 0), Counts(0, 0), Counts(1, 0)]
    assert found[None] == [Counts(3, 1), Counts(1, 1), Counts(4, 2)]


def test_the_table_is_written_for_every_reader() -> None:
    pivot = build_pivot(RUN, ["model", "prompt"])
    assert "50.0% (9.5 to 90.5) 1/2" in "\n".join(write_pivot_lines(pivot))
    document = Document("S", ("fail", "fail"), "", (make_pivot_section(pivot, "markdown"),))
    assert "| a | 50.0% (9.5 to 90.5) 1/2 |" in write_markdown(document)
    assert "<bdi>50.0% (9.5 to 90.5) 1/2</bdi></td>" in write_block_html(make_pivot_section(pivot, "html"))
    rows = list(csv.DictReader(io.StringIO(write_pivot_csv(pivot))))
    figures = {"passed": "1", "decided": "2", "pass_rate": "0.5", "low": "0.094531", "high": "0.905469"}
    assert rows[0] == {"model": "a", "prompt": "x", **figures}


def test_a_table_too_wide_for_a_terminal_has_a_line_for_each_cell() -> None:
    wide = make_run([({"model": f"model-{number}"}, "pass") for number in range(30)])
    lines = write_pivot_lines(build_pivot(wide, ["model"]))
    assert max(map(len, lines)) <= 120 and len(lines) == 2 + 31
    assert lines[1].split() == ["model", "pass", "rate"] and lines[2].startswith("  model-0") and lines[-1].startswith("  all")


def test_one_axis_and_three_make_tables_too() -> None:
    assert [line for line, _ in build_pivot(RUN, ["model"]).lines] == [None]
    three = make_run([({"a": "1", "b": "2", "c": "3"}, "pass"), ({"a": "1", "b": "3", "c": "3"}, "fail")])
    assert [line for line, _ in build_pivot(three, ["a", "b", "c"]).lines] == [("1", "2"), ("1", "3"), None]


def test_a_matrix_too_large_for_a_table_has_a_report_without_one() -> None:
    wide = make_run([({"model": f"model-{number}"}, "pass") for number in range(51)])
    assert find_matrix_axes(wide) == () and render_html(wide).endswith("</html>\n")
    with pytest.raises(InputError, match="51 columns"):
        build_pivot(wide, ["model"])


def test_the_axes_of_the_matrix_are_the_default_and_an_unknown_one_is_refused() -> None:
    assert find_matrix_axes(RUN) == ("model", "prompt")
    with pytest.raises(InputError, match="no case has a tag 'modle'; nearest: model"):
        read_axes("modle", [result.case for result in RUN.cases])


def test_a_page_escapes_tags() -> None:
    run = make_run([({"model": "<img src=x onerror=alert(1)>"}, "pass")])
    page = render_html(run, {}, ["model"])
    assert "<img src=x" not in page and "&lt;img src=x" in page


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert str(make_harmless(text)).startswith("'")


@given(st.lists(st.lists(st.text("=+-@\t\r\n\"',;\0ab é", max_size=6), min_size=2, max_size=2), max_size=5))
def test_written_csv_is_read_back_by_python_and_holds_no_formula(rows: list[list[str]]) -> None:
    found = list(csv.reader(io.StringIO(write_csv(rows), newline=""), strict=True))
    assert found == [[str(make_harmless(cell)) for cell in row] for row in rows]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for row in found for cell in row)
