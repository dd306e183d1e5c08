"""Cases stored as bytes: they are restored unchanged, and their rows are read once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from proctor.formats.native import rows as native_rows
from proctor.formats.native.rows import CaseBytes
from proctor.model.case import SimulatedUser
from tests.formats.test_cases_from_data import load

PROMPTFOO_ROWS = "question,__expected,__expected2,__threshold\n" + "".join(
    f"Where is order {n}?,contains:order {n},{('regex:[0-9]+', 'latency:100', 'a text', 'cost:1.0')[n % 4]},{('', '0.5', '1')[n % 3]}\n"
    for n in range(12)
)
NATIVE_ROWS = "".join(
    json.dumps({"id": f"n{n}", "tags": {"n": [n, n / 2]}, "repeat": 2, "expect": [{"response_contains": str(n)}, "no_tool_errors"], **more})
    + "\n"
    for n, more in enumerate(({"input": "Hi"}, {"user": {"script": [{"say": "Hi"}]}}, {"turns": [{"input": "Hi"}]}))
)


@pytest.mark.parametrize(
    ("file", "text", "as_rows"), [("rows.csv", PROMPTFOO_ROWS, 0), ("rows.jsonl", NATIVE_ROWS, 1)], ids=["promptfoo", "native"]
)
def test_a_slow_row_is_read_once_for_any_number_of_uses(
    file: str, text: str, as_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"cases": {"from": file}}
    held = load(tmp_path, document, **{file.replace(".", "_"): text})
    reads: Counter[str] = Counter()
    read_case = native_rows.RowMaker._read_case  # type: ignore[reportPrivateUsage]

    def count(self: Any, row: Any, *more: Any) -> Any:
        reads[str(row.origin.line)] += 1
        return read_case(self, row, *more)

    monkeypatch.setattr(native_rows.RowMaker, "_read_case", count)
    monkeypatch.setattr(native_rows, "HELD", 0)
    lazy = load(tmp_path, document)
    monkeypatch.setattr(lazy.cases, "_remember", 1)
    for _ in range(3):
        again = tuple(lazy.cases)
        assert again == held.cases and repr(again) == repr(held.cases)
    # A simulated user may hold claims without declared types, so the case is built from its row.
    assert sum(times > 1 for times in reads.values()) == as_rows and len(reads) == len(held.cases)


def test_a_case_that_would_change_is_not_encoded() -> None:
    spec = proctor.parse_suite('proctor: 1\ncases: [{id: a, input: hi, expect: [{response_contains: "x"}]}]').cases[0]
    cases = CaseBytes()
    found = cases.encode(spec)
    assert found is not None and cases.decode(found) == spec
    unlike = ({"tags": {"a": (1, 2)}}, {"pass_threshold": 1}, {"context": {"n": 2**70}}, {"name": "\ud800"}, {"user": SimulatedUser()})
    for fields in unlike:
        assert cases.encode(msgspec.structs.replace(spec, **fields)) is None, fields
