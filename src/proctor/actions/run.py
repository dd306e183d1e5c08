"""Drive an agent through a suite, decide, and keep every result."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

import msgspec

from proctor.actions.check import new_run_id, prepared, wall_clock
from proctor.actions.history import WORKSPACE_FILES, find_home, result_of, suite_of
from proctor.actions.models import model_settings
from proctor.actions.suites import load_suite
from proctor.cassettes.ports import Tape
from proctor.errors import InputError
from proctor.formats.native_text import write_native
from proctor.formats.workspace import References, Section, Workspace, read_workspace, workspace_of
from proctor.llm.ports import ChatModel
from proctor.llm.settings import ModelSettings
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.result import RunResult
from proctor.model.run import RunEntry, RunHeader
from proctor.runner.events import Listener, silent
from proctor.runner.ports import Target
from proctor.runner.run import Ended, Runner, RunSettings, TapeFor, live
from proctor.sources.texts import read_suite_text
from proctor.store.run_files import RunFiles, RunFolder
from proctor.targets.build import build_target, check_cases

TargetLike = Target | Callable[..., object] | Mapping[str, Json] | str | None


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, one way or another."""

    result: RunResult
    ended: Ended
    reason: str = ""
    folder: Path
    entries: dict[tuple[str, int], RunEntry]
    """What was kept of each attempt."""


def run(suite: Suite | str | Path, *, target: TargetLike = None, home: str | Path | None = None, **options: Json) -> RunResult:
    """Drive `target` through `suite` and keep the results; `run_async` for code that runs in an event loop.

    `target` is the name of one in `proctor.yaml` or in the suite, a mapping of settings, a Python function, or an object that fits the
    `Target` protocol. Options: `repeat`, `concurrency`, `timeout_s`, `record`, `replay`, `resume`, `note`.
    """
    return asyncio.run(run_async(suite, target=target, home=home, **options))


async def run_async(suite: Suite | str | Path, *, target: TargetLike = None, home: str | Path | None = None, **options: Json) -> RunResult:
    """`run` for code that runs in an event loop."""
    return (await drive(suite, target=target, home=home, **options)).result


async def drive(
    suite: Suite | str | Path,
    *,
    target: TargetLike = None,
    home: str | Path | None = None,
    settings: RunSettings | None = None,
    repeat: int = 1,
    concurrency: int = 4,
    timeout_s: float = 120.0,
    record: str | Path | None = None,
    replay: str | Path | None = None,
    resume: str | None = None,
    note: str = "",
    listener: Listener = silent,
    secrets: Iterable[str] = (),
) -> LiveRun:
    """Drive a suite; everything about how it ended. `secrets` are those of a target that was built by the caller."""
    if record is not None and replay is not None:
        raise InputError("a run is recorded or replayed, not both")
    place = find_home(str(home) if home is not None else None)
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    workspace = workspace_of(loaded.settings, file=loaded.path).over(_workspace_file(place))
    references = References(dict(os.environ))
    models = _Models(workspace, references)
    driven = _target(target, workspace, references, loaded, models, offline=replay is not None)
    check_cases(driven, loaded.cases)
    chosen = settings or RunSettings(repeat=repeat, concurrency=concurrency, timeout_s=timeout_s)
    if replay is not None:
        # What was recorded comes back the same however often it is asked for.
        chosen = msgspec.structs.replace(chosen, retries=0)
    tape_for, close_tape = _tape(record, replay, {*references.secrets, *models.secrets(), *secrets})
    folder, done = _open(place, loaded, driven.name, chosen, resume, note)
    ended: Ended = "interrupted"
    reason = ""
    try:
        runner = Runner(
            cases=prepared(loaded).cases,
            target=driven,
            log=folder,
            run_id=folder.header.run_id,
            settings=chosen,
            tape_for=tape_for,
            listener=listener,
            now=wall_clock,
        )
        outcome = await runner.run(done)
        ended, reason = outcome.ended, outcome.reason
    finally:
        await models.close()
        close_tape()
        if ended == "completed":
            folder.close(ended)
        else:
            folder.release()
    entries = {(entry.case, entry.attempt): entry for entry in folder.entries()}
    result = result_of(folder.header, loaded, entries.values())
    return LiveRun(result=result, ended=ended, reason=reason, folder=folder.folder, entries=entries)


def _workspace_file(home: Path) -> Workspace:
    for name in WORKSPACE_FILES:
        path = home.parent / name
        if path.is_file():
            return read_workspace(read_suite_text(path), file=str(path))
    return Workspace()


class _Models:
    """The models a run talks to, made when they are first asked for, closed at its end."""

    def __init__(self, workspace: Workspace, references: References) -> None:
        self._workspace = workspace
        self._references = references
        self._settings: list[ModelSettings] = []
        self._made: list[ChatModel] = []

    def for_target(self, section: Section) -> Callable[[Tape], ChatModel]:
        """How the model that a target names is talked to over a tape."""
        from proctor.llm.build import build_model  # most targets have a model of their own
        from proctor.llm.taped import TapedModel

        named = section.node.get("model")
        name = named.value if named is not None and isinstance(named.value, str) else None
        settings = model_settings(name, self._workspace, self._references, os.environ)
        self._settings.append(settings)
        model = build_model(settings)
        self._made.append(model)
        return lambda tape: TapedModel(model, tape)

    def secrets(self) -> set[str]:
        """What must never be written down."""
        return {secret for settings in self._settings for secret in settings.secrets()}

    async def close(self) -> None:
        """Give back connections."""
        for model in self._made:
            await model.close()


def _target(target: TargetLike, workspace: Workspace, references: References, suite: Suite, models: _Models, *, offline: bool) -> Target:
    base = Path(suite.path).resolve().parent if suite.path else Path.cwd()
    if target is None or isinstance(target, str):
        name, section = workspace.target(target)
        kind = section.node.get("type")
        if kind is not None and kind.value == "mcp_agent":
            return build_target(name, section, references, base=base, model_for=models.for_target(section), offline=offline)
        return build_target(name, section, references, base=base)
    if isinstance(target, Mapping):
        return build_target("target", cast(Mapping[str, Json], target), references, base=base)
    if hasattr(target, "run") and hasattr(target, "open"):
        return cast(Target, target)
    from proctor.targets.callable import CallableTarget  # only functions come here

    function = cast(Callable[..., object | Awaitable[object]], target)
    return CallableTarget(getattr(function, "__name__", "function"), function)


def _open(
    home: Path, suite: Suite, target: str, settings: RunSettings, resume: str | None, note: str
) -> tuple[RunFolder, list[tuple[str, int]]]:
    files = RunFiles(home)
    text = write_native(suite)
    digest = hashlib.sha256(text.encode()).hexdigest()
    if resume is None:
        header = RunHeader(
            run_id=new_run_id(),
            started_at=wall_clock(),
            suite_name=suite.name,
            suite_path=suite.path,
            suite_hash=digest,
            dialect=suite.dialect,
            target=target,
            repeat=settings.repeat,
            note=note,
        )
        return files.create(header, text), []
    folder = files.open(resume, writing=True)
    if folder.header.suite_hash != digest:
        folder.release()
        changed = [case.id for case in suite.cases if case not in suite_of(folder).cases][:3]
        raise InputError(
            f"run {folder.header.run_id!r} was started with another suite"
            + (f"; changed cases: {', '.join(changed)}" if changed else "")
            + "; start a new run, or bring the suite back"
        )
    return folder, [(entry.case, entry.attempt) for entry in folder.entries()]


def _tape(record: str | Path | None, replay: str | Path | None, secrets: set[str]) -> tuple[TapeFor, Callable[[], None]]:
    from proctor.cassettes.cassette import open_tape  # loads nothing heavy, but most runs have no tape

    if record is not None:
        recorder = open_tape(record, "record", secrets=secrets)
        return recorder.scope, recorder.close
    if replay is not None:
        player = open_tape(replay, "replay", secrets=secrets)
        return player.scope, player.close
    return live, _nothing


def _nothing() -> None:
    """There is no tape to close."""
