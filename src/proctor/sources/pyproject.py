"""Reads the table `[tool.proctor]` of a `pyproject.toml`: the workspace of a Python project that has no file of its own for it."""

from __future__ import annotations

import re
from pathlib import Path

from proctor.errors import InputError
from proctor.model.evidence import Json
from proctor.model.origin import Origin
from proctor.model.problem import Problem

PYPROJECT = "pyproject.toml"
LARGEST = 1_000_000
"""Bytes of one file."""
_HEADING = re.compile(rb"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*proctor[ \t]*[\].]", re.MULTILINE)


def has_workspace_table(folder: Path) -> bool:
    """Return whether the project in a folder has settings of ours; a file that cannot be read has none."""
    data = _read(folder / PYPROJECT)
    return data is not None and _HEADING.search(data) is not None


def read_workspace_table(folder: Path) -> dict[str, Json] | None:
    """Return the table, or None where there is none. Raises `InputError` for a file that has one and cannot be read."""
    path = folder / PYPROJECT
    data = _read(path)
    # Most projects have no such table: they need no parser, and a fault in their file is none of ours.
    if data is None or _HEADING.search(data) is None:
        return None
    import tomllib  # only such a project needs it

    try:
        return tomllib.loads(data.decode("utf-8"))["tool"]["proctor"]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        origin = Origin(file=str(path), line=int(place[1]), column=int(place[2])) if place else Origin(file=str(path))
        message = f"is no TOML: {str(error).partition(' (at line')[0]}"
        raise InputError(message, [Problem(message=message, origin=origin)]) from None


def _read(path: Path) -> bytes | None:
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError:
        return None
    return data if len(data) <= LARGEST else None
