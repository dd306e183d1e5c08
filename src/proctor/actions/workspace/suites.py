"""Loads suites from files and folders, in any dialect, and finds the suites of a folder if none is named.

It finds the files `suite.yaml`, `NAME.proctor.yaml` (as pytest collects them), every YAML file with a line `proctor: 1`, and the folder
`suites`. They are then read completely, so that a broken one is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from proctor.actions.workspace.custom_checks import OwnChecks, find_registry, find_workspace_file, registry_of
from proctor.actions.workspace.suite_cache import SuiteCache
from proctor.checks.registry import Registry, default_registry
from proctor.errors import InputError
from proctor.model.case import Case, Suite
from proctor.model.cost import Price, PriceList
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.mapping import DeclaredEvidence
from proctor.model.problem import Problem
from proctor.sources.records import LINE_SUFFIXES
from proctor.sources.texts import check_path, list_suite_files, read_piped_suite, read_suite_text

_NAMES_SUITE_KEYS = lazy_pattern(r"""(?:^|[{,])\s*["']?(prices|evidence|input_price)["']?\s*:""", re.MULTILINE)


def add_workspace(suite: Suite, start: Path | None = None) -> Suite:
    """Return the suite with the prices and the `evidence` of the nearest workspace file. Raises `InputError`."""
    file = find_workspace_file(start)
    text = read_suite_text(file) if file is not None else ""
    # Parsing the whole file costs more than a small check, and most have neither.
    if not text or _NAMES_SUITE_KEYS.search(text) is None:
        return suite
    from proctor.formats.workspace_file import read_workspace  # few workspaces need it

    workspace = read_workspace(text, file=str(file) if start is not None or file is None else os.path.relpath(file))
    listed = workspace.prices or PriceList()
    prices: dict[str, Price] = {}
    for section in workspace.models.values():
        name, amounts = section.find_text("model"), [section.node.get(key) for key in ("input_price", "output_price")]
        numbers = [amount.value for amount in amounts if amount is not None and is_number(amount.value)]
        if name is not None and len(numbers) == 2 and listed.find(name) is None:
            prices[name] = Price(input=numbers[0], output=numbers[1], currency=listed.currency)
    return msgspec.structs.replace(
        suite, prices=PriceList({**listed.prices, **prices}) if prices else workspace.prices, evidence_here=workspace.evidence
    )


def with_prices(suite: Suite, file: str | None) -> Suite:
    """Return the suite with the prices of a file, if one is named."""
    if file is None:
        return suite
    check_path(Path(file))
    if not Path(file).is_file():
        raise InputError(f"--prices: no such file: {file}")
    from proctor.formats.workspace_file import read_price_file  # only for this flag

    return msgspec.structs.replace(suite, prices=read_price_file(read_suite_text(Path(file)), file=file))


def with_complete(suite: Suite, parts: str) -> Suite:
    """Return the suite with the parts that `--complete` declares. Raises `InputError` for an unknown part."""
    if not parts:
        return suite
    from proctor.formats.native.declared_evidence import parse_complete  # only for this flag

    declaration = parse_complete(parts, "--complete")
    return suite if declaration is None else msgspec.structs.replace(suite, evidence_given=declaration)


def require_prices(suite: Suite, models: list[str]) -> None:
    """Raise `InputError` if a cost limit could not be checked because prices are missing."""
    if suite.prices is None:
        raise InputError(
            "--max-cost needs prices: `prices:` or `input_price` and `output_price` of `models:` in proctor.yaml, or --prices FILE"
        )
    unpriced = [model for model in dict.fromkeys(models) if suite.prices.find(model) is None]
    if unpriced:
        known = ", ".join(suite.prices.prices)
        raise InputError(f"--max-cost: no price for the model {', '.join(map(repr, unpriced))}; prices are known for {known}")


STANDARD_INPUT = "-"
"""The path that means standard input."""
_TABLES = (".csv", ".tsv", ".parquet", ".xlsx")
LIBRARY_NAMES = ("servers.yaml", "agents.yaml", "proctor.yaml", "proctor.yml")
"""Files of a workspace that are not suites."""


def load_suite(
    path: str | Path,
    *,
    dialect: str | None = None,
    checks: OwnChecks | None = None,
    trust: bool | None = None,
    held: int | None = None,
) -> Suite:
    """The suite at `path`: one file, or every suite file of a folder as one suite; `-` is standard input.

    `checks` are functions of evidence that the suite may name in addition to the built-in checks; by default, those of the files that
    `proctor.yaml` names. With `trust` it may name data files outside its folder. Up to `held` cases of a data file are held in memory
    (5,000); if there are more, each is built on demand. Raises `InputError` holding every problem of every file.
    """
    registry = registry_of(checks)
    if path == STANDARD_INPUT:
        from proctor.formats.suites import read_suite  # not for a suite that was read before

        suite = read_suite(read_piped_suite(), file="<stdin>", dialect=dialect, name="stdin", registry=registry)
        return add_workspace(msgspec.structs.replace(suite, path=None))
    place = Path(path)
    check_path(place)
    if place.is_dir():
        return add_workspace(_join_suites(place, _load_folder(place, dialect, registry, trust)))
    return add_workspace(load_file(place, dialect, registry, trust=trust, held=held))


def load_remembered(path: str, *, dialect: str | None = None, trust: bool | None = None) -> Suite:
    """The suite at `path`, like `load_suite`; a file that was read before need not be parsed again (`suite_cache.py`)."""
    cache = _open_cache(Path(path), dialect) if path != STANDARD_INPUT else None
    if cache is None:
        return load_suite(path, dialect=dialect, trust=trust)
    recalled = cache.recall()
    registry = find_registry()
    # Own checks may have joined ours since.
    if recalled is not None and registry is default_registry():
        return add_workspace(recalled)
    suite = load_file(Path(path), dialect, registry, trust=trust, text=cache.text)
    if not suite.data_files and registry is default_registry():
        cache.remember(suite)
    return add_workspace(suite)


def _open_cache(path: Path, dialect: str | None) -> SuiteCache | None:
    try:
        return SuiteCache(read_suite_text(path), str(path), dialect, os.environ)
    except InputError:  # `load_suite` reports it, or it is a folder
        return None


def load_suites(paths: Sequence[str | Path], *, dialect: str | None = None, trust: bool | None = None) -> Suite:
    """Several suites as one; raises `InputError` holding every problem of every file."""
    if len(paths) == 1:
        return load_suite(paths[0], dialect=dialect, trust=trust)
    suites: list[Suite] = []
    problems: list[Problem] = []
    registry = find_registry()
    for path in paths:
        try:
            place = Path(path)
            check_path(place)
            is_folder = path != STANDARD_INPUT and place.is_dir()
            suites.extend(_load_folder(place, dialect, registry, trust) if is_folder else [load_suite(path, dialect=dialect, trust=trust)])
        except InputError as error:
            problems.extend(error.problems or [Problem(message=str(error))])
    if problems:
        raise InputError(f"{len(problems)} problems in {len(paths)} suites", problems)
    return add_workspace(_join_suites(Path.cwd(), suites))


def parse_suite(text: str, *, dialect: str | None = None, name: str = "suite", checks: OwnChecks | None = None) -> Suite:
    """A suite from text rather than from a file; `checks` as in `load_suite`."""
    from proctor.formats.suites import read_suite  # not for a suite that was read before

    return add_workspace(read_suite(text, dialect=dialect, name=name, registry=registry_of(checks)))


def load_file(
    path: Path,
    dialect: str | None = None,
    registry: Registry | None = None,
    *,
    trust: bool | None = None,
    held: int | None = None,
    text: str | None = None,
) -> Suite:
    """Return the suite in one file, whose `text` may be known; an MCPLab suite includes the library of its workspace."""
    if not path.exists():
        raise InputError(f"no suite at {str(path)!r}: no such file or folder; `proctor init` writes one to start from")

    if path.suffix.lower() in LINE_SUFFIXES:
        raise InputError(f"{str(path)!r} holds lines of JSON, which is evidence; a suite is a .yaml, .yml or .json file")

    if path.suffix.lower() in _TABLES:
        raise InputError(
            f"{str(path)!r} is a file of data, not a suite; write a suite next to it that takes its cases from it, and name that:\n"
            f"  proctor: 1\n  name: {path.stem}\n  cases: {{from: {path.name}}}\n"
            "If the columns are neither keys of a case nor those of promptfoo, map them with `as`: docs/how-to/cases-from-data.md"
        )

    def library() -> object:
        from proctor.sources.workspaces import load_nearest_library  # only MCPLab documents have references

        return load_nearest_library(path)

    from proctor.formats.suites import read_suite  # not for a suite that was read before
    from proctor.sources.tables.open import DataFiles

    source = DataFiles(path.parent, trusted=is_trust_granted(trust), held=held)
    suite = read_suite(
        read_suite_text(path) if text is None else text,
        file=str(path),
        dialect=dialect,
        name=path.stem,
        library=library,
        registry=registry,
        source=source,
    )
    return msgspec.structs.replace(suite, data_files=tuple(source.opened)) if source.opened else suite


def _load_folder(folder: Path, dialect: str | None, registry: Registry, trust: bool | None = None) -> list[Suite]:
    from proctor.sources.workspaces import EVALS_FOLDER, is_workspace  # not needed for a single file

    within = folder / EVALS_FOLDER if is_workspace(folder) else folder
    files = [file for file in list_suite_files(within) if file.name not in LIBRARY_NAMES]
    if not files:
        raise InputError(f"no suite in the folder {str(folder)!r}: no .yaml, .yml or .json file")
    suites: list[Suite] = []
    problems: list[Problem] = []
    for file in files:
        try:
            suites.append(load_file(file, dialect, registry, trust=trust))
        except InputError as error:
            # Evidence may be next to the suites; a JSON file that no dialect recognises is not a suite.
            if any(problem.code == "unknown_dialect" for problem in error.problems) and file.suffix == ".json":
                continue
            problems.extend(error.problems or [Problem(message=f"{file}: {error}")])
    if problems:
        raise InputError(f"{len(problems)} problems below {str(folder)!r}", problems)
    if not suites:
        raise InputError(f"no suite in the folder {str(folder)!r}: {len(files)} files, and no dialect claims any of them")
    return suites


def shared_ids(suites: Iterable[Suite]) -> list[Problem]:
    """Return a problem for every case whose id an earlier suite also uses: evidence that names it would be ambiguous.

    MCPLab configs are exempt. Each is run separately, as in the original, and an id that two of them use gets the name of the config.
    """
    first: dict[str, tuple[Case, Suite]] = {}
    problems: list[Problem] = []
    suites = tuple(suites)
    if len(suites) < 2:
        return []
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


def _join_suites(folder: Path, suites: list[Suite]) -> Suite:
    """Join several suites; an id that two MCPLab configs use is prefixed with the name of its config."""
    from proctor.actions.workspace.combined_suites import SUITES, describe_parts  # only for several suites
    from proctor.formats.native.drafting import make_unique

    problems = shared_ids(suites)
    if problems:
        raise InputError(f"{len(problems)} case ids are used in more than one suite", problems)
    cases: list[Case] = []
    configs: list[dict[str, Json]] = []
    used_ids: set[str] = set()
    for suite in suites:
        scenarios: dict[str, Json] = {}
        for case in suite.cases:
            case_id = case.id if case.id not in used_ids else make_unique(f"{suite.name}/{case.id}", used_ids)
            used_ids.add(case_id)
            scenarios[case_id] = case.id
            cases.append(case if case_id == case.id else msgspec.structs.replace(case, id=case_id, own_id=case.id))
        # Relative to the folder, so that the stored suite does not depend on the working directory.
        file = Path(os.path.relpath(suite.path, folder)).as_posix() if suite.path is not None else None
        configs.append({"name": suite.name, "file": file, "scenarios": scenarios, "settings": suite.settings})
    dialects = {suite.dialect for suite in suites}
    dialect = dialects.pop() if len(dialects) == 1 else "mixed"
    settings = suites[0].settings if len(suites) == 1 else {"configs": configs}
    if dialect != "mcplab":
        # A single suite is returned unchanged, with its path.
        own_settings = suites[0].settings if len(suites) == 1 else {}
        parts = describe_parts(folder, [(suite, config["scenarios"]) for suite, config in zip(suites, configs, strict=True)])
        settings = {**{key: value for key, value in own_settings.items() if key != SUITES}, **parts}
    return Suite(
        name=folder.resolve().name,
        path=str(folder),
        dialect=dialect,
        cases=tuple(cases),
        # Suites that share a library share its faults.
        warnings=tuple(dict.fromkeys(problem for suite in suites for problem in suite.warnings)),
        settings=settings,
        evidence=_find_shared_evidence(suites),
        data_files=tuple(file for suite in suites for file in suite.data_files),
    )


def _find_shared_evidence(suites: list[Suite]) -> DeclaredEvidence | None:
    """Return how all these suites read evidence. Raises `InputError` if they differ: each record is read once for all of them."""
    from proctor.formats.native.declared_evidence import write_declared  # only for several suites

    first = suites[0]
    for suite in suites[1:]:
        if (suite.evidence and write_declared(suite.evidence)) != (first.evidence and write_declared(first.evidence)):
            raise InputError(
                f"the suites {first.name!r} and {suite.name!r} declare different `evidence`; give them one by one, "
                "or write `evidence` in proctor.yaml instead"
            )
    return first.evidence


SUITES_FOLDER = "suites"
_YAML = (".yaml", ".yml")
_NAMED = lazy_pattern(r"(?:suite|.+\.proctor)\.(?:yaml|yml|json)")
_NATIVE = lazy_pattern(r"^proctor:[ \t]*1\b", re.MULTILINE)
_MOST_BYTES = 4_000_000
"""A larger YAML file is not considered as a suite."""


def find_suites(*, target: str | None = None) -> list[Path]:
    """Return the suites of the current folder. Raises `InputError` with the next step if there are none."""
    place = Path()
    files = sorted(path for path in place.iterdir() if path.is_file())
    suites = [path for path in files if path.name not in LIBRARY_NAMES and (_NAMED.fullmatch(path.name) or _is_native(path))]
    if (place / SUITES_FOLDER).is_dir():
        suites.append(place / SUITES_FOLDER)
    if not suites:
        flag = f' --target "{target}"' if target is not None else ""
        raise InputError(
            f"no suite in {str(place.resolve())!r}: name one, or write a first one:\n"
            f"  proctor init{flag}\n"
            f'  proctor try "MESSAGE"{flag} --save    sends one message and makes a case of it'
        )
    return suites


def _is_native(path: Path) -> bool:
    if path.suffix.lower() not in _YAML or path.stat().st_size > _MOST_BYTES:
        return False
    try:
        return _NATIVE.search(read_suite_text(path)) is not None
    except InputError:  # not text, so not a suite
        return False


TRUST_VARIABLE = "PROCTOR_TRUST"
_TRUE_VALUES = frozenset(("1", "true", "yes", "on"))


def is_trust_granted(granted: bool | None = None, environment: Mapping[str, str] | None = None) -> bool:
    """Return the flag `--trust`, or the environment variable if the flag was not given."""
    if granted is not None:
        return granted
    variables = os.environ if environment is None else environment
    return variables.get(TRUST_VARIABLE, "").strip().lower() in _TRUE_VALUES
