"""A batch whose suite has checks of the user: what they are made of decides which results still stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batches.batch_world import evaluate, make_trace, write_lines, write_suite

CHECKS = """\
import proctor
import {helper}


@proctor.check
def short_enough(evidence: proctor.Evidence):
    return len(evidence.text) <= {helper}.find_limit()
"""
SUITE = "proctor: 1\nname: Shop\ncases:\n  - {id: short, expect: {short_enough: {}}}\n"


def test_a_file_that_own_checks_import_decides_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("proctor.yaml").write_text("checks: own_batch_checks.py\n")
    Path("own_batch_checks.py").write_text(CHECKS.replace("{helper}", "own_batch_helper"))
    Path("own_batch_helper.py").write_text("from own_batch_limits import LIMIT\n\n\ndef find_limit() -> int:\n    return LIMIT.most\n")
    limits = "class Limit:\n    most = {}\n\n\nLIMIT = Limit()\n"
    Path("own_batch_limits.py").write_text(limits.format(1000))
    data, suite = write_lines(tmp_path / "a.jsonl", [make_trace(1)]), write_suite(tmp_path, text=SUITE)
    summary, evaluated = evaluate(suite, [data], tmp_path / "out")
    assert (summary.has_passed, evaluated) == (True, 1)
    assert evaluate(suite, [data], tmp_path / "out")[1] == 0
    Path("own_batch_limits.py").write_text(limits.format(1))
    assert evaluate(suite, [data], tmp_path / "out")[1] == 1
