"""Write a suite of any dialect in our own format."""

from __future__ import annotations

from pathlib import Path

from proctor.actions.suites import load_suite
from proctor.formats.native_text import write_native
from proctor.model.problem import Problem


def convert(path: str | Path, *, dialect: str | None = None) -> tuple[str, tuple[Problem, ...]]:
    """The native text of the suite at `path`, and the warnings met while reading it."""
    suite = load_suite(path, dialect=dialect)
    return write_native(suite), suite.warnings
