"""Runs that were kept: listed, opened, and brought back as results."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from proctor.actions.suites import load_suite
from proctor.errors import InputError, ProctorError
from proctor.evidence.account import find_known
from proctor.formats.native_text import write_native
from proctor.formats.suites import read_suite
from proctor.model.case import Case, Suite
from proctor.model.result import CaseResult, CaseVerdict, Ending, Incomplete, RunResult, Unmet
from proctor.model.run import RunEntry, RunHeader
from proctor.model.verdict import Outcome
from proctor.scoring.completeness import count_planned_attempts, decide_outcome, find_incomplete
from proctor.scoring.metrics import Tally
from proctor.scoring.score import score_axes
from proctor.store.run_files import RunFiles, RunFolder

WORKSPACE_FILES = ("proctor.yaml", "proctor.yml")
RESULTS_FOLDER = ".proctor"
TARGET = "target"
"""Who read the evidence of a run, where the target that was driven does not say it more precisely."""


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """One kept run in a line."""

    run_id: str
    header: RunHeader | None
    """Nothing where it cannot be read."""
    ended: str | None
    counts: dict[str, int]
    finished: int = 0
    planned: int | None = None
    """Attempts; nothing where the suite of the run cannot be read."""
    problem: str | None = None
    """What of the run cannot be read, in words."""


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
    """Every kept run, newest first; of one that is broken, what can be told of it and why not more."""
    files = RunFiles(home)
    for run_id in files.list_ids():
        yield _kept_run(files, run_id)


def _kept_run(files: RunFiles, run_id: str) -> KeptRun:
    header, ending, problem, planned = None, None, None, None
    counts: dict[str, int] = {}
    try:
        run = files.open(run_id)
        header, ending = run.header, run.find_ending()
        planned = _planned(run, ending)
        for entry in run.entries():
            counts[entry.outcome] = counts.get(entry.outcome, 0) + 1
    except ProctorError as error:
        problem = str(error)
    finished = sum(counts.values())
    return KeptRun(run_id=run_id, header=header, ended=ending, counts=counts, finished=finished, planned=planned, problem=problem)


def _planned(run: RunFolder, ending: Ending) -> int | None:
    if run.header.planned is not None or ending == "completed":
        return run.header.planned
    suite = read_suite(run.suite_text(), name=run.header.suite_name)
    return sum(count_planned_attempts(case, run.header.repeat) for case in suite.cases)


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
    return result_of(folder.header, suite_of(folder), entries.values(), folder.find_ending()), entries


def result_of(header: RunHeader, suite: Suite, entries: Iterable[RunEntry], ended: Ending) -> RunResult:
    """The result of a whole run from what was kept of it; one that lacks planned attempts is incomplete and does not pass."""
    entries = list(entries)
    cases = {case.id: case for case in suite.cases}
    order = {case.id: number for number, case in enumerate(suite.cases)}
    results = [case_result(cases.get(entry.case) or Case(id=entry.case), entry) for entry in entries]
    results.sort(key=lambda result: (order.get(result.case.id, len(order)), result.attempt))
    tally = Tally()
    tally.add_all(results)
    incomplete = find_incomplete(suite.cases, header.repeat, ((entry.case, entry.attempt) for entry in entries), ended)
    return RunResult(
        suite_name=suite.name,
        suite_path=suite.path,
        dialect=suite.dialect,
        run_id=header.run_id,
        started_at=header.started_at,
        outcome=decide_outcome(tally.decide_outcome(), incomplete),
        score=tally.score,
        counts=tally.counts,
        cases=tuple(results),
        summary=tuple(tally.list_summaries()),
        unmet=unmet_of(suite, entries),
        incomplete=incomplete,
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
    incomplete = _select_missing(run.incomplete, results, chooses)
    tally = Tally()
    tally.add_all(results)
    return msgspec.structs.replace(
        run,
        cases=results,
        outcome=decide_outcome(tally.decide_outcome(), incomplete),
        score=tally.score,
        counts=tally.counts,
        summary=tuple(tally.list_summaries()),
        incomplete=incomplete,
    )


def _select_missing(run: Incomplete | None, results: Sequence[CaseResult], chooses: Callable[[Case], bool]) -> Incomplete | None:
    missing = () if run is None else tuple(each for each in run.missing if chooses(each.case))
    if run is None or not missing:
        return None
    lacking = {each.case.id for each in missing}
    whole = {result.case.id for result in results} - lacking
    return Incomplete(
        ended=run.ended,
        attempts_finished=len(results),
        attempts_planned=len(results) + sum(each.planned - each.finished for each in missing),
        cases_finished=len(whole),
        cases_planned=len(whole) + len(lacking),
        missing=missing,
    )


def case_result(case: Case, entry: RunEntry) -> CaseResult:
    """One kept attempt as a result."""
    outcome: Outcome = entry.outcome  # type: ignore[assignment]  # kept as text, written from an outcome
    verdict: CaseVerdict | None = entry.verdict  # type: ignore[assignment]  # as above
    axes = None
    if case.scoring.mode == "weighted" and len(case.assertions) == len(entry.verdicts):
        pairs = zip(case.assertions, entry.verdicts, strict=True)
        axes = score_axes((a, v) for a, v in pairs if not a.advisory and v.outcome in ("pass", "fail"))
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
        None if entry.evidence is None else find_known(entry.evidence, TARGET),
    )
