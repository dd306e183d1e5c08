"""Runs an agent inside a pytest session; runs are stored like those of `proctor run`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from proctor.actions.running.named_target import choose_target, parse_target
from proctor.actions.running.run import LiveRun, RunOptions, TargetLike, drive
from proctor.actions.workspace.run_history import find_home, is_workspace_folder
from proctor.errors import InputError, TargetError
from proctor.model.case import Case, Suite, Turn
from proctor.model.evidence import Evidence, Json
from proctor.processes.guard import GUARD
from proctor.processes.threads import is_loop_running
from proctor.runner.limits import RunSettings


def find_run_home(folder: Path, root: Path, *, trusted: bool = True) -> Path:
    """Return the folder of stored runs: next to the nearest `proctor.yaml` above `folder`, else in the root folder.

    Unless it is `trusted`, only the working folder counts: a foreign suite may bring its own `proctor.yaml`.
    """
    here = find_home(None)
    for home in (find_home(None, start=folder), find_home(None, start=root)):
        if is_workspace_folder(home.parent) and (trusted or home.parent.is_relative_to(here.parent)):
            return home
    return find_home(None, start=root) if trusted or root.resolve().is_relative_to(here.parent) else here


def drive_suite(
    suite: Suite,
    *,
    target: TargetLike,
    home: Path,
    note: str,
    timeout_s: float = 120.0,
    trust: bool | None = None,
    capture: Literal["otel"] | None = None,
) -> LiveRun:
    """Run the suite. Raises `KeyboardInterrupt` if interrupted; finished attempts are stored."""
    if is_loop_running():
        raise InputError(
            "an agent cannot be driven from inside a running event loop; in an async test: await asyncio.to_thread(proctor_target, ...)"
        )
    options = RunOptions(settings=RunSettings(timeout_s=timeout_s), note=note, trust=trust, capture=capture)
    run = asyncio.run(drive(suite, options, target=target, home=home))
    if run.ended == "interrupted":
        GUARD.note_interruption()
        # pytest ends the session on this; after a failed test it would continue.
        raise KeyboardInterrupt
    return run


def ask_target(
    target: TargetLike,
    messages: Sequence[str],
    *,
    context: Mapping[str, Json],
    home: Path,
    note: str,
    timeout_s: float = 120.0,
    capture: Literal["otel"] | None = None,
) -> Evidence:
    """Return the evidence of the agent for these messages, one turn each. Raises `TargetError` without evidence."""
    case = Case(
        id="asked",
        input=messages[0] if len(messages) == 1 else None,
        turns=tuple(Turn(input=message) for message in messages) if len(messages) > 1 else (),
        context=dict(context),
    )
    suite = Suite(name=note, cases=(case,))
    if isinstance(target, str) and (capture is None or parse_target(target) is not None):
        # What a test names is trusted, like the command line.
        target, capture = choose_target(target, suite, home, capture=capture), None
    run = drive_suite(suite, target=target, home=home, note=note, timeout_s=timeout_s, capture=capture)
    entry = run.entries[case.id, 0]
    if entry.evidence is None:
        raise TargetError(entry.reason or "the agent left no evidence")
    # It matches the case of any suite by its input.
    return msgspec.structs.replace(entry.evidence, case=None)
