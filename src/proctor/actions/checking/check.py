"""Check recorded evidence against a suite, in Python: no agent is called, and every result is kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar, overload

from proctor.actions.checking.check_stream import NO_SOURCE, CheckStream
from proctor.actions.checking.evidence import read_declared
from proctor.actions.workspace.custom_checks import OwnChecks, registry_of
from proctor.actions.workspace.suites import load_suite
from proctor.checks.registry import Registry
from proctor.errors import EvidenceError, InputError
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.result import CaseResult, RunResult
from proctor.model.show import show
from proctor.sources.records import Record, read_records

EvidenceLike = Evidence | Mapping[str, Json] | Iterable["Evidence | Mapping[str, Json]"] | str | Path


Mark = TypeVar("Mark", bound=Callable[..., object])


@overload
def check(suite: Mark, /) -> Mark: ...
@overload
def check(*, name: str | None = None, pass_at: float = 1.0) -> Callable[[Mark], Mark]: ...
@overload
def check(
    suite: Suite | str | Path,
    evidence: EvidenceLike,
    *,
    judge: object | None = None,
    now: str | None = None,
    registry: Registry | None = None,
    checks: OwnChecks | None = None,
) -> RunResult: ...
def check(suite: Json = None, evidence: Json = None, *, name: str | None = None, pass_at: float = 1.0, **options: Json) -> Json:
    """Check one piece of evidence, or several, against `suite`; or, as `@proctor.check`, mark a function of evidence as a check.

    `suite` is what `load_suite` returns, or the path of one; `checks` are functions that it may name beside the checks of ours. Evidence is
    what `read_evidence` returns, documents, or the path of a file or folder; documents are read as `evidence:` in the suite says. `judge`
    decides claims in plain language: a judge, a function of a question that answers yes, no or a score, a mapping like `judge:` in a suite,
    or `provider/name` of a model.

    As a decorator: the parameters after the first are the fields of the check, `name` is its name where it is not the function's, and a
    score that the function returns passes from `pass_at` on.
    """
    if evidence is None and not options and (suite is None or (callable(suite) and not isinstance(suite, Suite))):
        from proctor.checks.shared.custom_checks import mark_own_check  # most checks are ours

        def mark(function: Mark) -> Mark:
            return mark_own_check(function, name=name, pass_at=pass_at)

        return mark if suite is None else mark(suite)
    given: Json = evidence
    return _check(suite, given, **options)


def _check(
    suite: Suite | str | Path,
    evidence: EvidenceLike,
    *,
    judge: object | None = None,
    now: str | None = None,
    registry: Registry | None = None,
    checks: OwnChecks | None = None,
) -> RunResult:
    suite, registry = _find_suite(suite, checks, registry)
    if judge is not None or _names_judge(suite):
        from proctor.actions.workspace.run_sync import wait_for_end  # asyncio costs more than a small check; only a judge needs it

        found = suite
        return wait_for_end(
            lambda: check_async(found, evidence, judge=judge, now=now, registry=registry),
            called="proctor.check",
            instead="proctor.check_async",
        )
    stream = CheckStream(suite, now=now, registry=registry)
    if isinstance(evidence, (str, Path)):
        return stream.finish(list(stream.over(read_records([str(evidence)], declared=suite.find_declared()))))
    results: list[CaseResult] = []
    append, clock = results.append, stream.clock
    lookup = stream.lookup if now is None else {}
    for number, piece in enumerate(_one_or_more(evidence), 1):
        if isinstance(piece, Evidence) and (cases := lookup.get(piece.case)):
            # What `decide_evidence` does, without a call: this loop is the one that large sets go through.
            for decide in cases:
                append(decide(piece, NO_SOURCE, 0, clock))
        elif isinstance(piece, Evidence):
            stream.decide_evidence(piece, NO_SOURCE, results)
        else:
            for record in _records(piece, number, suite):
                stream.decide(record, results)
    stream.tally.add_all(results)
    results.extend(stream.unanswered())
    return stream.finish(results)


def _find_suite(suite: Suite | str | Path, checks: OwnChecks | None, registry: Registry | None) -> tuple[Suite, Registry | None]:
    """Return a suite, read where it is a path, and the checks to decide it with."""
    if checks is not None and registry is None:
        registry = registry_of(checks)
    return (suite, registry) if isinstance(suite, Suite) else (load_suite(suite, checks=checks), registry)


def _names_judge(suite: Suite) -> bool:
    """Return whether a suite, or one of the suites it was joined from, has a `judge:` of its own."""
    settings = suite.settings
    if settings.get("judge") is not None:
        return True
    if not settings.get("suites"):
        return False
    from proctor.actions.workspace.combined_suites import every_part  # only a folder of suites has several

    return any(part.settings.get("judge") is not None for part in every_part(suite))


def _one_or_more(evidence: EvidenceLike) -> Iterable[Json]:
    if isinstance(evidence, (Evidence, Mapping)):
        return (evidence,)
    if isinstance(evidence, (str, bytes)) or not isinstance(evidence, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not typed
        raise _no_evidence(evidence)
    return evidence


def _no_evidence(found: object) -> InputError:
    return InputError(f"expected evidence, an object like it or a list of these, found {type(found).__name__} {show(repr(found))}")


async def check_async(
    suite: Suite | str | Path,
    evidence: EvidenceLike,
    *,
    judge: object | None = None,
    now: str | None = None,
    registry: Registry | None = None,
    checks: OwnChecks | None = None,
) -> RunResult:
    """`check` for code that runs in an event loop: the loop is not held up while the checks are decided."""
    suite, registry = _find_suite(suite, checks, registry)
    if judge is None and not _names_judge(suite):
        import asyncio  # costs more than a small check; only this road needs it

        return await asyncio.to_thread(_check, suite, evidence, now=now, registry=registry)
    from proctor.actions.checking.judged_check import JudgedStream
    from proctor.actions.judging.judges import make_judge, open_suite_judge
    from proctor.actions.workspace.run_history import find_home  # only a judge needs these

    stream, home = CheckStream(suite, now=now, registry=registry), find_home(None)
    if judge is not None:
        made = make_judge(judge, os.environ, home=home)
    else:
        opened = open_suite_judge(suite, home, os.environ)
        if opened is None:
            return stream.finish(list(stream.over(all_records(evidence, suite))))
        made = opened.judge
    try:
        results = [result async for result in JudgedStream(stream, made).over(all_records(evidence, suite))]
    finally:
        if made is not judge:
            await made.close()
    return stream.finish(results)


def all_records(evidence: EvidenceLike, suite: Suite | None = None) -> Iterator[Record]:
    """Evidence handed over in code, as records of a stream; documents are read as the suite declares."""
    if isinstance(evidence, (str, Path)):
        yield from read_records([str(evidence)], declared=None if suite is None else suite.find_declared())
        return
    for number, piece in enumerate(_one_or_more(evidence), 1):
        if isinstance(piece, Evidence):
            yield Record(piece, NO_SOURCE)
        else:
            yield from _records(piece, number, suite)


def _records(piece: Mapping[str, Json], number: int, suite: Suite | None) -> Iterator[Record]:
    if not isinstance(piece, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not typed
        raise _no_evidence(piece)
    try:
        for evidence in read_declared(dict(piece), None if suite is None else suite.find_declared()):
            yield Record(evidence, NO_SOURCE)
    except EvidenceError as error:
        yield Record(None, Source(id=f"evidence {number}"), error)
