"""Which kept runs somebody means, and why these: the same rules for the command line and the MCP server."""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.store.files.run_files import RunFiles
from proctor.store.files.run_references import BASELINE, LATEST, MAIN


class ChosenRun(msgspec.Struct, frozen=True):
    """The run that a word means."""

    run: str
    """As every action takes it: its id, or its folder."""
    said: str | None = None
    """Which run it is and why, where the word does not say it by itself."""


def find_chosen_run(home: Path, word: str, *, suite: str | None = None) -> ChosenRun:
    """Return the run that a word means; `suite` says whose baseline. Raises `StoreError`."""
    files = RunFiles(home)
    found = files.find(word, suite=suite)
    return ChosenRun(found.folder.name if found.folder.parent == files.folder else str(found.folder.absolute()), found.said)


def choose_pair(home: Path, base: str | None, candidate: str | None) -> tuple[ChosenRun, ChosenRun]:
    """Return the base and the candidate: where nothing is said, the baseline of the candidate's suite, and the latest run."""
    word = base or BASELINE
    before = None if word in (BASELINE, MAIN) else find_chosen_run(home, word)
    after = find_chosen_run(home, candidate or LATEST)
    if before is None:
        # Which baseline is meant depends on the suite of the run that is compared with it.
        before = find_chosen_run(home, word, suite=RunFiles(home).open(after.run).header.suite_name)
    return before, after
