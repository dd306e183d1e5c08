"""Check recorded evidence against a suite, in Python: no agent is called, and every result is in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast, overload

from proctor.actions.checking.check_stream import NO_SOURCE, CheckStream
from proctor.actions.workspace.custom_checks import OwnChecks, registry_of
from proctor.actions.workspace.suites import load_suite
from proctor.checks.registry import Registry
from proctor.errors import EvidenceError, InputError
from proctor.evidence.reading import read_document
from proctor.evidence.unknowns.account import declare_complete
from proctor.formats.native.declared_evidence import build_declared
from proctor.model.account import Part
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.mapping import DeclaredEvidence, EvidenceMap
from proctor.model.result import CaseResult, RunResult
from proctor.model.show import show
from proctor.sources.records import Record, read_records

EvidencePaths = EvidenceMap | Mapping[str, Json]
"""Where the parts of the evidence are in a record, as `evidence: {map: ...}` in a suite."""


def read_evidence(
    source: Mapping[str, Json] | Sequence[Json] | str | Path | object,
    *,
    format: str | None = None,
    mapping: EvidencePaths | None = None,
    complete: Sequence[Part] = (),
) -> Evidence:
    """Read one piece of evidence from a mapping, a list of messages, a file, or the result of an agent framework.

    `mapping` has the paths of its parts in a record of your own format, `complete` lists parts that are recorded completely. Raises
    `EvidenceError` if it cannot be read, or holds more than one run (`read_all_evidence` takes those).
    """
    returned = _read_framework(source) if format is None and mapping is None else None
    if returned is not None:
        return declare_complete(returned, tuple(complete), _IN_CODE) if complete else returned
    evidences = read_all_evidence(cast("Mapping[str, Json]", source), format=format, mapping=mapping, complete=complete)
    if len(evidences) != 1:
        raise EvidenceError(f"expected one run, found {len(evidences)}; `proctor.actions.checking.check.read_all_evidence` takes several")
    return evidences[0]


def _read_framework(source: object) -> Evidence | None:
    """Return the evidence in a result of a framework; plain data has its own readers."""
    from proctor.targets.answers.plain_values import Unreadable
    from proctor.targets.frameworks.recognise import read_returned  # only needed for values that are not plain data

    listed = cast("list[object]", source) if isinstance(source, list) else [source]
    if not listed or all(isinstance(item, (Mapping, str, Path, bytes, int, float, list, tuple)) or item is None for item in listed):
        return None
    try:
        return read_returned(source)
    except Unreadable as error:
        raise EvidenceError(f"{type(source).__name__} cannot be read: {error}") from None


def read_all_evidence(
    source: Mapping[str, Json] | Sequence[Json] | str | Path,
    *,
    format: str | None = None,
    mapping: EvidencePaths | None = None,
    complete: Sequence[Part] = (),
) -> list[Evidence]:
    """Every run in a mapping, a list of messages, a file or a folder."""
    declared = build_declared({"map": mapping, "complete": complete}, source=_IN_CODE) if mapping is not None or complete else None
    if isinstance(source, (str, Path)):
        evidences: list[Evidence] = []
        for record in read_records([str(source)], format=format, declared=declared):
            if record.evidence is None:
                assert record.error is not None
                line = f":{record.source.line}" if record.source.line is not None else ""
                raise EvidenceError(f"{record.source.file}{line}: {record.error.message}", code=record.error.code)
            evidences.append(record.evidence)
        return evidences
    if isinstance(source, bytes) or not isinstance(source, (Mapping, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not typed
        raise EvidenceError(f"expected an object, a list or the path of a file, found {type(source).__name__} {show(repr(source))}")
    return read_declared(dict(source) if isinstance(source, Mapping) else list(source), declared, format=format)


def read_declared(document: Json, declared: DeclaredEvidence | None, *, format: str | None = None) -> list[Evidence]:
    """Every run of a decoded document, read as a suite declares it."""
    records = read_document(document, format=format, mapping=declared.map if declared is not None else None)
    if declared is None or not declared.complete:
        return records
    return [declare_complete(evidence, declared.complete, declared.source) for evidence in records]


_IN_CODE = "the call of read_evidence"


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

    `suite` is what `load_suite` returns, or the path of one; `checks` are functions that it may name in addition to the built-in checks.
    Evidence is what `read_evidence` returns, documents, or the path of a file or folder; documents are read by `evidence:` in the suite.
    `judge` decides claims in plain language: a judge, a function of a question that answers yes, no or a score, a mapping like `judge:` in
    a suite, or `provider/name` of a model.

    As a decorator: the parameters after the first are the fields of the check, `name` replaces the name of the function, and a score that
    the function returns passes if it is at least `pass_at`.
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
        from proctor.processes.threads import wait_for_end  # asyncio costs more than a small check; only a judge needs it

        loaded_suite = suite
        return wait_for_end(
            lambda: check_async(loaded_suite, evidence, judge=judge, now=now, registry=registry),
            called="proctor.check",
            instead="proctor.check_async",
        )
    stream = CheckStream(suite, now=now, registry=registry)
    if isinstance(evidence, (str, Path)):
        return stream.finish(list(stream.over(read_records([str(evidence)], declared=suite.find_declared()))))
    results: list[CaseResult] = []
    append, clock = results.append, stream.clock
    lookup = stream.lookup if now is None else {}
    for number, piece in enumerate(_list_evidence(evidence), 1):
        if isinstance(piece, Evidence) and (cases := lookup.get(piece.case)):
            # `decide_evidence`, inlined: large sets go through this loop.
            for decide in cases:
                append(decide(piece, NO_SOURCE, 0, clock))
        elif isinstance(piece, Evidence):
            stream.decide_evidence(piece, NO_SOURCE, results)
        else:
            for record in _read_records(piece, number, suite):
                stream.decide(record, results)
    stream.tally.add_all(results)
    results.extend(stream.unanswered())
    return stream.finish(results)


def _find_suite(suite: Suite | str | Path, checks: OwnChecks | None, registry: Registry | None) -> tuple[Suite, Registry | None]:
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


def _list_evidence(evidence: EvidenceLike) -> Iterable[Json]:
    if isinstance(evidence, (Evidence, Mapping)):
        return (evidence,)
    if isinstance(evidence, (str, bytes)) or not isinstance(evidence, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not typed
        raise _make_no_evidence_error(evidence)
    return evidence


def _make_no_evidence_error(value: object) -> InputError:
    return InputError(f"expected evidence, an object like it or a list of these, found {type(value).__name__} {show(repr(value))}")


async def check_async(
    suite: Suite | str | Path,
    evidence: EvidenceLike,
    *,
    judge: object | None = None,
    now: str | None = None,
    registry: Registry | None = None,
    checks: OwnChecks | None = None,
) -> RunResult:
    """`check` for code that runs in an event loop: the loop is not blocked while the checks are decided."""
    suite, registry = _find_suite(suite, checks, registry)
    if judge is None and not _names_judge(suite):
        import asyncio  # costs more than a small check; only needed here

        return await asyncio.to_thread(_check, suite, evidence, now=now, registry=registry)
    from proctor.actions.checking.judged_check import JudgedStream
    from proctor.actions.judging.judges import make_judge, open_suite_judge
    from proctor.actions.workspace.run_history import find_home  # only a judge needs these

    stream, home = CheckStream(suite, now=now, registry=registry), find_home(None)
    if judge is not None:
        built_judge = make_judge(judge, os.environ, home=home)
    else:
        opened = open_suite_judge(suite, home, os.environ)
        if opened is None:
            return stream.finish(list(stream.over(all_records(evidence, suite))))
        built_judge = opened.judge
    try:
        results = [result async for result in JudgedStream(stream, built_judge).over(all_records(evidence, suite))]
    finally:
        if built_judge is not judge:
            await built_judge.close()
    return stream.finish(results)


def all_records(evidence: EvidenceLike, suite: Suite | None = None) -> Iterator[Record]:
    """Evidence handed over in code, as records of a stream; documents are read as the suite declares."""
    if isinstance(evidence, (str, Path)):
        yield from read_records([str(evidence)], declared=None if suite is None else suite.find_declared())
        return
    for number, piece in enumerate(_list_evidence(evidence), 1):
        if isinstance(piece, Evidence):
            yield Record(piece, NO_SOURCE)
        else:
            yield from _read_records(piece, number, suite)


def _read_records(piece: Mapping[str, Json], number: int, suite: Suite | None) -> Iterator[Record]:
    if not isinstance(piece, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not typed
        raise _make_no_evidence_error(piece)
    try:
        for evidence in read_declared(dict(piece), None if suite is None else suite.find_declared()):
            yield Record(evidence, NO_SOURCE)
    except EvidenceError as error:
        yield Record(None, Source(id=f"evidence {number}"), error)
