"""Stores recorded evidence as a run in its own folder, so that the pages for runs can show it.

Without a suite there are no claims: every record is a skipped attempt with its conversation. With one, each record is
decided as `proctor check` decides it; claims for a judge stay undecided.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from proctor.actions.checking.check_stream import CheckStream, wall_clock
from proctor.errors import InputError
from proctor.formats.native.text import write_native
from proctor.model.case import Suite
from proctor.model.result import CaseResult
from proctor.model.run import RunEntry, RunHeader
from proctor.runner.run import make_entry
from proctor.sources.records import Record, read_records
from proctor.store.files.run_files import ENDED, HEADER, RESULTS, SUITE

RUN_ID = "evidence"
MOST_RECORDS = 5_000
"""The maximum number of records shown, the first ones."""
_NOTHING_CLAIMED = "no suite was given, so that nothing is claimed about it"


class EvidenceRun:
    """The current evidence under a path, as the only run of `home`."""

    def __init__(self, path: Path, home: Path, suite: Suite | None = None) -> None:
        self.path, self.home = path, home
        self._suite = suite
        self._seen: tuple[tuple[str, int, int], ...] | None = None

    def refresh(self) -> bool:
        """Read the evidence again if any file has changed, and return whether any had. Raises `InputError` if there is none."""
        # Listed before reading, so that a change while reading is noticed the next time.
        files = _list_files(self.path)
        if files == self._seen:
            return False
        entries, more = self._read_entries()
        if not entries:
            raise InputError(f"there are neither runs nor evidence at {str(self.path)!r}; without a path the runs of this folder are shown")
        self._write(entries, more)
        # At the end, so that a failed read or write is tried again.
        self._seen = files
        return True

    def _read_entries(self) -> tuple[list[RunEntry], bool]:
        records = list(
            islice(read_records([str(self.path)], declared=None if self._suite is None else self._suite.find_declared()), MOST_RECORDS + 1)
        )
        more = len(records) > MOST_RECORDS
        counted: dict[str, int] = {}
        entries: list[RunEntry] = []
        if self._suite is None:
            entry_iterator = map(self._make_entry, records[:MOST_RECORDS])
        else:
            entry_iterator = map(self._store_result, CheckStream(self._suite, shows="evidence").over(records[:MOST_RECORDS]))
        for entry in entry_iterator:
            attempt = counted[entry.case] = counted.get(entry.case, -1) + 1
            entries.append(msgspec.structs.replace(entry, attempt=attempt))
        return entries, more

    def _make_entry(self, record: Record) -> RunEntry:
        evidence, place = record.evidence, self._name_place(record)
        if evidence is None:
            reason = record.error
            return RunEntry(
                case=place, outcome="error", code=None if reason is None else reason.code, reason=None if reason is None else reason.message
            )
        took, begun = evidence.duration_ms, evidence.now or ""
        return RunEntry(
            case=evidence.case or place, outcome="skip", reason=_NOTHING_CLAIMED, evidence=evidence, duration_ms=took, started_at=begun
        )

    def _store_result(self, result: CaseResult) -> RunEntry:
        evidence = result.evidence
        entry = make_entry(result, evidence, started_at="", duration_ms=0.0)
        # Time and duration are known only if they were recorded.
        took = None if evidence is None else evidence.duration_ms
        return msgspec.structs.replace(entry, case=result.case.id or result.case.name, duration_ms=took)

    def _name_place(self, record: Record) -> str:
        source = record.source
        file = os.path.relpath(source.file, self.path if self.path.is_dir() else self.path.parent) if source.file else "evidence"
        return file if source.line is None else f"{file}:{source.line}"

    def _write(self, entries: list[RunEntry], more: bool) -> None:
        folder = self.home / "runs" / RUN_ID
        # Outside `runs`, where every folder with a header counts as a run.
        new, before = self.home / f".{RUN_ID}.new", self.home / f".{RUN_ID}.old"
        for leftover in (new, before):
            shutil.rmtree(leftover, ignore_errors=True)
        new.mkdir(parents=True)
        folder.parent.mkdir(exist_ok=True)
        suite = self._suite or Suite(name=self.path.name)
        header = RunHeader(
            run_id=RUN_ID,
            started_at=wall_clock(),
            suite_name=suite.name if self._suite is not None else self.path.name,
            dialect=suite.dialect,
            planned=len(entries),
            note=f"{self.path}" + (f" (the first {MOST_RECORDS:,} records)" if more else ""),
        )
        (new / HEADER).write_bytes(_encode(header))
        (new / SUITE).write_text(write_native(suite), encoding="utf-8")
        (new / RESULTS).write_bytes(b"".join(_encode(entry) + b"\n" for entry in entries))
        (new / ENDED).write_bytes(msgspec.json.encode({"ended": "completed"}))
        # Swapped by renaming, so that a page request always finds records. Deleting the old files is slow and comes last.
        if folder.exists():
            folder.rename(before)
        new.rename(folder)
        shutil.rmtree(before, ignore_errors=True)


def _encode(document: RunEntry | RunHeader) -> bytes:
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        # Half of a surrogate pair, or a file name that is not UTF-8, cannot be encoded and becomes a question mark.
        return json.dumps(msgspec.to_builtins(document), ensure_ascii=False).encode("utf-8", errors="replace")


def _list_files(path: Path) -> tuple[tuple[str, int, int], ...]:
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    stats: list[tuple[str, int, int]] = []
    for file in files:
        # A file that has vanished was replaced or deleted; the next refresh notices it.
        with suppress(FileNotFoundError):
            state = file.stat()
            stats.append((str(file), state.st_size, state.st_mtime_ns))
    return tuple(stats)
