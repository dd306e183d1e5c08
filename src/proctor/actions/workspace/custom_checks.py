"""The checks that suites may name here: ours, those of plugins, and those of the Python files that the workspace file names.

Such a file is code that the user runs, so it is loaded because `proctor.yaml` of the working folder names it: never because a suite does,
and never in a service. It runs in this process, so each of its checks has a time limit: an endless one is its own `error`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from proctor.checks.registry import CheckEntry, Decide, Registry, default_registry, set_own_entry
from proctor.errors import InputError
from proctor.model.evidence import Evidence, Json
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.verdict import Verdict, errored
from proctor.sources.texts import read_suite_text

if TYPE_CHECKING:
    from proctor.formats.workspace_file import OwnCheckSettings

WORKSPACE_FILES = ("proctor.yaml", "proctor.yml")
OwnChecks = Sequence[Callable[..., Any]]
"""Functions of evidence, marked with `@proctor.check` or not."""

_NAMES_CHECKS = lazy_pattern(r"""^\s*["']?checks["']?\s*:""", re.MULTILINE)


def find_workspace_file(start: Path | None = None) -> Path | None:
    """Return the nearest workspace file, upwards from the current folder or from another; None if there is none."""
    current = (start or Path.cwd()).resolve()
    places = (folder / name for folder in (current, *current.parents) for name in WORKSPACE_FILES)
    return next((file for file in places if file.is_file()), None)


def find_registry(start: Path | None = None) -> Registry:
    """Return the checks that exist in the working folder: that of the nearest workspace file. Raises `InputError`."""
    file, settings = _find_settings(start)
    if file is None or settings is None or not settings.files:
        return default_registry()
    from proctor.sources.check_files import load_check_file  # only needed for custom checks

    entries = [entry for name in settings.files for entry in load_check_file(file.parent / name)]
    return extend_registry([_limit_time(entry, settings.timeout_s) for entry in entries], looked_in=", ".join(settings.files))


def registry_of(checks: OwnChecks | None) -> Registry:
    """Return the checks that Python code may name: the given functions and the built-in ones, or without functions those found here."""
    if checks is None:
        return find_registry()
    from proctor.checks.shared.custom_checks import read_own_check  # slow, and only needed with functions

    # Without functions no time limit is needed, so no workspace file is read.
    seconds = _find_timeout_s() if checks else 0.0
    return extend_registry([_limit_time(read_own_check(function), seconds) for function in checks])


def _find_timeout_s() -> float:
    from proctor.formats.workspace_file import OwnCheckSettings  # only with functions

    return (_find_settings()[1] or OwnCheckSettings()).timeout_s


def _find_settings(start: Path | None = None) -> tuple[Path | None, OwnCheckSettings | None]:
    """Return the nearest workspace file and its settings of custom checks; None if it has none. Raises `InputError`."""
    file = find_workspace_file(start)
    text = read_suite_text(file) if file is not None else ""
    # Most workspaces have no custom checks, and parsing the whole file costs more than a small check.
    if not text or _NAMES_CHECKS.search(text) is None:
        return file, None
    from proctor.formats.workspace_file import read_workspace  # hardly any workspace needs it

    return file, read_workspace(text, file=str(file)).checks


def _limit_time(entry: CheckEntry, seconds: float) -> CheckEntry:
    """Return the check with a time limit; its specs then refer to the limited check."""
    from proctor.processes.call_limit import CallTooLong, call_within  # loads asyncio, and most workspaces have no own checks

    def prepare(spec: Any) -> Decide:
        inner = entry.prepare(spec)

        def decide(evidence: Evidence) -> Verdict:
            try:
                return call_within(lambda: inner(evidence), seconds)
            except CallTooLong as error:
                from traceback import format_list  # loads the tokenizer, and hardly any check takes too long

                own_frames = [frame for frame in error.frames if frame.filename == entry.owner]
                place = f" (it was at {own_frames[-1].filename}:{own_frames[-1].lineno})" if own_frames else ""
                return errored(
                    "check_timeout",
                    f"the check {entry.name!r} did not end within {seconds:g} s and was stopped{place}; mend it, or give it more time:"
                    " `timeout_s` under `checks:` in proctor.yaml",
                    details={"timeout_s": seconds, "traceback": "".join(format_list(own_frames))},
                )

        return decide

    # Marked as counting steps, so that it never runs twice on the same evidence.
    limited = msgspec.structs.replace(entry, prepare=prepare, product=True)
    set_own_entry(entry.spec, limited)
    return limited


def extend_registry(entries: Iterable[CheckEntry], *, looked_in: str = "") -> Registry:
    """Return our checks and these; a name that we already use is an error that names both."""
    base = default_registry()

    def find(name: str | None) -> Iterable[CheckEntry]:
        if name is None:
            return iter(base)
        return (base.get(name),) if name in base else ()

    registry = Registry(finder=find)
    for entry in entries:
        # A custom check must not silently replace one of ours.
        if entry.name in base:
            raise InputError(f"check {entry.name!r} is defined twice: in {base.get(entry.name).owner} and in {entry.owner}")
        registry.add(entry)
    if looked_in:
        registry.looked_in = f"; own ones were looked for in {looked_in}"
    return registry


class Unknown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a check that does not exist here."""

    given: Json = None


class LenientRegistry(Registry):
    """The checks for a stored suite: a check that no longer exists decides nothing, and can still be shown."""

    def __init__(self, base: Registry, why: str = "") -> None:
        super().__init__()
        self._base = base
        self._why = why

    def __contains__(self, name: object) -> bool:
        # Every name is accepted: a missing check must not make the stored suite unreadable.
        return isinstance(name, str)

    def list_names(self) -> tuple[str, ...]:
        """Return the names of the checks that exist here."""
        return self._base.list_names()

    def get(self, name: str) -> CheckEntry:
        """Return the check called `name`, or a placeholder for it."""
        return self._base.get(name) if name in self._base else _make_placeholder(name, self._why)


def find_lenient_registry() -> Registry:
    """Return the checks that exist here, for a stored suite; faults of custom check files show in their verdicts."""
    try:
        return LenientRegistry(find_registry())
    except InputError as error:
        return LenientRegistry(default_registry(), f": {str(error).splitlines()[0]}")


def _make_placeholder(name: str, why: str) -> CheckEntry:
    # A type for each name, because the check of a spec is found by its type.
    spec = msgspec.defstruct(f"Unknown_{name}", [], bases=(Unknown,), frozen=True, kw_only=True, omit_defaults=True)
    verdict = errored("unknown_check", f"the check {name!r} is not here; own checks are named by `checks:` in proctor.yaml{why}")

    def prepare(_: Any) -> Decide:
        def decide(evidence: Evidence) -> Verdict:
            return verdict

        return decide

    entry = CheckEntry(
        name=name,
        spec=spec,
        prepare=prepare,
        shorthand="given",
        judged=False,
        summary="A check that is not here.",
        example="",
        owner="",
        takes_whole=True,
    )
    set_own_entry(spec, entry)
    return entry
