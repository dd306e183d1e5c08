"""Read suites and evidence without deciding anything, and gather every problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.actions.history import find_home
from proctor.actions.judges import judge_problems
from proctor.actions.suites import LIBRARY_NAMES, load_file, shared_ids
from proctor.errors import InputError
from proctor.formats.mcplab_library import SCENARIO_FOLDERS
from proctor.model.case import Suite
from proctor.model.origin import Origin
from proctor.model.problem import Problem
from proctor.sources.records import DOCUMENT_SUFFIXES, LINE_SUFFIXES, read_records
from proctor.sources.texts import SUITE_SUFFIXES, is_hidden, list_suite_files
from proctor.sources.workspaces import EVALS_FOLDER, is_workspace

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
    read: list[Suite] = []
    for path in paths:
        place = Path(path)
        if place.is_dir():
            files = _files(place)
            if not files:
                validation.problems.append(Problem(message="no suite and no evidence in this folder", origin=Origin(file=path)))
            for file in files:
                read += _validate_file(file, dialect, evidence_format, validation)
        else:
            read += _validate_file(place, dialect, evidence_format, validation)
    validation.problems.extend(shared_ids(read))
    # Suites that share a library share its faults.
    validation.problems = list(dict.fromkeys(validation.problems))
    return validation


def _files(folder: Path) -> list[Path]:
    """What there is to validate in a folder; in an MCPLab workspace that is its configs, its test cases and its traces."""
    places = [folder / name for name in (EVALS_FOLDER, *SCENARIO_FOLDERS)] if is_workspace(folder) else [folder]
    suites = [file for place in places if place.is_dir() for file in list_suite_files(place) if file.name not in LIBRARY_NAMES]
    lines = (file for file in folder.rglob("*") if file.suffix.lower() in LINE_SUFFIXES)
    return suites + sorted(file for file in lines if not is_hidden(file, folder))


def _validate_file(path: Path, dialect: str | None, evidence_format: str | None, validation: Validation) -> Iterator[Suite]:
    """Add what is wrong with a file; gives the suite that is in it, if there is one."""
    suffix = path.suffix.lower()
    if evidence_format is None and suffix in SUITE_SUFFIXES:
        try:
            suite = load_file(path, dialect)
        except InputError as error:
            # A JSON file that no dialect claims may well be evidence.
            unclaimed = suffix == ".json" and any(problem.code == "unknown_dialect" for problem in error.problems)
            if not (unclaimed and _validate_evidence(path, None, validation, quiet=True)):
                validation.problems.extend(error.problems or [Problem(message=str(error), origin=Origin(file=str(path)))])
            return
        validation.suites += 1
        validation.cases += len(suite.cases)
        validation.problems.extend(suite.warnings)
        validation.problems.extend(judge_problems(suite, find_home(None, path.parent)))
        yield suite
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
