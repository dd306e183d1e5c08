"""Drive an agent through a suite, decide, and keep every result."""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from proctor.actions.check_stream import new_run_id, wall_clock
from proctor.actions.closing import close_behind
from proctor.actions.given_target import build_given, find_address
from proctor.actions.history import Entries, find_home, read_result, suite_of
from proctor.actions.judge_needs import estimate_judging
from proctor.actions.kept_suites import KeptSuite, write_kept_suite
from proctor.actions.prices import require_prices
from proctor.actions.run_builder import BuiltRun, build_run
from proctor.actions.run_options import DEFAULT_OPTIONS, RunOptions, read_run_options
from proctor.actions.run_policy import McplabOptions, Policy, TargetLike
from proctor.actions.run_target import with_capture
from proctor.actions.settings import describe_passed_over
from proctor.actions.suites import load_suite
from proctor.actions.taping import tell_untaped
from proctor.actions.target_risks import list_risks, list_warnings
from proctor.actions.trust import trust_for
from proctor.actions.variables import read_variables
from proctor.actions.waiting import wait_for_end
from proctor.checks.registry import default_registry
from proctor.decide.other_input import OtherInputs
from proctor.errors import InputError
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.lazy_cases import is_lazy
from proctor.model.result import RunResult
from proctor.model.run import RunHeader
from proctor.report.exchange import add_exchanges
from proctor.report.wording import count_noun
from proctor.runner.events import Listener
from proctor.runner.ports import RunPorts, TapeFor, use_live_tape
from proctor.runner.run import Ended, Runner
from proctor.runner.settings import RunSettings
from proctor.store.run_files import RunFiles, RunFolder


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, one way or another."""

    result: RunResult
    ended: Ended
    reason: str = ""
    unkept: str = ""
    """The bound on spending that could not be kept, in words."""
    folder: Path
    entries: Entries
    """What was kept of each attempt."""
    unused: str | None = None
    """Of a replay: what was recorded and never asked for, in words."""


def run(suite: Suite | str | Path, *, target: TargetLike = None, home: str | Path | None = None, **options: Json) -> RunResult:
    """Drive `target` through `suite` and keep the results; `await run_async(...)` in a notebook and in other code in an event loop.

    `target` is the name of one in `proctor.yaml` or in the suite, an address, a mapping of settings, a Python function, or an object that
    fits the `Target` protocol. Options: `repeat`, `concurrency`, `timeout_s`, `record`, `replay`, `resume`, `note`, `name`, `tags`,
    `judge`, `trust`, and of a function `capture="otel"`, which reads the spans that it leaves behind, too.
    """
    return wait_for_end(lambda: run_async(suite, target=target, home=home, **options), called="proctor.run", instead="proctor.run_async")


async def run_async(suite: Suite | str | Path, *, target: TargetLike = None, home: str | Path | None = None, **options: Json) -> RunResult:
    """`run` for code that runs in an event loop."""
    driven = await drive(suite, read_run_options(options), target=target, home=home)
    return add_exchanges(driven.result, driven.entries)


async def drive(
    suite: Suite | str | Path, options: RunOptions = DEFAULT_OPTIONS, *, target: TargetLike = None, home: str | Path | None = None
) -> LiveRun:
    """Drive a suite and return everything about how it ended. Raises `InputError` before the run for what cannot work."""
    place = find_home(str(home) if home is not None else None)
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    settings = options.settings
    if options.replay is not None:
        # What was recorded comes back the same however often it is asked for.
        settings = msgspec.structs.replace(settings, retries=0)
    address = find_address(target)
    target = with_capture(target if address is None else build_given(address), options.capture)
    built = build_run(loaded, target, _make_policy(options, place), mcplab=options.mcplab)
    async with close_behind(built):
        # Before anything is sent: without prices the bound could not be kept.
        if settings.budget.max_cost is not None:
            require_prices(built.suite, built.list_models())
        _announce_judge(built, settings.repeat, options.announce)
        for line in list_risks(built.driven, default_registry()):
            options.announce(line)
        tell_untaped(built, options)
        with _open_tapes(options, built.secrets) as (tape_for, describe_unused):
            with closing(write_kept_suite(built.suite)) as kept:
                folder, done = _open(place, built, settings, kept, options)
            options.opened(folder.header.run_id)
            # A run that is resumed goes on with its own number of repeats.
            settings = msgspec.structs.replace(settings, repeat=folder.header.repeat)
            driven = await _drive_into(folder, done, built, settings, tape_for, options.listener)
        for line in list_warnings(built.driven):
            options.announce(line)
        driven = msgspec.structs.replace(driven, unused=describe_unused())
    _write_artifacts(driven, built, options.mcplab, folder.header.note)
    return driven


def _make_policy(options: RunOptions, home: Path) -> Policy:
    trust = trust_for("running", granted=options.trust, home=home)
    passed_over = describe_passed_over(home)
    if passed_over is not None:
        options.announce(passed_over)
    return Policy(
        home,
        trust,
        read_variables(os.environ if options.environment is None else options.environment, home, trust, options.announce),
        offline=options.replay is not None,
        judge=options.judge,
        judge_options=options.judge_options,
        allow_missing_judge=options.allow_missing_judge,
    )


def _write_artifacts(driven: LiveRun, built: BuiltRun, options: McplabOptions, note: str) -> None:
    """Write MCPLab's own files beside ours, where they are asked for and the suite is one of MCPLab."""
    if not (options.artifacts and built.configs):
        return
    from proctor.actions.mcplab_run import ARTIFACTS_FOLDER, write_artifacts  # most runs leave no such files

    files = driven.folder / ARTIFACTS_FOLDER if options.artifacts is True else Path(options.artifacts) / driven.result.run_id
    entries, stopped = list(driven.entries.values()), driven.ended != "completed"
    for name, config in built.configs.items():
        write_artifacts(files / name, driven.result, entries, config, note=note, stopped=stopped)


def _announce_judge(built: BuiltRun, repeat: int, announce: Callable[[str], None]) -> None:
    """Tell which judges will be asked, and what that will take."""
    judge = built.seat.opened
    if judge is not None and judge.warning is not None:
        announce(f"warning: {judge.warning}")
    for suite, part in (judge.parts or ((built.suite, judge),)) if judge is not None else ():
        take = estimate_judging(suite, part.settings, jurors=len(part.models), repeat=repeat)
        most = part.settings.max_calls
        bound = "more for long answers and repaired replies" if most is None else f"at most {count_noun(most, 'request')} (max_calls)"
        announce(
            f"judge: {', '.join(part.models)}; estimate: {count_noun(take.calls, 'request')}, {bound}, at least {take.tokens:,} tokens"
        )


async def _drive_into(
    folder: RunFolder, done: Iterable[tuple[str, int]], built: BuiltRun, settings: RunSettings, tape_for: TapeFor, listener: Listener
) -> LiveRun:
    """Drive what is not `done`, and keep it in `folder`."""
    # What holds where this is cancelled before the runner could say how it ended.
    ended: Ended = "interrupted"
    reason, unkept, failed = "", "", False
    try:
        runner = Runner(
            built.cases,
            RunPorts(
                target=built.target,
                log=folder,
                tape_for=tape_for,
                listener=listener,
                now=wall_clock,
                judge=built.seat.judge,
                speaker_for=built.users.make_speaker_for(wall_clock) if built.users is not None else None,
            ),
            run_id=folder.header.run_id,
            settings=settings,
            planned=folder.header.planned,
        )
        outcome = await runner.run(done)
        ended, reason, unkept = outcome.ended, outcome.reason, outcome.unkept
    except Exception:
        failed = True
        raise
    finally:
        # Only a run that has everything is closed for good; any other can be resumed.
        if ended == "completed":
            folder.close(ended)
        else:
            folder.release("failed" if failed else ended)
    result, entries = read_result(folder, built.suite, ended)
    unmatched: int = getattr(built.target, "records_without_case", 0)
    other_inputs: OtherInputs = getattr(built.target, "other_inputs", OtherInputs())
    if unmatched or other_inputs.records:
        unknown = unmatched or result.unmet.records_without_case
        unmet = msgspec.structs.replace(result.unmet, records_without_case=unknown, records_with_other_input=other_inputs.records)
        result = msgspec.structs.replace(result, unmet=unmet, warnings=(*result.warnings, *other_inputs.list_warnings()))
    return LiveRun(result=result, ended=ended, reason=reason, unkept=unkept, folder=folder.folder, entries=entries)


def _open(
    home: Path, built: BuiltRun, settings: RunSettings, kept: KeptSuite, options: RunOptions
) -> tuple[RunFolder, list[tuple[str, int]]]:
    files, suite, target = RunFiles(home), built.suite, built.target.name
    digest, resume = kept.digest, options.resume
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
            note=options.note,
            name=options.name,
            tags=options.tags,
        )
        return files.create(header, kept.text, kept.iterate_lines() if kept.lines is not None else None), []
    # Looked at before it is opened for writing, which takes away how it ended: a run that is refused stays as it is.
    folder = files.open(resume)
    driven_before = folder.header.target
    # Other agents make other cases: what is told then is not that the suite has changed.
    if built.configs and driven_before != target:
        raise InputError(f"run {resume!r} was started with the agents {driven_before}, not {target}; select the same, or start a new run")
    if folder.header.suite_hash != digest:
        before = () if is_lazy(suite.cases) else suite_of(folder).cases
        changed = [case.id for case in suite.cases if case not in before][:3] if before else []
        raise InputError(
            f"run {folder.header.run_id!r} was started with another suite"
            + (f"; changed cases: {', '.join(changed)}" if changed else "")
            + "; start a new run, or bring the suite back"
        )
    # 1 is also what stands there where nobody asked for repeats.
    if settings.repeat not in (1, folder.header.repeat):
        told = f"run {folder.header.run_id!r} was started with {folder.header.repeat} repeats"
        raise InputError(f"{told}, not {settings.repeat}; it is resumed with its own")
    # By its path: a word such as `latest` could mean another run by now.
    folder = files.open(str(folder.folder.absolute()), writing=True)
    return folder, [(entry.case, entry.attempt) for entry in folder.entries()]


@contextmanager
def _open_tapes(options: RunOptions, secrets: set[str]) -> Generator[tuple[TapeFor, Callable[[], str | None]]]:
    """Open the tapes of the attempts; the second value tells about recordings that were of no use."""
    record, replay = options.record, options.replay
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
