"""Drive an agent through a suite, decide, and store every result.

If the tools of the agent are known, claims on tools that it does not have get a warning: `tool_not_called: cancel_orders` always holds if
the tool is `cancel_order`. That never changes the verdict.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from proctor.actions.checking.check_stream import new_run_id, wall_clock
from proctor.actions.doctor.snapshots import store_snapshots
from proctor.actions.judging.judge_settings import NO_OPTIONS, JudgeOptions
from proctor.actions.judging.judges import estimate_judging
from proctor.actions.judging.trust import read_variables, trust_for
from proctor.actions.running.named_target import build_given, find_address
from proctor.actions.running.run_builder import ALL_AGENTS, BuiltRun, build_run, with_capture
from proctor.actions.running.run_policy import McplabOptions, Policy, TargetLike
from proctor.actions.workspace.close_all import close_on_exit
from proctor.actions.workspace.combined_suites import CombinedTargets
from proctor.actions.workspace.run_history import Entries, StoredSuite, find_home, read_result, suite_of, write_stored_suite
from proctor.actions.workspace.settings import describe_passed_over
from proctor.actions.workspace.suites import load_suite, require_prices
from proctor.checks.missing_evidence import find_reads
from proctor.checks.registry import Registry, default_registry
from proctor.decide.other_input import OtherInputs
from proctor.errors import InputError
from proctor.model.case import Suite
from proctor.model.cost import PriceList
from proctor.model.evidence import Cost, Json
from proctor.model.lazy_cases import is_lazy, may_have
from proctor.model.result import RunResult
from proctor.model.run import RunHeader
from proctor.model.show import nearest, show, suggest_one
from proctor.processes.threads import wait_for_end
from proctor.report.blocks.exchange import add_exchanges
from proctor.report.words.wording import count_noun
from proctor.runner.limits import RunSettings
from proctor.runner.ports import Listener, RunPorts, TapeFor, Target, ignore_event, use_live_tape
from proctor.runner.run import Ended, Runner, is_cut_by_budget
from proctor.store.files.run_files import RunFiles, RunFolder
from proctor.store.files.run_references import check_name, check_tag

_OF_SETTINGS = ("repeat", "concurrency", "timeout_s")
"""Settings that Python code passes directly."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a suite is driven, judged, recorded and watched. Raises `InputError` for options that exclude each other."""

    settings: RunSettings = RunSettings()
    record: str | Path | None = None
    """The file to which all requests and responses are recorded."""
    replay: str | Path | None = None
    """The recording that is replayed; no agent, user or judge is called."""
    resume: str | None = None
    """The id of a run to resume."""
    note: str = ""
    capture: Literal["otel"] | None = None
    """What is captured in addition to the answers of a Python function, as `capture` of a callable target."""
    name: str = ""
    """The name of the run; a reference by name finds the newest."""
    tags: tuple[str, ...] = ()
    judge: object | None = None
    """Decides claims in plain language, instead of the configured judge: a judge, a function, a mapping or a name, as `check` takes it."""
    judge_options: JudgeOptions = NO_OPTIONS
    allow_missing_judge: bool = False
    """Whether claims without a judge are errors of their cases, not a reason to reject the run."""
    trust: bool | None = None
    """Whether a suite outside the working folder is trusted; None: decided by the environment."""
    environment: Mapping[str, str] | None = None
    """Replaces the variables of this process."""
    mcplab: McplabOptions = ALL_AGENTS
    listener: Listener = ignore_event
    announce: Callable[[str], None] = lambda text: None
    """Gets a description of the cost of judging, before anything is sent."""
    opened: Callable[[str], None] = lambda text: None
    """Gets the id of the run, as soon as it has one."""

    def __post_init__(self) -> None:
        """Raise `InputError` for options that exclude each other."""
        if self.record is not None and self.replay is not None:
            raise InputError("a run is recorded or replayed, not both")
        check_name(self.name)
        for tag in self.tags:
            check_tag(tag)
        if self.resume is not None and (self.name or self.tags):
            raise InputError("a run that is resumed keeps its name and its tags")


DEFAULT_OPTIONS = RunOptions()


def read_run_options(options: Mapping[str, Json]) -> RunOptions:
    """Return the options given in Python code: the fields of `RunOptions`, and `repeat`, `concurrency` and `timeout_s` directly.

    Raises `TypeError` for an unknown name, and `InputError` for an invalid value.
    """
    known = (*_OF_SETTINGS, *RunOptions.__struct_fields__)
    for name in options:
        if name not in known:
            raise TypeError(f"a run has no option {name!r}" + suggest_one(name, known))
    run_options = {name: value for name, value in options.items() if name not in _OF_SETTINGS}
    if run_options.get("settings") is None:
        run_options["settings"] = RunSettings(**{name: options[name] for name in _OF_SETTINGS if name in options})
    return RunOptions(**run_options)


# Warnings about targets: before a run about lost or mixed conversations and unknown tools, after it about missing recordings.


def list_risks(driven: Sequence[tuple[Target, Suite]], registry: Registry) -> list[str]:
    """Return a warning for every risk that a target reports, given the cases of that target."""
    risks: list[str] = []
    for target, suite in driven:
        shared: str | None = _ask(target, "describe_risk")
        if shared:
            risks.append(shared)
        forgets: str | None = None if shared else _ask(target, "describe_forgetting")
        if forgets and may_have(suite.cases, "turns", "user"):
            # Only a case with a message after an answer is affected.
            spoken = (case.id for case in suite.cases if case.skip is None and (len(case.turns) > 1 or case.user is not None))
            risks += [
                f"warning: target {target.name!r} cannot separate conversations: {forgets}; earlier turns of {case!r} "
                "are forgotten, or mixed with other cases"
                for case in islice(spoken, 1)
            ]
        tools: frozenset[str] | None = _ask(target, "find_tools")
        if tools:
            risks += list_unknown_tools(suite, tools, registry)
    return list(dict.fromkeys(risks))


def list_warnings(driven: Sequence[tuple[Target, Suite]]) -> list[str]:
    """Return the warnings that resulted from the run, each once."""
    return list(dict.fromkeys(line for target, _ in driven for line in _ask(target, "list_warnings") or ()))


def _ask(target: Target, question: str) -> Any:
    """Return the result of an optional method of a target; None if it has none."""
    answer: Callable[[], Any] | None = getattr(target, question, None)
    return None if answer is None else answer()


# Targets that cannot be recorded: a Python function or a program is driven again in a replay.

_WHY = "a Python function or a program has no wire to record"


def announce_untaped(built: BuiltRun, options: RunOptions) -> None:
    """Announce targets that cannot be recorded. Raises `InputError` for a replay that would replay nothing, or the wrong thing."""
    if options.record is None and options.replay is None:
        return
    targets = _list_targets(built.target)
    if any(getattr(target, "has_systems", False) for target in targets):
        raise InputError(
            f"{options.record or options.replay}: cases with simulated systems cannot be recorded or replayed: what the agent does there "
            "is not recorded; `proctor recheck latest` decides the stored evidence of a run again"
        )
    untaped = [target for target in targets if not getattr(target, "has_wire", True)]
    if not untaped:
        return
    names = ", ".join(dict.fromkeys(show(target.name, 80) for target in untaped))
    is_empty = len(untaped) == len(targets) and built.judge_choice.judge is None and built.users is None
    if options.replay is not None:
        if is_empty:
            raise InputError(
                f"--replay {options.replay}: of {names} nothing can be played back: {_WHY}, so that it would be driven again; "
                "`proctor recheck latest` decides on what it answered last, and without --replay it is driven"
            )
        options.announce(f"{names} is driven again: {_WHY}; everything else comes from {options.replay}")
        return
    rest = f"{options.record} stays without a recording, and --replay would reject it" if is_empty else f"{options.record} has the rest"
    options.announce(f"nothing of {names} can be recorded: {_WHY}; {rest}")


def _list_targets(target: Target) -> list[Target]:
    if not isinstance(target, CombinedTargets):
        return [target]
    return [each for inner in target.targets for each in _list_targets(inner)]


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, for whatever reason."""

    result: RunResult
    ended: Ended
    reason: str = ""
    unverified_limit: str = ""
    """The limit that could not be checked because usage is unknown."""
    folder: Path
    entries: Entries
    """The stored entry of each attempt."""
    unused: str | None = None
    """For a replay: a line about recordings that were never requested."""


_Before = dict[tuple[str, int], Cost | None]
"""The stored attempts, and those cut off by a limit, which are driven again, with their cost."""


def run(suite: Suite | str | Path, *, target: TargetLike = None, home: str | Path | None = None, **options: Json) -> RunResult:
    """Drive `target` through `suite` and store the results; `await run_async(...)` in a notebook and in other code in an event loop.

    `target` is the name of one in `proctor.yaml` or in the suite, an address, a mapping of settings, a Python function, or an object that
    fits the `Target` protocol. Options: `repeat`, `concurrency`, `timeout_s`, `record`, `replay`, `resume`, `note`, `name`, `tags`,
    `judge`, `trust`, and for a function `capture="otel"`, which also reads its spans.
    """
    return wait_for_end(lambda: run_async(suite, target=target, home=home, **options), called="proctor.run", instead="proctor.run_async")


async def run_async(suite: Suite | str | Path, *, target: TargetLike = None, home: str | Path | None = None, **options: Json) -> RunResult:
    """`run` for code that runs in an event loop."""
    driven = await drive(suite, read_run_options(options), target=target, home=home)
    return add_exchanges(driven.result, driven.entries)


async def drive(
    suite: Suite | str | Path, options: RunOptions = DEFAULT_OPTIONS, *, target: TargetLike = None, home: str | Path | None = None
) -> LiveRun:
    """Drive a suite and return how it ended. Raises `InputError` before the run for invalid settings."""
    place = find_home(str(home) if home is not None else None)
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    settings = options.settings
    if options.replay is not None:
        # A recording gives the same response every time.
        settings = msgspec.structs.replace(settings, retries=0)
    address = find_address(target)
    target = with_capture(target if address is None else build_given(address), options.capture)
    trust = trust_for("running", granted=options.trust, home=place)
    passed_over = describe_passed_over(place)
    if passed_over is not None:
        options.announce(passed_over)
    built = build_run(
        loaded,
        target,
        Policy(
            place,
            trust,
            read_variables(os.environ if options.environment is None else options.environment, place, trust, options.announce),
            offline=options.replay is not None,
            judge=options.judge,
            judge_options=options.judge_options,
            allow_missing_judge=options.allow_missing_judge,
        ),
        mcplab=options.mcplab,
    )
    async with close_on_exit(built):
        # Before anything is sent: without prices the limit could not be checked.
        if settings.budget.max_cost is not None:
            require_prices(built.suite, built.list_models())
        judge = built.judge_choice.opened
        if judge is not None and judge.warning is not None:
            options.announce(f"warning: {judge.warning}")
        for part_suite, part in (judge.parts or ((built.suite, judge),)) if judge is not None else ():
            take = estimate_judging(part_suite, part.settings, jurors=len(part.models), repeat=settings.repeat)
            most = part.settings.max_calls
            bound = "more for long answers and repaired replies" if most is None else f"at most {count_noun(most, 'request')} (max_calls)"
            least = f"estimate: at least {count_noun(take.calls, 'request')}, {bound}, {take.tokens:,} tokens"
            options.announce(f"judge: {', '.join(part.models)}; {least}")
        for line in list_risks(built.driven, default_registry()):
            options.announce(line)
        announce_untaped(built, options)
        with _open_tapes(options, built.secrets) as (tape_for, describe_unused):
            with closing(write_stored_suite(built.suite)) as stored:
                folder, before = _open(place, built, settings, stored, options)
            options.opened(folder.header.run_id)
            # A resumed run continues with its own number of repeats.
            settings = msgspec.structs.replace(settings, repeat=folder.header.repeat)
            driven = await _drive_into(folder, before, built, settings, tape_for, options.listener)
        for line in list_warnings(built.driven):
            options.announce(line)
        driven = msgspec.structs.replace(driven, unused=describe_unused())
    artifacts = options.mcplab.artifacts
    if artifacts and built.configs:
        from proctor.actions.running.mcplab_run import ARTIFACTS_FOLDER, write_artifacts  # most runs leave no such files

        files = driven.folder / ARTIFACTS_FOLDER if artifacts is True else Path(artifacts) / driven.result.run_id
        entries, stopped = list(driven.entries.values()), driven.ended != "completed"
        for name, config in built.configs.items():
            write_artifacts(files / name, driven.result, entries, config, note=folder.header.note, stopped=stopped)
    return driven


async def _drive_into(
    folder: RunFolder, before: _Before, built: BuiltRun, settings: RunSettings, tape_for: TapeFor, listener: Listener
) -> LiveRun:
    """Drive attempts that are missing in `before` or were cut off by a limit, and store them in `folder`."""
    judge = built.judge_choice.opened
    ledgers = [part.spent for _, part in judge.parts or ((built.suite, judge),) if part.spent is not None] if judge is not None else []
    ledgers = list({id(ledger): ledger for ledger in ledgers}.values())
    # The ending if this is cancelled before the runner returns one.
    ended: Ended = "interrupted"
    reason, unverified_limit, failed = "", "", False
    try:
        runner = Runner(
            built.cases,
            RunPorts(
                target=built.target,
                log=folder,
                tape_for=tape_for,
                listener=listener,
                now=wall_clock,
                judge=built.judge_choice.judge,
                judge_cost=lambda: sum(ledger.cost for ledger in ledgers),
                speaker_for=built.users.make_speaker_for(wall_clock) if built.users is not None else None,
            ),
            run_id=folder.header.run_id,
            settings=settings,
            planned=folder.header.planned,
        )
        for ledger in ledgers:
            ledger.prices, ledger.explain_overspent = built.suite.prices or PriceList(), runner.explain_cost
        outcome = await runner.run([key for key, paid in before.items() if paid is None], before)
        ended, reason, unverified_limit = outcome.ended, outcome.reason, outcome.unverified_limit
    except Exception:
        failed = True
        raise
    finally:
        # Only a complete run is closed; any other can be resumed.
        if ended == "completed":
            folder.close(ended)
        else:
            folder.release("failed" if failed else ended)
    result, entries = read_result(folder, built.suite, ended)
    store_snapshots(folder.folder, built.target)
    unmatched: int = getattr(built.target, "records_without_case", 0)
    other_inputs: OtherInputs = getattr(built.target, "other_inputs", OtherInputs())
    if unmatched or other_inputs.records:
        unknown = unmatched or result.unmet.records_without_case
        unmet = msgspec.structs.replace(result.unmet, records_without_case=unknown, records_with_other_input=other_inputs.records)
        result = msgspec.structs.replace(result, unmet=unmet, warnings=(*result.warnings, *other_inputs.list_warnings()))
    return LiveRun(result=result, ended=ended, reason=reason, unverified_limit=unverified_limit, folder=folder.folder, entries=entries)


def _open(home: Path, built: BuiltRun, settings: RunSettings, stored: StoredSuite, options: RunOptions) -> tuple[RunFolder, _Before]:
    """Return the folder of the run, and the stored entries of a resumed run."""
    files, suite, target = RunFiles(home), built.suite, built.target.name
    digest, resume = stored.digest, options.resume
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
        return files.create(header, stored.text, stored.iterate_lines() if stored.lines is not None else None), {}
    # Checked before it is opened for writing, which removes its ending: a rejected run stays unchanged.
    folder = files.open(resume)
    driven_before = folder.header.target
    # Other agents make other cases; the message must not be that the suite has changed.
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
    # 1 is also the default.
    if settings.repeat not in (1, folder.header.repeat):
        started = f"run {folder.header.run_id!r} was started with {folder.header.repeat} repeats"
        raise InputError(f"{started}, not {settings.repeat}; it is resumed with its own")
    # By its path, because a reference such as `latest` may mean another run by now.
    folder = files.open(str(folder.folder.absolute()), writing=True)
    entries = folder.entries()
    return folder, {(entry.case, entry.attempt): (entry.cost or Cost()) if is_cut_by_budget(entry.verdicts) else None for entry in entries}


@contextmanager
def _open_tapes(options: RunOptions, secrets: set[str]) -> Generator[tuple[TapeFor, Callable[[], str | None]]]:
    """Open the tapes of the attempts; the second value describes unused recordings."""
    record, replay = options.record, options.replay
    if record is None and replay is None:
        yield use_live_tape, lambda: None
        return
    from proctor.cassettes.cassette import open_tape  # most runs have no tape

    if record is not None:
        with open_tape(record, "record", secrets=secrets) as recorder:
            yield recorder.scope, lambda: None
    elif replay is not None:
        with open_tape(replay, "replay", secrets=secrets) as player:
            yield player.scope, player.describe_unused


MOST_WARNINGS = 10
MOST_CASES = 10_000
"""The maximum number of cases searched; names repeat in more."""


def list_unknown_tools(suite: Suite, known: frozenset[str], registry: Registry) -> list[str]:
    """Return a warning for each tool that a claim names and the agent does not have."""
    places: dict[str, str] = {}
    for case in islice(suite.cases, MOST_CASES):
        for assertion in case.assertions:
            origin = assertion.origin
            place = str(origin) if origin.file is not None or origin.line is not None else f"case {case.id!r}"
            for name in find_reads(registry.get_for(assertion.check, assertion.spec).reads, assertion.spec).tools:
                if name not in known:
                    places.setdefault(name, place)
    warnings: list[str] = []
    for name, place in islice(places.items(), MOST_WARNINGS):
        close = nearest(name, known)
        near = f"; nearest: {close[0]}" if close else f"; it has {', '.join(sorted(known)[:8])}"
        warnings.append(f"{place}: warning: the agent has no tool {name!r}{near}")
    return warnings
