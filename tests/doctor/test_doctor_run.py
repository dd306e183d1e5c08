"""An examination is a run: stored, compared, gated and written in every format."""

from __future__ import annotations

import functools
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import msgspec
import pytest

import proctor
from proctor.actions.doctor import examination
from proctor.actions.doctor.examination import LOCKED, describe_findings, make_suite
from proctor.checks.registry import collect
from proctor.checks.run import server_conforms
from proctor.cli.main import run
from proctor.doctor.examine import Options
from proctor.doctor.model import Examination, Examined, Finding, Message
from proctor.evidence.reading import read_document
from proctor.store.files.run_files import RunFiles
from tests.doctor.servers import SCRIPT, settings_of
from tests.tables import rows

QUICK = ["--profile", "mcp-2025-11-25", "--no-color", "--timeout", "2", "--only", "lifecycle", "--only", "tools"]
REGISTRY = collect([server_conforms])
pytestmark = pytest.mark.timeout(30)


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # The template server answers at once, so silence needs no long wait.
    monkeypatch.setattr(examination, "Options", functools.partial(Options, quiet_s=0.06))
    serve(tmp_path)
    return tmp_path


def serve(folder: Path, *defect: str) -> None:
    """Declare the server `shop`, with a defect."""
    arguments = ["-S", str(SCRIPT), *(["--defect", *defect] if defect else [])]
    server = json.dumps({"command": sys.executable, "args": arguments})
    (folder / "proctor.yaml").write_text(f"targets:\n  agent:\n    type: mcp_agent\n    model: m\n    servers: {{shop: {server}}}\n")


@rows("doctor/cases/verdicts.yaml")
def test_findings_become_one_verdict(row: dict[str, Any]) -> None:
    spec = msgspec.convert({"rule": "ping"}, REGISTRY.get("server_conforms").spec)
    metadata = {} if row["given"] is None else {"findings": row["given"]}
    verdict = REGISTRY.prepare("server_conforms", spec)(read_document({"text": "x", "metadata": metadata}, format="plain")[0])
    assert (verdict.outcome, verdict.code) == (row["expect"], row.get("code")), verdict.reason
    assert row.get("reason", "") in verdict.reason


def test_the_cases_depend_on_the_options_alone() -> None:
    suite = make_suite(settings_of(), Options())
    assert suite.name == "doctor template" and {case.tags["level"] for case in suite.cases} == {"MUST", "SHOULD", "MAY"}
    assert all(case.description.startswith("https://modelcontextprotocol.io/") for case in suite.cases)
    assert {case.tags["area"] for case in make_suite(settings_of(), Options(areas=("tools",))).cases} == {"tools"}
    assert "expected-failures" in {case.id for case in make_suite(settings_of(), Options(expected=("ping",))).cases}


def test_messages_and_expected_failures_are_in_the_evidence() -> None:
    message = Message(number=7, direction="received", text="{}", http="HTTP 500")
    finding = Finding(check="ping", area="lifecycle", level="MUST", verdict="fail", reason="no answer", evidence=(message,))
    part = Examined(revision="2025-11-25", profile="p", findings=(finding,), score=0, incomplete=False)
    found = Examination(target="t", transport="stdio", examined=(part,), expected=("ping@2025-11-25",))
    evidence = describe_findings(found, "ping")
    assert evidence.text == "2025-11-25: fail: no answer\n  received #7: HTTP 500 {}"
    (row,) = evidence.metadata["findings"]
    assert row["expected"] is True and row["revision"] == "2025-11-25"


def test_definitions_that_could_not_be_read_are_not_as_locked() -> None:
    finding = Finding(check="ping", area="lifecycle", level="MUST", verdict="could_not_run", reason="gone")
    part = Examined(revision="2025-11-25", profile="p", findings=(finding,), score=0, incomplete=True)
    (row,) = describe_findings(Examination(target="t", transport="stdio", examined=(part,)), LOCKED).metadata["findings"]
    assert row["verdict"] == "could_not_run"


def test_an_examination_writes_every_format_and_is_stored(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [flag for name in ("junit", "sarif", "html", "json") for flag in (f"--{name}", f"doctor.{name}")]
    serve(workspace, "ping")
    assert run(["doctor", "shop", *QUICK, *files, "--name", "first", "--tag", "ci"]) == 1
    shown = capsys.readouterr()
    assert "✗ FAILED  1 check failed" in shown.out and "stored in" in shown.err
    suite = ElementTree.fromstring((workspace / "doctor.junit").read_text())
    assert [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None] == ["ping"]
    sarif = json.loads((workspace / "doctor.sarif").read_text())["runs"][0]
    (result,) = sarif["results"]
    assert (result["ruleId"], result["level"]) == ("ping", "error")
    assert result["locations"][0]["physicalLocation"] == {"artifactLocation": {"uri": "mcp-lock.json"}, "region": {"startLine": 1}}
    assert sarif["tool"]["driver"]["rules"][0]["helpUri"].startswith("https://modelcontextprotocol.io/specification/2025-11-25/")
    document = json.loads((workspace / "doctor.json").read_text())
    assert document["schema"] == "proctor.result/1" and document["counts"]["fail"] == 1
    assert document["examination"]["examined"][0]["score"] < 95
    assert "doctor shop" in (workspace / "doctor.html").read_text()
    stored = RunFiles(workspace / ".proctor").open("@doctor")
    assert stored.header.name == "first" and set(stored.header.tags) == {"ci", "doctor"} and stored.header.suite_name == "doctor shop"
    assert run(["report", "first", "--format", "sarif", "--output", "again.sarif", "--quiet"]) == 0
    assert json.loads((workspace / "again.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "ping"
    assert run(["recheck", "first", "--quiet"]) == 1, "the stored evidence decides again"


def test_a_baseline_lets_known_violations_through_and_no_new_ones(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serve(workspace, "ping")
    assert run(["doctor", "shop", *QUICK, "--quiet"]) == 1
    assert run(["baseline", "set", "latest"]) == 0
    gate = ["--fail-on", "new-failure", "--quiet"]
    assert run(["doctor", "shop", *QUICK, *gate]) == 0
    assert "ping" in capsys.readouterr().err
    serve(workspace, "tools-input-schema")
    assert run(["doctor", "shop", *QUICK, *gate]) == 1
    assert "tools-input-schema" in capsys.readouterr().err


def test_a_check_that_could_not_run_makes_the_run_an_error(workspace: Path) -> None:
    serve(workspace, "stdio-stays")
    assert run(["doctor", "shop", *QUICK[:5], "--only", "tools", "--quiet"]) == 2
    assert any(entry.outcome == "error" for entry in RunFiles(workspace / ".proctor").open("latest").entries())


def test_a_comparison_of_examinations_names_the_changed_server(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "shop", *QUICK, "--quiet"]) == 0
    serve(workspace, "parameter-choice")
    assert run(["doctor", "shop", *QUICK, "--quiet"]) == 0
    capsys.readouterr()
    run(["compare", "previous", "latest", "--no-color"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "the server shop changed: tool `find_order` has a new parameter `action`" in shown
    assert "run every case" not in shown, "an examination has no chance in it"


def test_an_interrupted_examination_is_finished_by_its_id(workspace: Path) -> None:
    assert run(["doctor", "shop", *QUICK, "--quiet"]) == 0
    folder = RunFiles(workspace / ".proctor").open("latest").folder
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:3]))
    (folder / "ended.json").unlink()
    assert run(["doctor", "shop", *QUICK, "--quiet", "--resume", folder.name]) == 0
    assert len((folder / "results.jsonl").read_text().splitlines()) == len(lines)
    assert run(["doctor", "shop", *QUICK, "--quiet", "--only", "errors", "--resume", folder.name]) == 4, "another suite"


def test_python_stores_the_run_and_names_it(workspace: Path) -> None:
    found = proctor.examine_server("shop", profiles=["mcp-2025-11-25"], areas=["lifecycle"], tags=["nightly"])
    stored = RunFiles(workspace / ".proctor").open("@nightly")
    assert found.run_id == stored.header.run_id
    assert not proctor.examine_server("shop", areas=["lifecycle"], store=False).run_id
