"""Read suites and evidence without deciding anything, and gather every problem."""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.actions.suites import load_suite
from proctor.errors import InputError
from proctor.model.origin import Origin
from proctor.model.problem import Problem
from proctor.sources.records import DOCUMENT_SUFFIXES, LINE_SUFFIXES, read_records
from proctor.sources.texts import SUITE_SUFFIXES, suite_files

MOST_PROBLEMS = 1000


class Validation(msgspec.Struct, kw_only=True):
    """What was read, and what is wrong with it."""

    suites: int = 0
    cases: int = 0
    records: int = 0
    problems: list[Problem] = []

    @property
    def sound(self) -> bool:
        """Whether everything can be used."""
        return not any(problem.level == "error" for problem in self.problems)


def validate(paths: list[str], *, dialect: str | None = None, evidence_format: str | None = None) -> Validation:
    """Read every path as what it is: a suite, evidence, or a folder of either."""
    validation = Validation()
    for path in paths:
        place = Path(path)
        if place.is_dir():
            files = suite_files(place) + sorted(p for p in place.rglob("*") if p.suffix.lower() in LINE_SUFFIXES)
            if not files:
                validation.problems.append(Problem(message="no suite and no evidence in this folder", origin=Origin(file=path)))
            for file in files:
                _validate_file(file, dialect, evidence_format, validation)
        else:
            _validate_file(place, dialect, evidence_format, validation)
    return validation


def _validate_file(path: Path, dialect: str | None, evidence_format: str | None, validation: Validation) -> None:
    suffix = path.suffix.lower()
    if evidence_format is None and suffix in SUITE_SUFFIXES:
        try:
            suite = load_suite(path, dialect=dialect)
        except InputError as error:
            # A JSON file that no dialect claims may well be evidence.
            unclaimed = suffix == ".json" and any(problem.code == "unknown_dialect" for problem in error.problems)
            if not (unclaimed and _validate_evidence(path, None, validation, quiet=True)):
                validation.problems.extend(error.problems or [Problem(message=str(error), origin=Origin(file=str(path)))])
            return
        validation.suites += 1
        validation.cases += len(suite.cases)
        validation.problems.extend(suite.warnings)
        return
    if suffix not in (*LINE_SUFFIXES, *DOCUMENT_SUFFIXES) and not path.exists():
        validation.problems.append(Problem(message="no such file or folder", origin=Origin(file=str(path))))
        return
    _validate_evidence(path, evidence_format, validation, quiet=False)


def _validate_evidence(path: Path, evidence_format: str | None, validation: Validation, *, quiet: bool) -> bool:
    """Read evidence; `quiet` reports nothing where the very first record cannot be read."""
    try:
        for record in read_records([str(path)], format=evidence_format):
            if record.error is None:
                validation.records += 1
            elif quiet:
                return False
            elif len(validation.problems) < MOST_PROBLEMS:
                origin = Origin(file=record.source.file, line=record.source.line)
                validation.problems.append(Problem(message=record.error.message, origin=origin, code=record.error.code))
    except InputError as error:
        if quiet:
            return False
        validation.problems.extend(error.problems or [Problem(message=str(error), origin=Origin(file=str(path)))])
    return True
