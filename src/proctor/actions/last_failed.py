"""The cases that failed the last time: what `--last-failed` drives again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.errors import ProctorError, StoreError
from proctor.model.case import Suite
from proctor.model.run import RunHeader
from proctor.store.run_files import RunFiles


class LastFailed(msgspec.Struct, frozen=True, kw_only=True):
    """What the last run of a suite left to be mended."""

    run_id: str
    cases: frozenset[str]
    """Ids of cases of which an attempt failed or ended in an error."""
    whole: bool
    """Whether that run came to its end."""


def find_last_failed(home: Path, suite: Suite) -> LastFailed:
    """Return what failed in the newest kept run of a suite. Raises `StoreError` where there is none."""
    files = RunFiles(home)
    for run_id in files.list_ids():
        try:
            folder = files.open(run_id)
            if not _is_of(folder.header, suite):
                continue
            outcomes = [(head.case, head.outcome) for _, head in folder.open_entries().iterate_heads() if head.outcome != "pass"]
            found = bool(outcomes) or next(folder.entries(), None) is not None
        except ProctorError:
            continue  # `proctor list` says what is wrong with it
        # A run that has kept nothing does not tell what failed: the one before it is looked at.
        if found:
            failed = frozenset(case for case, outcome in outcomes if outcome in ("fail", "error"))
            return LastFailed(run_id=run_id, cases=failed, whole=folder.find_ending() == "completed")
    raise StoreError(f"no run of the suite {suite.name!r} is kept yet, so that none of its cases failed; run it once without --last-failed")


def choose_failed_cases(suite: Suite, last: LastFailed) -> Suite:
    """Return the suite with only what failed; a scenario of MCPLab failed where it did with any of its agents."""
    from proctor.decide.selection import select_ids  # only this road needs it

    ids = {case.id for case in suite.cases} if suite.dialect == "mcplab" else set[str]()
    return select_ids(suite, {_find_scenario(each, ids) if suite.dialect == "mcplab" else each for each in last.cases})


def _find_scenario(case: str, ids: set[str]) -> str:
    """Return the scenario of a case, which has the agent behind its id where there are several; the longest that fits is meant."""
    return case if case in ids else max((each for each in ids if case.startswith(f"{each}-")), key=len, default=case)


def _is_of(header: RunHeader, suite: Suite) -> bool:
    if header.suite_name != suite.name:
        return False
    if header.suite_path is None or suite.path is None:
        return header.suite_path == suite.path
    # Kept as it was given, from whatever folder the command was given in.
    return Path(header.suite_path).name == Path(suite.path).name
