"""Runs that were kept: listed, opened, and brought back as results."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from proctor.actions.suites import load_suite
from proctor.errors import InputError
from proctor.evidence.account import known_of
from proctor.formats.native_text import write_native
from proctor.formats.suites import read_suite
from proctor.model.case import Case, Suite
from proctor.model.result import CaseResult, CaseVerdict, RunResult, Unmet
from proctor.model.run import RunEntry, RunHeader
from proctor.model.verdict import Outcome
from proctor.scoring.metrics import Tally
from proctor.scoring.score import axis_scores
from proctor.store.run_files import RunFiles, RunFolder

WORKSPACE_FILES = ("proctor.yaml", "proctor.yml")
RESULTS_FOLDER = ".proctor"
TARGET = "target"
"""Who read the evidence of a run, where the target that was driven does not say it more precisely."""


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """One kept run in a line."""

    header: RunHeader
    ended: str | None
    counts: dict[str, int]


def find_home(home: str | None, start: Path | None = None) -> Path:
    """Where runs are kept: the folder that was named, else `.proctor` beside the nearest `proctor.yaml`, else here."""
    if home is not None:
        return Path(home)
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if any((folder / name).is_file() for name in WORKSPACE_FILES):
            return folder / RESULTS_FOLDER
    return here / RESULTS_FOLDER


def list_runs(home: Path) -> Iterable[KeptRun]:
    """Every kept run, newest first."""
    files = RunFiles(home)
    for run_id in files.ids():
        run = files.open(run_id)
        counts: dict[str, int] = {}
        for entry in run.entries():
            counts[entry.outcome] = counts.get(entry.outcome, 0) + 1
        yield KeptRun(header=run.header, ended=run.ended(), counts=counts)


def suite_of(run: RunFolder) -> Suite:
    """The suite a run was started with, with its places where the file it came from is still the same."""
    text = run.suite_text()
    path = run.header.suite_path
    kept = read_suite(text, name=run.header.suite_name)
    if path is not None and Path(path).exists():
        try:
            current = _select_kept(load_suite(path), kept)
            if write_native(current) == text:
                return current
        except InputError:
            pass  # the file has changed beyond reading; the kept copy has not
    return msgspec.structs.replace(kept, dialect=run.header.dialect, path=path)


def _select_kept(current: Suite, kept: Suite) -> Suite:
    """The suite as it is now with only those cases that the run was started with (`-k`)."""
    if len(current.cases) == len(kept.cases):
        return current
    wanted = {case.id for case in kept.cases}
    return msgspec.structs.replace(current, cases=tuple(case for case in current.cases if case.id in wanted))


def open_run(home: Path, run: str) -> tuple[RunResult, dict[tuple[str, int], RunEntry]]:
    """A kept run as a result, and what was kept of each attempt."""
    folder = RunFiles(home).open(run)
    entries = {(entry.case, entry.attempt): entry for entry in folder.entries()}
    return result_of(folder.header, suite_of(folder), entries.values()), entries


def result_of(header: RunHeader, suite: Suite, entries: Iterable[RunEntry]) -> RunResult:
    """The result of a whole run from what was kept of it."""
    entries = list(entries)
    cases = {case.id: case for case in suite.cases}
    order = {case.id: number for number, case in enumerate(suite.cases)}
    results = [case_result(cases.get(entry.case) or Case(id=entry.case), entry) for entry in entries]
    results.sort(key=lambda result: (order.get(result.case.id, len(order)), result.attempt))
    tally = Tally()
    tally.add_all(results)
    return RunResult(
        suite_name=suite.name,
        suite_path=suite.path,
        dialect=suite.dialect,
        run_id=header.run_id,
        started_at=header.started_at,
        outcome=tally.outcome(),
        score=tally.score,
        counts=tally.counts,
        cases=tuple(results),
        summary=tuple(tally.summaries()),
        unmet=unmet_of(suite, entries),
        warnings=suite.warnings,
    )


def unmet_of(suite: Suite, entries: Sequence[RunEntry]) -> Unmet:
    """Of a kept run: the cases of which no attempt left anything to decide on, and the attempts of cases that the suite does not have."""
    known = {case.id for case in suite.cases}
    answered = {entry.case for entry in entries if not _left_nothing(entry)}
    return Unmet(
        cases_without_evidence=sum(case.skip is None and case.id not in answered for case in suite.cases),
        records_without_case=sum(entry.case not in known for entry in entries),
    )


def _left_nothing(entry: RunEntry) -> bool:
    """Whether the agent could not be driven, so that every assertion ended as the attempt did; evidence may not have been loaded."""
    return entry.outcome in ("error", "skip") and entry.code is not None and all(told.code == entry.code for told in entry.verdicts)


def select_results(run: RunResult, chooses: Callable[[Case], bool]) -> RunResult:
    """Return the run with only the results of the chosen cases, counted anew."""
    results = tuple(result for result in run.cases if chooses(result.case))
    tally = Tally()
    tally.add_all(results)
    return msgspec.structs.replace(
        run, cases=results, outcome=tally.outcome(), score=tally.score, counts=tally.counts, summary=tuple(tally.summaries())
    )


def case_result(case: Case, entry: RunEntry) -> CaseResult:
    """One kept attempt as a result."""
    outcome: Outcome = entry.outcome  # type: ignore[assignment]  # kept as text, written from an outcome
    verdict: CaseVerdict | None = entry.verdict  # type: ignore[assignment]  # as above
    axes = None
    if case.scoring.mode == "weighted" and len(case.assertions) == len(entry.verdicts):
        pairs = zip(case.assertions, entry.verdicts, strict=True)
        axes = axis_scores((a, v) for a, v in pairs if not a.advisory and v.outcome in ("pass", "fail"))
    return CaseResult(
        case,
        outcome,
        entry.score,
        entry.verdicts,
        None,
        verdict,
        axes,
        entry.attempt,
        entry.extracted,
        entry.code,
        entry.reason,
        entry.now,
        None if entry.evidence is None else known_of(entry.evidence, TARGET),
    )
