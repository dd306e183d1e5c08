"""Attempts at one case that failed in the same way: told once, with the numbers of the others."""

from __future__ import annotations

import msgspec

from proctor.model.result import CaseResult

MOST_KINDS = 1_000
"""How many different failures are gathered; further ones are told each."""
MOST_NUMBERS = 20
"""Attempts that are named beside a failure."""

Failure = tuple[object, ...]


class Alike(msgspec.Struct):
    """Later attempts that failed like one that was told."""

    count: int = 0
    numbers: list[int] = []


class RepeatedFailures:
    """The failures of cases that were driven several times."""

    def __init__(self) -> None:
        self._alike: dict[Failure, Alike] = {}

    def is_told(self, result: CaseResult) -> bool:
        """Return whether an earlier attempt at the same case was told with the same failure; if so this one is counted with it."""
        failure = find_failure(result)
        if failure is None:
            return False
        alike = self._alike.get(failure)
        if alike is None:
            if len(self._alike) < MOST_KINDS:
                self._alike[failure] = Alike()
            return False
        alike.count += 1
        if len(alike.numbers) < MOST_NUMBERS:
            alike.numbers.append(result.attempt + 1)
        return True

    def forget(self, result: CaseResult) -> None:
        """Take back that a failure was told: there was no room for it, so that later ones like it are not told with it either."""
        self._alike.pop(find_failure(result) or (), None)

    def describe(self, result: CaseResult) -> str:
        """Return which later attempts failed like this one: `the same in attempts 2, 3`; empty where none did."""
        alike = self._alike.get(find_failure(result) or ())
        if alike is None or not alike.count:
            return ""
        more = f" and {alike.count - len(alike.numbers):,} more" if alike.count > len(alike.numbers) else ""
        return f"the same in attempt{'' if alike.count == 1 else 's'} {', '.join(map(str, alike.numbers))}{more}"


def find_failure(result: CaseResult) -> Failure | None:
    """Return what makes two failed attempts alike: the case and every verdict that does not pass; None for evidence that was recorded."""
    if result.source is not None or result.outcome not in ("fail", "error"):
        return None
    broken = tuple((number, verdict.outcome, verdict.reason) for number, verdict in enumerate(result.verdicts) if verdict.outcome != "pass")
    return (result.case.id, result.outcome, result.code, result.reason, broken)
