"""What is told about the rows of one file of data, of which there may be a hundred thousand with the same fault."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.model.problem import Problem

MOST_PROBLEMS = 100
"""Errors, and warnings, that are told of one file."""


class RowProblems:
    """The problems of the rows of one file: after so many errors there is no use in going on, and of warnings so many are told."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.untold = 0
        """Warnings beyond those that are told."""
        self._counts = {"error": 0, "warning": 0}
        self._warned: set[tuple[str, str | None]] = set()

    def add(self, problems: Sequence[Problem]) -> bool:
        """Take the problems of one row; returns whether the next one is to be looked at."""
        for problem in problems:
            if problem.level == "warning" and self._was_warned(problem):
                continue
            self._counts[problem.level] += 1
            if self._counts[problem.level] <= MOST_PROBLEMS:
                self.problems.append(problem)
            elif problem.level == "warning":
                self.untold += 1
            else:
                told = f"more than {MOST_PROBLEMS} problems; the rest of the file was not looked at"
                self.problems.append(Problem(message=told, origin=problem.origin, code="too_many_problems"))
                return False
        return True

    def _was_warned(self, problem: Problem) -> bool:
        """Return whether a row before has had the same warning: what stands in the template is worth one for all of them."""
        told = (problem.message, problem.origin.path)
        if told in self._warned:
            return True
        # Bounded: where a message holds a value of its row, every row would add another one.
        if len(self._warned) < MOST_PROBLEMS:
            self._warned.add(told)
        return False
