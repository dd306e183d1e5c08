"""Recorded evidence as a run that can be looked at."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from proctor.actions.checking.view_evidence import RUN_ID, EvidenceRun
from proctor.actions.workspace.suites import parse_suite
from proctor.errors import InputError
from proctor.rest.view import make_view_app
from proctor.store.files.run_files import RunFiles
from tests.pages.markup import Markup

RUN = f"/ui/p/local/runs/{RUN_ID}"
SUITE = "proctor: 1\nname: greetings\ncases:\n  - {id: a, expect: [response_contains: hello]}\n"


def write(folder: Path, **files: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name, records in files.items():
        lines = "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder


def look(run: EvidenceRun, path: str) -> str:
    client = TestClient(make_view_app(run.home), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    page = Markup(answer.text)
    assert page.problems == []
    return page.words


def test_every_record_can_be_viewed(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "traces", one=[{"case": "a", "text": "hello", "tool_calls": [{"name": "search"}]}, {"text": "hi\ud800"}, "no json"]
    )
    run = EvidenceRun(folder, tmp_path / "shown" / ".proctor")
    assert run.refresh() is True
    words = look(run, RUN)
    assert "traces" in words and "one.jsonl:2" in words and "1 error" in words and "2 skipped" in words
    result = look(run, f"{RUN}/r/0")
    assert "tool search" in result and "hello" in result and "No assertions" in result


def test_evidence_in_a_folder_with_a_non_utf8_name_can_be_viewed(tmp_path: Path) -> None:
    run = EvidenceRun(write(tmp_path / os.fsdecode(b"l\xe4ufe"), one=[{"case": "a", "text": "hello"}]), tmp_path / "shown" / ".proctor")
    assert run.refresh() is True
    assert "l?ufe" in look(run, RUN)


def test_a_suite_decides_each_record_and_marks_its_evidence(tmp_path: Path) -> None:
    folder = write(tmp_path / "traces", one=[{"case": "a", "text": "well, hello"}, {"case": "a", "text": "good bye"}])
    run = EvidenceRun(folder, tmp_path / "shown" / ".proctor", parse_suite(SUITE))
    run.refresh()
    words = look(run, RUN)
    assert "1 failed" in words and "1 passed" in words
    assert "Found: hello" in look(run, f"{RUN}/r/0")


def test_evidence_written_while_viewing_is_shown(tmp_path: Path) -> None:
    folder = write(tmp_path / "traces", one=[{"case": "a", "text": "hello"}])
    run = EvidenceRun(folder, tmp_path / "shown" / ".proctor")
    assert (run.refresh(), run.refresh()) == (True, False)
    write(folder, two=[{"case": "b", "text": "later"}])
    assert run.refresh() is True
    assert "later" in look(run, f"{RUN}/r/1")


def test_there_is_always_one_run_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "traces", one=[{"case": "a", "text": "hello"}])
    run = EvidenceRun(folder, tmp_path / "shown" / ".proctor")
    run.refresh()
    seen: list[list[str]] = []

    def delete(path: Path, **options: Any) -> None:
        seen.append(RunFiles(run.home).list_ids())
        rmtree(path, **options)

    rmtree = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", delete)
    write(folder, two=[{"case": "b", "text": "later"}])
    run.refresh()
    assert seen and all(found == [RUN_ID] for found in seen)
    assert sorted(path.name for path in run.home.iterdir()) == ["runs"]


def test_a_folder_without_evidence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to read in"):
        EvidenceRun(write(tmp_path / "empty"), tmp_path / "shown" / ".proctor").refresh()
    with pytest.raises(InputError, match="neither runs nor evidence"):
        EvidenceRun(write(tmp_path / "blank", one=[]), tmp_path / "shown" / ".proctor").refresh()


def test_only_the_first_of_many_records_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.actions.checking.view_evidence.MOST_RECORDS", 3)
    folder = write(tmp_path / "traces", one=[{"case": f"c{number}", "text": "x"} for number in range(9)])
    run = EvidenceRun(folder, tmp_path / "shown" / ".proctor")
    run.refresh()
    assert "the first 3 records" in look(run, RUN)
