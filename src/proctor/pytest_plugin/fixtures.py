"""Fixtures for tests written in Python.

    def test_refund(proctor_evidence, proctor_check):
        proctor_check("refund.yaml", proctor_evidence("runs/refund.json"))

A relative path is resolved next to the test file, then in the working directory. Problems are shown in our own report, with the
line of the test. The engine is imported only when a fixture is used, because pytest loads this file in every session.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pytest

from proctor.pytest_plugin.failures import shorten_path

if TYPE_CHECKING:
    from proctor.actions.judging.judges import OpenedJudge
    from proctor.actions.running.run import TargetLike
    from proctor.doctor.model import Examination
    from proctor.model.case import Suite
    from proctor.model.evidence import Evidence, Json
    from proctor.model.judgement import Opinion
    from proctor.model.result import RunResult

    EvidenceSource = Evidence | Mapping[str, Json] | Iterable[Any] | str | Path


class ReadEvidence:
    """Reads recorded evidence: `proctor_evidence("run.json")`, `proctor_evidence({"text": "Done"})`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, source: Mapping[str, Json] | list[Json] | str | Path, *, format: str | None = None) -> Evidence:
        """One piece of evidence from a file, a mapping, or a list of messages."""
        __tracebackhide__ = True
        from proctor.actions.checking.check import read_evidence  # slow to load
        from proctor.errors import ProctorError

        try:
            return read_evidence(_find_file(source, self._folder) if isinstance(source, (str, Path)) else source, format=format)
        except ProctorError as error:
            _fail_test(error)


class AskTarget:
    """Drives a target: `proctor_target("shop", "Where is my order?")`."""

    def __init__(self, folder: Path, root: Path, note: str) -> None:
        self._folder = folder
        self._root = root
        self._note = note

    def __call__(
        self,
        target: TargetLike,
        message: str,
        *more: str,
        context: Mapping[str, Json] | None = None,
        timeout_s: float = 120.0,
        capture: Literal["otel"] | None = None,
    ) -> Evidence:
        """Return the evidence of the agent for the message, and for further messages of the same conversation.

        `target` is a name in `proctor.yaml` (`None`: the default one), a value of `proctor run --target` (an address, `module:function`, a
        command), a mapping of settings, or a Python function; for a function, `capture="otel"` also reads its spans. In an `async` test
        call it with `await asyncio.to_thread(proctor_target, ...)`.
        """
        __tracebackhide__ = True
        import msgspec  # slow to load

        from proctor.actions.running.named_target import choose_target, parse_target
        from proctor.errors import ProctorError, TargetError
        from proctor.model.case import Case, Suite, Turn
        from proctor.pytest_plugin.reporting import drive_suite, find_run_home

        home = find_run_home(self._folder, self._root)
        turns = tuple(Turn(input=each) for each in (message, *more)) if more else ()
        case = Case(id="asked", input=None if more else message, turns=turns, context=dict(context or {}))
        suite = Suite(name=self._note, cases=(case,))
        try:
            if isinstance(target, str) and (capture is None or parse_target(target) is not None):
                # Targets named in a test are trusted, like those on the command line.
                target, capture = choose_target(target, suite, home, capture=capture), None
            run = drive_suite(suite, target=target, home=home, note=self._note, timeout_s=timeout_s, capture=capture)
            entry = run.entries[case.id, 0]
            if entry.evidence is None:
                raise TargetError(entry.reason or "the agent left no evidence")
        except ProctorError as error:
            _fail_test(error)
        # It matches the case of any suite by its input.
        return msgspec.structs.replace(entry.evidence, case=None)


class CheckSuite:
    """Checks evidence against a suite: `proctor_check("refund.yaml", evidence)`."""

    def __init__(self, folder: Path, *, trust: bool | None = None) -> None:
        self._folder = folder
        self._trust = trust

    def __call__(
        self, suite: Suite | str | Path, evidence: EvidenceSource, *, case: str | None = None, now: str | None = None
    ) -> RunResult:
        """Fail the test unless all claims of `suite` hold for `evidence`; skip if the suite does.

        `suite` is a path, the text of a suite (more than one line), or a loaded suite; `case` selects the case with that id.
        """
        __tracebackhide__ = True
        from proctor.actions.checking.check import all_records  # slow to load
        from proctor.actions.checking.check_stream import CheckStream  # slow to load
        from proctor.actions.checking.judged_check import finish_stream
        from proctor.actions.judging.trust import trust_for
        from proctor.actions.workspace.run_history import find_home
        from proctor.errors import ProctorError
        from proctor.pytest_plugin.reporting import conclude

        try:
            loaded = _load_suite(suite, self._folder)
            stream = CheckStream(_select_case(loaded, case), now=now)
            records = all_records(_read_evidence(evidence, self._folder))
            home = find_home(None, self._folder)
            # Code in a test is trusted like the test.
            is_inline = not isinstance(suite, Path) and loaded.path is None
            trust = trust_for("running", granted=True if is_inline else self._trust, home=home)
            result = finish_stream(stream, records, home=home, environment=os.environ, trust=trust)
            _require_matches(result)
        except ProctorError as error:
            _fail_test(error)
        conclude(result)
        return result


@pytest.fixture
def proctor_evidence(request: pytest.FixtureRequest) -> ReadEvidence:
    """Reads recorded evidence from a file, a mapping or a list of messages."""
    return ReadEvidence(request.path.parent)


@pytest.fixture
def proctor_target(request: pytest.FixtureRequest) -> AskTarget:
    """Drives a target of proctor.yaml with one or more messages and returns the evidence."""
    return AskTarget(request.path.parent, request.config.rootpath, f"pytest {request.node.nodeid}")


class AskJudge:
    """Asks the configured judge: `proctor_judge(answer, "names the order")` fails the test with the judge's reason."""

    def __init__(self, open_judge: Callable[[], OpenedJudge | None]) -> None:
        self._open = open_judge

    def __call__(self, answer: Any, criterion: str, *, threshold: float | None = None, context: dict[str, Any] | None = None) -> Opinion:
        """Judge `answer`; a judgement that is not a pass fails the test."""
        __tracebackhide__ = True
        opinion = self.opinion(answer, criterion, threshold=threshold, context=context)
        if opinion.outcome != "pass":
            from proctor.pytest_plugin.reporting import make_refusal  # slow to load

            raise make_refusal(criterion, opinion, threshold)
        return opinion

    def opinion(self, answer: Any, criterion: str, *, threshold: float | None = None, context: dict[str, Any] | None = None) -> Opinion:
        """Return the opinion of the judge."""
        import asyncio  # slow to load

        from proctor.cassettes.ports import LIVE
        from proctor.model.judgement import Material, Question

        question = Question(criterion=criterion, material=Material(subject=answer, context=context or {}), threshold=threshold)
        # Each question has its own event loop and connections.
        opened = self._open()
        assert opened is not None, "the fixture has skipped the test"

        async def ask() -> Opinion:
            try:
                return (await opened.judge.judge([question], case="", attempt=0, tape=LIVE))[0]
            finally:
                await opened.judge.close()

        return asyncio.run(ask())


@pytest.fixture
def proctor_judge(request: pytest.FixtureRequest) -> AskJudge:
    """Asks the judge of proctor.yaml or of the environment; without one, the test is skipped."""
    from proctor.actions.judging.judges import open_home_judge
    from proctor.actions.workspace.run_history import find_home  # slow to load

    home = find_home(None, request.path.parent)

    if open_home_judge(home, os.environ) is None:
        pytest.skip("proctor_judge: no judge is configured; `judge:` in proctor.yaml or PROCTOR_JUDGE_MODEL names one")
    return AskJudge(lambda: open_home_judge(home, os.environ))


@pytest.fixture
def proctor_check(request: pytest.FixtureRequest) -> CheckSuite:
    """Checks evidence against a suite and fails the test with proctor's report."""
    return CheckSuite(request.path.parent, trust=request.config.getoption("proctor_trust"))


def _fail_test(error: Exception) -> NoReturn:
    __tracebackhide__ = True
    from proctor.pytest_plugin.reporting import make_fault  # slow to load

    raise make_fault(str(error)) from None


def _find_file(path: str | Path, folder: Path) -> Path:
    near_test = folder / path
    return shorten_path(near_test) if near_test.exists() else Path(path)


def _load_suite(suite: Suite | str | Path, folder: Path) -> Suite:
    from proctor.actions.workspace.suites import load_suite, parse_suite  # slow to load

    if isinstance(suite, str) and "\n" in suite:
        return parse_suite(suite)
    return load_suite(_find_file(suite, folder)) if isinstance(suite, (str, Path)) else suite


def _select_case(suite: Suite, case: str | None) -> Suite:
    from proctor.decide.selection import select_cases  # slow to load
    from proctor.errors import InputError
    from proctor.model.show import suggest_one

    if case is None:
        return suite
    cases = [candidate for candidate in suite.cases if candidate.id == case]
    if not cases:
        raise InputError(f"the suite {suite.name!r} has no case {case!r}" + suggest_one(case, [candidate.id for candidate in suite.cases]))
    return select_cases(suite, cases)


def _read_evidence(source: EvidenceSource, folder: Path) -> Any:
    from proctor.actions.checking.check import read_all_evidence  # slow to load

    return read_all_evidence(_find_file(source, folder)) if isinstance(source, (str, Path)) else source


def _require_matches(result: RunResult) -> None:
    """Fail for evidence of an unknown case, or if no evidence matches: the test would decide nothing."""
    from proctor.errors import EvidenceError  # slow to load

    if result.outcome == "skip" and result.unmet.cases_without_evidence and not result.unmatched_evidence:
        raise EvidenceError("no evidence answers any case of the suite, so that nothing was decided: give it what the agent did")

    for unmatched in result.unmatched_evidence:
        close = f"; nearest: {', '.join(map(repr, unmatched['nearest']))}" if unmatched["nearest"] else ""
        raise EvidenceError(f"the evidence names the case {unmatched['case']!r}, which is not in the suite{close}")


class ExamineServer:
    """Examines an MCP server: `proctor_doctor("python server.py")` fails the test for a violation or an incomplete result."""

    def __call__(self, server: Any, **options: Any) -> Examination:
        """Examine the server; the options are those of `proctor.examine_server`, which stores no run here unless `store=True`."""
        __tracebackhide__ = True
        from proctor.actions.running.examine_server import examine_server
        from proctor.doctor.report import build_document  # slow to load
        from proctor.report.document.terminal import write_terminal

        options.setdefault("store", False)
        examination = examine_server(server, **options)
        if examination.failed or examination.incomplete:
            pytest.fail(write_terminal(build_document(examination, "terminal")), pytrace=False)
        return examination


@pytest.fixture
def proctor_doctor() -> ExamineServer:
    """Examines an MCP server and fails the test for a violation."""
    return ExamineServer()
