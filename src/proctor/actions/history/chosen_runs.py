"""Finds stored runs by reference, and explains the choice: the same rules for the command line and the MCP server."""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.store.files.run_files import RunFiles
from proctor.store.files.run_references import BASELINE, LATEST, MAIN


class ChosenRun(msgspec.Struct, frozen=True):
    """The run of a reference."""

    run: str
    """As every action takes it: its id, or its folder."""
    note: str | None = None
    """Which run it is and why, if the reference does not make it clear."""


def find_chosen_run(home: Path, word: str, *, suite: str | None = None) -> ChosenRun:
    """Return the run of a reference; `suite` decides whose baseline. Raises `StoreError`."""
    files = RunFiles(home)
    found = files.find(word, suite=suite)
    return ChosenRun(found.folder.name if found.folder.parent == files.folder else str(found.folder.absolute()), found.note)


def choose_pair(home: Path, base: str | None, candidate: str | None) -> tuple[ChosenRun, ChosenRun]:
    """Return the base and the candidate: by default the baseline of the candidate's suite, and the latest run."""
    word = base or BASELINE
    before = None if word in (BASELINE, MAIN) else find_chosen_run(home, word)
    after = find_chosen_run(home, candidate or LATEST)
    if before is None:
        # Which baseline is meant depends on the suite of the run that is compared with it.
        before = find_chosen_run(home, word, suite=RunFiles(home).open(after.run).header.suite_name)
    return before, after
