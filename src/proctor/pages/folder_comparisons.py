"""Runs of a folder side by side, for `proctor view`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proctor.actions.answers import Answer, AttemptOutcome, ReadAttempt, choose_attempt, compare_answers
from proctor.actions.compare import compare
from proctor.actions.compare_several import MOST_RUNS, SeveralRuns, join_comparisons
from proctor.actions.history import suite_of
from proctor.service.refusals import Refusal
from proctor.store.run_files import RunFolder


def check_runs(ids: Sequence[str]) -> None:
    """Refuse too few runs, too many, and one that is named twice."""
    if not 2 <= len(ids) <= MOST_RUNS or len(set(ids)) < len(ids):
        told = [f"expected 2 to {MOST_RUNS} different runs, got {len(ids)}"]
        raise Refusal("VALIDATION_ERROR", "these runs cannot be compared", fields={"runs": told})


def compare_folders(home: Path, ids: Sequence[str]) -> SeveralRuns:
    """Return kept runs compared with the first of them."""
    return join_comparisons([compare(home, ids[0], id) for id in ids[1:]])


def read_folder_answers(runs: Sequence[RunFolder], case: str, attempt: int | None) -> tuple[Answer, ...]:
    """Return what was answered to a case in each of these runs."""
    read: list[ReadAttempt] = []
    for number, run in enumerate(runs):
        found = {str(at): entry for at, entry in enumerate(run.entries()) if entry.case == case}
        listed = tuple(AttemptOutcome(id=id, attempt=entry.attempt, outcome=entry.outcome) for id, entry in found.items())
        chosen = choose_attempt(listed, is_base=number == 0, attempt=attempt)
        entry = None if chosen is None else found[chosen.id]
        known = next((each for each in suite_of(run).cases if each.id == case), None)
        read.append(ReadAttempt(run_id=run.header.run_id, attempts=listed, chosen=chosen, entry=entry, case=known))
    return compare_answers(read)
