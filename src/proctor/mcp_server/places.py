"""Which files of the machine a caller may name: those of the working folder, wherever links lead.

An assistant does what it has read somewhere, and what a reader says about a file quotes it. So a path that leads out of the working folder,
or a folder or a workspace with a link in it that does, is refused before anything of it is read, unless the server was started with
`--trust`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from proctor.actions.mcplab.files import list_bundle_files
from proctor.actions.trust.trust import trust_for
from proctor.actions.workspace.run_history import find_home
from proctor.model.show import escape_unseen, show
from proctor.service.refusals import Refusal
from proctor.sources.records import DOCUMENT_SUFFIXES, LINE_SUFFIXES
from proctor.sources.texts import SUITE_SUFFIXES, check_path, is_hidden
from proctor.sources.workspaces import find_suite_bundle

_READ = (*SUITE_SUFFIXES, *LINE_SUFFIXES, *DOCUMENT_SUFFIXES)


def find_local_path(folder: Path, path: str, *, trust: bool | None) -> Path:
    """Return the file or folder that a caller names, from `folder`; raises `Refusal` where it leads out of the working folder."""
    place = folder / path
    check_path(place)
    if trust_for("reading", granted=trust).granted:
        return place
    working = find_home(None, start=folder).parent.resolve()
    # The path itself first: of what lies outside nothing is even listed.
    if not place.resolve().is_relative_to(working) or not all(file.resolve().is_relative_to(working) for file in _list_read(place)):
        raise Refusal(
            "FORBIDDEN",
            f"{escape_unseen(show(path))} leads out of the working folder {str(working)!r}, and nothing outside of it is read",
            hint="name files of the working folder, or have the server started with --trust",
        )
    return place


def _list_read(place: Path) -> Iterator[Path]:
    """Yield what is read together with a file or folder."""
    if place.is_dir():
        files = [file for file in place.rglob("*") if file.suffix.lower() in _READ and file.is_file() and not is_hidden(file, place)]
    else:
        files = [place, *(file for file in (place.parent / "results.json",) if file.is_file())]
    yield from files
    for root in {place} | {find_suite_bundle(file) for file in files}:
        yield from list_bundle_files(root)
