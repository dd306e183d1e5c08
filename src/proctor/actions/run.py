"""Drive an agent through a suite, decide, and keep every result."""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

import msgspec

from proctor.actions.check_stream import new_run_id, prepared, wall_clock
from proctor.actions.history import find_home, result_of, suite_of
from proctor.actions.judges import NO_OPTIONS, JudgeOptions, OpenedJudge, estimated, judge_names, made_judge, open_judges, require_judge
from proctor.actions.models import built_model, model_settings
from proctor.actions.settings import workspace_for
from proctor.actions.suites import load_suite
from proctor.actions.together import TARGET_KEYS, TargetsTogether, of_suite, parts_of
from proctor.actions.trust import Trust, refuse_untrusted, target_names, trust_for
from proctor.cassettes.ports import Tape
from proctor.errors import InputError
from proctor.formats.native_text import write_native
from proctor.formats.references import References, ReplayedReferences
from proctor.formats.workspace import Section, Workspace
from proctor.llm.ports import ChatModel
from proctor.llm.settings import ModelSettings
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.result import RunResult
from proctor.model.run import RunEntry, RunHeader
from proctor.report.wording import count_noun
from proctor.runner.events import Listener, ignore_event
from proctor.runner.ports import Judge, Target
from proctor.runner.run import Ended, Runner, RunSettings, TapeFor, use_live_tape
from proctor.scoring.completeness import count_planned_attempts
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
    secrets: Iterable[str] = (),
    judge: object | None = None,
    judge_options: JudgeOptions = NO_OPTIONS,
    allow_missing_judge: bool = False,
    announce: Callable[[str], None] = lambda text: None,
    opened: Callable[[str], None] = lambda run_id: None,
    trust: bool | None = None,
) -> LiveRun:
    """Drive a suite; everything about how it ended. `secrets` are those of a target that was built by the caller.

    `judge` decides claims in plain language, instead of the configured one: a judge, a function, a mapping or a name as `check` takes it.
    `announce` is told, before anything is sent, what judging will take; `opened` the id of the run, as soon as it has one.
    `trust` takes a suite at its word that does not lie in the working folder; nothing said, the environment is asked.
    """
    if record is not None and replay is not None:
        raise InputError("a run is recorded or replayed, not both")
    place = find_home(str(home) if home is not None else None)
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    trusted = trust_for("running", granted=trust, home=place)
    _refuse_strangers(loaded, target, place, judge_options, trusted, judged=judge is None, offline=replay is not None)
    references = References(dict(os.environ)) if replay is None else ReplayedReferences(dict(os.environ))
    models = _Models(references, offline=replay is not None)
    driven = _target(target, place, references, loaded, models, offline=replay is not None)
    chosen = settings or RunSettings(repeat=repeat, concurrency=concurrency, timeout_s=timeout_s)
    if replay is not None:
        # What was recorded comes back the same however often it is asked for.
        chosen = msgspec.structs.replace(chosen, retries=0)
    seat = _seat(judge, loaded, references, place, judge_options, trusted, offline=replay is not None)
    require_judge(loaded, seat.judge, allow_missing=allow_missing_judge)
    for part, part_judge in (seat.opened.parts or ((loaded, seat.opened),)) if seat.opened is not None else ():
        announce(_told(part, part_judge, chosen.repeat))
    tape_for, close_tape, unused = _tape(record, replay, {*references.secrets, *models.secrets(), *secrets, *seat.secrets()})
    folder, done = _open(place, loaded, driven.name, chosen, resume, note)
    chosen = msgspec.structs.replace(chosen, repeat=folder.header.repeat)
    opened(folder.header.run_id)
    ended: Ended = "interrupted"
    reason, failed = "", False
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
            judge=seat.judge,
        )
        outcome = await runner.run(done)
        ended, reason = outcome.ended, outcome.reason
    except Exception:
        failed = True
        raise
    finally:
        await models.close()
        await seat.close()
        close_tape()
        if ended == "completed":
            folder.close(ended)
        else:
            folder.release("failed" if failed else ended)
    entries = {(entry.case, entry.attempt): entry for entry in folder.entries()}
    result = result_of(folder.header, loaded, entries.values(), ended)
    unmatched: int = getattr(driven, "records_without_case", 0)
    if unmatched:
        result = msgspec.structs.replace(result, unmet=msgspec.structs.replace(result.unmet, records_without_case=unmatched))
    return LiveRun(result=result, ended=ended, reason=reason, folder=folder.folder, entries=entries, unused=unused())


def _refuse_strangers(
    suite: Suite, target: TargetLike, home: Path, options: JudgeOptions, trust: Trust, *, judged: bool, offline: bool
) -> None:
    """Refuse a suite that is not trusted and names something itself, before anything of it is looked at; told for all suites of a run."""
    if target is None or isinstance(target, str):
        for part in parts_of(suite, TARGET_KEYS):
            if not trust.takes(part):
                workspace = workspace_for(part, home)
                found = target_names(target, workspace)
                if judged and not offline and any(case.judged for case in prepared(part).cases):
                    found += judge_names(part, workspace, options, trust)
                refuse_untrusted(part, found, trust)


class _Seat(msgspec.Struct, frozen=True, kw_only=True):
    """The place of the judge, taken or empty."""

    judge: Judge | None = None
    opened: OpenedJudge | None = None
    """Made here from what is configured, so announced and closed here."""

    def secrets(self) -> frozenset[str]:
        """What must never be written down."""
        return self.opened.secrets if self.opened is not None else frozenset()

    async def close(self) -> None:
        """Give back connections, of a judge that was made here."""
        if self.opened is not None:
            await self.opened.judge.close()


def _seat(
    judge: object | None,
    suite: Suite,
    references: References,
    home: Path,
    options: JudgeOptions,
    trust: Trust,
    *,
    offline: bool,
) -> _Seat:
    if suite.dialect == "mcplab":
        from proctor.actions.mcplab_judge import judge_agent  # only MCPLab's own suites need it

        # A name that leads nowhere is an error of the workspace, whether anything is judged or not.
        judge_agent(suite)
    if not any(case.judged for case in prepared(suite).cases):
        return _Seat()
    if judge is not None:
        return _Seat(judge=made_judge(judge, os.environ, home=home))
    opened = open_judges(suite, references, os.environ, home=home, options=options, offline=offline, trust=trust)
    return _Seat(judge=opened.judge, opened=opened) if opened is not None else _Seat()


def _told(suite: Suite, opened: OpenedJudge, repeat: int) -> str:
    take = estimated(suite, opened.settings, jurors=len(opened.models), repeat=repeat)
    return f"judge: {', '.join(opened.models)}; up to {count_noun(take.calls, 'call')}, at least {take.tokens:,} tokens"


class _Models:
    """The models a run talks to, made when they are first asked for, closed at its end."""

    def __init__(self, references: References, *, offline: bool = False) -> None:
        self._references = references
        self._offline = offline
        self._settings: list[ModelSettings] = []
        self._made: list[ChatModel] = []

    def for_target(self, section: Section, workspace: Workspace) -> Callable[[Tape], ChatModel]:
        """How the model that a target names is talked to over a tape."""
        from proctor.llm.taped import TapedModel

        named = section.node.get("model")
        name = named.value if named is not None and isinstance(named.value, str) else None
        settings = model_settings(name, workspace, self._references, os.environ)
        self._settings.append(settings)
        model = built_model(settings, offline=self._offline)
        self._made.append(model)
        return lambda tape: TapedModel(model, tape)

    def secrets(self) -> set[str]:
        """What must never be written down."""
        return {secret for settings in self._settings for secret in settings.list_secrets()}

    async def close(self) -> None:
        """Give back connections."""
        for model in self._made:
            await model.close()


def _target(target: TargetLike, home: Path, references: References, suite: Suite, models: _Models, *, offline: bool) -> Target:
    if target is not None and not isinstance(target, str):
        given = _given_target(target, references, suite)
        check_cases(given, suite)
        return given
    parts = parts_of(suite, TARGET_KEYS)
    found: list[tuple[Target, list[str]]] = []
    for part in parts:
        try:
            driven = _named_target(target, workspace_for(part, home), references, part, models, offline=offline)
            check_cases(driven, part)
        except InputError as error:
            raise of_suite(error, part, parts) from None
        found.append((driven, [case.id for case in part.cases]))
    return found[0][0] if len(found) == 1 else TargetsTogether(found)


def _named_target(
    target: str | None, workspace: Workspace, references: References, suite: Suite, models: _Models, *, offline: bool
) -> Target:
    base = _folder_of(suite)
    name, section = workspace.find_target(target)
    if section.find_text("type") == "mcp_agent":
        return build_target(name, section, references, base=base, model_for=models.for_target(section, workspace), offline=offline)
    return build_target(name, section, references, base=base)


def _folder_of(suite: Suite) -> Path:
    return Path(suite.path).resolve().parent if suite.path else Path.cwd()


def _given_target(target: Target | Callable[..., object] | Mapping[str, Json], references: References, suite: Suite) -> Target:
    if isinstance(target, Mapping):
        return build_target("target", cast(Mapping[str, Json], target), references, base=_folder_of(suite))
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
            planned=sum(count_planned_attempts(case, settings.repeat) for case in suite.cases),
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
    if settings.repeat not in (1, folder.header.repeat):
        folder.release()
        before = f"run {folder.header.run_id!r} was started with {folder.header.repeat} repeats"
        raise InputError(f"{before}, not {settings.repeat}; it is resumed with its own")
    return folder, [(entry.case, entry.attempt) for entry in folder.entries()]


def _tape(
    record: str | Path | None, replay: str | Path | None, secrets: set[str]
) -> tuple[TapeFor, Callable[[], None], Callable[[], str | None]]:
    """The tapes of the attempts, how to close them, and what to say about recordings that were of no use."""
    from proctor.cassettes.cassette import open_tape  # loads nothing heavy, but most runs have no tape

    if record is not None:
        recorder = open_tape(record, "record", secrets=secrets)
        return recorder.scope, recorder.close, _nothing
    if replay is not None:
        player = open_tape(replay, "replay", secrets=secrets)
        return player.scope, player.close, player.describe_unused
    return use_live_tape, _nothing, _nothing


def _nothing() -> None:
    """There is no tape to close, and nothing to say about it."""
