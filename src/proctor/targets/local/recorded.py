"""A recorded agent: answers with evidence from files, by the id or name of the case.

Several recordings of one case answer its attempts in order. Which cases a recording answers is decided as in `proctor check`: one that
names no case by its input. One that could answer several cases is refused, so that no case is answered by luck.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from proctor.cassettes.ports import Tape
from proctor.decide.matching import CaseIndex
from proctor.decide.other_input import OtherInputs
from proctor.errors import EvidenceError, InputError, SpecError
from proctor.model.attempt import Attempt
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.mapping import DeclaredEvidence
from proctor.model.show import count_rest, suggest
from proctor.sources.records import Record, read_records
from proctor.targets.shared.faults import TargetFault

_SHOWN = 3
"""Recordings named in a message; the rest are counted."""


class RecordedSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that was recorded."""

    type: Literal["recorded"] = "recorded"
    evidence: tuple[str, ...]
    """Files or folders of evidence, relative to the workspace."""
    format: str | None = None
    """Their format, if it cannot be detected: as for `--evidence-format`."""


class RecordedTarget:
    """Answers with recorded evidence."""

    def __init__(self, name: str, settings: RecordedSettings, *, base: Path | None = None) -> None:
        """Raises `SpecError` for settings that cannot be used."""
        if not settings.evidence:
            raise SpecError("evidence: no file is named", field="evidence")
        if "-" in settings.evidence:
            raise SpecError("evidence: a target cannot read standard input", field="evidence")
        self.name = name
        self._paths = [str(base / path) if base is not None else path for path in settings.evidence]
        self._format = settings.format
        self._index: CaseIndex | None = None
        self._read_records: list[Record] | None = None
        self._recordings: dict[str, list[Evidence]] | None = None
        self._unknown_names: list[str] = []
        self.other_inputs = OtherInputs()
        """The recordings that were used although their input differs from that of their case."""
        self.declared: DeclaredEvidence | None = None
        """How the recordings are read, as declared in the suite or the workspace."""

    @property
    def records_without_case(self) -> int:
        """The number of recordings read last that name an unknown case."""
        return len(self._unknown_names)

    def learn_cases(self, selected: Sequence[Case], left_out: Sequence[Case]) -> None:
        """Set the cases of the suite, among which a recording without a case is matched."""
        self._index = CaseIndex(selected, left_out)

    async def open(self) -> None:
        """Read the recordings."""
        if self._read_records is None:
            # In a thread, because reading large files would block the event loop.
            reading = partial(read_records, self._paths, format=self._format, declared=self.declared)
            try:
                self._read_records = await asyncio.to_thread(lambda: list(reading()))
            except InputError as error:
                raise TargetFault("no_recording", f"{self.name}: {error}") from None
            self._refuse("recordings that cannot be read", [record for record in self._read_records if record.evidence is None])
            if self._index is not None:
                self._recordings = self._assign(self._read_records, self._index)

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Return the recording of this attempt."""
        if self._read_records is None:
            raise TargetFault("not_open", f"{self.name}: the target was not opened")
        case = attempt.case
        # Without a suite, the current case is the only one.
        recordings = self._assign(self._read_records, CaseIndex((case,))) if self._recordings is None else self._recordings
        found = recordings.get(case.id)
        if found is None:
            hint = suggest(case.id, self._unknown_names)
            raise TargetFault("no_recording", f"{self.name}: no recording of case {case.id!r}{hint}")
        if attempt.number >= len(found):
            many = f"{len(found)} recording{'s' if len(found) > 1 else ''}"
            raise TargetFault("no_recording", f"{self.name}: {many} of case {case.id!r}, none for attempt {attempt.number + 1}")
        evidence = found[attempt.number]
        self.other_inputs.note(case, evidence)
        return msgspec.structs.replace(evidence, case=case.id)

    async def close(self) -> None:
        """Forget the recordings."""
        self._read_records = self._recordings = None

    def _assign(self, records: Iterable[Record], index: CaseIndex) -> dict[str, list[Evidence]]:
        """Return the recordings by the id of the case they answer. Raises `TargetFault` for one that could answer several."""
        named: dict[str, list[Evidence]] = {}
        unnamed: dict[str, list[Evidence]] = {}
        refused: list[Record] = []
        self._unknown_names = []
        for record in records:
            evidence = record.evidence
            if evidence is None:
                continue
            try:
                positions = index.find(evidence)
            except EvidenceError as error:
                refused.append(Record(None, record.source, error))
                continue
            if positions is None:
                self._unknown_names.append(evidence.case or "")
            for position in positions or ():
                (unnamed if evidence.case is None else named).setdefault(index.cases[position].id, []).append(evidence)
        self._refuse("recordings that do not say which case they answer", refused)
        # A case with recordings that name it does not use unnamed ones.
        return unnamed | named

    def _refuse(self, what: str, records: Sequence[Record]) -> None:
        if not records:
            return
        lines: list[str] = []
        for record in records[:_SHOWN]:
            line = f":{record.source.line}" if record.source.line is not None else ""
            lines.append(f"{record.source.file}{line}: {record.error.message if record.error is not None else 'unreadable'}")
        joined, omitted = "\n  ".join(lines), count_rest(len(records), _SHOWN, "\n  and")
        raise TargetFault("no_recording", f"{self.name}: {what}:\n  {joined}{omitted}")
