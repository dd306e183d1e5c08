"""A batch with custom checks: changes to their code and imports invalidate results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import proctor
from proctor.batches.run import BatchOptions, run_batch
from proctor.errors import InputError
from proctor.processes.executor import Done, Work
from tests.batches.batch_world import InlineExecutor, evaluate, make_trace, write_lines, write_suite

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
    # A worker that outlives a batch has the old code, whatever the file contains.
    with pytest.raises(InputError, match=r"own_batch_limits.py has changed since it was imported .*; start the workers again"):
        evaluate(suite, [data], tmp_path / "out")
    for name in [name for name in sys.modules if "own_batch" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("proctor.batches.suite_identity._LOADED", {})
    monkeypatch.setattr("proctor.sources.check_files._LOADED", {})
    summary, evaluated = evaluate(suite, [data], tmp_path / "out", resume=True)
    assert (summary.has_passed, evaluated) == (False, 1)


def test_workers_with_other_own_checks_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like another machine whose folder has last week's checks."""
    for name, limit in (("here", 1), ("there", 1000)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "proctor.yaml").write_text("checks: own_limit.py\n")
        text = f"import proctor\n\n\n@proctor.check\ndef short_enough(evidence):\n    return len(evidence.text) <= {limit}\n"
        (folder / "own_limit.py").write_text(text)
    data, suite = write_lines(tmp_path / "a.jsonl", [make_trace(1)]), write_suite(tmp_path, text=SUITE)
    monkeypatch.chdir(tmp_path / "here")
    loaded = proctor.load_suite(suite)

    class Elsewhere(InlineExecutor):
        def map(self, work: Work, tasks: Sequence[bytes]) -> Iterator[Done]:
            monkeypatch.chdir(tmp_path / "there")
            return super().map(work, tasks)

    with pytest.raises(InputError, match=r"own_limit.py, which checks of your own are made of, is not the same where work is done"):
        run_batch(loaded, BatchOptions(places=(str(data),), output=tmp_path / "out"), Elsewhere())
    assert not list((tmp_path / "out").rglob("*.parquet"))
