"""Records with unseen, truncated or duplicated parts: no claim that needs such a part passes, in any format."""

from __future__ import annotations

import json
from typing import Any

import msgspec

import proctor
from proctor.actions.checking.check_stream import CheckStream
from proctor.errors import EvidenceError
from proctor.evidence.reading import read_bytes
from proctor.model.evidence import Evidence, Source
from proctor.sources.records import Record
from tests.tables import rows


def suite_of(row: dict[str, Any]) -> proctor.Suite:
    case = {"id": "c", **({"turns": row["turns"]} if "turns" in row else {}), **({"expect": row["claims"]} if "claims" in row else {})}
    return proctor.parse_suite(json.dumps({"proctor": 1, "name": "s", "cases": [case]}))


def line_of(row: dict[str, Any]) -> bytes:
    return row["line"].encode() if "line" in row else json.dumps(row["record"]).encode()


def records_of(line: bytes) -> list[Record]:
    try:
        found = read_bytes(line)
    except EvidenceError as error:
        return [Record(None, Source(), error)]
    return [Record(one, Source()) for one in found]


def decide_line(row: dict[str, Any]) -> list[proctor.CaseResult]:
    return [result for result in CheckStream(suite_of(row)).over(records_of(line_of(row))) if result.code != "no_evidence"]


@rows("decide/cases/not_seen.yaml")
def test_unseen_parts_are_decided_as_in_the_table(row: dict[str, Any]) -> None:
    (result,) = decide_line(row)
    reasons = " ".join([result.reason or "", *(verdict.reason for verdict in result.verdicts)])
    assert (result.outcome, reasons) == (row["outcome"], reasons)
    assert row.get("reason", "") in reasons
    assert "code" not in row or result.code == row["code"]


@rows("decide/cases/not_seen.yaml")
def test_each_record_is_decided_alike_one_by_one_and_as_a_stored_evidence(row: dict[str, Any]) -> None:
    for record in records_of(line_of(row)):
        if record.evidence is None:
            continue
        stored = msgspec.json.decode(msgspec.json.encode(record.evidence), type=Evidence)
        for evidence in (record.evidence, stored):
            assert proctor.check(suite_of(row), evidence).cases[0].outcome == row["outcome"]
