"""The summary of a batch in every format, bounded for any batch, and harmless for any trace text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from proctor.batches.run import open_batch
from proctor.model.batch import (
    AmountFigures,
    BatchSummary,
    CaseBatch,
    CheckSummary,
    CommonReason,
    PassRate,
    Percentiles,
    Slice,
    SlicedBy,
    TracePlace,
)
from proctor.report.document.markdown import MOST_CHARACTERS
from tests.batches.batch_world import (
    evaluate,
    make_trace,
    render_batch,
    render_batch_html,
    render_batch_markdown,
    write_lines,
    write_suite,
)
from tests.integration.running import proctor

pytestmark = pytest.mark.timeout(60)
HOSTILE = '<script>alert(1)</script>|"\x1b[31m\u202e`**'


def write_month(folder: Path) -> BatchSummary:
    records = [
        make_trace(number, now=f"2026-10-0{1 + number // 10}T09:00:00Z", model=("small", HOSTILE)[number % 2]) for number in range(30)
    ]
    write_lines(folder / "a.jsonl", [*records, "{", "{"])
    return evaluate(write_suite(folder), [folder / "a.jsonl"], folder / "out", by=(("model",), ("model", "day")))[0]


def test_the_terminal_shows_days_slices_and_amounts(tmp_path: Path) -> None:
    text = render_batch(write_month(tmp_path))
    assert "latency   p50 115 ms · p95" in text
    lines = text.splitlines()
    assert re.split("  +", lines[lines.index("By day") + 2].strip())[2:] == ["90.0 %", "18 of 20, 69.9 % to 97.2 %", "104 ms / 108 ms"]
    assert "By model, day" in lines and any(line.split()[:2] == ["small", "2026-10-03"] for line in lines)
    assert "\x1b" not in text and "2 records not read or decided" in text


def test_markdown_has_the_same_figures_in_tables(tmp_path: Path) -> None:
    text = render_batch_markdown(write_month(tmp_path))
    assert text.startswith("## ❌ Shop: 30 traces, 60 results: 6 failed, 54 passed\n")
    assert "| `refund` | 80.0 %, 24 of 30, 62.7 % to 90.5 % |" in text
    assert "### By day" in text and "| 2026-10-02 | 10 | 90.0 %, 18 of 20, 69.9 % to 97.2 % | 115 ms / 119 ms |" in text
    assert "### By model, day" in text and "- **6 times**" in text and "  - `t0 (" in text
    assert "<script>" not in text and "2 records not read" in text


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read_page(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def test_the_page_is_complete_and_runs_no_script(tmp_path: Path) -> None:
    page = render_batch_html(write_month(tmp_path))
    read = read_page(page)
    assert "script" not in read.tags and '<html lang="en">' in page and "\u202e" not in page
    shown = " ".join(read.text)
    for text in ("Trend by day", "Cases", "Failures", "Latency", "By model, day"):
        assert text in shown
    assert "2 records not read or decided" in shown
    assert '<svg class="chart"' in page and "2026-10-03" in shown and "response_contains" in shown


def test_failures_on_the_page_are_grouped_by_cause_as_on_the_page_of_a_run(tmp_path: Path) -> None:
    expected = "".join(f"  - id: {case}\n    expect: {{tool_called: track}}\n" for case in ("parcel-1", "parcel-2", "letter"))
    records = [{"case": case, "text": "I cannot.", "tool_calls": []} for case in ("parcel-1", "parcel-2", "parcel-2")]
    records += [{"case": "letter", "text": "On its way.", "tool_calls": [{"name": "track", "arguments": {}}]}]
    write_lines(tmp_path / "a.jsonl", records)
    suite = write_suite(tmp_path, text=f"proctor: 1\nname: Post\ncases:\n{expected}")
    shown = " ".join(" ".join(read_page(render_batch_html(evaluate(suite, [tmp_path / "a.jsonl"], tmp_path / "out")[0])).text).split())
    assert "25 % of 4 results passed · 4 traces: 3 failed, 1 passed" in shown
    assert "Failures 1 reason" in shown and "3 results in 2 cases tool_called · track : expected a call" in shown
    assert shown.partition("Failures")[2].partition("Cases")[0].count("parcel-2") == 1


def make_rate(number: int) -> PassRate:
    return PassRate(counts={"pass": 10**6 - number, "fail": number}, decided=10**6, passed=10**6 - number, rate=0.5, low=0.4, high=0.6)


def make_large_summary(cases: int, text: str) -> BatchSummary:
    """As large as a summary of anything can be."""
    amounts = AmountFigures(latency=Percentiles(traces=10**6, p50=1.0, p95=2.0, p99=3.0))
    samples = tuple(TracePlace(file=text, row=10**6 + number, trace=text) for number in range(3))
    reasons = tuple(
        CommonReason(reason=text + chr(97 + number) * 3, count=10**6 - number, outcome="fail", check=text, samples=samples)
        for number in range(20)
    )
    slices = tuple(Slice(values=(f"{text}{number}", text), traces=10**6, rate=make_rate(number), amounts=amounts) for number in range(500))
    days = tuple(Slice(values=(f"2026-10-{number}",), traces=10**6, rate=make_rate(number), amounts=amounts) for number in range(500))

    def make_cases() -> Iterator[CaseBatch]:
        for number in range(cases):
            checks = tuple(CheckSummary(check=text, rate=make_rate(each)) for each in range(40))
            yield CaseBatch(id=f"case-{number}", name=text, rate=make_rate(number), checks=checks, reasons=reasons, more_reasons=10**6)

    return BatchSummary(
        suite=text,
        output=text,
        started_at="2026-10-01T00:00:00Z",
        partitions=20_000,
        committed=20_000,
        records=10**9,
        traces=10**9,
        errors=10**6,
        cases=tuple(make_cases()),
        amounts=amounts,
        days=days,
        slices=tuple(SlicedBy(by=(f"a{number}", "b"), slices=slices, others=slices[0]) for number in range(10)),
        faults=reasons,
    )


@pytest.mark.in_turn
def test_the_page_of_any_batch_is_at_most_two_megabytes() -> None:
    for text in ("x" * 400, "漢" * 400, HOSTILE * 10):
        page = render_batch_html(make_large_summary(600, text))
        read_page(page)
        assert 500_000 < len(page.encode()) <= 2_000_000
        assert "which the JSON summary has" in page and "for other reasons" in page


def test_markdown_of_any_batch_fits_into_a_comment() -> None:
    text = render_batch_markdown(make_large_summary(600, "x" * 400))
    assert MOST_CHARACTERS // 2 < len(text) <= MOST_CHARACTERS + 100 and "which the JSON summary has" in text


def test_an_unfinished_batch_is_marked_everywhere() -> None:
    from msgspec.structs import replace

    summary = replace(make_large_summary(1, "x"), committed=19_999)
    assert "INCOMPLETE: 1 of 20,000 partitions" in render_batch_markdown(summary)
    assert "INCOMPLETE: 1 of 20,000 partitions have no result" in render_batch_html(summary)


def test_a_batch_is_shown_in_every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_month(tmp_path)
    monkeypatch.chdir(tmp_path)
    for format, begin in (("terminal", "Shop · 1 partition"), ("json", "{"), ("markdown", "## "), ("html", "<!doctype html>")):
        done = proctor("batch", "show", "out", "--format", format, "--report", f"report.{format}")
        assert (done.code, done.out) == (0, ""), done.err
        assert (tmp_path / f"report.{format}").read_text().startswith(begin)
    report = json.loads((tmp_path / "report.json").read_text())
    assert [one["by"] for one in report["slices"]] == [["model"], ["model", "day"]] and len(report["days"]) == 3
    assert open_batch("out").days[0].traces == 10
    assert "not to show" in proctor("batch", "show", "out", "--by", "model").err
