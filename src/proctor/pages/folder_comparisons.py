"""Runs of a folder side by side, for `proctor view`. Evidence is read of what is shown, and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from proctor.actions.history.answers import Answer, AttemptOutcome, ReadAttempt, choose_attempt, compare_answers
from proctor.actions.history.compare import RunComparison, add_incomplete, compare_tallies, how_much
from proctor.actions.history.compare_several import MOST_RUNS, SeveralRuns, join_comparisons
from proctor.actions.workspace.run_tally import RunTally
from proctor.pages.folder_suites import ReadSuite
from proctor.service.refusals import Refusal
from proctor.store.files.log_index import LogIndex
from proctor.store.files.run_files import RunFolder

_MOST_REMEMBERED = 20_000
"""Cases of a comparison that is remembered."""


class IndexedRun(NamedTuple):
    """A run with where its attempts stand, and its suite."""

    run: RunFolder
    log: LogIndex
    suite: ReadSuite


def check_runs(ids: Sequence[str]) -> None:
    """Refuse too few runs, too many, and one that is named twice."""
    if not 2 <= len(ids) <= MOST_RUNS or len(set(ids)) < len(ids):
        told = [f"expected 2 to {MOST_RUNS} different runs, got {len(ids)}"]
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": told})


def compare_folders(runs: Sequence[IndexedRun]) -> SeveralRuns:
    """Return kept runs compared with the first of them."""
    return join_comparisons([_compare_remembered(runs[0], run) for run in runs[1:]])


def _compare_remembered(base: IndexedRun, candidate: IndexedRun) -> RunComparison:
    """Return a comparison, made anew where either run or what is known of it has changed."""
    endings = (base.run.find_ending(), candidate.run.find_ending())
    key = ("comparison", base.run.folder, base.log.stamp, base.run.header, candidate.run.header, endings)
    return candidate.log.remember(
        repr(key), lambda: _compare(base, candidate), is_small=lambda found: len(found.comparison.changes) <= _MOST_REMEMBERED
    )


def _compare(base: IndexedRun, candidate: IndexedRun) -> RunComparison:
    before, after = RunTally.of(base.log.iterate_digests()), RunTally.of(candidate.log.iterate_digests())
    first, second = base.run.header, candidate.run.header
    found = compare_tallies((first, before), (second, after), candidate.suite.suite)
    return add_incomplete(
        found,
        base=how_much(first, base.suite.suite, before, base.run.find_ending()),
        candidate=how_much(second, candidate.suite.suite, after, candidate.run.find_ending()),
    )


def read_folder_answers(runs: Sequence[IndexedRun], case: str, attempt: int | None) -> tuple[Answer, ...]:
    """Return what was answered to a case in each of these runs."""
    read: list[ReadAttempt] = []
    for number, (run, log, suite) in enumerate(runs):
        found = [(str(at), log.read_digest(at)) for at in log.find_numbers(case=case)]
        listed = tuple(AttemptOutcome(id=id, attempt=one.attempt, outcome=one.outcome) for id, one in found if one.case == case)
        chosen = choose_attempt(listed, is_base=number == 0, attempt=attempt)
        entry = None if chosen is None else log.read(int(chosen.id))
        read.append(ReadAttempt(run_id=run.header.run_id, attempts=listed, chosen=chosen, entry=entry, case=suite.find_case(case)))
    return compare_answers(read)
