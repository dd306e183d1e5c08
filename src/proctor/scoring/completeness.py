"""Whether a run has everything it planned, and which attempts are missing.

A run plans every case `repeat` times, or as often as the case itself asks for where that is more. What was planned and is not there was
neither passed nor failed: a run that lacks any of it is incomplete, whatever its results.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from proctor.model.case import Case
from proctor.model.result import Ending, Incomplete, MissingAttempts
from proctor.model.verdict import Outcome


def count_planned_attempts(case: Case, repeat: int) -> int:
    """Return how often a run that repeats everything `repeat` times drives this case."""
    return max(repeat, case.repetitions or 1)


def find_incomplete(cases: Sequence[Case], repeat: int, finished: Iterable[tuple[str, int]], ended: Ending) -> Incomplete | None:
    """Return what is missing of the planned attempts, or None where every one of them is there."""
    there: dict[str, set[int]] = {}
    for case_id, attempt in finished:
        there.setdefault(case_id, set()).add(attempt)
    return find_incomplete_cases(cases, repeat, there, ended)


def find_incomplete_cases(cases: Sequence[Case], repeat: int, finished: Mapping[str, Collection[int]], ended: Ending) -> Incomplete | None:
    """Return the same of the numbers of the attempts of each case."""
    attempts_planned = attempts_finished = 0
    missing: list[MissingAttempts] = []
    for case in cases:
        planned = count_planned_attempts(case, repeat)
        # Attempts beyond the plan (recorded with more repeats) do not make up for missing ones.
        done = sum(map(planned.__gt__, set(finished.get(case.id, ()))))
        attempts_planned += planned
        attempts_finished += done
        if done < planned:
            missing.append(MissingAttempts(case=case, planned=planned, finished=done))
    if not missing:
        return None
    return Incomplete(
        ended=ended,
        attempts_finished=attempts_finished,
        attempts_planned=attempts_planned,
        cases_finished=len(cases) - len(missing),
        cases_planned=len(cases),
        missing=tuple(missing),
    )


def decide_outcome(decided: Outcome, incomplete: Incomplete | None) -> Outcome:
    """Return the outcome of a run: what failed has failed, but what is not all there did not pass."""
    return decided if incomplete is None or decided == "fail" else "error"
