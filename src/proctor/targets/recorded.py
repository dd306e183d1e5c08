"""An agent that was recorded: evidence out of files, by the id or name of the case.

Several recordings of one case answer its attempts in order. A recording that names no case answers every case that has none of its own,
as in `proctor check`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from proctor.cassettes.ports import Tape
from proctor.errors import InputError, SpecError
from proctor.model.attempt import Attempt
from proctor.model.case import Case
from proctor.model.evidence import Evidence
from proctor.model.problem import Problem
from proctor.model.show import nearest
from proctor.sources.records import read_records
from proctor.targets.faults import TargetFault

_UNREADABLE_SHOWN = 3


class RecordedSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that was recorded."""

    type: Literal["recorded"] = "recorded"
    evidence: tuple[str, ...]
    """Files or folders of evidence, relative to the workspace."""
    format: str | None = None
    """How they are written, if that cannot be told: as for `--evidence-format`."""


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
        self._by_case: dict[str, list[Evidence]] | None = None
        self._for_all: list[Evidence] = []

    @property
    def name(self) -> str:
        """What reports call it."""
        return self._name

    def problems_with(self, cases: Iterable[Case]) -> list[Problem]:
        """Nothing of a case can be wrong here."""
        return []

    async def open(self) -> None:
        """Read the recordings."""
        if self._by_case is None:
            self._by_case, self._for_all = await asyncio.to_thread(self._read)

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """The recording of this attempt."""
        if self._by_case is None:
            raise TargetFault("not_open", f"{self._name}: the target was not opened")
        case = attempt.case
        found = self._by_case.get(case.id) or self._by_case.get(case.name) or self._for_all
        if not found:
            close = nearest(case.id, self._by_case)
            hint = f"; nearest: {', '.join(close)}" if close else ""
            raise TargetFault("no_recording", f"{self._name}: no recording of case {case.id!r}{hint}")
        if attempt.number >= len(found):
            many = f"{len(found)} recording{'s' if len(found) > 1 else ''}"
            raise TargetFault("no_recording", f"{self._name}: {many} of case {case.id!r}, none for attempt {attempt.number + 1}")
        return msgspec.structs.replace(found[attempt.number], case=case.id)

    async def close(self) -> None:
        """Forget the recordings."""
        self._by_case, self._for_all = None, []

    def _read(self) -> tuple[dict[str, list[Evidence]], list[Evidence]]:
        by_case: dict[str, list[Evidence]] = {}
        for_all: list[Evidence] = []
        unreadable: list[str] = []
        try:
            for record in read_records(self._paths, format=self._format):
                if record.evidence is None:
                    line = f":{record.source.line}" if record.source.line is not None else ""
                    unreadable.append(f"{record.source.file}{line}: {record.error.message if record.error is not None else 'unreadable'}")
                elif record.evidence.case is None:
                    for_all.append(record.evidence)
                else:
                    by_case.setdefault(record.evidence.case, []).append(record.evidence)
        except InputError as error:
            raise TargetFault("no_recording", f"{self._name}: {error}") from None
        if unreadable:
            more = f"\n  and {len(unreadable) - _UNREADABLE_SHOWN} more" if len(unreadable) > _UNREADABLE_SHOWN else ""
            listed = "\n  ".join(unreadable[:_UNREADABLE_SHOWN])
            raise TargetFault("no_recording", f"{self._name}: recordings that cannot be read:\n  {listed}{more}")
        return by_case, for_all
