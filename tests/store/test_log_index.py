"""The index of a log agrees with the log even if the file changes, and a page reads only the lines it shows."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from proctor.errors import StoreError
from proctor.model.evidence import Evidence
from proctor.model.run import RunEntry
from proctor.model.verdict import Verdict
from proctor.store.files.log_index import LogIndex, LogIndexes


def write_entry(number: int, *, text: str = "hi") -> bytes:
    bad = number % 3 == 0
    verdict = Verdict("fail" if bad else "pass", 0.0 if bad else 1.0, f"order {number} is late" if bad else "found")
    seen = Evidence(text=text, duration_ms=float(number) if number % 2 else None)
    entry = RunEntry(
        case=f"case-{number % 4}", attempt=number // 4, outcome=verdict.outcome, score=verdict.score, verdicts=(verdict,), evidence=seen
    )
    return msgspec.json.encode(msgspec.structs.replace(entry, duration_ms=0.5)) + b"\n"


def write_log(path: Path, count: int, **given: str) -> None:
    path.write_bytes(b"".join(write_entry(number, **given) for number in range(count)))


def open_index(path: Path) -> LogIndex:
    log = LogIndex(path)
    assert log.read_on()
    return log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def test_the_index_agrees_with_the_log(path: Path) -> None:
    write_log(path, 12)
    log = open_index(path)
    entries = [msgspec.json.decode(line, type=RunEntry) for line in path.read_bytes().splitlines()]
    assert [log.read(number) for number in log.find_numbers()] == entries
    assert [entry.verdicts[0].reason for entry in log.iterate_digests()] == [entry.verdicts[0].reason for entry in entries]
    assert list(log.find_numbers(outcome="fail")) == [0, 3, 6, 9]
    assert list(log.find_numbers(case="case-1")) == [1, 5, 9]
    assert list(log.find_numbers(outcome="fail", case="case-1")) == [9]
    assert list(log.find_numbers(outcome="error")) == list(log.find_numbers(case="nobody")) == []
    assert log.list_durations() == [entry.find_agent_ms() for entry in entries]
    assert (log.count().outcomes, log.count().different, log.count().problem) == ({"fail": 4, "pass": 8}, 12, None)


def test_a_log_that_is_being_written_is_read_on(path: Path) -> None:
    write_log(path, 3)
    log = open_index(path)
    first = log.remember("count", lambda: len(log))
    with path.open("ab") as file:
        file.write(write_entry(3) + write_entry(4)[:20])
        file.flush()
        assert log.read_on() and len(log) == 4, "half a line is no attempt"
        file.write(write_entry(4)[20:])
    assert log.read_on() and len(log) == 5
    assert log.read(4).case == "case-0" and (first, log.remember("count", lambda: len(log))) == (3, 5)


def test_half_a_line_that_is_cut_off_changes_nothing(path: Path) -> None:
    write_log(path, 3)
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"case": "half')
    log = open_index(path)
    os.truncate(path, whole)
    with path.open("ab") as file:
        file.write(write_entry(3))
    assert log.read_on() and [log.read_digest(number).attempt for number in log.find_numbers()] == [0, 0, 0, 0]


@pytest.mark.parametrize("way", ["shorter", "replaced", "written over", "gone"])
def test_a_replaced_log_is_read_again(path: Path, way: str) -> None:
    write_log(path, 5)
    logs = LogIndexes()
    before = logs.open(path)
    assert logs.count(path).outcomes == {"fail": 2, "pass": 3}
    if way == "shorter":
        write_log(path, 2)
    elif way == "replaced":
        write_log(path.with_name("new"), 2)
        os.replace(path.with_name("new"), path)
    elif way == "written over":
        path.write_bytes(path.read_bytes().replace(b'"fail"', b'"pass"'))
        os.utime(path, ns=(1, 1))
    else:
        path.unlink()
    expected = {"shorter": {"fail": 1, "pass": 1}, "replaced": {"fail": 1, "pass": 1}, "written over": {"pass": 5}, "gone": {}}
    assert logs.count(path).outcomes == expected[way]
    log = logs.open(path)
    assert log is not before and len(log) == sum(expected[way].values())
    assert [log.read(number).outcome for number in log.find_numbers()] == [entry.outcome for entry in log.iterate_digests()]


def test_a_replaced_log_can_still_be_read_by_who_has_it(path: Path) -> None:
    write_log(path, 5)
    log = open_index(path)
    path.unlink()
    write_log(path, 1)
    assert log.read(4).case == "case-0"


@pytest.mark.parametrize(
    "line", [b"no json\n", b"\n", b'{"case": "a"}\n', b'{"case": "a", "outcome": "pass", "reason": 5}\n', b"\xff\n", b"[" * 5_000 + b"\n"]
)
def test_a_broken_line_costs_itself(path: Path, line: bytes) -> None:
    path.write_bytes(write_entry(0) + line + write_entry(2))
    log = open_index(path)
    assert list(log.find_numbers()) == [0, 2] and not log.has_attempt(1) and log.has_attempt(2) and not log.has_attempt(3)
    assert len(log.list_durations()) == 2 and log.count().different == 2 and log.read(2).case == "case-2"
    assert f"{path}:2: a broken entry" in str(log.count().problem)


def test_evidence_that_is_none_costs_its_own_attempt_when_it_is_read(path: Path) -> None:
    path.write_bytes(b'{"case": "a", "outcome": "pass", "evidence": {"text": 5}}\n' + write_entry(1))
    log = open_index(path)
    with pytest.raises(StoreError, match=r"results\.jsonl:1: a broken entry"):
        log.read(0)
    assert log.read(1).case == "case-1" and [entry.case for entry in log.iterate_digests()] == ["a", "case-1"]


def test_many_lines_are_read_at_once_even_with_broken_ones_between(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [write_entry(number, text="x" * 9_000 if number % 7 == 5 else "hi") for number in range(50)]
    lines[12] = lines[49] = b"{broken\n"
    path.write_bytes(b"".join(lines))
    monkeypatch.setattr("proctor.store.files.log_index._AT_ONCE", 2_000)
    log = open_index(path)
    wanted = [msgspec.json.decode(line, type=RunEntry) for number, line in enumerate(lines) if number not in (12, 49)]
    found = list(log.iterate_digests())
    assert [(one.case, one.attempt, one.outcome, one.find_agent_ms()) for one in found] == [
        (one.case, one.attempt, one.outcome, one.find_agent_ms()) for one in wanted
    ]
    assert [one.verdicts[0].reason for one in found if one.outcome == "fail"] == [
        one.verdicts[0].reason for one in wanted if one.outcome == "fail"
    ]


def test_a_line_that_was_written_over_since_is_named(path: Path) -> None:
    write_log(path, 5)
    log = open_index(path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = b"?" * (len(lines[3]) - 1) + b"\n"
    with path.open("r+b") as file:
        file.write(b"".join(lines))
    with pytest.raises(StoreError, match=r"results\.jsonl:4: a broken entry"):
        list(log.iterate_digests())


def test_lists_have_only_the_digest_of_a_long_line(path: Path) -> None:
    write_log(path, 4, text="x" * 100_000)
    log = open_index(path)
    found = list(log.iterate_digests())
    assert not any("xx" in str(log.read_digest(number)) for number in range(4))
    assert [entry.attempt for entry in found] == [0, 0, 0, 0] and found[3].verdicts[0].reason == "order 3 is late"
    assert not any("xx" in str(entry) for entry in found)
    assert log.read(3).evidence == Evidence(text="x" * 100_000, duration_ms=3.0)


@pytest.mark.parametrize("known", [0, 3], ids=["the first time", "later"])
def test_a_log_that_could_not_be_read_once_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch, known: int) -> None:
    logs = LogIndexes()
    write_log(path, known)
    if known:
        assert len(logs.open(path)) == known
    write_log(path, 6)
    add_line = LogIndex._add_line  # pyright: ignore[reportPrivateUsage]

    def fail_at_the_fifth(log: LogIndex, line: bytes) -> None:
        if len(log) == 4:
            raise OSError(errno.EIO, "Input/output error")
        add_line(log, line)

    monkeypatch.setattr(LogIndex, "_add_line", fail_at_the_fifth)
    for _ in range(2):
        with pytest.raises(StoreError, match="Input/output error"):
            logs.open(path)
    monkeypatch.setattr(LogIndex, "_add_line", add_line)
    log = logs.open(path)
    assert len(log) == 6 and [log.read(number).attempt for number in log.find_numbers()] == [0, 0, 0, 0, 1, 1]


def test_no_more_logs_are_held_than_fit_and_counts_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = LogIndexes(most=10)
    paths = [tmp_path / f"{number}.jsonl" for number in range(4)]
    for path in paths:
        write_log(path, 6)
        logs.count(path)
    assert logs.open(paths[-1]) is logs.open(paths[-1])
    monkeypatch.setattr(LogIndex, "read_on", lambda log: pytest.fail("a log that has not changed is read again"))
    assert [logs.count(path).different for path in paths] == [6] * 4


def test_large_entries_are_not_cached(path: Path) -> None:
    write_log(path, 1)
    log = open_index(path)
    made = iter(range(9))
    assert [log.remember("a", lambda: next(made), is_small=lambda value: value > 0) for _ in range(3)] == [0, 1, 1]
