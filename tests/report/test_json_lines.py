"""Lines written for a file are those of each result by itself, whatever came before it."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

import proctor
from proctor.actions.checking.check_stream import CheckStream
from proctor.cli.show.output import Output
from proctor.cli.show.renderers import JsonLines
from proctor.model.evidence import Source
from proctor.model.result import CaseResult
from proctor.report.data.json_text import CaseEncoder
from proctor.sources.records import Record

SUITE = """\
proctor: 1
cases:
  - {id: a, expect: [{tool_called: find}, {response_contains: yes}]}
  - {id: b, expect: [response_contains: yes]}
  - {id: none, expect: []}
"""


def _make_results(seed: int) -> list[CaseResult]:
    chance = random.Random(seed)
    records: list[Record] = []
    for number in range(1, 300):
        calls = [{"name": chance.choice(("find", "look"))}]
        evidence = proctor.read_evidence({"case": chance.choice("aab"), "text": chance.choice(("yes", "yes", "no")), "tool_calls": calls})
        line, name = chance.choice((number, number, None)), chance.choice((None, None, "id"))
        records.append(Record(evidence, Source(chance.choice(("one.jsonl", "two.jsonl")), line, name)))
    results = list(CheckStream(proctor.parse_suite(SUITE)).over(records))
    changes = ({"attempt": 2}, {"exchange": {"input": "x"}}, {"source": None})
    return [msgspec.structs.replace(result, **chance.choice(changes)) if chance.random() < 0.2 else result for result in results]


def test_lines_do_not_depend_on_the_lines_before(tmp_path: Path) -> None:
    for seed in range(5):
        results = _make_results(seed)
        with Output(str(tmp_path / "lines.jsonl")) as output:
            lines = JsonLines(output)
            for result in results:
                lines.add(result)
            lines.finish(CheckStream(proctor.parse_suite(SUITE)).finish())
        expected = [CaseEncoder().encode(result) for result in results]
        assert (tmp_path / "lines.jsonl").read_bytes().splitlines() == expected
