"""Finds the run that an argument refers to, and prints which it is."""

from __future__ import annotations

import sys
from pathlib import Path

from proctor.actions.history.chosen_runs import choose_pair, find_chosen_run
from proctor.store.files.run_references import LATEST

RUN_HELP = "a run: its id or the beginning of one, its name, @TAG, latest, previous, or baseline"


def choose_run(home: Path, word: str, *, quiet: bool = False) -> str:
    """Return the id or folder of a run. Raises `StoreError`."""
    found = find_chosen_run(home, word)
    if found.note is not None and not quiet and word != LATEST:
        print(found.note, file=sys.stderr)
    return found.run


def choose_two_runs(home: Path, first: str | None, second: str | None, *, quiet: bool = False) -> tuple[str, str]:
    """Return base and candidate of a comparison and print which they are; a single run is the candidate. Raises `StoreError`."""
    base, candidate = choose_pair(home, first if second is not None else None, second or first)
    for note in dict.fromkeys((base.note, candidate.note)):
        if note is not None and not quiet:
            print(note, file=sys.stderr)
    return base.run, candidate.run
