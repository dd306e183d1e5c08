"""Reads the table `[tool.proctor]` of a `pyproject.toml`: the settings of a Python project without a workspace file."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from proctor.errors import InputError
from proctor.model.evidence import Json
from proctor.model.problem import Origin, Problem
from proctor.model.show import describe_value

PYPROJECT = "pyproject.toml"
LARGEST = 1_000_000
"""Bytes of one file."""
_HEADING = re.compile(rb"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*proctor[ \t]*[\].]", re.MULTILINE)


def has_workspace_table(folder: Path) -> bool:
    """Return whether the project in a folder has settings of ours, valid or not; an unreadable file has none."""
    try:
        return read_workspace_table(folder) is not None
    except InputError:
        return True


def read_workspace_table(folder: Path) -> dict[str, Json] | None:
    """Return the table, or None if there is none. Raises `InputError` for a file that has one but is invalid."""
    path = folder / PYPROJECT
    data = _read(path)
    # Most projects have no such table: they need no parser, and errors in their file are not reported.
    if data is None or _HEADING.search(data) is None:
        return None
    import tomllib  # needed only for such a project

    try:
        document = tomllib.loads(data.decode("utf-8"))
    # `TOMLDecodeError` is a `ValueError`, and so is the error for an integer with thousands of digits.
    except (ValueError, RecursionError) as error:
        message = "nested too deep" if isinstance(error, RecursionError) else str(error)
        place = re.search(r"\(at line (\d+), column (\d+)\)", message)
        origin = Origin(file=str(path), line=int(place[1]), column=int(place[2])) if place else Origin(file=str(path))
        raise _refuse(f"is no TOML: {message.partition(' (at line')[0]}", origin) from None
    tool = document.get("tool")
    # The heading may have been text inside a multi-line string.
    table = tool.get("proctor") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise _refuse(f"tool.proctor: expected a table, found {describe_value(table)}", Origin(file=str(path)))
    return table


def _refuse(message: str, origin: Origin) -> InputError:
    return InputError(message, [Problem(message=message, origin=origin)])


def _read(path: Path) -> bytes | None:
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError:
        return None
    return data.removeprefix(codecs.BOM_UTF8) if len(data) <= LARGEST else None
