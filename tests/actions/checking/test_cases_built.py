"""How often a lazy case is built: questions about all cases need none, and a command builds each a few times."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

import proctor
from proctor.actions.checking.check_stream import CheckStream, list_empty_cases, survey_cases
from proctor.actions.judging.judges import has_judged_assertions, list_cases_for_judge
from proctor.actions.running.run import RunOptions, drive
from proctor.cli.flags import Gate
from proctor.cli.show.showing import show_run
from proctor.decide.selection import select
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Source
from proctor.model.lazy_cases import EMPTY, RARE, LazySequence, join_cases, may_have
from proctor.runner.limits import RunSettings
from proctor.sources.records import Record

COUNT = 12


def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Suite, Counter[int]]:
    """A suite that remembers one case, and how often each of its cases was made since it was read."""
    (folder / "rows.csv").write_text("id,q\n" + "".join(f"r{n},ask {n}\n" for n in range(COUNT)))
    template = '{input: "{q}", expect: [{response_contains: "{q}"}, no_tool_errors]}'
    (folder / "suite.yaml").write_text(f"proctor: 1\ncases: {{from: rows.csv, as: {template}}}\n")
    suite = proctor.load_suite(folder / "suite.yaml", held=0)
    made: Counter[int] = Counter()
    make = suite.cases._make  # type: ignore[attr-defined]

    def count(index: int) -> object:
        made[index] += 1
        return make(index)

    monkeypatch.setattr(suite.cases, "_make", count)
    monkeypatch.setattr(suite.cases, "_remember", 1)
    return suite, made


def test_questions_about_all_cases_build_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, made = load(tmp_path, monkeypatch)
    assert not has_judged_assertions(suite) and not list_cases_for_judge(suite) and not list(list_empty_cases(suite))
    assert not any(may_have(suite.cases, field) for field in (*RARE, EMPTY))
    assert not made
    assert not survey_cases(suite).judged and len(made) <= 2


def test_check_makes_each_case_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, made = load(tmp_path, monkeypatch)
    stream = CheckStream(suite)
    assert not stream.judged and not stream.only_presence
    records = (Record(source=Source(), evidence=Evidence(text=f"ask {n}", case=f"r{n}", tool_calls=())) for n in range(COUNT))
    assert sum(result.outcome == "pass" for result in stream.over(records)) == COUNT
    stream.finish()
    # Once to know their names, and once when the record comes.
    assert sum(made.values()) <= 2 * COUNT + 3


def test_run_makes_each_case_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, made = load(tmp_path, monkeypatch)
    options = RunOptions(settings=RunSettings(concurrency=1))
    live = asyncio.run(drive(suite, options, target=lambda message: {"text": message, "tool_calls": []}, home=tmp_path / "home"))
    assert len(live.result.cases) == COUNT and live.result.counts["error"] == 0
    # Their names, the stored lines, the run itself, the order of the results, their headers, and the results.
    assert sum(made.values()) <= 6 * COUNT + 5
    before = sum(made.values())
    show_run(live.result, format="json", output=str(tmp_path / "run.json"), no_color=True, entries=live.entries)
    Gate((), None, None).add_all(live.result.cases)
    assert sum(made.values()) - before <= COUNT
    assert len(json.loads((tmp_path / "run.json").read_text())["cases"]) == COUNT


def test_features_of_one_case_apply_to_the_set_and_its_derivations(tmp_path: Path) -> None:
    rows = [{"id": "plain", "input": "a", "expect": ["no_tool_errors"]}, {"id": "last", "turns": [{"input": "a"}], "repeat": 3}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "suite.yaml").write_text("proctor: 1\ncases: {from: rows.jsonl}\n")
    suite = proctor.load_suite(tmp_path / "suite.yaml", held=0)
    written = proctor.parse_suite("proctor: 1\ncases: [{id: w, input: a, skip: later}]").cases
    joined = join_cases([suite.cases, written])
    assert isinstance(joined, LazySequence)
    for cases, found in ((suite.cases, {"turns", "repetitions", EMPTY}), (joined, {"turns", "repetitions", "skip", EMPTY})):
        assert {field for field in (*RARE, EMPTY) if may_have(cases, field)} == found
    chosen = select(suite, "plain")
    assert len(chosen.cases) == 1 and may_have(chosen.cases, "turns") and not may_have(chosen.cases, "user")
    # Of others nothing is known before they are looked at.
    assert may_have(written, "user") and may_have(LazySequence(1, lambda index: written[index]), "user")
