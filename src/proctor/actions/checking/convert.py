"""Write a suite of any dialect in our own format, or in that of another dialect."""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.actions.mcplab.access import judge_agent
from proctor.actions.workspace.combined_suites import SUITES, Part, every_part
from proctor.actions.workspace.suites import load_suite
from proctor.errors import InputError
from proctor.formats.dialect_text import WRITTEN_DIALECTS, write_dialect
from proctor.formats.mcplab.text import describe_agents
from proctor.formats.native.text import write_native
from proctor.formats.workspace_file import WORKSPACE_KEYS
from proctor.model.case import Suite
from proctor.model.problem import Origin, Problem

FORMATS = ("native", *WRITTEN_DIALECTS)


def convert(path: str | Path, *, dialect: str | None = None, to: str = "native") -> tuple[str, tuple[Problem, ...]]:
    """The text of the suite at `path` in the format `to`; the warnings from reading it, and the parts that are not written.

    The suites of a folder may each have targets, models and a judge; the combined suite has none of them. Raises
    `InputError` with every part that another dialect cannot express.
    """
    if to not in FORMATS:
        raise InputError(f"unknown format {to!r}; expected one of {', '.join(FORMATS)}")
    suite = load_suite(path, dialect=dialect)
    settings = {key: value for key, value in suite.settings.items() if key != SUITES}
    single = suite if len(settings) == len(suite.settings) else msgspec.structs.replace(suite, settings=settings)
    unwritten = [] if single is suite else [part for part in every_part(suite) if not part.settings.items() <= settings.items()]
    problems = [*suite.warnings, *(_describe_not_written(suite, part) for part in unwritten)]
    if suite.dialect == "mcplab":
        single, dropped = describe_agents(single, judge_agent(suite))
        problems += [Problem(message=message, origin=Origin(file=suite.path), level="warning", code="not_written") for message in dropped]
    elif suite.dialect == "mcpjam" and "target" in suite.settings:
        message = "no target is written: MCPJam names its servers and its model, and describes them elsewhere; give one with --target"
        problems.append(Problem(message=message, origin=Origin(file=suite.path), level="warning", code="not_written"))
    if to == "native":
        return write_native(single), tuple(problems)
    text, dropped = write_dialect(single, to)
    return text, (*problems, *dropped)


def _describe_not_written(suite: Suite, part: Part) -> Problem:
    keys = [f"`{key}`" for key in WORKSPACE_KEYS if key in part.settings]
    return Problem(
        message=f"not written: {', '.join(keys)} of this suite; what is written is one suite, and has one set of them",
        origin=Origin(file=str(Path(suite.path or "") / part.file) if part.file is not None else None),
        level="warning",
        code="settings_not_used",
    )
