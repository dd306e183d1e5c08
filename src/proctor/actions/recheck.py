"""Decide the kept evidence of a run again, with the suite it was started with or with another; no agent is called."""

from pathlib import Path

import msgspec

from proctor.actions.check import prepared
from proctor.actions.history import case_result, suite_of
from proctor.model.case import Suite
from proctor.model.problem import Problem
from proctor.model.result import CaseResult, RunResult
from proctor.scoring.metrics import Tally
from proctor.store.run_files import RunFiles


def recheck(home: Path, run: str, suite: Suite | None = None) -> RunResult:
    """The result the kept evidence has now.

    The clock is the one that was used then. An attempt that left no evidence keeps the error it ended with, and a case that the
    suite does not know is left out, with a warning.
    """
    folder = RunFiles(home).open(run)
    chosen = suite or suite_of(folder)
    cases = {case.case.id: case for case in prepared(chosen).cases}
    results: list[CaseResult] = []
    unknown: list[str] = []
    for entry in folder.entries():
        case = cases.get(entry.case)
        if case is None:
            unknown.append(entry.case)
        elif entry.evidence is None:
            results.append(case_result(case.case, entry))
        else:
            evidence = entry.evidence
            if evidence.now is None:
                evidence = msgspec.structs.replace(evidence, now=entry.now or entry.started_at or folder.header.started_at)
            results.append(case.decide(evidence, None, entry.attempt))
    tally = Tally()
    tally.add_all(results)
    warnings = list(chosen.warnings)
    if unknown:
        warnings.append(
            Problem(message=f"{len(unknown)} kept attempts of cases that are not in the suite, first {unknown[0]!r}", level="warning")
        )
    return RunResult(
        suite_name=chosen.name,
        suite_path=chosen.path,
        dialect=chosen.dialect,
        run_id=folder.header.run_id,
        started_at=folder.header.started_at,
        outcome=tally.outcome(),
        score=tally.score,
        counts=tally.counts,
        cases=tuple(results),
        summary=tuple(tally.summaries()),
        warnings=tuple(warnings),
    )
