"""`proctor view`: the same screens over the runs of a folder, for local users only."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from proctor.actions.history.compare import compare
from proctor.actions.history.compare_several import join_comparisons
from proctor.actions.workspace.run_history import open_run
from proctor.model.run import RunEntry, RunHeader
from proctor.pages.folder_source import FolderSource, compare_folders
from proctor.rest.view import make_view_app
from tests.pages.markup import Markup
from tests.pages.world import BAD, GOOD, SUITE, decide_all

RUNS = "/ui/p/local/runs"
RUN = "20261116-090000-b"


def keep(home: Path, id: str, entries: list[RunEntry], *, ended: str | None = "completed", planned: int | None = None) -> None:
    """A run as `proctor run` leaves it."""
    folder = home / "runs" / id
    folder.mkdir(parents=True)
    header = RunHeader(run_id=id, started_at=f"{id[:4]}-{id[4:6]}-{id[6:8]}T09:00:00Z", suite_name="shop", target="app", planned=planned)
    (folder / "run.json").write_bytes(msgspec.json.encode(header))
    (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "results.jsonl").write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
    if ended is not None:
        (folder / "ended.json").write_text(json.dumps({"ended": ended}), encoding="utf-8")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("shop") / ".proctor"
    keep(home, "20261115-090000-a", decide_all(GOOD), planned=3)
    keep(home, "20261116-090000-b", decide_all(BAD), planned=3)
    keep(home, "20261116-100000-c", decide_all(GOOD)[:2], ended="interrupted", planned=3)
    keep(home, "20261116-110000-d", [])
    (home / "runs/20261116-110000-d/results.jsonl").write_text("no json\n", encoding="utf-8")
    return TestClient(make_view_app(home), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


@pytest.mark.parametrize(
    ("path", "sentences"),
    [
        ("/ui/", ["Latest runs", "shop"]),
        (RUNS, ["Select 2 to 6 runs.", "failed", "passed", "cancelled", "failed to finish"]),
        (f"{RUNS}/20261116-090000-b", ["2 failed", "Failures", "2 reasons", "Compare with previous run"]),
        (f"{RUNS}/20261116-090000-b?q=DO+not+know", ["opening-hours"]),
        (f"{RUNS}/20261116-090000-b?q=nowhere+at+all", ["No matching attempts."]),
        (f"{RUNS}/20261116-100000-c", ["cancelled", "Incomplete: 2 of 3 attempts"]),
        (f"{RUNS}/20261116-090000-b/r/0", ["refund-twice", "order 71 was paid once"]),
        ("/ui/p/local/compare?runs=20261115-090000-a,20261116-090000-b", ["Newly failing 2", "opening-hours"]),
        (
            "/ui/p/local/compare?runs=20261115-090000-a,20261116-090000-b,20261116-100000-c",
            ["3 runs of", "is incomplete"],
        ),
        ("/ui/p/local/compare/answers?runs=20261115-090000-a,20261116-090000-b&case=opening-hours", ["I do not know.", "Attempt 1"]),
    ],
)
def test_a_screen_shows_what_the_folder_has(client: TestClient, path: str, sentences: list[str]) -> None:
    answer = client.get(path)
    page = Markup(answer.text)
    assert answer.status_code == 200 and page.problems == []
    for sentence in sentences:
        assert sentence in page.words, page.words
    assert "Log out" not in page.words and "/api/" not in answer.text


def test_an_unreadable_run_shows_why(client: TestClient) -> None:
    answer = client.get(f"{RUNS}/20261116-110000-d")
    assert answer.status_code == 200 and "d/results.jsonl:1: a broken entry" in answer.text


@pytest.mark.parametrize(
    "path", [f"{RUNS}/nothing", f"{RUNS}/latest", f"{RUNS}/..%2F..%2Fetc", f"{RUNS}/20261116-090000-b/r/99", "/ui/p/other", "/ui/login"]
)
def test_unknown_ids_are_not_found(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 and "Page not found" in answer.text


def test_only_this_machine_under_its_own_name_is_answered(client: TestClient) -> None:
    assert client.get("/ui/", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/ui/", headers={"origin": "https://evil.example"}).status_code == 403


def test_nothing_can_be_changed(client: TestClient) -> None:
    answer = client.post(f"{RUNS}/20261116-090000-b/cancel", data={"proof": "x"})
    assert answer.status_code == 403


def make_client(home: Path) -> TestClient:
    return TestClient(make_view_app(home), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)


def make_many(count: int) -> list[RunEntry]:
    """Many attempts of the three cases, those that ended late last."""
    decided = decide_all(BAD)
    return [
        msgspec.structs.replace(decided[number % 3], attempt=number // 3, duration_ms=float(number), reason=f"attempt number {number}")
        for number in range(count)
    ]


def test_a_broken_line_costs_itself(tmp_path: Path) -> None:
    keep(tmp_path, RUN, decide_all(BAD), planned=3)
    log = tmp_path / f"runs/{RUN}/results.jsonl"
    first, second, third = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(first + second[:40] + b"\n" + third)
    client = make_client(tmp_path)
    answer = client.get(f"{RUNS}/{RUN}")
    assert answer.status_code == 200 and f"{RUN}/results.jsonl:2: a broken entry" in answer.text
    assert [row for row in ("0", "1", "2") if f'<tr id="{row}"' in answer.text] == ["0", "2"]
    assert [client.get(f"{RUNS}/{RUN}/r/{number}").status_code for number in range(3)] == [200, 404, 200]
    assert "failed to finish" in client.get(RUNS).text


def test_a_run_is_followed_while_it_is_written(tmp_path: Path) -> None:
    entries = decide_all(GOOD)
    keep(tmp_path, RUN, entries[:1], ended=None, planned=3)
    client = make_client(tmp_path)
    log = tmp_path / f"runs/{RUN}/results.jsonl"
    line = msgspec.json.encode(entries[1]) + b"\n"
    seen: list[int] = []
    for added in (b"", line[:30], line[30:], msgspec.json.encode(entries[2]) + b"\n"):
        with log.open("ab") as file:
            file.write(added)
        seen.append(client.get(f"{RUNS}/{RUN}/rows?position=0").text.count("<tr id="))
    assert seen == [1, 1, 2, 3]
    log.write_bytes(line)
    assert client.get(f"{RUNS}/{RUN}/rows?position=0").text.count("<tr id=") == 1


def test_a_page_in_the_middle_reads_its_own_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, RUN, make_many(600), planned=600)
    client = make_client(tmp_path)
    assert client.get(f"{RUNS}/{RUN}").status_code == 200
    reads: list[int] = []
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: reads.append(at) or read(file, size, at))
    answer = client.get(f"{RUNS}/{RUN}/rows?position=300")
    assert answer.text.count("<tr id=") == 50 and "attempt number 299" in answer.text and "attempt number 250" in answer.text
    assert len(reads) == 50
    reads.clear()
    assert "attempt number 7<" in client.get(f"{RUNS}/{RUN}/rows?position=550").text
    failed = client.get(f"{RUNS}/{RUN}?outcome=fail&position=350")
    assert failed.text.count("<tr id=") == 50 and len(reads) == 100, "groups and latency are remembered"


@pytest.mark.parametrize(
    ("entries", "threshold", "outcome"),
    [
        (decide_all(GOOD), "", "pass"),
        (decide_all(BAD), "", "fail"),
        (decide_all(GOOD)[:2], "", "error"),
        ([*decide_all(GOOD)[:2], decide_all(GOOD)[0]], "", "error"),
        ([msgspec.structs.replace(entry, outcome="skip") for entry in decide_all(GOOD)], "", "skip"),
        ([msgspec.structs.replace(entry, outcome="error") for entry in decide_all(GOOD)], "", "error"),
        ([*decide_all(GOOD), *(msgspec.structs.replace(entry, attempt=1) for entry in decide_all(BAD))], "pass_rate: 0.5", "pass"),
    ],
    ids=["passes", "fails", "incomplete", "one twice and one missing", "skipped", "broke", "often enough"],
)
def test_the_outcome_is_the_one_that_show_prints(tmp_path: Path, entries: list[RunEntry], threshold: str, outcome: str) -> None:
    keep(tmp_path, RUN, entries, planned=max(3, len(entries)))
    suite = tmp_path / f"runs/{RUN}/suite.yaml"
    if threshold:
        suite.write_text(re.sub(r"(?m)^(\s+)- id: .*$", rf"\g<0>\n\1  repeat: 2\n\1  {threshold}", SUITE), encoding="utf-8")
    assert asyncio.run(FolderSource(tmp_path).get_run(RUN))["outcome"] == open_run(tmp_path, RUN)[0].outcome == outcome


def test_runs_are_compared_as_the_command_compares_them(tmp_path: Path) -> None:
    others = ["20261115-090000-a", RUN]
    keep(tmp_path, others[0], decide_all(GOOD), planned=3)
    keep(tmp_path, others[1], decide_all(BAD)[:2], planned=3)
    runs = FolderSource(tmp_path)
    indexed = [runs.open_indexed(id) for id in others]
    found = compare_folders(indexed)
    assert found == join_comparisons([compare(tmp_path, *others)])
    assert compare_folders(indexed).comparisons[0].found is found.comparisons[0].found, "remembered"


def test_the_suite_of_a_stored_run_is_measured(client: Any) -> None:
    shown = client.get("/ui/p/local/runs/20261115-090000-a/mutation")
    assert shown.status_code == 200
    assert " detected</p>" in shown.text and "Claims to add" in shown.text
