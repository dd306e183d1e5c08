"""Data of many rows is stored in temporary files: it is read back unchanged, and memory does not grow with the rows."""

from __future__ import annotations

import gc
import random
import threading
import tracemalloc
from array import array
from pathlib import Path

import msgspec
import pytest

import proctor
from proctor.actions.checking.check_stream import CheckStream
from proctor.errors import InputError
from proctor.model.case import Case
from proctor.model.evidence import Evidence, Source
from proctor.model.result import CaseResult
from proctor.model.scratch import IN_MEMORY, NameTable, Scratch, TakenNames
from proctor.scoring.metrics import PackedCounts
from proctor.sources.records import Record
from proctor.sources.scratch_files import FileNumbers, FilePieces
from proctor.sources.tables.open import DataFiles

FILES = DataFiles(Path())


@pytest.mark.parametrize("code", ["I", "Q"])
def test_numbers_in_a_file_are_those_of_an_array(code: str) -> None:
    chance = random.Random(code)
    ours, theirs = FileNumbers(code, 3_000), array(code, [0]) * 3_000  # type: ignore[arg-type]
    for _ in range(40_000):
        value, place = chance.getrandbits(32 if code == "I" else 64), chance.randrange(len(theirs))
        if chance.random() < 0.4:
            ours.append(value)
            theirs.append(value)
        else:
            ours[place] = value
            theirs[place] = value
        index = chance.randrange(len(theirs))
        assert ours[index] == theirs[index]
    assert list(ours) == list(theirs) and len(ours) == len(theirs)
    assert len(ours._last[1]) * array(code).itemsize < 4096  # pyright: ignore[reportPrivateUsage] - the others are in the file
    for beyond in (-1, len(theirs)):
        with pytest.raises(IndexError):
            ours[beyond]


def test_threads_that_read_numbers_find_all() -> None:
    numbers = FileNumbers("Q")
    for number in range(60_000):
        numbers.append(number * 3)
    wrong: list[int] = []

    def look(seed: int) -> None:
        chance = random.Random(seed)
        chosen = (chance.randrange(60_000) for _ in range(5_000))
        wrong.extend(place for place in chosen if numbers[place] != place * 3)

    threads = [threading.Thread(target=look, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("scratch", [IN_MEMORY, FILES], ids=["memory", "files"])
def test_names_counts_and_texts_are_the_same_in_memory_and_in_files(scratch: Scratch) -> None:
    table, counts, taken = NameTable(scratch), PackedCounts(scratch), TakenNames(10, scratch)
    texts = scratch.make_texts()
    for number in range(6_000):
        name = f"c{number % 4_000}-\ud800é"
        table.add(name, number)
        taken.add(name)
        texts.append(name)
        counts.add(Case(id=name, name=name[:2], pass_threshold=(None, 0.5)[number % 2]), "pass" if number < 4_000 else "fail")
    assert list(table.find("c7-\ud800é")) == [4_007, 7] and list(table.find("c3999-\ud800é")) == [3_999] and not list(table.find("c"))
    assert len(taken) == 4_000 and "c3999-\ud800é" in taken and "c4000-\ud800é" not in taken
    assert texts[5_999] == "c1999-\ud800é" and len(texts) == 6_000
    assert (counts.count("pass"), counts.count("fail"), len(counts)) == (4_000, 2_000, 4_000)
    even, odd, last = (counts.summarize(number) for number in (0, 1, 3_999))
    assert (even.id, even.outcome, odd.outcome, last.outcome, last.runs) == ("c0-\ud800é", "fail", "pass", "pass", 1)
    assert odd.counts == {"pass": 1, "fail": 1} and odd.name == "c1"


@pytest.mark.on_request
@pytest.mark.timeout(30)  # memory is traced
def test_more_rows_are_read_and_checked_in_the_same_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower all in-memory limits, so that few rows show what each costs."""
    monkeypatch.setattr("proctor.sources.scratch_files._PAGE", 64)
    monkeypatch.setattr("proctor.sources.scratch_files._MOST_PENDING", 64)
    monkeypatch.setattr("proctor.scoring.metrics.MOST_COUNTED", 5)
    monkeypatch.setattr("proctor.formats.native.suite.TakenNames", lambda scratch: TakenNames(5, scratch))
    suite = 'proctor: 1\ncases: {from: rows.csv, as: {input: "{question}", expect: [{response_contains: "{id}"}]}}\n'
    (tmp_path / "suite.yaml").write_text(suite)

    def keep(count: int) -> int:
        """Return the memory in use after checking this many rows."""
        (tmp_path / "rows.csv").write_text("id,question\n" + "".join(f"q{n},Where is order {n}?\n" for n in range(count)))
        gc.collect()
        tracemalloc.start()
        try:
            stream = CheckStream(proctor.load_suite(tmp_path / "suite.yaml", held=0))
            records = (Record(source=Source(), evidence=Evidence(text=f"q{n}", case=f"q{n}")) for n in range(count))
            assert sum(result.outcome == "pass" for result in stream.over(records)) == count
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    # The first time more is learned, about types and texts; and the last 256 cases are remembered.
    few, many = [keep(count) for count in (30, 800, 1_600)][1:]
    assert many - few < 16 * 800, f"{(many - few) / 800:.0f} bytes for each row more"


def test_results_of_many_attempts_are_counted_next_to_their_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.scoring.metrics.MOST_COUNTED", 1)
    (tmp_path / "rows.csv").write_text("id,q\n" + "".join(f"r{n},ask {n}\n" for n in range(6)))
    (tmp_path / "suite.yaml").write_text('proctor: 1\ncases: {from: rows.csv, as: {input: "{q}", expect: [{response_contains: "{id}"}]}}\n')
    suite = proctor.load_suite(tmp_path / "suite.yaml", held=0)
    made: list[str] = []
    make_numbers = DataFiles.make_numbers
    monkeypatch.setattr(DataFiles, "make_numbers", lambda self, code, count=0: made.append(code) or make_numbers(self, code, count))
    stream = CheckStream(suite)
    for case in suite.cases:
        stream.tally.add(CaseResult(msgspec.structs.replace(case), "pass", 1.0, ()))
    assert made and stream.tally.counts["pass"] == 6
    assert [summary.id for summary in stream.tally.list_summaries()] == [f"r{n}" for n in range(6)]


def test_missing_space_for_temporary_files_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_full(**options: object) -> object:
        return open("/dev/full", "r+b", buffering=0)

    monkeypatch.setattr("tempfile.TemporaryFile", open_full)
    with pytest.raises(InputError, match=r"rows are stored in temporary files under .*: No space left on device; .*TMPDIR"):
        FilePieces().append(bytes(100_000))
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    with pytest.raises(InputError, match=r"'/nowhere/at/all': No such file or directory; .*TMPDIR"):
        FilePieces()
