"""Decides cases on evidence as a check run does, for tables that compare whole suites."""

from __future__ import annotations

from typing import Any

from proctor.checks.registry import default_registry
from proctor.decide.prepare import PreparedCase
from proctor.evidence.reading import read_document
from proctor.formats.suites import read_suite
from proctor.model.case import Case, Suite
from proctor.model.evidence import Evidence
from proctor.model.verdict import Verdict


def suite_of(text: str, dialect: str) -> Suite:
    """A suite of a dialect, from its text."""
    return read_suite(text, file="suite.json", dialect=dialect)


def evidence_of(plain: Any) -> Evidence:
    """Evidence from any readable shape."""
    (only,) = read_document(plain)
    return only


def decide_case(case: Case, evidence: Evidence) -> list[Verdict]:
    """One verdict per assertion, in the order of the file."""
    return list(PreparedCase(case, default_registry()).decide(evidence).verdicts)
