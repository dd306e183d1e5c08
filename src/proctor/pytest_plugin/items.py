"""Collects suites as pytest files and cases as pytest items.

Evidence of a case comes from the first of these: `--proctor-evidence`, the file `<suite>.evidence.jsonl` next to the suite, the ini option
`proctor_evidence`. A case without evidence is run with `--proctor-live`, else skipped. If no case of a suite has evidence, every case is
an error, unless the ini file has `proctor_without_evidence = skip`.
A record that is unreadable or ambiguous makes every case on that evidence an error. Suites that share evidence need distinct case ids,
and a record without a case name is matched against the cases of all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from proctor.actions.checking.check_stream import CheckStream
from proctor.actions.judging.trust import Named, Trust, name_judge, refuse_untrusted, trust_for
from proctor.actions.running.run_builder import drives_own_agents
from proctor.actions.running.run_policy import Policy
from proctor.actions.workspace.custom_checks import find_registry
from proctor.actions.workspace.settings import workspace_for
from proctor.actions.workspace.suites import LIBRARY_NAMES as NO_SUITES
from proctor.actions.workspace.suites import add_workspace, load_file, shared_ids, with_complete
from proctor.decide.matching import CaseIndex
from proctor.errors import EvidenceError, InputError, ProctorError
from proctor.formats.native.drafting import make_unique
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json
from proctor.model.mapping import DeclaredEvidence
from proctor.model.result import RunResult
from proctor.model.show import nearest
from proctor.pytest_plugin.failures import WRITTEN_AT, CheckFailed, shorten_path, show_failure
from proctor.pytest_plugin.reporting import SuiteWarning, conclude, find_run_home, make_fault, write_plainly
from proctor.report.words.neutral import to_one_line
from proctor.report.words.wording import write_percent
from proctor.sources.records import Record, read_records

__all__ = ["NO_SUITES", "CaseItem", "SuiteFile"]

_SHOWN_UNREADABLE = 3
_NOT_IN_A_MARKER = re.compile(r"[^\w.+/-]+")
_WORDS_OF_EXPRESSIONS = ("and", "or", "not", "True", "False", "None")

_Read = dict[tuple[tuple[str, ...], DeclaredEvidence | None], tuple[Record, ...]]
_READ = pytest.StashKey[_Read]()
"""Evidence of this session by its paths, shared by suites."""
_SHARING = pytest.StashKey[dict[tuple[str, ...], list[Suite]]]()
"""Suites of this session by the paths of their evidence."""


class SuiteFile(pytest.File):
    """One suite."""

    suite: Suite
    _index: CaseIndex | None = None
    _has_evidence: bool | None = None

    def collect(self) -> Iterator[CaseItem | MutationItem]:
        """Yield one item per case, in the order of the file, and one for `--proctor-mutate`."""
        try:
            # Messages show the short path; the file is needed later from other folders.
            complete: str = self.config.getini("proctor_complete")
            loaded = load_file(shorten_path(self.path), registry=find_registry(self.path.parent))
            self.suite = with_complete(add_workspace(msgspec.structs.replace(loaded, path=str(self.path)), self.path.parent), complete)
        except InputError as error:
            raise self.CollectError(str(error)) from None
        self._refuse_shared_ids()
        for problem in self.suite.warnings:
            self.warn(SuiteWarning(problem.render()))
        markers = _Markers(self.config)
        used_names: set[str] = set()
        for case in self.suite.cases:
            # `::` separates the parts of a node id.
            name = make_unique(to_one_line(case.id).replace("::", ":"), used_names)
            used_names.add(name)
            yield CaseItem.from_parent(self, name=name, case=case, markers=markers)
        if self.config.getoption("proctor_mutate") is not None:
            yield MutationItem.from_parent(self, name=make_unique("planted faults", used_names))

    def _refuse_shared_ids(self) -> None:
        """Raise for two suites with the same evidence and a common case id."""
        paths = self.find_evidence()
        if not paths:
            return
        sharing = self.session.stash.setdefault(_SHARING, {}).setdefault(paths, [])
        # With xdist, one session collects a suite once per process.
        others = [suite for suite in sharing if suite.path != self.suite.path]
        problems = shared_ids([*others, self.suite])
        if problems:
            raise self.CollectError("\n".join(problem.render() for problem in problems))
        sharing[:] = [*others, self.suite]

    def find_trust(self) -> tuple[Trust, Path]:
        """Return the trust of this session, and the workspace of this suite."""
        trust = trust_for("running", granted=self.config.getoption("proctor_trust"))
        home = find_run_home(self.path.parent, self.config.rootpath, trusted=trust.granted)
        return trust_for("running", granted=trust.granted, home=home), home

    def find_evidence(self) -> tuple[str, ...]:
        """Return the paths of the evidence of this suite, if any."""
        paths: list[str] = self.config.getoption("proctor_evidence") or []
        if paths:
            return tuple(paths)
        next_to_suite = self.path.with_name(f"{_get_bare_name(self.path)}.evidence.jsonl")
        if next_to_suite.is_file():
            return (str(next_to_suite),)
        return tuple(str(path) for path in self.config.getini("proctor_evidence"))

    def read_all(self) -> tuple[Record, ...]:
        """Return all the evidence of this suite, read once in a session."""
        cache: _Read = self.session.stash.setdefault(_READ, {})
        paths = self.find_evidence()
        declared = self.suite.find_declared()
        if (paths, declared) not in cache:
            names = [str(shorten_path(Path(path))) for path in paths]
            cache[paths, declared] = tuple(read_records(names, declared=declared))
        return cache[paths, declared]

    def list_records(self, case: Case) -> list[Record]:
        """Return the records of a case. Raises `CheckFailed` if any record is unreadable."""
        records = self.read_all()
        index = self._build_index()
        broken: list[Record] = []
        found: list[Record] = []
        for record in records:
            try:
                positions = () if record.evidence is None else index.find(record.evidence) or ()
            except EvidenceError as error:
                broken.append(Record(None, record.source, error))
                continue
            if record.evidence is None:
                broken.append(record)
            elif any(index.cases[position] == case for position in positions):
                # It is a record of this case, whatever its name in the suite.
                found.append(Record(msgspec.structs.replace(record.evidence, case=case.id), record.source))
        # Raised at the end, so that one message lists every problem.
        if broken:
            raise make_fault(_describe_unreadable(broken))
        return found

    def has_evidence(self) -> bool:
        """Return whether any record matches a case of this suite."""
        if self._has_evidence is None:
            index, own_count = self._build_index(), len(self.suite.cases)
            records = self.read_all() if self.find_evidence() else ()
            matches = (index.find(record.evidence) or () for record in records if record.evidence is not None)
            self._has_evidence = any(position < own_count for positions in matches for position in positions)
        return self._has_evidence

    def explain_undecided(self, case: Case) -> str:
        """Return why a case without evidence is not decided, and what to do."""
        if not self.find_evidence():
            name = f"{_get_bare_name(self.path)}.evidence.jsonl"
            return f"no evidence for this suite: put it into {name}, use --proctor-evidence, or run the agent: --proctor-live"
        known = self._build_index().names
        recorded_names = {record.evidence.case for record in self.read_all() if record.evidence and record.evidence.case is not None}
        close = nearest(case.id, [name for name in recorded_names if not known.find(name)])
        hint = f"; evidence that fits no case names {', '.join(map(repr, close))}" if close else ""
        return to_one_line(f"no evidence answers this case{hint}; drive the agent with --proctor-live", 400)

    def _build_index(self) -> CaseIndex:
        if self._index is None:
            sharing = self.session.stash.get(_SHARING, {}).get(self.find_evidence(), [])
            others = [case for suite in sharing if suite is not self.suite for case in suite.cases]
            # The cases of this suite come first: `has_evidence` uses their positions.
            self._index = CaseIndex([*self.suite.cases, *others])
        return self._index


class SuiteItem(pytest.Item):
    """An item at a line of a suite."""

    def __init__(self, *, line: int = 1, **arguments: Json) -> None:
        super().__init__(**arguments)
        self._line = line
        self.stash[WRITTEN_AT] = (str(self.path), line)
        self.add_marker("proctor")

    @property
    def _file(self) -> SuiteFile:
        assert isinstance(self.parent, SuiteFile)
        return self.parent

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Json = None) -> Json:
        """Return our report; a traceback only for a bug."""
        if isinstance(excinfo.value, CheckFailed):
            return show_failure(excinfo.value, str(self.path), self._line)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location in the suite."""
        return self.path, self._line - 1, self.name


class CaseItem(SuiteItem):
    """One case of a suite."""

    def __init__(self, *, case: Case, markers: _Markers, **arguments: Json) -> None:
        super().__init__(line=case.origin.line or 1, **arguments)
        self.case = case
        for mark in markers.list_markers(case):
            self.add_marker(mark)
        self.extra_keyword_matches.update(word for word in (case.name, *_list_tag_words(case)) if word)

    def runtest(self) -> None:
        """Decide the case."""
        if self.case.skip is not None:
            pytest.skip(to_one_line(self.case.skip.reason))
        try:
            result = self._decide()
        except ProctorError as error:
            raise make_fault(str(error)) from error
        conclude(result)

    def _decide(self) -> RunResult:
        file = self._file
        records = file.list_records(self.case) if file.find_evidence() else []
        # One case at a time, so that only selected cases are decided.
        suite = msgspec.structs.replace(file.suite, cases=(self.case,))
        if records:
            stream = CheckStream(suite)
            if stream.judged:
                from proctor.actions.checking.judged_check import finish_stream  # only for judged checks

                trust, home = file.find_trust()
                return finish_stream(stream, records, home=home, environment=os.environ, trust=trust)
            return stream.finish(list(stream.over(records)))
        if not self.config.getoption("proctor_live"):
            if self.config.getini("proctor_without_evidence") == "fail" and not file.has_evidence():
                raise make_fault(file.explain_undecided(self.case))
            pytest.skip(file.explain_undecided(self.case))
        from proctor.actions.running.named_target import choose_target  # only for live runs
        from proctor.pytest_plugin.reporting import drive_suite

        trust, home = file.find_trust()
        name: str | None = self.config.getoption("proctor_target")
        target = choose_target(name, suite, home, capture=self.config.getoption("proctor_capture"))
        return drive_suite(suite, target=target, home=home, note=f"pytest {self.nodeid}", trust=trust.granted).result


class MutationItem(SuiteItem):
    """The share of planted faults that a suite detects, for `--proctor-mutate`."""

    def runtest(self) -> None:
        """Measure the suite on its evidence."""
        from proctor.actions.checking.mutate import mutate  # only with the option
        from proctor.report.builders.mutation import build_mutation

        file = self._file
        if not file.find_evidence():
            pytest.skip("no evidence for this suite, so no faults can be planted")
        try:
            records = [(case.id, record.evidence) for case in file.suite.cases for record in file.list_records(case) if record.evidence]
            result = mutate(file.suite, records)
        except ProctorError as error:
            raise make_fault(str(error)) from error
        percent: float = self.config.getoption("proctor_mutate") or 0
        least = percent / 100
        document = build_mutation(result, "terminal", least)
        share = result.total.share
        if share is None:
            raise make_fault("no fault was planted: no record passes a case that is decided without a judge")
        self.add_report_section("call", "proctor", document.headline)
        if share < least:
            headline = f"{write_percent(share)} of the planted faults detected, at least {write_percent(least)} demanded"
            raise CheckFailed(headline, write_plainly(document))


class _Markers:
    """Turns tags of cases into pytest markers for `-m`, and registers them for `--strict-markers`.

    A tag `key: value` becomes the marker `key` with that `value` and, if the value is a text, also a marker with the text as its name.
    Markers with arguments, such as `skip(reason)`, change how a test runs, so a tag `skip` becomes the marker `tag_skip`.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        lines: list[str] = config.getini("markers")
        self._known = {re.split(r"[:(]", line)[0].strip() for line in lines}
        self._with_arguments = {line.partition("(")[0].strip() for line in lines if "(" in line.partition(":")[0]}

    def list_markers(self, case: Case) -> Iterator[pytest.MarkDecorator]:
        """Yield the markers of a case."""
        for name, value in case.tags.items():
            yield from self._make_marker(name, value)
            for word in value if isinstance(value, list) else [value]:
                if isinstance(word, str):
                    yield from self._make_marker(word, True)

    def _make_marker(self, tag: str, value: Json) -> Iterator[pytest.MarkDecorator]:
        name = _NOT_IN_A_MARKER.sub("-", tag).strip("-_")
        if not name:
            return
        if name in self._with_arguments or name in _WORDS_OF_EXPRESSIONS:
            name = f"tag_{name}"
        if name not in self._known:
            self._known.add(name)
            self._config.addinivalue_line("markers", f"{name}: a tag of proctor cases")
        mark: pytest.MarkDecorator = getattr(pytest.mark, name)
        yield mark.with_args(value=value)


def _list_tag_words(case: Case) -> Iterator[str]:
    for name, value in case.tags.items():
        yield name
        if not isinstance(value, (bool, list, dict)):
            yield f"{name}={value}"


def _get_bare_name(path: Path) -> str:
    return path.stem.removesuffix(".proctor")


def _describe_unreadable(records: Iterable[Record]) -> str:
    lines: list[str] = []
    for record in records:
        line = f":{record.source.line}" if record.source.line is not None else ""
        lines.append(f"{record.source.file}{line}: {record.error.message if record.error is not None else 'could not be read'}")
    more = [f"and {len(lines) - _SHOWN_UNREADABLE} more"] if len(lines) > _SHOWN_UNREADABLE else []
    return "\n  ".join(["evidence that cannot be used, and may be the one of this case", *lines[:_SHOWN_UNREADABLE], *more])


def refuse_untrusted_suites(items: Iterable[pytest.Item], config: pytest.Config) -> None:
    """Raise `pytest.UsageError` if suites of these items are untrusted and name code, targets or judges; the message lists them."""
    cases: dict[SuiteFile, list[Case]] = {}
    for item in items:
        # Skipped cases are neither run nor judged.
        if isinstance(item, CaseItem) and isinstance(item.parent, SuiteFile) and item.case.skip is None:
            cases.setdefault(item.parent, []).append(item.case)
    named: list[tuple[Suite, list[Named]]] = []
    for file, selected in cases.items():
        trust, home = file.find_trust()
        if not trust.takes(file.suite):
            named += _list_named(file, selected, trust, home)
    try:
        refuse_untrusted(named, trust_for("running", granted=config.getoption("proctor_trust")))
    except InputError as error:
        # The message is written for the command line, where the flag has another name.
        raise pytest.UsageError(f"proctor: {error}".replace("--trust", "--proctor-trust")) from None


def _list_named(file: SuiteFile, selected: Sequence[Case], trust: Trust, home: Path) -> list[tuple[Suite, list[Named]]]:
    """Return what an untrusted suite would use: targets of its live cases, and the judge of its recorded cases."""
    config, suite = file.config, file.suite
    recorded = [case for case in selected if _is_recorded(file, case)]
    named: list[tuple[Suite, list[Named]]] = []
    try:
        if recorded and CheckStream(_take(suite, recorded)).judged:
            named.append((suite, name_judge(suite, workspace_for(suite, home), None, trust)))
        driven = _take(suite, [case for case in selected if case not in recorded])
        if driven.cases and config.getoption("proctor_live"):
            policy = Policy(home, trust, dict(os.environ))
            target: str | None = config.getoption("proctor_target")
            named += policy.list_named(driven, target, own_agents=drives_own_agents(driven, target, policy))
    except InputError:
        pass  # its cases show the error and are not run
    return named


def _is_recorded(file: SuiteFile, case: Case) -> bool:
    try:
        return bool(file.find_evidence() and file.list_records(case))
    except CheckFailed:
        # Unusable evidence: neither run nor judged.
        return True


def _take(suite: Suite, cases: Sequence[Case]) -> Suite:
    return msgspec.structs.replace(suite, cases=tuple(cases))
