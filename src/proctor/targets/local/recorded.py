"""An agent that was recorded: answers with evidence from files, by the id or name of the case.

Several recordings of one case answer its attempts in order. Which cases a recording answers is decided as in `proctor check`: one that
names no case by its input. One that could answer several cases is refused, so that no case is answered by luck.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from proctor.cassettes.ports import Tape
from proctor.decide.matching import CaseIndex
from proctor.errors import EvidenceError, InputError, SpecError
from proctor.model.attempt import Attempt
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.problem import Problem
from proctor.model.show import nearest, tell_more
from proctor.sources.records import Record, read_records
from proctor.targets.shared.faults import TargetFault

_SHOWN = 3
"""How many recordings a message names; the rest are counted."""


class RecordedSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that was recorded."""

    type: Literal["recorded"] = "recorded"
    evidence: tuple[str, ...]
    """Files or folders of evidence, relative to the workspace."""
    format: str | None = None
    """How they are written, if that cannot be told: as for `--evidence-format`."""


class _Recordings(msgspec.Struct, frozen=True, kw_only=True):
    """Recordings by the case they answer."""

    named: dict[str, list[Evidence]]
    """By the id or name they give."""
    by_input: dict[str, list[Evidence]]
    """Those that name no case, by the id of each case they answer."""
    unmatched: int = 0
    """How many name a case that the suite does not have."""


class RecordedTarget:
    """Answers with recorded evidence."""

    def __init__(self, name: str, settings: RecordedSettings, *, base: Path | None = None) -> None:
        """Raises `SpecError` for settings that cannot be used."""
        if not settings.evidence:
            raise SpecError("evidence: no file is named", field="evidence")
        if "-" in settings.evidence:
            raise SpecError("evidence: a target cannot read standard input", field="evidence")
        self._name = name
        self._paths = [str(base / path) if base is not None else path for path in settings.evidence]
        self._format = settings.format
        self._index: CaseIndex | None = None
        self._read_records: list[Record] | None = None
        self._recordings: _Recordings | None = None
        self.records_without_case = 0
        """How many recordings name a case that the suite does not have, of those that were read last."""

    @property
    def name(self) -> str:
        """The name that reports show."""
        return self._name

    def problems_with(self, cases: Iterable[Case]) -> list[Problem]:
        """Return no problems: a recording takes any case."""
        return []

    def learn_cases(self, selected: Sequence[Case], left_out: Sequence[Case]) -> None:
        """Learn the cases of the suite, among which a recording that names none finds its own."""
        self._index = CaseIndex(selected, left_out)

    async def open(self) -> None:
        """Read the recordings."""
        if self._read_records is None:
            # In a thread, as reading files of many megabytes would hold up the loop.
            self._read_records = await asyncio.to_thread(self._read)
            if self._index is not None:
                self._recordings = self._assign(self._read_records, self._index)
                self.records_without_case = self._recordings.unmatched

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Return the recording of this attempt."""
        if self._read_records is None:
            raise TargetFault("not_open", f"{self._name}: the target was not opened")
        case = attempt.case
        # Without a suite the case that is driven is the only one there is.
        recordings = self._recordings or self._assign(self._read_records, CaseIndex((case,)))
        found = recordings.named.get(case.id) or recordings.named.get(case.name) or recordings.by_input.get(case.id)
        if not found:
            close = nearest(case.id, recordings.named)
            hint = f"; nearest: {', '.join(close)}" if close else ""
            raise TargetFault("no_recording", f"{self._name}: no recording of case {case.id!r}{hint}")
        if attempt.number >= len(found):
            many = f"{len(found)} recording{'s' if len(found) > 1 else ''}"
            raise TargetFault("no_recording", f"{self._name}: {many} of case {case.id!r}, none for attempt {attempt.number + 1}")
        return msgspec.structs.replace(found[attempt.number], case=case.id)

    async def close(self) -> None:
        """Forget the recordings."""
        self._read_records = self._recordings = None

    def _read(self) -> list[Record]:
        try:
            records = list(read_records(self._paths, format=self._format))
        except InputError as error:
            raise TargetFault("no_recording", f"{self._name}: {error}") from None
        self._refuse("recordings that cannot be read", [record for record in records if record.evidence is None])
        return records

    def _assign(self, records: Iterable[Record], index: CaseIndex) -> _Recordings:
        """Return which cases each recording answers. Raises `TargetFault` for one that could answer several."""
        named: dict[str, list[Evidence]] = {}
        by_input: dict[str, list[Evidence]] = {}
        refused: list[Record] = []
        unmatched = 0
        for record in records:
            evidence = record.evidence
            if evidence is None:
                continue
            if evidence.case is not None:
                named.setdefault(evidence.case, []).append(evidence)
                unmatched += index.names.find(evidence.case) is None
                continue
            try:
                for position in index.find(evidence) or ():
                    by_input.setdefault(index.cases[position].id, []).append(evidence)
            except EvidenceError as error:
                refused.append(Record(None, record.source, error))
        self._refuse("recordings that do not say which case they answer", refused)
        return _Recordings(named=named, by_input=by_input, unmatched=unmatched)

    def _refuse(self, what: str, records: Sequence[Record]) -> None:
        if not records:
            return
        listed = "\n  ".join(_describe_record(record) for record in records[:_SHOWN])
        more = tell_more(len(records), _SHOWN, "\n  and")
        raise TargetFault("no_recording", f"{self._name}: {what}:\n  {listed}{more}")


def _describe_record(record: Record) -> str:
    line = f":{record.source.line}" if record.source.line is not None else ""
    return f"{record.source.file}{line}: {record.error.message if record.error is not None else 'unreadable'}"
