"""Write a suite of any dialect in our own format."""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.actions.suites import load_suite
from proctor.actions.together import SUITES, Part, every_part
from proctor.formats.native_text import write_native
from proctor.formats.workspace import WORKSPACE_KEYS
from proctor.model.case import Suite
from proctor.model.origin import Origin
from proctor.model.problem import Problem


def convert(path: str | Path, *, dialect: str | None = None) -> tuple[str, tuple[Problem, ...]]:
    """The native text of the suite at `path`, and the warnings met while reading it.

    Of several suites in a folder each may have its own targets, models and judge; the one that is written has none of them.
    """
    suite = load_suite(path, dialect=dialect)
    settings = {key: value for key, value in suite.settings.items() if key != SUITES}
    whole = suite if len(settings) == len(suite.settings) else msgspec.structs.replace(suite, settings=settings)
    lost = [] if whole is suite else [part for part in every_part(suite) if not part.settings.items() <= settings.items()]
    return write_native(whole), (*suite.warnings, *(_not_written(suite, part) for part in lost))


def _not_written(suite: Suite, part: Part) -> Problem:
    keys = [f"`{key}`" for key in WORKSPACE_KEYS if key in part.settings]
    return Problem(
        message=f"not written: {', '.join(keys)} of this suite; what is written is one suite, and has one set of them",
        origin=Origin(file=str(Path(suite.path or "") / part.file) if part.file is not None else None),
        level="warning",
        code="settings_not_used",
    )
