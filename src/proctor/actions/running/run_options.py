"""Everything that may be said about one run, whatever the door it comes from."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from proctor.actions.judging.judge_settings import NO_OPTIONS, JudgeOptions
from proctor.actions.running.run_builder import ALL_AGENTS
from proctor.actions.running.run_policy import McplabOptions
from proctor.actions.workspace.run_names import check_name, check_tag
from proctor.errors import InputError
from proctor.model.evidence import Json
from proctor.model.show import nearest
from proctor.runner.events import Listener, ignore_event
from proctor.runner.settings import RunSettings

_OF_SETTINGS = ("repeat", "concurrency", "timeout_s")
"""Settings that Python code gives by themselves."""


def _ignore_text(text: str) -> None:
    """Do nothing with what is told."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a suite is driven, judged, recorded and watched. Raises `InputError` for what excludes each other."""

    settings: RunSettings = RunSettings()
    record: str | Path | None = None
    """The file that everything said over a wire is written to."""
    replay: str | Path | None = None
    """The file that it is read from, instead of asking anybody."""
    resume: str | None = None
    """The id of a run to go on with."""
    note: str = ""
    capture: Literal["otel"] | None = None
    """What is captured beside the answers of a Python function that is the target, as `capture` of a callable target says it."""
    name: str = ""
    """What the run is called; of several with one name the newest is meant."""
    tags: tuple[str, ...] = ()
    judge: object | None = None
    """Decides claims in plain language, instead of the configured judge: a judge, a function, a mapping or a name, as `check` takes it."""
    judge_options: JudgeOptions = NO_OPTIONS
    allow_missing_judge: bool = False
    """Whether claims that nobody can judge are errors of their cases, not a reason to refuse the run."""
    trust: bool | None = None
    """Whether a suite outside the working folder is taken at its word; None: the environment is asked."""
    environment: Mapping[str, str] | None = None
    """Stands for the variables of this process."""
    mcplab: McplabOptions = ALL_AGENTS
    listener: Listener = ignore_event
    announce: Callable[[str], None] = _ignore_text
    """Is told, before anything is sent, what judging will take."""
    opened: Callable[[str], None] = _ignore_text
    """Is told the id of the run, as soon as it has one."""

    def __post_init__(self) -> None:
        """Refuse what excludes each other; raises `InputError`."""
        if self.record is not None and self.replay is not None:
            raise InputError("a run is recorded or replayed, not both")
        check_name(self.name)
        for tag in self.tags:
            check_tag(tag)
        if self.resume is not None and (self.name or self.tags):
            raise InputError("a run that is resumed keeps its name and its tags")


DEFAULT_OPTIONS = RunOptions()


def read_run_options(given: Mapping[str, Json]) -> RunOptions:
    """Return the options that Python code names: the fields of `RunOptions`, and `repeat`, `concurrency` and `timeout_s` by themselves.

    Raises `TypeError` for a name that is none, and `InputError` for a value that makes no sense.
    """
    known = (*_OF_SETTINGS, *RunOptions.__struct_fields__)
    for name in given:
        if name not in known:
            close = nearest(name, known)
            raise TypeError(f"a run has no option {name!r}" + (f"; nearest: {close[0]!r}" if close else ""))
    own = {name: value for name, value in given.items() if name not in _OF_SETTINGS}
    if own.get("settings") is None:
        own["settings"] = RunSettings(**{name: given[name] for name in _OF_SETTINGS if name in given})
    return RunOptions(**own)
