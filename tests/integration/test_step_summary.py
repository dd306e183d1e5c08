"""On GitHub every deciding command writes a job summary and never fails because of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.run.test_live_commands import place
from tests.integration.running import proctor

__all__ = ["place"]

SUITE = """\
proctor: 1
name: Summed up
cases:
  - {id: good, input: hi, expect: [response_contains: hello]}
  - {id: bad, input: hi, expect: [response_contains: "@everyone goodbye"]}
"""


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    return tmp_path / "summary.md"


def recorded(folder: Path, count: int = 1) -> tuple[Path, Path]:
    suite, evidence = folder / "summed.yaml", folder / "evidence.jsonl"
    suite.write_text(SUITE)
    lines = [{"case": case, "text": "hello"} for _ in range(count) for case in ("good", "bad")]
    evidence.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return suite, evidence


@pytest.mark.parametrize("format", ["terminal", "json", "jsonl", "junit"])
def test_a_check_is_summed_up_whatever_it_prints(tmp_path: Path, github: Path, format: str) -> None:
    github.write_text("# before\n")
    done = proctor("check", *recorded(tmp_path), "--format", format, "--quiet", summary=github)
    text = github.read_text()
    assert done.code == 1
    assert text.startswith("# before\n## ❌ Summed up: 1 failed, 1 passed")
    assert "| ❌ | `bad` |" in text and "| ✅ | `good` |" in text and "### Failures" in text
    assert "@everyone" not in text.split("### Failures")[0], "no one is notified"
    assert "##" not in done.out or format == "markdown"


def test_all_failures_are_counted_and_some_are_listed(tmp_path: Path, github: Path) -> None:
    done = proctor("check", *recorded(tmp_path, 300), "--quiet", summary=github)
    text = github.read_text()
    assert done.code == 1 and "300 failed, 300 passed" in text
    assert "… and 280 more that did not pass." in text
    assert len(text) < 65_536


@pytest.mark.parametrize(("actions", "file"), [("", True), ("false", True), ("true", False)])
def test_elsewhere_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, actions: str, file: bool) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", actions)
    summary = tmp_path / "summary.md"
    assert proctor("check", *recorded(tmp_path), "--quiet", summary=summary if file else "").code == 1
    assert not summary.exists()


@pytest.mark.parametrize("where", ["no/such/folder/summary.md", "."])
def test_a_summary_that_cannot_be_written_warns_and_changes_nothing(tmp_path: Path, github: Path, where: str) -> None:
    suite, evidence = recorded(tmp_path)
    done = proctor("check", suite, evidence, "-k", "good", "--quiet", summary=tmp_path / where)
    assert done.code == 0
    assert done.err.startswith("warning: the job summary ") and done.err.count("\n") == 1
    assert proctor("check", suite, evidence, "--quiet", summary=tmp_path / where).code == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_a_warning(tmp_path: Path, github: Path) -> None:
    done = proctor("check", *recorded(tmp_path), "-k", "good", "--quiet", summary="/dev/full")
    assert (done.code, "No space left on device" in done.err) == (0, True)


def test_output_to_the_summary_is_not_repeated(tmp_path: Path, github: Path) -> None:
    suite, evidence = recorded(tmp_path)
    command = [sys.executable, "-m", "proctor", "check", str(suite), str(evidence), "--format", "markdown", "--quiet"]
    environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(github)}
    with github.open("ab") as file:
        assert subprocess.run(command, stdout=file, env=environment, check=False).returncode == 1
    assert github.read_text().count("Summed up") == 1


def test_runs_rechecks_and_comparisons_are_summed_up(place: Path, github: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proctor("run", "suite.yaml", "-n", "3", "--quiet", summary=github).code == 0
    assert "## ✅ Live: 30 passed" in github.read_text()
    base = json.loads(proctor("show", "latest", "--format", "json").out)["run_id"]
    monkeypatch.setenv("AGENT_FAILS", "1")
    github.unlink()
    run = proctor("run", "suite.yaml", "-n", "3", "--quiet", summary=github)
    assert run.code == 1 and "| ❌ | `c7` |" in github.read_text() and "::error" in run.err
    github.unlink()
    assert proctor("recheck", "latest", "--quiet", summary=github).code == 1
    assert "3 failed, 27 passed" in github.read_text()
    github.unlink()
    assert proctor("compare", base, "latest", "--fail-on", "new-failure", summary=github).code == 1
    text = github.read_text()
    assert (
        "Live: " in text
        and "### Newly failing (1)\n" in text
        and "| `c7` | 3/3 → 0/3 | response_contains" in text
        and "| pass rate over 10 cases | 100.0% | 90.0% |" in text
    )
    assert proctor("compare", base, "latest", "--format", "markdown").out.strip() == text.strip()
    assert proctor("compare", base, "latest", "--fail-on", "new-failure", summary=place / "no" / "where").code == 1
