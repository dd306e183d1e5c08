"""Plants faults in recorded evidence and decides it again: which faults does a suite detect? No agent and no model is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from proctor.actions.checking.check_stream import prepare_once
from proctor.errors import EvidenceError
from proctor.evidence.unknowns.account import declare_complete
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence
from proctor.model.mutation import MutationResult
from proctor.model.run import RunEntry
from proctor.mutation.measure import Measurement
from proctor.sources.records import read_records
from proctor.store.files.run_files import RunFiles

MOST_RECORDS = 5
"""Records of a case that get faults, unless the caller wants more."""
Named = tuple[str, Evidence]
"""Where evidence was read from, and the evidence."""


def mutate(
    suite: Suite, evidence: Iterable[Named], *, most: int = MOST_RECORDS, is_late: Callable[[], bool] = lambda: False
) -> MutationResult:
    """Plant faults in the first `most` passing records of each case until it `is_late`, and return which of them the suite detects."""
    prepared, measurement = prepare_once(suite), Measurement(suite)
    # Faults are planted at the end, because an extra effect uses the tools of other records. Only the records that get faults are stored.
    used: list[tuple[Case, Named]] = []
    counts: Counter[str] = Counter()
    for name, each in evidence:
        measurement.note_tools(each)
        if each.no_run is not None:
            measurement.skip("the record is no run of an agent")
            continue
        try:
            positions = prepared.find(each)
        except EvidenceError:
            positions = None
        if not positions:
            measurement.skip("the record answers no case")
        for case in (suite.cases[position] for position in positions or ()):
            if counts[case.id] >= most:
                measurement.skip(f"the case has {most} records already")
            elif measurement.is_usable(case, each):
                counts[case.id] += 1
                used.append((case, (name, each)))
    for case, (name, each) in used:
        if is_late():
            measurement.skip("the time was used up")
        else:
            measurement.add(case, each, name)
    return measurement.finish()


def read_recordings(paths: Iterable[str], suite: Suite, *, format: str | None = None) -> Iterator[Named]:
    """Yield the evidence of files, as the suite declares it. Raises `EvidenceError` for a record that cannot be read."""
    for number, record in enumerate(read_records(paths, format=format, declared=suite.find_declared()), 1):
        source = record.source
        name = source.file or source.id or f"record {number}"
        name = name if source.line is None else f"{name}:{source.line}"
        if record.evidence is None:
            raise EvidenceError(f"{name}: {record.error or 'cannot be read'}")
        yield name, record.evidence


def read_run(home: Path, run: str, suite: Suite) -> Iterator[Named]:
    """Yield the stored evidence of a run; each names its case."""
    yield from name_entries(RunFiles(home).open(run).entries(), suite)


def name_entries(entries: Iterable[RunEntry], suite: Suite) -> Iterator[Named]:
    """Yield the evidence of stored attempts; each names its case."""
    declared = suite.find_declared()
    for entry in entries:
        if entry.evidence is None:
            continue
        evidence = msgspec.structs.replace(entry.evidence, case=entry.case, now=entry.evidence.now or entry.now or entry.started_at)
        if declared is not None and declared.complete:
            evidence = declare_complete(evidence, declared.complete, declared.source)
        yield f"{entry.case} #{entry.attempt + 1}", evidence
