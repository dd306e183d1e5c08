"""Tells of what no cassette can hold: a Python function or a program is driven again, whatever was recorded.

Refused where a replay would be nothing else, said where a judge or a simulated user is played back beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.actions.workspace.combined_suites import TargetsTogether
from proctor.errors import InputError
from proctor.model.show import show

if TYPE_CHECKING:
    from proctor.actions.running.run_builder import BuiltRun
    from proctor.actions.running.run_options import RunOptions
    from proctor.runner.ports import Target

_WHY = "a Python function or a program has no wire to record"


def tell_untaped(built: BuiltRun, options: RunOptions) -> None:
    """Announce of which targets nothing is recorded. Raises `InputError` for a replay that would play nothing back, or the wrong thing."""
    if options.record is None and options.replay is None:
        return
    targets = _list_targets(built.target)
    if any(getattr(target, "has_systems", False) for target in targets):
        raise InputError(
            f"{options.record or options.replay}: cases with simulated systems cannot be recorded or replayed: what the agent does there "
            "is on no tape; `proctor recheck latest` decides again on what was kept of a run"
        )
    untaped = [target for target in targets if not getattr(target, "has_wire", True)]
    if not untaped:
        return
    names = ", ".join(dict.fromkeys(show(target.name, 80) for target in untaped))
    alone = len(untaped) == len(targets) and built.seat.judge is None and built.users is None
    if options.replay is not None:
        if alone:
            raise InputError(
                f"--replay {options.replay}: of {names} nothing can be played back: {_WHY}, so that it would be driven again; "
                "`proctor recheck latest` decides on what it answered last, and without --replay it is driven"
            )
        options.announce(f"{names} is driven again: {_WHY}; everything else comes from {options.replay}")
        return
    kept = f"{options.record} stays without a recording, and --replay would refuse it" if alone else f"{options.record} keeps the rest"
    options.announce(f"nothing of {names} can be recorded: {_WHY}; {kept}")


def _list_targets(target: Target) -> list[Target]:
    if not isinstance(target, TargetsTogether):
        return [target]
    return [each for inner in target.targets for each in _list_targets(inner)]
