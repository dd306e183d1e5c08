"""Verdicts for files of promptfoo, compared with promptfoo's own verdict for every row.

`data/promptfoo-verdicts.json` was recorded with `PROMPTFOO=... python -m benchmarks.promptfoo FILE PROMPT`; `make bench` compares both
again if promptfoo is installed.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import proctor
from tests.tables import rows

DATA = Path(__file__).parent / "data"


@rows("formats/cases/promptfoo_files.yaml")
def test_every_row_is_decided_as_in_promptfoo(row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DATA / row["file"]).read_text(encoding="utf-8")
    Path("rows.csv").write_text(text, encoding="utf-8", newline="")
    Path("proctor.yaml").write_text("prices: {echo: {input: 1, output: 1, currency: USD}}\n", encoding="utf-8")
    suite = {"proctor": 1, "cases": {"from": "rows.csv", "prompt": row["prompt"]}}
    Path("suite.yaml").write_text(yaml.safe_dump(suite), encoding="utf-8")
    loaded = proctor.load_suite("suite.yaml")
    # The agent repeats its input, as `echo` of promptfoo does.
    cost = {"model": "echo", "usage": {"input_tokens": 0, "output_tokens": 0}, "duration_ms": 1}
    evidence = [{"case": case.id, "text": case.input, **cost} for case in loaded.cases]
    ours = [result.outcome == "pass" for result in proctor.check(loaded, evidence).cases]
    recorded = json.loads((DATA / "promptfoo-verdicts.json").read_text(encoding="utf-8"))
    theirs = recorded["files"][row["file"]]
    cells = list(csv.reader(text.splitlines(keepends=True)))[1:]
    differ = {number: cells[number - 1] for number, (one, other) in enumerate(zip(ours, theirs, strict=True), 1) if one != other}
    assert sorted(differ) == sorted(row.get("differ", {})), differ
    # A metric without a counterpart fails: no row passes here that fails there.
    assert not any(ours[number - 1] for number in differ)
