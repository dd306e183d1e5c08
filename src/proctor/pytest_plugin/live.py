"""Drives an agent from inside a pytest session; the runs are kept like those of `proctor run`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from proctor.actions.history import WORKSPACE_FILES, find_home
from proctor.actions.run import LiveRun, TargetLike, drive
from proctor.errors import InputError, TargetError
from proctor.model.case import Case, Suite, Turn
from proctor.model.evidence import Evidence, Json


def find_run_home(folder: Path, root: Path) -> Path:
    """Return the folder where runs are kept: beside the nearest `proctor.yaml` above `folder`, else in the root folder of the session."""
    home = find_home(None, start=folder)
    return home if any((home.parent / name).is_file() for name in WORKSPACE_FILES) else find_home(None, start=root)


def drive_suite(suite: Suite, *, target: TargetLike, home: Path, note: str, timeout_s: float = 120.0, trust: bool | None = None) -> LiveRun:
    """Drive the agent through the suite. Raises `KeyboardInterrupt` when it was interrupted; what is finished is kept."""
    if _is_in_loop():
        raise InputError(
            "an agent cannot be driven from inside a running event loop; in an async test: await asyncio.to_thread(proctor_target, ...)"
        )
    run = asyncio.run(drive(suite, target=target, home=home, note=note, timeout_s=timeout_s, trust=trust))
    if run.ended == "interrupted":
        raise KeyboardInterrupt
    return run


def ask_target(
    target: TargetLike, messages: Sequence[str], *, context: Mapping[str, Json], home: Path, note: str, timeout_s: float = 120.0
) -> Evidence:
    """Return what the agent did when it was told these messages, one turn each. Raises `TargetError` where it left no evidence."""
    case = Case(
        id="asked",
        input=messages[0] if len(messages) == 1 else None,
        turns=tuple(Turn(input=message) for message in messages) if len(messages) > 1 else (),
        context=dict(context),
    )
    run = drive_suite(Suite(name=note, cases=(case,)), target=target, home=home, note=note, timeout_s=timeout_s)
    entry = run.entries[case.id, 0]
    if entry.evidence is None:
        raise TargetError(entry.reason or "the agent left no evidence")
    return entry.evidence


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
