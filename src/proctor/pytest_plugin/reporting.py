"""Turns results of proctor into outcomes of pytest."""

from __future__ import annotations

import asyncio
import shutil
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from proctor.actions.running.run import LiveRun, RunOptions, TargetLike, drive
from proctor.actions.workspace.run_history import find_home, is_workspace_folder
from proctor.decide.other_input import OTHER_INPUT
from proctor.errors import InputError
from proctor.model.case import Suite
from proctor.model.judgement import Opinion, make_verdict
from proctor.model.result import CaseResult, RunResult
from proctor.processes.threads import is_loop_running
from proctor.pytest_plugin.failures import CheckFailed
from proctor.report.builders.case import CaseBuilder
from proctor.report.document.model import Document
from proctor.report.document.terminal import TerminalWriter, write_terminal
from proctor.report.words.findings import write_findings
from proctor.report.words.neutral import to_lines, to_one_line
from proctor.report.words.style import Style
from proctor.report.words.wording import case_remark, join_title_and_reason, skip_words
from proctor.runner.limits import RunSettings

_NARROWEST, _WIDEST = 60, 120


class SuiteWarning(pytest.PytestWarning):
    """Something usable but probably unintended in a suite or its evidence."""


def conclude(result: RunResult) -> None:
    """Return if everything passed, skip if nothing was decided, else raise `CheckFailed` with our report."""
    __tracebackhide__ = True
    for problem in result.warnings:
        # The other warnings are about the suite, and were issued when it was collected.
        if problem.code == OTHER_INPUT:
            warnings.warn(SuiteWarning(problem.write_headline()), stacklevel=3)
    if result.outcome == "pass":
        return
    if result.outcome == "skip":
        pytest.skip(_explain_skip(result.cases))
    raise _make_failure(result.cases)


def make_fault(message: str) -> CheckFailed:
    """Return the failure for an unreadable suite or evidence, or an unreachable agent."""
    lines = to_lines(message, limit=20_000, most_lines=200) or ["no reason given"]
    return CheckFailed(f"error: {lines[0]}", "\n".join([f"error: {lines[0]}", *lines[1:]]))


def make_refusal(criterion: str, opinion: Opinion, threshold: float | None) -> CheckFailed:
    """Return the failure of a judged claim: criterion, reason, judge."""
    verdict = make_verdict(opinion)
    if threshold is not None:
        verdict = msgspec.structs.replace(verdict, details={**verdict.details, "threshold": threshold})
    word = "not met" if opinion.outcome == "fail" else f"not judged [{opinion.code}]" if opinion.code else "not judged"
    lines = [f"{word}: {to_one_line(criterion)}", *to_lines(opinion.reason), *map(to_one_line, write_findings(verdict))]
    return CheckFailed(lines[0], "\n  ".join(lines))


def write_plainly(document: Document) -> str:
    """Return a report without colours: it also goes into JUnit files, and through the processes of xdist."""
    return write_terminal(document, width=_measure_width())


def _make_failure(results: Sequence[CaseResult]) -> CheckFailed:
    broken = [result for result in results if result.outcome in ("fail", "error")]
    # No colours: the text also goes into JUnit files, and through the processes of xdist.
    writer, cases = TerminalWriter(Style(colour=False), _measure_width()), CaseBuilder("terminal")
    blocks = ["\n".join(writer.write_block(cases.build(result))) for result in broken]
    if len(results) > 1:
        blocks.append(f"{len(broken)} of {len(results)} results did not pass")
    return CheckFailed(_write_headline(broken[0]), "\n\n".join(blocks))


def _write_headline(result: CaseResult) -> str:
    word = "error: " if result.outcome == "error" else ""
    remark = case_remark(result)
    if remark is not None:
        return word + to_one_line(remark)
    decisive = [entry for entry in result.failures() if entry.outcome == result.outcome and not entry.assertion.advisory]
    for entry in decisive or result.failures():
        return word + to_one_line(join_title_and_reason(entry.assertion, entry.reason))
    return word + "the score is too low"


def _explain_skip(results: Iterable[CaseResult]) -> str:
    for result in results:
        reason = case_remark(result) or next((verdict.reason for verdict in result.verdicts if verdict.reason), "")
        if reason:
            return to_one_line(skip_words(reason))
    return "nothing was decided"


def _measure_width() -> int:
    return min(max(shutil.get_terminal_size((100, 24)).columns, _NARROWEST), _WIDEST)


def find_run_home(folder: Path, root: Path, *, trusted: bool = True) -> Path:
    """Return the folder of stored runs: next to the nearest `proctor.yaml` above `folder`, else in the root folder.

    Unless it is `trusted`, only the working folder counts: a foreign suite may have its own `proctor.yaml`.
    """
    current_home = find_home(None)
    for home in (find_home(None, start=folder), find_home(None, start=root)):
        if is_workspace_folder(home.parent) and (trusted or home.parent.is_relative_to(current_home.parent)):
            return home
    return find_home(None, start=root) if trusted or root.resolve().is_relative_to(current_home.parent) else current_home


def drive_suite(
    suite: Suite,
    *,
    target: TargetLike,
    home: Path,
    note: str,
    timeout_s: float = 120.0,
    trust: bool | None = None,
    capture: Literal["otel"] | None = None,
) -> LiveRun:
    """Run the suite. Raises `KeyboardInterrupt` if interrupted; finished attempts are stored."""
    if is_loop_running():
        raise InputError(
            "an agent cannot be driven from inside a running event loop; in an async test: await asyncio.to_thread(proctor_target, ...)"
        )
    options = RunOptions(settings=RunSettings(timeout_s=timeout_s), note=note, trust=trust, capture=capture)
    run = asyncio.run(drive(suite, options, target=target, home=home))
    if run.ended == "interrupted":
        # pytest ends the session on this; after a failed test it would continue.
        raise KeyboardInterrupt
    return run
