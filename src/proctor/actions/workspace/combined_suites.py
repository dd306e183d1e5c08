"""Suites that are run together, each with its own settings: every case uses the agent and the judge of its own suite.

`settings["suites"]` of the whole lists the suites it was joined from, if any of them has its own targets, models or judge: `name`,
`dialect`, `file` (from the folder of the whole), `cases` (their ids in the whole) and `settings`. Suites with equal settings share one
agent and one judge. Only a folder is joined: such a list in a suite file is ignored.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.actions.workspace.close_all import close_all
from proctor.cassettes.ports import Tape
from proctor.decide.other_input import OtherInputs
from proctor.errors import InputError, TargetError
from proctor.formats.workspace_file import WORKSPACE_KEYS
from proctor.model.attempt import Attempt
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence, Json
from proctor.model.judgement import NO_JUDGE, NO_JUDGE_CODE, Opinion, Question
from proctor.model.typed import convert_to
from proctor.runner.ports import Judge, Target

SUITES = "suites"
TARGET_KEYS = ("targets", "default_target", "models")
JUDGE_KEYS = ("judge", "models")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One of several suites, as stored in the combined suite."""

    name: str
    dialect: str
    file: str | None = None
    cases: tuple[str, ...] = ()
    settings: dict[str, Json] = {}


def describe_parts(folder: Path, suites: Sequence[tuple[Suite, Iterable[str]]]) -> dict[str, Json]:
    """Return the list of the joined suites, each with the ids of its cases in the whole; empty if none has its own settings."""
    parts = [
        Part(
            name=suite.name,
            dialect=suite.dialect,
            # Relative to the folder, so that the stored suite does not depend on the working directory.
            file=Path(os.path.relpath(suite.path, folder)).as_posix() if suite.path is not None else None,
            cases=tuple(cases),
            settings={key: suite.settings[key] for key in WORKSPACE_KEYS if suite.settings.get(key) is not None},
        )
        for suite, cases in suites
    ]
    return {SUITES: msgspec.to_builtins(parts)} if any(part.settings for part in parts) else {}


def every_part(suite: Suite) -> list[Part]:
    """Return the suites that `suite` was joined from; empty if it was not joined, or all have the same settings."""
    # The author of a file may have written such a list, which is ignored.
    if SUITES not in suite.settings or suite.path is None or not Path(suite.path).is_dir():
        return []
    try:
        return convert_to(suite.settings[SUITES], list[Part])
    except msgspec.ValidationError:
        return []


def split_suite(suite: Suite, keys: Sequence[str]) -> list[Suite]:
    """Return the suites that `suite` was joined from and that have a case in it, merged if equal in `keys`; else itself."""
    folder = Path(suite.path or "")
    alike: dict[bytes, tuple[Part, set[str]]] = {}
    for part in every_part(suite):
        new = {key: part.settings[key] for key in keys if key in part.settings}
        path = folder / (part.file or "")
        # Settings name files next to the suite, and an MCPLab workspace is found by its file.
        place = str(path if part.dialect == "mcplab" else path.parent if new else "")
        alike.setdefault(msgspec.json.encode((new, place), order="sorted"), (part, set()))[1].update(part.cases)
    parts: list[Suite] = []
    for part, ids in alike.values():
        cases = tuple(case for case in suite.cases if case.id in ids)
        path = None if part.file is None else str(folder / part.file)
        if cases:
            left_out = tuple(case for case in suite.unselected if case.id in ids)
            new = {"name": part.name, "dialect": part.dialect, "path": path, "settings": part.settings}
            parts.append(msgspec.structs.replace(suite, cases=cases, unselected=left_out, description="", warnings=(), prices=None, **new))
    return parts or [suite]


def name_suite_in_error(error: InputError, suite: Suite, parts: Sequence[Suite]) -> InputError:
    """Return the error with the name of its suite, if there are several."""
    return error if len(parts) == 1 else InputError(f"suite {suite.name!r}: {error}", error.problems)


CasesOf = Iterable[str] | Callable[[Case], bool]
"""The cases of a target among those of others: their ids, or a predicate."""


class CombinedTargets:
    """Several targets as one: each case goes to the target of its suite. Each has its own connections."""

    def __init__(self, targets: Sequence[tuple[Target, CasesOf]]) -> None:
        self.targets: Sequence[Target] = tuple(target for target, _ in targets)
        self.name = ", ".join(dict.fromkeys(name for target in self.targets for name in target.name.split(", ")))
        """Their names, in order, each once."""
        self._by_case = {case: target for target, cases in targets if not callable(cases) for case in cases}
        self._choosing = tuple((target, takes) for target, takes in targets if callable(takes))

    @property
    def records_without_case(self) -> int:
        """The number of recordings that name a case missing from their suite."""
        return sum(getattr(target, "records_without_case", 0) for target in self.targets)

    @property
    def other_inputs(self) -> OtherInputs:
        """The recordings that were used although their input differs from the input of their case."""
        merged = OtherInputs()
        for target in self.targets:
            merged.merge(getattr(target, "other_inputs", OtherInputs()))
        return merged

    async def open(self) -> None:
        """Connect all of them; after a failure none stays connected."""
        opened: list[Target] = []
        try:
            for target in self.targets:
                # Before it is opened, so that one that fails while opening is also closed.
                opened.append(target)
                await target.open()
        except BaseException:
            # The reason why it could not be opened wins over an error while closing.
            with contextlib.suppress(Exception):
                await close_all(opened)
            raise

    async def close(self) -> None:
        """Close all targets."""
        await close_all(self.targets)

    async def run(self, attempt: Attempt, tape: Tape) -> Evidence:
        """Run the target of the case."""
        chosen = next((target for target, takes in self._choosing if takes(attempt.case)), None)
        target = chosen or self._by_case.get(attempt.case.id)
        if target is None:
            raise TargetError(f"case {attempt.case.id!r} belongs to no agent of this run")
        return await target.run(attempt, tape)


class CombinedJudges:
    """Several judges as one: each case is judged by that of its suite. A case without one is decided without a judge."""

    def __init__(self, judges: Sequence[Judge], by_case: Mapping[str, Judge]) -> None:
        self._judges = tuple(judges)
        self._by_case = by_case

    def has(self, case: str) -> bool:
        """Whether there is a judge for a case."""
        return case in self._by_case

    async def judge(self, questions: Sequence[Question], *, case: str, attempt: int, tape: Tape) -> Sequence[Opinion]:
        """One opinion per question, in order."""
        judge = self._by_case.get(case)
        if judge is None:
            return [Opinion(outcome="error", reason=NO_JUDGE, code=NO_JUDGE_CODE)] * len(questions)
        return await judge.judge(questions, case=case, attempt=attempt, tape=tape)

    async def close(self) -> None:
        """Close all judges."""
        await close_all(self._judges)
