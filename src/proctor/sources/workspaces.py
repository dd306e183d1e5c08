"""Reads the library of an MCPLab workspace from its folder.

A config below a subfolder of `evals/` uses the library next to it, as MCPLab's command line does, else the library of its workspace, as
MCPLab's app does: alone it means the same as in a run of the whole folder.
"""

from __future__ import annotations

from pathlib import Path

from proctor.errors import EvidenceError, InputError
from proctor.evidence.platforms.mcplab import add_results, is_results
from proctor.evidence.values.json_bytes import decode
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
from proctor.model.evidence import Evidence, Json
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
    # The given path may be inside its workspace.
    for inner in (*path.parents, *path.absolute().parents):
        if inner.name in ROOT_FOLDERS and _has_library(inner.parent):
            return inner.parent
    return direct


def _has_library(folder: Path) -> bool:
    return any((folder / name).exists() for name in (SERVERS_FILE, AGENTS_FILE, *SCENARIO_FOLDERS))


def load_nearest_library(path: Path) -> Library:
    """Return the library that the references of the suite file at `path` refer to."""
    return load_library(find_suite_bundle(path), path)


def load_library(folder: Path, path: Path | None = None) -> Library:
    """Return the library of a bundle root, for the suite file at `path`."""
    scenarios = next((folder / name for name in SCENARIO_FOLDERS if (folder / name).is_dir()), None)
    files = sorted(p for p in scenarios.iterdir() if p.suffix in (".yaml", ".yml") and p.is_file()) if scenarios is not None else []
    suite_path = path.resolve() if path is not None else None
    return read_library(
        root=str(folder),
        servers=_read_document(folder / SERVERS_FILE),
        agents=_read_document(folder / AGENTS_FILE),
        # A test case that is checked separately is not its own library.
        scenarios=[document for file in files if file.resolve() != suite_path and (document := _read_document(file)) is not None],
    )


def _read_document(path: Path) -> LibraryDocument | None:
    if not path.is_file():
        return None
    try:
        text = read_suite_text(path)
    except InputError as error:
        # An unreadable library matters only if something refers to it; then it is a warning.
        reading = Reading(file=str(path), text="")
        reading.problems.append(Problem(message=str(error), origin=Origin(file=str(path)), level="warning"))
        return LibraryDocument(None, reading)
    reading = Reading(file=str(path), text=text)
    return LibraryDocument(read_text(text, file=str(path), reading=reading), reading)


RESULTS_FILE = "results.json"
TRACE_FILE = "trace.jsonl"


class TraceResults:
    """The results next to one trace, read when they are first needed."""

    def __init__(self, trace: Path, most_bytes: int) -> None:
        self._path = trace.with_name(RESULTS_FILE)
        self._most_bytes = most_bytes
        self._document: Json = None
        self._read = False

    def complete(self, evidence: Evidence) -> Evidence:
        """Return the evidence with its complete answer from the results; calls are unknown if the results name another one."""
        if not self._read:
            # Before the file is read: a missing or different file is not tried again for every line of the trace.
            self._read = True
            self._document = _read_results(self._path, self._most_bytes)
        if self._document is None:
            return evidence
        return add_results(evidence, self._document)


def is_trace_results(path: Path, most_bytes: int) -> bool:
    """Return whether a file is the `results.json` of an MCPLab run: not evidence itself, but read with the trace next to it."""
    return path.name == RESULTS_FILE and path.with_name(TRACE_FILE).is_file() and _read_results(path, most_bytes) is not None


def _read_results(path: Path, most_bytes: int) -> Json:
    """Return the results, or None if they are missing or invalid: then the cut answers stay unknown."""
    try:
        if path.stat().st_size > most_bytes:
            return None
        document = decode(path.read_bytes())
    except (OSError, EvidenceError):
        return None
    return document if is_results(document) else None
