"""Cases of which nothing could be decided for one reason, such as an agent that is down: told once, not once for each claim."""

from __future__ import annotations

import msgspec

from proctor.model.result import CaseResult

MOST_KINDS = 100
"""How many different faults are gathered; further ones are told with their cases."""
MOST_NAMES = 10
"""Cases named beside a fault."""

Fault = tuple[str, str]


class Alike(msgspec.Struct):
    """Further cases with a fault that was told already."""

    cases: int = 0
    names: list[str] = []
    others: bool = False
    """Whether there are cases that are not named."""


class CaseFaults:
    """The faults of whole cases in a run."""

    def __init__(self) -> None:
        self._alike: dict[Fault, Alike] = {}

    def is_told(self, result: CaseResult) -> bool:
        """Return whether an earlier case was told with the same fault; if so this one is counted with it."""
        fault = find_case_fault(result)
        if fault is None:
            return False
        alike = self._alike.get(fault)
        if alike is None:
            if len(self._alike) < MOST_KINDS:
                self._alike[fault] = Alike()
            return False
        alike.cases += 1
        if result.case.id not in alike.names:
            # One more than is named tells that there are others; attempts at one case are none.
            if len(alike.names) < MOST_NAMES:
                alike.names.append(result.case.id)
            else:
                alike.others = True
        return True

    def forget(self, result: CaseResult) -> None:
        """Take back that a fault was told: there was no room for its case, so that later ones are not told with it either."""
        self._alike.pop(find_case_fault(result) or ("", ""), None)

    def find_alike(self, result: CaseResult) -> Alike | None:
        """Return the further cases with the fault of this one, where there are any."""
        alike = self._alike.get(find_case_fault(result) or ("", ""))
        return alike if alike is not None and alike.cases else None


def find_case_fault(result: CaseResult) -> Fault | None:
    """Return the code and the reason for which nothing of a case could be decided, or None."""
    if result.outcome != "error" or result.code is None or not result.reason:
        return None
    return (result.code, result.reason) if all(verdict.code == result.code for verdict in result.verdicts) else None
