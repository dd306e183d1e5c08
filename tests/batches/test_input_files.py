"""Which files a batch reads: each once; unread files are reported."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from proctor.batches import output_store
from proctor.batches.run import BatchOptions, open_batch, run_batch
from proctor.errors import InputError
from proctor.formats.suites import read_suite
from proctor.sources.datasets import files as dataset_files
from proctor.sources.datasets.files import list_files
from tests.batches.batch_world import InlineExecutor, evaluate, make_trace, read_errors, write_lines, write_parquet, write_suite

SUFFIXES = "a batch reads files ending in .parquet, .jsonl, .ndjson, .jsonl.gz, .jsonl.zst"


def test_unread_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(Path("data/a.jsonl"), [make_trace(1)])
    for name in ("b.json", "c.json", "d.jsonl.bz2", "e.parquet.gz", "README.md", "_SUCCESS", ".a.jsonl.crc"):
        Path("data", name).write_text("{}")
    summary, _ = evaluate(write_suite(tmp_path), ["data"], tmp_path / "out")
    warning = f"4 files in the folders are not read: .json (2), .bz2 (1), .gz (1), for example data/b.json; {SUFFIXES}"
    assert summary.warnings == (warning,)
    # The warning is shown later and on resume, too.
    assert open_batch(tmp_path / "out").warnings == evaluate(tmp_path / "suite.yaml", ["data"], tmp_path / "out")[0].warnings == (warning,)


def test_links_to_files_are_followed_and_links_to_folders_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(Path("data/day1.jsonl"), [make_trace(1)])
    write_lines(Path("elsewhere/more.jsonl"), [make_trace(2)])
    os.symlink(tmp_path / "elsewhere", "data/more")
    os.symlink("day1.jsonl", "data/latest.jsonl")
    summary, _ = evaluate(write_suite(tmp_path), ["data"], tmp_path / "out")
    assert summary.traces == 1
    assert summary.warnings == (
        "1 file has two names and is read once: data/latest.jsonl is data/day1.jsonl",
        "1 link to a folder is not followed: data/more; name it as a place of its own",
    )


def test_a_link_to_nothing_is_a_row_of_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(Path("data/a.jsonl"), [make_trace(1)])
    os.symlink("nowhere.jsonl", "data/b.jsonl")
    summary, _ = evaluate(write_suite(tmp_path), ["data"], tmp_path / "out")
    assert (summary.traces, summary.errors, summary.has_passed) == (1, 1, False)
    assert [(row["file"], row["reason"]) for row in read_errors(tmp_path / "out")] == [
        ("data/b.jsonl", "it cannot be read: No such file or directory")
    ]


def test_a_folder_that_cannot_be_listed_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "data" / "a.jsonl", [make_trace(1)])
    (tmp_path / "data" / "closed").mkdir()
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"cannot list '.*closed': Permission denied"):
        list_files([str(tmp_path / "data")])


@pytest.mark.parametrize(
    "places", [["{0}/data", "file://{0}/data/a.jsonl"], ["file://{0}/data", "{0}/data/*.jsonl"], ["file://{0}/data"] * 2]
)
def test_a_file_that_is_named_twice_is_read_once(places: list[str], tmp_path: Path) -> None:
    write_lines(tmp_path / "data" / "a.jsonl", [make_trace(1)])
    summary, _ = evaluate(write_suite(tmp_path), [place.format(tmp_path) for place in places], tmp_path / "out")
    assert summary.traces == 1


def test_the_address_of_a_folder_of_this_machine_is_that_folder(tmp_path: Path) -> None:
    """It is made, locked by the system and no part of the data set, as under its path."""
    write_lines(tmp_path / "my data" / "a.jsonl", [make_trace(1)])
    suite = read_suite(write_suite(tmp_path).read_text())
    address = (tmp_path / "my data").as_uri()
    for _ in range(2):
        summary = run_batch(suite, BatchOptions(places=(address,), output=f"{address}/deep/out"), InlineExecutor())
        assert (summary.records, summary.traces) == (1, 1)
    assert open_batch(f"{address}/deep/out").traces == open_batch(tmp_path / "my data" / "deep" / "out").traces == 1
    with pytest.raises(InputError, match="file://other/data: expected a file of this machine: file:///data"):
        list_files(["file://other/data"])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store under `s3://bucket` that is a folder."""

    def open_store(address: str) -> tuple[Any, str]:
        return pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem()), address.partition("?")[0].removeprefix("s3://")

    monkeypatch.setattr(dataset_files, "open_store", open_store)
    return tmp_path / "bucket"


def test_objects_that_are_named_twice_are_read_once_and_the_output_is_no_data(store: Path) -> None:
    write_lines(store / "data" / "day=1" / "a.jsonl", [make_trace(1)])
    write_parquet(store / "data" / "out" / "results" / "part-1.parquet", [make_trace(2)])
    (store / "data" / "b.json").write_text("{}")
    found = list_files(["s3://bucket/data", "s3://bucket/data/day=1", "s3://bucket/data/*/a.jsonl"], leave_out="s3://bucket/data/out")
    assert [file.name for file in found] == ["s3://bucket/data/day=1/a.jsonl"]


def test_results_of_another_batch_in_the_data_set_are_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(Path("data/a.jsonl"), [make_trace(1), "{"])
    suite = write_suite(tmp_path)
    evaluate(suite, ["data"], Path("data/first"))
    summary, _ = evaluate(suite, ["data"], Path("data/second"))
    assert (summary.records, summary.traces) == (2, 1)
    assert summary.warnings == ("1 folder holds results of another batch and is not read: data/first",)
    with pytest.raises(
        InputError, match="'data/first' holds results of a batch, and is no data set; `proctor batch show data/first` shows it"
    ):
        evaluate(suite, ["data/first"], Path("third"))


def test_a_disk_full_from_the_start_is_reported_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path / "a.jsonl", [make_trace(1)])

    def refuse(part: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(output_store.os, "fsync", refuse)
    with pytest.raises(InputError, match=r"cannot write to '.*out': No space left on device; .* --resume goes on when there is space"):
        evaluate(write_suite(tmp_path), [tmp_path / "a.jsonl"], tmp_path / "out")
