"""From the attempts of one case to one outcome.

Without a threshold a case passes when every decided attempt passes. With `pass_threshold` it passes when the share of passing
attempts reaches it; attempts that were skipped do not count, attempts that errored count as not passed.
"""

from __future__ import annotations

from collections.abc import Mapping

from proctor.model.verdict import Outcome
from proctor.scoring.score import TOLERANCE


def reduce_attempts(counts: Mapping[str, int], pass_threshold: float | None = None) -> Outcome:
    """Return the outcome of a case from how many attempts ended in each outcome."""
    passed, failed, errored = counts.get("pass", 0), counts.get("fail", 0), counts.get("error", 0)
    decided = passed + failed + errored
    if not decided:
        return "skip"
    # A single attempt has no rate: it passed, or it did not.
    if pass_threshold is not None and decided > 1:
        if passed / decided >= pass_threshold - TOLERANCE:
            return "pass"
        # Where only errors keep it below its threshold, nothing is known to have failed.
        return "fail" if failed else "error"
    if failed:
        return "fail"
    return "error" if errored else "pass"
