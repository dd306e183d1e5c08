"""Decide the stored evidence of a run again, with the suite it was started with or with another; no agent is called."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.actions.checking.check_stream import prepare_once
from proctor.actions.checking.judged_check import AHEAD, decide_with_judge
from proctor.actions.workspace.run_history import TARGET, case_result, find_unchanged_suite, make_run_result, suite_of, unmet_of
from proctor.decide.other_input import OtherInputs
from proctor.decide.prepare import PreparedCase, skip_case, with_account
from proctor.evidence.unknowns.account import declare_complete
from proctor.model.case import Skip, Suite
from proctor.model.evidence import Evidence
from proctor.model.problem import Problem
from proctor.model.result import CaseResult, RunResult
from proctor.model.run import RunEntry
from proctor.report.blocks.exchange import with_exchange
from proctor.runner.ports import Judge
from proctor.scoring.statistics import find_incomplete
from proctor.store.files.run_files import SUITE, RunFiles, RunFolder


def recheck(home: Path, run: str, suite: Suite | None = None) -> RunResult:
    """The result of the stored evidence now.

    The clock is the one of the run. An attempt without evidence keeps its error, and a case that is not in the suite is left out, with a
    warning. Claims in plain language are errors: `recheck_judged` uses a judge.
    """
    folder, chosen = _open_run(home, run, suite)
    results = [
        unknown_cases if evidence is None else _attach_evidence(case.decide(evidence, None, entry.attempt), evidence)
        for case, entry, evidence, unknown_cases in _iterate_attempts(folder, chosen)
    ]
    return _make_result(folder, chosen, results)


async def recheck_judged(home: Path, run: str, judge: Judge, suite: Suite | None = None, *, fail_fast: bool = False) -> RunResult:
    """Do as `recheck`, with a judge for claims in plain language."""
    folder, chosen = _open_run(home, run, suite)

    async def recheck_one(case: PreparedCase, entry: RunEntry, evidence: Evidence | None, undecided: CaseResult) -> CaseResult:
        if evidence is None:
            return undecided
        async with at_once:
            result = await decide_with_judge(case, evidence, judge, attempt=entry.attempt, fail_fast=fail_fast)
            return _attach_evidence(result, evidence)

    at_once = asyncio.Semaphore(AHEAD)
    results = await asyncio.gather(*(recheck_one(*attempt) for attempt in _iterate_attempts(folder, chosen)))
    return _make_result(folder, chosen, results)


def _attach_evidence(result: CaseResult, evidence: Evidence) -> CaseResult:
    return with_exchange(with_account(result, evidence, TARGET), evidence)


def suite_to_recheck(home: Path, run: str) -> Suite:
    """The suite a run was started with."""
    return _find_stored_suite(RunFiles(home).open(run))


def _open_run(home: Path, run: str, suite: Suite | None) -> tuple[RunFolder, Suite]:
    folder = RunFiles(home).open(run)
    return folder, suite or _find_stored_suite(folder)


def _find_stored_suite(folder: RunFolder) -> Suite:
    suite = suite_of(folder)
    # The folder of a run may be forged: a stored copy that differs from its file is untrusted even if the file is trusted.
    return suite if find_unchanged_suite(folder, suite) else msgspec.structs.replace(suite, path=str(folder.folder / SUITE))


def _iterate_attempts(folder: RunFolder, suite: Suite) -> Iterator[tuple[PreparedCase, RunEntry, Evidence | None, CaseResult]]:
    """Yield every stored attempt of a case of the suite: case, entry, evidence with its clock, and how it ended."""
    cases = {case.case.id: case for case in prepare_once(suite).cases}
    declared = suite.find_declared()
    for entry in folder.entries():
        case = cases.get(entry.case)
        if case is None:
            continue
        evidence = entry.evidence
        if evidence is not None and declared is not None and declared.complete:
            evidence = declare_complete(evidence, declared.complete, declared.source)
        # With today's clock, claims about dates would be decided differently than in the run.
        if evidence is not None and evidence.now is None:
            evidence = msgspec.structs.replace(evidence, now=entry.now or entry.started_at or folder.header.started_at)
        yield case, entry, evidence, case_result(case.case, entry)


def _make_result(folder: RunFolder, chosen: Suite, results: list[CaseResult]) -> RunResult:
    # Cases that were not chosen are not missing.
    left_out = {case.id for case in chosen.unselected}
    entries = [entry for entry in folder.entries() if entry.case not in left_out]
    cases = {case.id: case for case in chosen.cases}
    other_inputs = OtherInputs()
    for entry in entries:
        if entry.evidence is not None and entry.case in cases:
            other_inputs.note(cases[entry.case], entry.evidence)
    order = {case.id: number for number, case in enumerate(chosen.cases)}
    stored = {entry.case for entry in entries}
    unknown = [entry.case for entry in entries if entry.case not in order]
    for case in chosen.cases:
        if case.id not in stored:
            # It is new in the suite, or the run did not get to it.
            skip = case.skip or Skip(code="no_evidence", reason="the run has no attempt of this case")
            results.append(skip_case(case, skip.code, skip.reason))
    # Stored in the order in which they finished; shown in the order of the suite.
    results.sort(key=lambda result: (order[result.case.id], result.attempt))
    chosen_ids = {case.id for case in chosen.cases}
    planned = [case for case in suite_of(folder).cases if case.id in chosen_ids]
    incomplete = find_incomplete(planned, folder.header.repeat, ((entry.case, entry.attempt) for entry in entries), folder.find_ending())
    warnings = list(chosen.warnings)
    if unknown:
        warnings.append(
            Problem(message=f"{len(unknown)} stored attempts of cases that are not in the suite, first {unknown[0]!r}", level="warning")
        )
    unmet = msgspec.structs.replace(unmet_of(chosen, entries), records_with_other_input=other_inputs.records)
    result = make_run_result(folder.header, chosen, tuple(results), unmet, incomplete)
    return msgspec.structs.replace(result, warnings=(*warnings, *other_inputs.list_warnings()))
