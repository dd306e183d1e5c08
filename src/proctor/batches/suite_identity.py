"""Digests of everything in a suite that affects a verdict, to find earlier results that are still valid after a change.

A case has a digest of its content. Which cases a record answers depends on the whole suite and is described by `matching`: if no case has
an input and every name is unique, a record answers the cases it names, or all, and a change of one case does not affect the others.
Otherwise the names and inputs of all cases count together. `surroundings` is everything outside the cases: prices, files of custom
checks and what they import from their folder, the fixed clock, and whether repeated keys are searched for.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from types import ModuleType

import msgspec

from proctor.actions.workspace.custom_checks import find_workspace_file
from proctor.checks.registry import Registry
from proctor.errors import InputError
from proctor.formats.native.text import write_case_lines
from proctor.formats.workspace_file import read_workspace
from proctor.model.case import Suite, is_variant
from proctor.model.problem import Origin
from proctor.sources.check_files import OWN_MODULE
from proctor.sources.texts import read_suite_text

BY_NAME = "by name"
"""The matching of a suite with independent cases."""


class SuiteIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a suite on which its verdicts depend."""

    name: str
    cases: dict[str, str]
    """The digest of each case, by its id, in the order of the suite."""
    matching: str
    surroundings: str

    @property
    def digest(self) -> str:
        """The digest of everything."""
        return hash_parts([msgspec.json.encode(self)])

    def list_carried(self, other: SuiteIdentity) -> frozenset[str]:
        """Return the cases whose results under `other` are still valid here."""
        if (self.matching, self.surroundings) != (other.matching, other.surroundings):
            return frozenset()
        return frozenset(id for id, digest in self.cases.items() if other.cases.get(id) == digest)


def identify_suite(suite: Suite, registry: Registry, *, now: str | None, only_presence: bool) -> SuiteIdentity:
    """Return the identity of a suite."""
    lines = write_case_lines(suite, registry)
    prices = b"" if suite.prices is None else msgspec.json.encode(suite.prices)
    declared = suite.find_declared()
    if declared is not None:
        prices += msgspec.json.encode(declared)
    outside = [prices, str(now).encode(), str(only_presence).encode(), *(path.read_bytes() for path in _list_own_files())]
    return SuiteIdentity(
        name=suite.name,
        cases={case.id: hash_parts([line]) for case, line in zip(suite.cases, lines, strict=True)},
        matching=_describe_matching(suite),
        surroundings=hash_parts(outside),
    )


def hash_parts(parts: Iterable[bytes]) -> str:
    """Return one digest of several texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def _describe_matching(suite: Suite) -> str:
    names: set[str] = set()
    is_by_name = True
    identities: list[bytes] = []
    # Cases with the same origin are variants of one test case, whose name a record may have.
    first_position: dict[Origin, int] = {}
    for position, case in enumerate(suite.cases):
        own = {case.id, case.name, case.own_id or ""} - {""}
        is_by_name = (
            is_by_name
            and not (case.input is not None or bool(case.turns) or case.custom_body is not None)
            and not is_variant(case)
            and names.isdisjoint(own)
        )
        names |= own
        messages = (case.input, case.custom_body, [turn.input for turn in case.turns])
        first = first_position.setdefault(case.origin, position)
        identities.append(msgspec.json.encode((case.id, case.own_id, case.name, messages, first)))
    return BY_NAME if is_by_name else hash_parts(identities)


def describe_own_checks() -> dict[str, str]:
    """Return the files of custom checks and those they import, by their names from the workspace file, with their digests."""
    file = find_workspace_file()
    return {} if file is None else {os.path.relpath(path, file.parent): hash_parts([path.read_bytes()]) for path in _list_own_files()}


def require_own_checks(expected: Mapping[str, str]) -> None:
    """Raise `InputError` if the custom checks of this process are not those of the batch."""
    if not expected:
        return
    place = f"where work is done ({platform.node()}, {Path.cwd()})"
    workspace = find_workspace_file()
    for name, digest in expected.items():
        path = None if workspace is None else workspace.parent / name
        if path is None or not path.is_file() or hash_parts([path.read_bytes()]) != digest:
            raise InputError(
                f"{name}, which checks of your own are made of, is not the same {place} as where the batch was begun; "
                "copy proctor.yaml, the files it names and what these import there"
            )
    for path in _list_imported(_list_named()):
        digest = hash_parts([path.read_bytes()])
        if _LOADED.setdefault(path, digest) != digest:
            raise InputError(f"{path} has changed since it was imported {place}; start the workers again")


_LOADED: dict[Path, str] = {}
"""Digests of imported files at import time: Python does not read them again in the same process."""


def _list_own_files() -> list[Path]:
    """Return the files of custom checks that the workspace names, and their imports: they are not in the suite."""
    files = _list_named()
    return list(dict.fromkeys((*files, *_list_imported(files))))


def _list_named() -> list[Path]:
    file = find_workspace_file()
    if file is None:
        return []
    files = (file.parent / name for name in read_workspace(read_suite_text(file), file=str(file)).checks.files)
    return [path for path in files if path.is_file()]


def _list_imported(named: Sequence[Path]) -> list[Path]:
    """Return the files in the folder of custom checks that these import, directly or indirectly; installed packages are left out."""
    folders = {path.parent.resolve() for path in named}
    pending = [module for path in named if (module := sys.modules.get(f"{OWN_MODULE}{path.stem}")) is not None]
    modules: dict[str, Path] = {}
    while pending:
        for value in list(vars(pending.pop()).values()):
            module = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", "")))
            path = None if module is None else _find_file(module, folders)
            if module is not None and path is not None and module.__name__ not in modules:
                modules[module.__name__] = path
                pending.append(module)
    return sorted(modules.values())


def _find_file(module: ModuleType, folders: Set[Path]) -> Path | None:
    name = getattr(module, "__file__", None)
    path = Path(name).resolve() if isinstance(name, str) else None
    if path is None or path.suffix != ".py" or "site-packages" in path.parts or not path.is_file():
        return None
    return path if any(path.is_relative_to(folder) for folder in folders) else None
