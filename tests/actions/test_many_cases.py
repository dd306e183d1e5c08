"""A suite with too many cases for memory behaves the same: every feature, run and checked both ways."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import proctor
from proctor.actions.checking.check import all_records
from proctor.actions.checking.check_stream import CheckStream
from proctor.actions.checking.judged_check import JudgedStream
from proctor.actions.history.chosen_runs import choose_failed_cases, find_last_failed
from proctor.actions.judging.judges import make_judge
from proctor.actions.running.run import LiveRun, RunOptions, drive
from proctor.actions.workspace.run_history import open_run, read_result
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import make_renderer
from proctor.cli.show.showing import show_run
from proctor.decide.selection import select
from proctor.model.case import Case, Suite
from proctor.model.judgement import Question
from proctor.model.lazy_cases import is_lazy
from proctor.model.result import CaseResult
from proctor.model.scratch import NameTable, TakenNames
from proctor.report.data.json_text import render_json
from proctor.runner.limits import Budget, RunSettings
from proctor.scoring.metrics import MOST_COUNTED, Tally
from proctor.store.files.run_files import RunFiles
from tests.tables import rows

ROWS = "n,most,kind\n" + "".join(f"{n},{3 + n % 2},{'odd' if n % 2 else 'even'}\n" for n in range(1, 7))
CHECKS = '''import proctor


@proctor.check
def words_within(evidence: proctor.Evidence, *, most: int):
    """The answer has at most so many words."""
    words = len(evidence.text.split())
    return words <= most or f"expected at most {most} words, found {words}"


@proctor.check
def calls_at_most(evidence: proctor.Evidence, *, most: int):
    """At most so many calls."""
    return len(evidence.tool_calls) <= most
'''
AGENT = """import re


def answer(message, context):
    number = int((re.findall("[0-9]+", message) or ["0"])[0])
    usage = {"input_tokens": number, "output_tokens": 4, "total_tokens": number + 4}
    text = "Which order?" if not number else f"It is order {number}" + " indeed" * (number % 2)
    return {"text": text, "tool_calls": [{"name": "lookup", "arguments": {"id": number}}], "usage": usage, "model": "small"}


def refuse(message, context):
    return {"text": "No idea.", "tool_calls": []}
"""
FORMATS = ("terminal", "json", "jsonl", "csv", "junit", "markdown")
CHANGING = re.compile(
    r'"(?:run_id|started_at|duration_ms|latency_ms|now)": ?[^,}\n]+|\d{8}-\d{6}-\w+|timestamp="[^"]*"|time="[^"]*"|\d{4}-\d\d-\d\dT[\d:.]+Z'
)


@pytest.mark.in_turn
@rows("actions/cases/many_cases.yaml")
def test_a_feature_gives_the_same_results_with_lazy_cases(row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    workspace = {"targets": {"agent": {"type": "callable", "function": "agent:answer"}}, **row.get("workspace", {})}
    files = {"rows.csv": row.get("rows", ROWS), "checks.py": CHECKS, "agent.py": AGENT, "proctor.yaml": yaml.safe_dump(workspace)}
    files["suite.yaml"] = yaml.safe_dump({"proctor": 1, "name": "Many", **row["suite"]}, sort_keys=False)
    for name, text in {**files, **row.get("files", {})}.items():
        Path(name).write_text(text, encoding="utf-8")
    found: list[dict[tuple[str, str], Any]] = []
    for held in (None, 2):
        monkeypatch.delitem(sys.modules, "agent", raising=False)
        suite = proctor.load_suite("suite.yaml", held=held)
        assert is_lazy(suite.cases) == (held is not None)
        home = tmp_path / ".proctor"
        outputs = {"check": check_everywhere(suite, row), "run": run_everywhere(suite, row, home)}
        found.append({(verb, part): value for verb, parts in outputs.items() for part, value in parts.items()})
        home.rename(tmp_path / f"kept-{held}")
    for place, value in found[0].items():
        assert found[1][place] == value, place
    assert found[0]["run", "counts"]["error"] == row.get("errors", 0), found[0]["run", "terminal"]


def check_everywhere(suite: Suite, row: dict[str, Any]) -> dict[str, Any]:
    """The output of `check` in every format, and the result of `proctor.check`."""
    suite = select(suite, row.get("choose"))
    judge = make_question_judge(row)
    evidence = row.get("evidence", [])
    whole = proctor.check(suite, evidence, judge=judge)
    outputs: dict[str, Any] = {"counts": whole.counts, "warnings": [each.message for each in whole.warnings], "unmet": whole.unmet}
    outputs["cases"] = [(result.case.id, result.outcome, [verdict.reason for verdict in result.verdicts]) for result in whole.cases]
    for format in FORMATS:
        place = Path(f"checked.{format}")
        stream = CheckStream(suite)
        outputs["judged"], outputs["only_presence"] = stream.judged, stream.only_presence
        with Output(str(place)) as output:
            render = make_renderer(format, output, no_color=True)
            for result in collect(stream, evidence, judge):
                render.add(result)
            render.finish(stream.finish(render.in_memory))
        outputs[format] = neutral(place)
    return outputs


def collect(stream: CheckStream, evidence: list[Any], judge: Any) -> list[CaseResult]:
    if judge is None:
        return list(stream.over(all_records(evidence)))

    async def judged() -> list[CaseResult]:
        return [result async for result in JudgedStream(stream, make_judge(judge, {}, home=Path())).over(all_records(evidence))]

    return asyncio.run(judged())


def run_everywhere(suite: Suite, row: dict[str, Any], home: Path) -> dict[str, Any]:
    """The output of `run` and `show` in every format, and the stored attempts."""
    if "choose" in row:
        suite = select(suite, row["choose"])
    if row.get("last_failed"):
        drive_agent(suite, row, home)
        suite = choose_failed_cases(suite, find_last_failed(home, suite))
    live = drive_agent(suite, row, home)
    result = live.result
    outputs: dict[str, Any] = {
        "ended": live.ended,
        "reason": live.reason,
        "counts": result.counts,
        "outcome": result.outcome,
        "unmet": result.unmet,
    }
    outputs["entries"] = {key: (entry.outcome, entry.evidence and entry.evidence.text) for key, entry in sorted(live.entries.items())}
    outputs["missing"] = [(each.case.id, each.planned, each.finished) for each in (result.incomplete.missing if result.incomplete else ())]
    again, entries = open_run(home, "latest")
    for format in FORMATS:
        for source, shown, attempts in (("run", result, live.entries), ("show", again, entries)):
            place = Path(f"{source}.{format}")
            show_run(shown, format=format, output=str(place), no_color=True, entries=attempts)
            outputs[format if source == "run" else f"show {format}"] = neutral(place)
    pivot = "kind" if result.cases and all("kind" in case.case.tags for case in result.cases) else None
    if pivot is not None:
        show_run(result, format="csv", output="pivot.csv", no_color=True, pivot=pivot)
        outputs["pivot"] = Path("pivot.csv").read_text(encoding="utf-8")
    return outputs


def drive_agent(suite: Suite, row: dict[str, Any], home: Path) -> LiveRun:
    budget = Budget(max_failures=1) if row.get("exitfirst") else Budget()
    options = RunOptions(
        settings=RunSettings(concurrency=1, budget=budget),
        judge=make_question_judge(row),
        allow_missing_judge=row.get("allow_missing_judge", False),
    )
    return asyncio.run(drive(suite, options, home=home))


def make_question_judge(row: dict[str, Any]) -> Any:
    if "judge" not in row:
        return None

    def judge(question: Question) -> bool:
        return row["judge"] in msgspec.json.encode(question).decode()

    return judge


def neutral(place: Path) -> Any:
    """The text of a report, without what differs from run to run."""
    if place.suffix == ".csv":
        with place.open(newline="", encoding="utf-8") as file:
            return [{key: cell for key, cell in line.items() if key not in ("run_id", "duration_ms")} for line in csv.DictReader(file)]
    return CHANGING.sub("~", place.read_text(encoding="utf-8"))


def test_streamed_results_equal_results_in_memory(tmp_path: Path) -> None:
    cases = [{"id": f"c{n}", "input": str(n), "repeat": 1 + n % 2, "expect": [{"response_contains": "1"}]} for n in range(4)]
    suite = proctor.parse_suite(json.dumps({"proctor": 1, "cases": cases}))
    live = asyncio.run(drive(suite, target=lambda message: message, home=tmp_path))
    file = live.folder / "results.jsonl"
    first = file.read_text(encoding="utf-8").splitlines()[0]
    # An unknown case, an unplanned attempt, and a repeated one: the last one counts.
    unknown = [first.replace('"c0"', '"gone"'), first.replace('"case":"c0"', '"case":"c2","attempt":7'), first.replace('"fail"', '"error"')]
    known = [line for line in file.read_text(encoding="utf-8").splitlines() if '"c3"' not in line]
    file.write_text("".join(f"{line}\n" for line in (*known, *unknown)) + '{"half', encoding="utf-8")
    folder = RunFiles(tmp_path / ".proctor").open("latest")
    held, entries = read_result(folder, suite, "completed")
    lazy, read = read_result(folder, suite, "completed", held=1)
    assert is_lazy(lazy.cases) and not is_lazy(held.cases)
    assert tuple(lazy.cases) == held.cases
    assert [result.case.id for result in held.cases] == ["c0", "c1", "c1", "c2", "c2", "gone"]
    assert dict(read) == entries and len(read) == len(entries) and ("c3", 0) not in read
    assert render_json(lazy) == render_json(held)
    assert (lazy.unmet, lazy.outcome) == (held.unmet, held.outcome)


def test_many_cases_are_counted_like_few() -> None:
    def make(number: int, outcome: Any) -> CaseResult:
        case = Case(id=f"c{number}", name="\ud800é" if number % 3 else "", pass_threshold=0.5 if number % 2 else None)
        return CaseResult(case, outcome, 1.0 if outcome == "pass" else 0.0, ())

    count = MOST_COUNTED + 50
    results = [make(number, outcome) for outcome in ("pass", "fail") for number in range(count)]
    one_by_one, together = Tally(), Tally()
    for result in results:
        one_by_one.add(result)
    together.add_all(results)
    for tally in (one_by_one, together):
        assert tally.counts == {"pass": count, "fail": count, "error": 0, "skip": 0} and tally.score == 0.5
        summaries = tally.list_summaries()
        assert [summary.id for summary in summaries] == [f"c{number}" for number in range(count)]
        assert {summary.outcome for summary in summaries[1::2]} == {"pass"} and {summary.outcome for summary in summaries[::2]} == {"fail"}
        assert summaries[-1].name == results[-1].case.name and summaries[-1].runs == 2
        assert tally.has_seen(f"c{count - 1}") and not tally.has_seen("c")
    assert one_by_one.decide_outcome() == "fail"


def test_names_of_many_cases_are_found() -> None:
    taken, table = TakenNames(held=10), NameTable()
    for number in range(3_000):
        taken.add(f"c{number}")
        table.add(f"c{number % 1_000}", number)
    assert len(taken) == 3_000 and all(f"c{number}" in taken for number in range(3_000))
    assert "c3000" not in taken and "" not in taken
    assert sorted(table.find("c7")) == [7, 1_007, 2_007] and not list(table.find("x"))
