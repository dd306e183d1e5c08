"""Python files with custom checks: loaded only if the workspace file names them."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from proctor.checks.registry import CheckEntry, iterate_entries
from proctor.checks.shared.custom_checks import is_own_check, read_own_check
from proctor.errors import InputError

OWN_MODULE = "proctor_own_checks_"
"""The prefix of module names for these files."""
_LOADED: dict[str, tuple[tuple[int, int], tuple[CheckEntry, ...]]] = {}
"""The checks of a file while it is unchanged: suites of one process share them."""


def load_check_file(path: Path) -> tuple[CheckEntry, ...]:
    """Return the checks of a Python file, in order of definition. Raises `InputError` with the line of an error."""
    short_path = _shorten(path)
    try:
        # Before the file is read: if it changes in between, the older version is stored, and the next load reads it again.
        status = path.stat()
        source = path.read_bytes()
    except OSError as error:
        raise InputError(f"checks: {short_path} cannot be read: {error.strerror or error}") from None
    version = (status.st_mtime_ns, status.st_size)
    known = _LOADED.get(str(path))
    if known is None or known[0] != version:
        known = _LOADED[str(path)] = (version, tuple(_load(path, short_path, source)))
    return known[1]


def _load(path: Path, shown: str, source: bytes) -> list[CheckEntry]:
    loader = _OwnLoader(shown, source, f"{OWN_MODULE}{path.stem}", str(path))
    module = ModuleType(loader.name)
    module.__file__ = str(path)
    # Dataclasses and annotations look up their module.
    sys.modules[module.__name__] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"{error.filename or shown}:{error.lineno or 0}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == shown]
        line = frames[-1].lineno if frames else 0
        raise InputError(f"{shown}:{line}: loading the checks raised {type(error).__name__}: {error}") from None
    checks = [value for value in vars(module).values() if is_own_check(value) and getattr(value, "__module__", None) == module.__name__]
    entries = [*_read_functions(dict.fromkeys(checks)), *iterate_entries(module)]
    if not entries:
        raise InputError(f"{shown}: no check in this file; mark a function of evidence with @proctor.check")
    return entries


def _read_functions(functions: Iterable[Callable[..., Any]]) -> list[CheckEntry]:
    """Return the checks that functions define. Raises one `InputError` that names every invalid one."""
    entries: list[CheckEntry] = []
    wrong: list[str] = []
    for function in functions:
        try:
            entries.append(read_own_check(function))
        except InputError as error:
            wrong.append(str(error))
    if wrong:
        raise InputError("\n".join(wrong))
    return entries


class _OwnLoader(SourceFileLoader):
    """Loads a file of the user from its text, without writing a compiled copy; messages show its short path."""

    def __init__(self, shown: str, source: bytes, name: str, path: str) -> None:
        super().__init__(name, path)
        self._shown = shown
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file."""
        return self.source_to_code(self._source, self._shown)


def _shorten(path: Path) -> str:
    try:
        return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    except OSError:
        return str(path)
