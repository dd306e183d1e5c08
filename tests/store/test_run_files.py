from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.errors import StoreError
from proctor.model.evidence import Evidence, ToolCall
from proctor.model.run import RunEntry, RunHeader
from proctor.model.verdict import failed, passed
from proctor.store.files.run_files import ENDED, RESULTS, SUITE, RunFiles

HEADER = RunHeader(run_id="20261115-090000-abc", started_at="2026-11-15T09:00:00Z", suite_name="s")


def entry(case: str, attempt: int = 0) -> RunEntry:
    evidence = Evidence(text="hi", tool_calls=(ToolCall(name="search", arguments={"q": "ü"}, result={"n": 1}),))
    return RunEntry(case=case, attempt=attempt, outcome="pass", score=1.0, verdicts=(passed("yes"), failed("no")), evidence=evidence)


def test_stored_entries_are_read_again(tmp_path: Path) -> None:
    run = RunFiles(tmp_path).create(HEADER)

    async def append() -> None:
        await asyncio.gather(*(run.append(entry(f"c{number}")) for number in range(50)))

    asyncio.run(append())
    assert run.read_end() is None
    run.close("completed")
    again = RunFiles(tmp_path).open("20261115")
    assert again.header == HEADER
    assert sorted(stored.case for stored in again.entries()) == sorted(f"c{number}" for number in range(50))
    assert next(again.entries()).evidence == entry("c0").evidence
    assert again.read_end() == "completed"


def test_a_half_written_entry_is_dropped_and_writing_continues_after_the_last_whole_one(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    run = files.create(HEADER)
    asyncio.run(run.append(entry("a")))
    run.release()
    path = run.folder / RESULTS
    path.write_bytes(path.read_bytes() + b'{"case": "b", "outco')
    assert [stored.case for stored in files.open("latest").entries()] == ["a"]
    resumed = files.open("latest", writing=True)
    asyncio.run(resumed.append(entry("c")))
    resumed.close("completed")
    assert [stored.case for stored in files.open("latest").entries()] == ["a", "c"]


def test_a_run_that_is_being_written_is_locked(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    run = files.create(HEADER)
    script = "import sys, pathlib; from proctor.store.files.run_files import RunFiles\n"
    script += "RunFiles(pathlib.Path(sys.argv[1])).open('latest', writing=True)"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert "is being written by another process" in done.stderr
    run.close("completed")


def test_a_full_disk_is_reported_and_no_half_entry_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFiles(tmp_path).create(HEADER)
    asyncio.run(run.append(entry("a")))
    real = __import__("os").write

    def full(file: int, data: bytes) -> int:
        real(file, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("proctor.store.files.run_files.os.write", full)
    with pytest.raises(StoreError, match="No space left on device"):
        asyncio.run(run.append(entry("b")))
    monkeypatch.undo()
    asyncio.run(run.append(entry("c")))
    run.close("completed")
    assert [stored.case for stored in run.entries()] == ["a", "c"]


def test_runs_are_found_by_id_beginning_and_latest(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    for run_id in ("20261115-090000-a", "20261115-090000-b", "20261116-090000-c"):
        files.create(RunHeader(run_id=run_id, started_at="x")).close("completed")
    assert files.open("latest").header.run_id == "20261116-090000-c"
    assert files.open("20261116").header.run_id == "20261116-090000-c"
    with pytest.raises(StoreError, match="could be any of"):
        files.open("20261115")
    with pytest.raises(StoreError, match="no run 'nope'; there are"):
        files.open("nope")
    with pytest.raises(StoreError, match="already"):
        files.create(RunHeader(run_id="20261116-090000-c", started_at="x"))
    with pytest.raises(StoreError, match="there are no runs"):
        RunFiles(tmp_path / "empty").open("latest")


def test_accepted_entries_are_written_even_if_no_caller_waits(tmp_path: Path) -> None:
    run = RunFiles(tmp_path).create(HEADER)

    async def hand_over_and_leave() -> None:
        tasks = [asyncio.create_task(run.append(entry(f"c{number}"))) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await run.append(entry("last"))

    asyncio.run(hand_over_and_leave())
    run.close("completed")
    assert {stored.case for stored in run.entries()} == {*(f"c{number}" for number in range(20)), "last"}


def test_pending_entries_are_written_when_the_run_is_closed(tmp_path: Path) -> None:
    run = RunFiles(tmp_path).create(HEADER)

    async def hand_in_and_close() -> None:
        task = asyncio.create_task(run.append(entry("a")))
        asyncio.get_running_loop().call_soon(run.release)  # before the loop gets round to handing anything over
        await asyncio.wait_for(task, 5)

    asyncio.run(hand_in_and_close())
    assert [stored.case for stored in run.entries()] == ["a"]


def test_nothing_follows_half_a_line_that_could_not_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFiles(tmp_path).create(HEADER)
    real = __import__("os").write

    def full(file: int, data: bytes) -> int:
        real(file, data[:10])
        raise OSError(28, "No space left on device")

    def refused(file: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("proctor.store.files.run_files.os.write", full)
    monkeypatch.setattr("proctor.store.files.run_files.os.ftruncate", refused)
    with pytest.raises(StoreError, match="No space left on device"):
        asyncio.run(run.append(entry("a")))
    monkeypatch.undo()
    with pytest.raises(StoreError, match="No space left on device"):
        asyncio.run(run.append(entry("b")))
    run.release()
    assert list(run.entries()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFO")
@pytest.mark.parametrize("name", [RESULTS, SUITE, ENDED, "run.json"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_file_of_a_run_that_is_no_regular_file_is_not_opened(tmp_path: Path, name: str, kind: str) -> None:
    """A run folder may be foreign: a link would expose other files, and reading a FIFO would block."""
    files = RunFiles(tmp_path)
    run = files.create(HEADER)
    asyncio.run(run.append(entry("a")))
    run.close("completed")
    path = run.folder / name
    elsewhere = tmp_path / "elsewhere"
    path.replace(elsewhere)
    if kind == "link":
        path.symlink_to(elsewhere)
    else:
        os.mkfifo(path)
    problems: list[str] = []
    for look in (lambda: list(files.open(HEADER.run_id).entries()), lambda: files.open(HEADER.run_id).suite_text()):
        try:
            look()
        except StoreError as error:
            problems.append(str(error))
    assert problems or files.open(HEADER.run_id).read_end() is None
