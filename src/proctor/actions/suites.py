"""Load a suite from a file or a folder, whatever its dialect.

Several MCPLab configs make one suite in which each keeps its agents and servers: `settings["configs"]` lists them in order, with `name`,
`file` (from the folder of the whole), `scenarios` (the id of a case in the whole: its id in the config) and `settings`. Several suites of
other kinds keep their own targets, models and judges in the same way, see `proctor.actions.together`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from proctor.actions.together import SUITES, told_apart
from proctor.errors import InputError
from proctor.formats.drafting import make_unique
from proctor.formats.suites import read_suite
from proctor.model.case import Case, Suite
from proctor.model.evidence import Json
from proctor.model.problem import Problem
from proctor.sources.records import LINE_SUFFIXES
from proctor.sources.texts import check_path, list_suite_files, read_suite_text

LIBRARY_NAMES = ("servers.yaml", "agents.yaml", "proctor.yaml", "proctor.yml")
"""Files of a workspace that are no suites."""


def load_suite(path: str | Path, *, dialect: str | None = None) -> Suite:
    """The suite at `path`: one file, or every suite file of a folder as one suite.

    Raises `InputError` holding every problem of every file.
    """
    place = Path(path)
    check_path(place)
    if place.is_dir():
        return _joined(place, _in_folder(place, dialect))
    return load_file(place, dialect)


def load_suites(paths: Sequence[str | Path], *, dialect: str | None = None) -> Suite:
    """Several suites as one; raises `InputError` holding every problem of every file."""
    if len(paths) == 1:
        return load_suite(paths[0], dialect=dialect)
    suites: list[Suite] = []
    problems: list[Problem] = []
    for path in map(Path, paths):
        try:
            check_path(path)
            suites.extend(_in_folder(path, dialect) if path.is_dir() else [load_file(path, dialect)])
        except InputError as error:
            problems.extend(error.problems or [Problem(message=str(error))])
    if problems:
        raise InputError(f"{len(problems)} problems in {len(paths)} suites", problems)
    return _joined(Path.cwd(), suites)


def parse_suite(text: str, *, dialect: str | None = None, name: str = "suite") -> Suite:
    """A suite from text rather than from a file."""
    return read_suite(text, dialect=dialect, name=name)


def load_file(path: Path, dialect: str | None = None) -> Suite:
    """The suite in one file; one of MCPLab with the library of the workspace it lies in."""
    if not path.exists():
        raise InputError(f"no suite at {str(path)!r}: no such file or folder; `proctor init` writes one to start from")

    if path.suffix.lower() in LINE_SUFFIXES:
        raise InputError(f"{str(path)!r} holds lines of JSON, which is evidence; a suite is a .yaml, .yml or .json file")

    def library() -> object:
        from proctor.sources.workspaces import load_library_beside  # only MCPLab documents have references

        return load_library_beside(path)

    return read_suite(read_suite_text(path), file=str(path), dialect=dialect, name=path.stem, library=library)


def _in_folder(folder: Path, dialect: str | None) -> list[Suite]:
    from proctor.sources.workspaces import EVALS_FOLDER, is_workspace  # a single file does not need it

    within = folder / EVALS_FOLDER if is_workspace(folder) else folder
    files = [file for file in list_suite_files(within) if file.name not in LIBRARY_NAMES]
    if not files:
        raise InputError(f"no suite in the folder {str(folder)!r}: no .yaml, .yml or .json file")
    suites: list[Suite] = []
    problems: list[Problem] = []
    for file in files:
        try:
            suites.append(load_file(file, dialect))
        except InputError as error:
            # Evidence may lie beside the suites; a JSON file that no dialect claims is not a suite at all.
            if any(problem.code == "unknown_dialect" for problem in error.problems) and file.suffix == ".json":
                continue
            problems.extend(error.problems or [Problem(message=f"{file}: {error}")])
    if problems:
        raise InputError(f"{len(problems)} problems below {str(folder)!r}", problems)
    if not suites:
        raise InputError(f"no suite in the folder {str(folder)!r}: {len(files)} files, and no dialect claims any of them")
    return suites


def shared_ids(suites: Iterable[Suite]) -> list[Problem]:
    """A problem for every case whose id an earlier suite uses too: evidence that names it could mean either.

    Configs of MCPLab are no such suites. Each is run by itself, as in the original, also where several are given, and what two of them
    call by one id is told apart by the name of the config.
    """
    first: dict[str, tuple[Case, Suite]] = {}
    problems: list[Problem] = []
    for suite in suites:
        for case in suite.cases:
            known, owner = first.setdefault(case.id, (case, suite))
            if owner is not suite and not owner.dialect == suite.dialect == "mcplab":
                problems.append(
                    Problem(
                        message=f"the case id {case.id!r} is also used at {known.origin}",
                        origin=case.origin,
                        code="duplicate_id",
                        hint="suites that are given together need ids of their own: evidence names its case by them",
                    )
                )
    return problems


def _joined(folder: Path, suites: list[Suite]) -> Suite:
    """Several suites as one; an id that two MCPLab configs use gets the name of its config in front."""
    problems = shared_ids(suites)
    if problems:
        raise InputError(f"{len(problems)} case ids are used in more than one suite", problems)
    cases: list[Case] = []
    configs: list[dict[str, Json]] = []
    taken: set[str] = set()
    for suite in suites:
        scenarios: dict[str, Json] = {}
        for case in suite.cases:
            case_id = case.id if case.id not in taken else make_unique(f"{suite.name}/{case.id}", taken)
            taken.add(case_id)
            scenarios[case_id] = case.id
            cases.append(case if case_id == case.id else msgspec.structs.replace(case, id=case_id, own_id=case.id))
        configs.append(_config(folder, suite, scenarios))
    dialects = {suite.dialect for suite in suites}
    dialect = dialects.pop() if len(dialects) == 1 else "mixed"
    settings = suites[0].settings if len(suites) == 1 else {"configs": configs}
    if dialect != "mcplab":
        # Of a single one all is kept as it stands, and also where it stands.
        own = suites[0].settings if len(suites) == 1 else {}
        apart = told_apart(folder, [(suite, config["scenarios"]) for suite, config in zip(suites, configs, strict=True)])
        settings = {**{key: value for key, value in own.items() if key != SUITES}, **apart}
    return Suite(
        name=folder.resolve().name,
        path=str(folder),
        dialect=dialect,
        cases=tuple(cases),
        # Suites that share a library share its faults.
        warnings=tuple(dict.fromkeys(problem for suite in suites for problem in suite.warnings)),
        settings=settings,
    )


def _config(folder: Path, suite: Suite, scenarios: dict[str, Json]) -> dict[str, Json]:
    # Told from the folder, so that the kept suite is the same wherever the command was given.
    file = Path(os.path.relpath(suite.path, folder)).as_posix() if suite.path is not None else None
    return {"name": suite.name, "file": file, "scenarios": scenarios, "settings": suite.settings}
