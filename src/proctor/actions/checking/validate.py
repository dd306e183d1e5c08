"""Read suites and evidence without deciding anything, and gather every problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.actions.checking.check_stream import list_empty_cases
from proctor.actions.judging.judge_settings import list_judge_problems
from proctor.actions.workspace.custom_checks import find_registry
from proctor.actions.workspace.run_history import find_home
from proctor.actions.workspace.suites import LIBRARY_NAMES, STANDARD_INPUT, add_workspace, load_file, load_suite, shared_ids
from proctor.errors import InputError
from proctor.formats.mcplab.library import SCENARIO_FOLDERS
from proctor.model.case import Suite
from proctor.model.mapping import DeclaredEvidence, merge_declared
from proctor.model.problem import Origin, Problem
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
    trust: bool | None = None
    """Whether suites may name files outside their folders."""
    declared: DeclaredEvidence | None = None
    """How evidence is read, as declared by the workspace and earlier suites."""

    @property
    def sound(self) -> bool:
        """Whether everything can be used."""
        return not any(problem.level == "error" for problem in self.problems)


def validate(paths: list[str], *, dialect: str | None = None, evidence_format: str | None = None, trust: bool | None = None) -> Validation:
    """Read every path as a suite, evidence, or a folder of either."""
    validation = Validation(trust=trust)
    validation.declared = add_workspace(Suite(name="")).find_declared()
    suites: list[Suite] = []
    for path in paths:
        place = Path(path)
        if path != STANDARD_INPUT and place.is_dir():
            files = _list_files(place)
            if not files:
                validation.problems.append(Problem(message="no suite and no evidence in this folder", origin=Origin(file=path)))
            for file in files:
                # Data files of a suite are not evidence.
                if not any(file.resolve() == Path(data).resolve() for suite in suites for data in suite.data_files):
                    suites += _validate_file(file, dialect, evidence_format, validation)
        else:
            suites += _validate_file(place, dialect, evidence_format, validation)
    validation.problems.extend(shared_ids(suites))
    # Suites that share a library share its faults.
    validation.problems = list(dict.fromkeys(validation.problems))
    return validation


def _list_files(folder: Path) -> list[Path]:
    """Return the files to validate in a folder; in an MCPLab workspace these are its configs, test cases and traces."""
    places = [folder / name for name in (EVALS_FOLDER, *SCENARIO_FOLDERS)] if is_workspace(folder) else [folder]
    suites = [file for place in places if place.is_dir() for file in list_suite_files(place) if file.name not in LIBRARY_NAMES]
    lines = (file for file in folder.rglob("*") if file.suffix.lower() in LINE_SUFFIXES)
    return suites + sorted(file for file in lines if not is_hidden(file, folder))


def _validate_file(path: Path, dialect: str | None, evidence_format: str | None, validation: Validation) -> Iterator[Suite]:
    """Add the problems of a file, and return its suite if it has one."""
    suffix = path.suffix.lower()
    piped = str(path) == STANDARD_INPUT
    if evidence_format is None and (piped or suffix in SUITE_SUFFIXES):
        try:
            loaded_from = find_registry()
            suite = load_suite(STANDARD_INPUT, dialect=dialect) if piped else load_file(path, dialect, loaded_from, trust=validation.trust)
        except InputError as error:
            # A JSON file that no dialect recognises may be evidence.
            unclaimed = suffix == ".json" and any(problem.code == "unknown_dialect" for problem in error.problems)
            if not (unclaimed and _validate_evidence(path, None, validation, quiet=True)):
                validation.problems.extend(error.problems or [Problem(message=str(error), origin=Origin(file=str(path)))])
            return
        validation.suites += 1
        validation.declared = merge_declared(suite.evidence, validation.declared)
        validation.cases += len(suite.cases)
        validation.problems.extend(suite.warnings)
        validation.problems.extend(list_empty_cases(suite))
        validation.problems.extend(list_judge_problems(suite, find_home(None, path.parent)))
        yield suite
        return
    if suffix not in (*LINE_SUFFIXES, *DOCUMENT_SUFFIXES) and not piped and not path.exists():
        validation.problems.append(Problem(message="no such file or folder", origin=Origin(file=str(path))))
        return
    _validate_evidence(path, evidence_format, validation, quiet=False)


def _validate_evidence(path: Path, evidence_format: str | None, validation: Validation, *, quiet: bool) -> bool:
    """Read evidence and return whether the file has any; `quiet` reports nothing if the first record is unreadable or missing."""
    problems_before, count = len(validation.problems), 0
    try:
        for record in read_records([str(path)], format=evidence_format, declared=validation.declared):
            if record.error is None:
                count += 1
            elif quiet and not count:
                return False
            # Warnings do not count: a thousand of them must not hide that evidence cannot be read.
            elif len(validation.problems) - problems_before < MOST_PROBLEMS:
                origin = Origin(file=record.source.file, line=record.source.line)
                validation.problems.append(Problem(message=record.error.message, origin=origin, code=record.error.code))
    except InputError as error:
        if quiet and not count:
            return False
        validation.problems.extend(error.problems or [Problem(message=str(error), origin=Origin(file=str(path)))])
    validation.records += count
    if not count and len(validation.problems) == problems_before:
        # Like an empty folder, an empty file is not valid.
        if not quiet:
            validation.problems.append(Problem(message="no evidence in this file", origin=Origin(file=str(path))))
        return False
    return True
