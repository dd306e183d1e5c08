"""Shows failed cases in a pytest report, without a traceback.

pytest loads this file in every session of every project that has proctor installed, so nothing heavy may be imported here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

# pytest has no public name for them; with a plain text instead, the short summary would lack the reason.
from _pytest._code.code import (
    ReprExceptionInfo,
    ReprFileLocation,
    ReprTracebackNative,
)

WRITTEN_AT = pytest.StashKey[tuple[str, int]]()
"""Stash key of a case's item: its file and line (from 1)."""


class CheckFailed(AssertionError):
    """Raised when a claim about an agent fails or cannot be decided."""

    def __init__(self, headline: str, report: str) -> None:
        super().__init__(report)
        self.headline = headline
        """The problem in one line."""
        self.report = report


def show_failure(failure: CheckFailed, file: str, line: int, *, lead: str = "") -> ReprExceptionInfo:
    """Return the failure for pytest: report, headline and location."""
    text = f"{lead}{failure.report.rstrip()}\n"
    return ReprExceptionInfo(ReprTracebackNative([text]), ReprFileLocation(file, line, failure.headline))


def find_place(item: pytest.Item, failure: pytest.ExceptionInfo[BaseException]) -> tuple[str, int]:
    """Return the line of the test function that failed; else the innermost line of the test file."""
    lines_in_test_file = [entry for entry in failure.traceback if Path(entry.path) == item.path]
    if lines_in_test_file:
        return str(item.path), lines_in_test_file[-1].lineno + 1
    _, line, _ = item.reportinfo()
    return str(item.path), (line or 0) + 1


def shorten_path(path: Path, folder: Path | None = None) -> Path:
    """Return the path relative to the working directory or `folder`, if it is below."""
    start = folder or Path.cwd()
    return path.relative_to(start) if path.is_relative_to(start) else path
