"""Drive an agent through a suite, decide, and keep every result."""

import asyncio
import hashlib
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from proctor.actions.check_stream import new_run_id, wall_clock
from proctor.actions.history import find_home, result_of, suite_of
from proctor.actions.judges import NO_OPTIONS, JudgeOptions, estimated
from proctor.actions.run_builder import ALL_AGENTS, BuiltRun, build_run
from proctor.actions.run_policy import McplabOptions, Policy, TargetLike
from proctor.actions.suites import load_suite
from proctor.actions.trust import trust_for
from proctor.errors import InputError
from proctor.formats.native_text import write_native
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.result import RunResult
from proctor.model.run import RunEntry, RunHeader
from proctor.report.wording import count_noun
from proctor.runner.events import Listener, ignore_event
from proctor.runner.run import Ended, Runner, RunSettings, TapeFor, use_live_tape
from proctor.store.run_files import RunFiles, RunFolder


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, one way or another."""

    result: RunResult
    ended: Ended
    reason: str = ""
    folder: Path
    entries: dict[tuple[str, int], RunEntry]
    """What was kept of each attempt."""
    unused: str | None = None
    """Of a replay: what was recorded and never asked for, in words."""


def run(suite: Suite | str | Path, *, target: TargetLike = None, home: str | Path | None = None, **options: Json) -> RunResult:
    """Drive `target` through `suite` and keep the results; `run_async` for code that runs in an event loop.

    `target` is the name of one in `proctor.yaml` or in the suite, a mapping of settings, a Python function, or an object that fits the
    `Target` protocol. Options: `repeat`, `concurrency`, `timeout_s`, `record`, `replay`, `resume`, `note`, `judge`, `trust`.
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
    listener: Listener = ignore_event,
    judge: object | None = None,
    judge_options: JudgeOptions = NO_OPTIONS,
    allow_missing_judge: bool = False,
    announce: Callable[[str], None] = lambda text: None,
    opened: Callable[[str], None] = lambda run_id: None,
    trust: bool | None = None,
    environment: Mapping[str, str] | None = None,
    mcplab: McplabOptions = ALL_AGENTS,
) -> LiveRun:
    """Drive a suite; everything about how it ended.

    `judge` decides claims in plain language, instead of the configured one: a judge, a function, a mapping or a name as `check` takes it.
    `announce` is told, before anything is sent, what judging will take; `opened` the id of the run, as soon as it has one.
    `trust` takes a suite at its word that does not lie in the working folder; nothing said, the environment is asked.
    `environment` stands for the variables of this process. Raises `InputError` before the run for what cannot work.
    """
    if record is not None and replay is not None:
        raise InputError("a run is recorded or replayed, not both")
    place = find_home(str(home) if home is not None else None)
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    policy = Policy(
        place,
        trust_for("running", granted=trust, home=place),
        dict(os.environ if environment is None else environment),
        offline=replay is not None,
        judge=judge,
        judge_options=judge_options,
        allow_missing_judge=allow_missing_judge,
    )
    chosen = settings or RunSettings(repeat=repeat, concurrency=concurrency, timeout_s=timeout_s)
    if replay is not None:
        # What was recorded comes back the same however often it is asked for.
        chosen = msgspec.structs.replace(chosen, retries=0)
    built = build_run(loaded, target, policy, mcplab=mcplab)
    try:
        _announce_judge(built, chosen.repeat, announce)
        with _open_tapes(record, replay, built.secrets) as (tape_for, describe_unused):
            folder, done = _open(place, built, chosen, resume, note)
            opened(folder.header.run_id)
            chosen = msgspec.structs.replace(chosen, repeat=folder.header.repeat)
            driven = await _drive_into(folder, done, built, chosen, tape_for, listener)
        driven = msgspec.structs.replace(driven, unused=describe_unused())
    finally:
        await built.close()
    if mcplab.artifacts and built.configs:
        from proctor.actions.mcplab_run import ARTIFACTS_FOLDER, write_artifacts  # most runs leave no such files

        files = driven.folder / ARTIFACTS_FOLDER if mcplab.artifacts is True else Path(mcplab.artifacts) / driven.result.run_id
        entries, stopped = list(driven.entries.values()), driven.ended != "completed"
        for name, config in built.configs.items():
            write_artifacts(files / name, driven.result, entries, config, note=folder.header.note, stopped=stopped)
    return driven


def _announce_judge(built: BuiltRun, repeat: int, announce: Callable[[str], None]) -> None:
    """Tell which judges will be asked, and what that will take."""
    judge = built.seat.opened
    for suite, part in (judge.parts or ((built.suite, judge),)) if judge is not None else ():
        take = estimated(suite, part.settings, jurors=len(part.models), repeat=repeat)
        announce(f"judge: {', '.join(part.models)}; up to {count_noun(take.calls, 'call')}, at least {take.tokens:,} tokens")


async def _drive_into(
    folder: RunFolder, done: Iterable[tuple[str, int]], built: BuiltRun, settings: RunSettings, tape_for: TapeFor, listener: Listener
) -> LiveRun:
    """Drive what is not `done`, and keep it in `folder`."""
    ended: Ended = "interrupted"
    reason, failed = "", False
    try:
        runner = Runner(
            cases=built.cases,
            target=built.target,
            log=folder,
            run_id=folder.header.run_id,
            settings=settings,
            tape_for=tape_for,
            listener=listener,
            now=wall_clock,
            judge=built.seat.judge,
        )
        outcome = await runner.run(done)
        ended, reason = outcome.ended, outcome.reason
    except Exception:
        failed = True
        raise
    finally:
        if ended == "completed":
            folder.close(ended)
        else:
            folder.release("failed" if failed else ended)
    entries = {(entry.case, entry.attempt): entry for entry in folder.entries()}
    result = result_of(folder.header, built.suite, entries.values(), ended)
    unmatched: int = getattr(built.target, "records_without_case", 0)
    if unmatched:
        result = msgspec.structs.replace(result, unmet=msgspec.structs.replace(result.unmet, records_without_case=unmatched))
    return LiveRun(result=result, ended=ended, reason=reason, folder=folder.folder, entries=entries)


def _open(home: Path, built: BuiltRun, settings: RunSettings, resume: str | None, note: str) -> tuple[RunFolder, list[tuple[str, int]]]:
    files, suite, target = RunFiles(home), built.suite, built.target.name
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
            planned=built.count_attempts(settings.repeat),
            note=note,
        )
        return files.create(header, text), []
    folder = files.open(resume, writing=True)
    before = folder.header.target
    # Other agents make other cases: what is told then is not that the suite has changed.
    if built.configs and before != target:
        folder.release()
        raise InputError(f"run {resume!r} was started with the agents {before}, not {target}; select the same, or start a new run")
    if folder.header.suite_hash != digest:
        folder.release()
        changed = [case.id for case in suite.cases if case not in suite_of(folder).cases][:3]
        raise InputError(
            f"run {folder.header.run_id!r} was started with another suite"
            + (f"; changed cases: {', '.join(changed)}" if changed else "")
            + "; start a new run, or bring the suite back"
        )
    if settings.repeat not in (1, folder.header.repeat):
        folder.release()
        told = f"run {folder.header.run_id!r} was started with {folder.header.repeat} repeats"
        raise InputError(f"{told}, not {settings.repeat}; it is resumed with its own")
    return folder, [(entry.case, entry.attempt) for entry in folder.entries()]


@contextmanager
def _open_tapes(
    record: str | Path | None, replay: str | Path | None, secrets: set[str]
) -> Generator[tuple[TapeFor, Callable[[], str | None]]]:
    """Open the tapes of the attempts; the second tells about recordings that were of no use."""
    if record is None and replay is None:
        yield use_live_tape, lambda: None
        return
    from proctor.cassettes.cassette import open_tape  # loads nothing heavy, but most runs have no tape

    if record is not None:
        with open_tape(record, "record", secrets=secrets) as recorder:
            yield recorder.scope, lambda: None
    elif replay is not None:
        with open_tape(replay, "replay", secrets=secrets) as player:
            yield player.scope, player.describe_unused
