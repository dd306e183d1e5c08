"""Finds stored runs by reference, and explains the choice: the same rules for the command line and the MCP server.

Also finds the cases that failed the last time they were run, for `--last-failed` (as in pytest).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.errors import ProctorError, StoreError
from proctor.model.case import Suite
from proctor.model.run import RunHeader
from proctor.store.files.run_files import RunFiles
from proctor.store.files.run_references import BASELINE, LATEST, MAIN


class ChosenRun(msgspec.Struct, frozen=True):
    """The run of a reference."""

    run: str
    """Its id or its folder, as actions take it."""
    note: str | None = None
    """Which run it is and why, if the reference does not make it clear."""


def find_chosen_run(home: Path, word: str, *, suite: str | None = None) -> ChosenRun:
    """Return the run of a reference; `suite` decides whose baseline. Raises `StoreError`."""
    files = RunFiles(home)
    run = files.find(word, suite=suite)
    return ChosenRun(run.folder.name if run.folder.parent == files.folder else str(run.folder.absolute()), run.note)


def choose_pair(home: Path, base: str | None, candidate: str | None) -> tuple[ChosenRun, ChosenRun]:
    """Return the base and the candidate: by default the baseline of the candidate's suite, and the latest run."""
    word = base or BASELINE
    before = None if word in (BASELINE, MAIN) else find_chosen_run(home, word)
    after = find_chosen_run(home, candidate or LATEST)
    if before is None:
        # The baseline depends on the suite of the run that is compared with it.
        before = find_chosen_run(home, word, suite=RunFiles(home).open(after.run).header.suite_name)
    return before, after


class LastFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The failed cases of the last runs of a suite."""

    run_id: str
    """The newest of them."""
    cases: frozenset[str]
    """Ids of cases with a failed attempt or an error in the newest run that has any of their attempts."""
    earlier: bool
    """Whether one of these is older than the newest run."""
    whole: bool
    """Whether that run finished."""


def find_last_failed(home: Path, suite: Suite) -> LastFailed:
    """Return what failed in the newest runs of a suite. Raises `StoreError` if there is none."""
    files = RunFiles(home)
    # The id of an MCPLab case consists of scenario and agent, which the suite does not list.
    known = None if suite.dialect == "mcplab" else {case.id for cases in (suite.cases, suite.unselected) for case in cases}
    ran: dict[str, bool] = {}
    newest: LastFailed | None = None
    for run_id in files.list_ids():
        try:
            folder = files.open(run_id)
            if not _is_of(folder.header, suite):
                continue
            failures: dict[str, bool] = {}
            for _, head in folder.open_entries().iterate_heads():
                if known is None or head.case in known:
                    failures[head.case] = failures.get(head.case, False) or head.outcome in ("fail", "error")
        except ProctorError:
            continue  # `proctor list` reports it
        # A run without entries does not show failures, so the previous one is used.
        if failures and newest is None:
            newest = LastFailed(run_id=run_id, cases=frozenset(), earlier=False, whole=folder.find_ending() == "completed")
        earlier = any(failed and case not in ran for case, failed in failures.items()) and newest is not None and newest.run_id != run_id
        ran = {**failures, **ran}
        if newest is not None:
            failed = frozenset(case for case, has_failed in ran.items() if has_failed)
            newest = msgspec.structs.replace(newest, cases=failed, earlier=newest.earlier or earlier)
        # A run of selected cases does not cover the others.
        if known is not None and len(ran) == len(known):
            break
    if newest is not None:
        return newest
    raise StoreError(f"there is no run of the suite {suite.name!r} yet; run it once without --last-failed")


def choose_failed_cases(suite: Suite, last: LastFailed) -> Suite:
    """Return the suite with only the failed cases; an MCPLab scenario failed if it did so with any agent."""
    from proctor.decide.selection import select_ids  # only needed here

    if suite.dialect != "mcplab":
        return select_ids(suite, set(last.cases))
    ids = {case.id for case in suite.cases}
    # The id of a case may end with the agent: the longest match is its scenario.
    nearest = (max((each for each in ids if case == each or case.startswith(f"{each}-")), key=len, default=case) for case in last.cases)
    return select_ids(suite, set(nearest))


def _is_of(header: RunHeader, suite: Suite) -> bool:
    if header.suite_name != suite.name:
        return False
    if header.suite_path is None or suite.path is None:
        return header.suite_path == suite.path
    # The path is as given, relative to an unknown working directory.
    return Path(header.suite_path).name == Path(suite.path).name
