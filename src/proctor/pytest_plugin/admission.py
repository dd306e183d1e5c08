"""Refuses suites that are not trusted, all of them at once, before anything of the session is driven or judged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from proctor.actions.checking.check_stream import CheckStream
from proctor.actions.running.run_builder import drives_own_agents
from proctor.actions.running.run_policy import Policy
from proctor.actions.trust.trust import Named, Trust, refuse_untrusted, trust_for
from proctor.actions.trust.trust_names import name_judge
from proctor.actions.workspace.settings import workspace_for
from proctor.errors import InputError
from proctor.model.case import Case, Suite
from proctor.pytest_plugin.failures import CheckFailed
from proctor.pytest_plugin.items import CaseItem, SuiteFile


def refuse_strangers(items: Iterable[pytest.Item], config: pytest.Config) -> None:
    """Raise `pytest.UsageError` with everything that the suites of these items name and are not trusted with."""
    cases: dict[SuiteFile, list[Case]] = {}
    for item in items:
        # A case that is skipped is neither driven nor judged, so nothing that it names is used.
        if isinstance(item, CaseItem) and isinstance(item.parent, SuiteFile) and item.case.skip is None:
            cases.setdefault(item.parent, []).append(item.case)
    found: list[tuple[Suite, list[Named]]] = []
    for file, selected in cases.items():
        trust, home = file.find_trust()
        if not trust.takes(file.suite):
            found += _list_named(file, selected, trust, home)
    try:
        refuse_untrusted(found, trust_for("running", granted=config.getoption("proctor_trust")))
    except InputError as error:
        # The message is that of the command line, where the flag has another name.
        raise pytest.UsageError(f"proctor: {error}".replace("--trust", "--proctor-trust")) from None


def _list_named(file: SuiteFile, selected: Sequence[Case], trust: Trust, home: Path) -> list[tuple[Suite, list[Named]]]:
    """Return what a suite names for those of its cases that are driven, and for those that are judged on what was recorded."""
    config, suite = file.config, file.suite
    recorded = [case for case in selected if _is_recorded(file, case)]
    found: list[tuple[Suite, list[Named]]] = []
    try:
        if recorded and CheckStream(_take(suite, recorded)).judged:
            found.append((suite, name_judge(suite, workspace_for(suite, home), None, trust)))
        driven = _take(suite, [case for case in selected if case not in recorded])
        if driven.cases and config.getoption("proctor_live"):
            policy = Policy(home, trust, dict(os.environ))
            target: str | None = config.getoption("proctor_target")
            found += policy.list_named(driven, target, own_agents=drives_own_agents(driven, target, policy))
    except InputError:
        pass  # it cannot even be tried: its cases tell why, and nothing of it happens; what was found before still counts
    return found


def _is_recorded(file: SuiteFile, case: Case) -> bool:
    try:
        return bool(file.find_evidence() and file.list_records(case))
    except CheckFailed:
        # Its evidence cannot be used, so it is neither driven nor judged.
        return True


def _take(suite: Suite, cases: Sequence[Case]) -> Suite:
    return msgspec.structs.replace(suite, cases=tuple(cases))
