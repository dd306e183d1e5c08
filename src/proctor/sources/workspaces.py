"""Reads the library of an MCPLab workspace from its folder.

A config below a subfolder of `evals/` uses the library next to it, as MCPLab's command line does, else the library of its workspace, as
MCPLab's app does: alone it means the same as in a run of the whole folder.
"""

from __future__ import annotations

from pathlib import Path

from proctor.errors import InputError
from proctor.formats.mcplab.library import (
    AGENTS_FILE,
    ROOT_FOLDERS,
    SCENARIO_FOLDERS,
    SERVERS_FILE,
    Library,
    LibraryDocument,
    find_bundle_root,
    read_library,
)
from proctor.formats.text.documents import read_text
from proctor.formats.text.located import Reading
from proctor.model.problem import Origin, Problem
from proctor.sources.texts import read_suite_text

EVALS_FOLDER = "evals"


def is_workspace(folder: Path) -> bool:
    """Return whether a folder is the root of an MCPLab workspace."""
    return (folder / EVALS_FOLDER).is_dir() and _has_library(folder)


def find_suite_bundle(path: Path) -> Path:
    """Return the folder whose library the suite file at `path` uses."""
    direct = Path(find_bundle_root(path.as_posix()) or ".")
    if _has_library(direct):
        return direct
    # The file may be named from inside its workspace.
    for inner in (*path.parents, *path.absolute().parents):
        if inner.name in ROOT_FOLDERS and _has_library(inner.parent):
            return inner.parent
    return direct


def _has_library(folder: Path) -> bool:
    return any((folder / name).exists() for name in (SERVERS_FILE, AGENTS_FILE, *SCENARIO_FOLDERS))


def load_nearest_library(path: Path) -> Library:
    """Return the library that the references of the suite file at `path` mean."""
    return load_library(find_suite_bundle(path), path)


def load_library(folder: Path, path: Path | None = None) -> Library:
    """Return the library of a bundle root, for the suite file at `path`."""
    scenarios = next((folder / name for name in SCENARIO_FOLDERS if (folder / name).is_dir()), None)
    files = sorted(p for p in scenarios.iterdir() if p.suffix in (".yaml", ".yml") and p.is_file()) if scenarios is not None else []
    own = path.resolve() if path is not None else None
    return read_library(
        root=str(folder),
        servers=_read_document(folder / SERVERS_FILE),
        agents=_read_document(folder / AGENTS_FILE),
        # A test case that is checked by itself is not its own library.
        scenarios=[found for file in files if file.resolve() != own and (found := _read_document(file)) is not None],
    )


def _read_document(path: Path) -> LibraryDocument | None:
    if not path.is_file():
        return None
    try:
        text = read_suite_text(path)
    except InputError as error:
        # An unreadable library matters only when something refers to it; it is a warning then.
        reading = Reading(file=str(path), text="")
        reading.problems.append(Problem(message=str(error), origin=Origin(file=str(path)), level="warning"))
        return LibraryDocument(None, reading)
    reading = Reading(file=str(path), text=text)
    return LibraryDocument(read_text(text, file=str(path), reading=reading), reading)
