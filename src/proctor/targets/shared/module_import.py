"""Imports the module that a target names, from the folder of its suite or workspace where it lies there.

Python knows modules by their names alone. Two folders may each have an `agent.py`, and one process may drive both: a server of tools, a
notebook, a test session. The second must not get the agent of the first.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from proctor.errors import SpecError
from proctor.model.show import shorten
from proctor.targets.shared.interrupts import is_interrupt

_ENDS_AT_IMPORT = 'it ends the program when it is imported: put what starts it under `if __name__ == "__main__":`'
_INSTALLED = frozenset(("site-packages", "dist-packages"))
_FOLDERS: set[Path] = set()
"""Folders from which modules were imported here."""
_STRANGERS: set[str] = set()
"""Those of them that are not trusted, as they stand in the path."""


def import_local_module(name: str, base: Path | None, trusted: bool) -> object:
    """Return a module, that of the folder `base` where it has one. Raises `SpecError`.

    Where the name is not to be trusted, the module has to lie in that folder.
    """
    top = name.partition(".")[0]
    local = base is not None and ((base / f"{top}.py").is_file() or (base / top).is_dir())
    if not trusted and not local:
        raise SpecError(
            f"function: the module {name!r} is not in the folder of the suite",
            field="function",
            hint="a suite may name functions of its own folder only; describe the target in proctor.yaml instead",
        )
    if local:
        assert base is not None
        _make_way(base, top, trusted)
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise SpecError(f"function: cannot import {name!r}: {error}", field="function") from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        message = f"function: importing {name!r} raised {type(error).__name__}: {shorten(str(error))}"
        hint = _ENDS_AT_IMPORT if isinstance(error, SystemExit) else None
        raise SpecError(message, field="function", hint=hint) from error
    # The folder of the suite is last in the path, so the name may have led to an installed module.
    if not trusted and not lies_in(module, base):
        raise SpecError(f"function: {name!r} is an installed module, not the one next to the suite", field="function")
    return module


def lies_in(module: object, base: Path | None) -> bool:
    """Return whether the file of a module is one of a folder's own; what is installed in an environment below it is not."""
    file = getattr(module, "__file__", None)
    if file is None or base is None or not (path := Path(file).resolve()).is_relative_to(folder := base.resolve()):
        return False
    return _INSTALLED.isdisjoint(path.relative_to(folder).parts)


def _make_way(base: Path, top: str, trusted: bool) -> None:
    """Let the modules of a folder be found, and forget those of other folders that have the names of its own."""
    folder = base.resolve()
    imported = list(sys.modules.items())
    own = _find_modules(base, {name.partition(".")[0] for name, _ in imported})
    for name, module in imported:
        if name.partition(".")[0] not in own or lies_in(module, folder):
            continue
        if any(lies_in(module, other) for other in _FOLDERS if other != folder):
            # Earlier importers keep their module; later imports of the name get the one of this folder.
            del sys.modules[name]
        elif trusted and name == top and getattr(module, "__file__", None) is not None:
            raise SpecError(
                f"function: {top!r} is {str(base / top)!r} here, and this process has imported {module.__file__!r} under that name",
                field="function",
                hint="give the file of the agent another name",
            )
    _FOLDERS.add(folder)
    # Where anybody may have written the folder, nothing in it may stand in for a module of Python's own.
    if not trusted:
        if str(base) not in sys.path or str(base) in _STRANGERS:
            sys.path[:] = [*(path for path in sys.path if path not in _STRANGERS), str(base)]
            importlib.invalidate_caches()
            _STRANGERS.add(str(base))
    elif sys.path[:1] != [str(base)]:
        # Before the folders of earlier runs, which may have modules of the same names.
        sys.path[:] = [str(base), *(path for path in sys.path if path != str(base))]
        importlib.invalidate_caches()


def _find_modules(base: Path, names: set[str]) -> set[str]:
    """Return those of the names under which a folder has a module.

    A process has thousands of modules and a folder few files: it is listed once, and only its modules are checked.
    """
    try:
        entries = set(os.listdir(base))
    except OSError:  # Python finds nothing in a folder that cannot be listed
        return set()
    near = {name for name in names if name in entries or f"{name}.py" in entries}
    return {name for name in near if (base / f"{name}.py").is_file() or (base / name / "__init__.py").is_file()}
