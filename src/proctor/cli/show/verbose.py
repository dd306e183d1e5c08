"""`-v`: every case with its assertions on standard error, as it ends."""

from __future__ import annotations

import sys

from proctor.model.result import CaseResult
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import MARKS


def print_case(result: CaseResult) -> None:
    """Print one case and each of its assertions."""
    # On a terminal the line that moves may stand there already.
    start = "\r\x1b[2K" if sys.stderr.isatty() else ""
    print("\n".join(f"{start}{line}" for line in describe_case(result)), file=sys.stderr)


def describe_case(result: CaseResult) -> list[str]:
    """Return the case on one line, and one line for each assertion with the reason where it did not pass."""
    attempt = f" (attempt {result.attempt + 1})" if result.attempt else ""
    reason = f"  {to_one_line(result.reason, 300)}" if result.reason else ""
    lines = [f"{MARKS[result.outcome]} {to_one_line(result.case.id, 80) or '(no case)'}{attempt}{reason}"]
    for entry in result.assertions:
        verdict = entry.verdict.with_words()
        why = f": {to_one_line(verdict.reason, 300)}" if verdict.outcome != "pass" else ""
        lines.append(f"    {MARKS[verdict.outcome]} {to_one_line(entry.assertion.label or entry.assertion.check, 80)}{why}")
    return lines
