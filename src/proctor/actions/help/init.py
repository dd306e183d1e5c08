"""Write the files of a first run: for an agent that was found or named, else a small commented suite with evidence to try it on.

No existing file is overwritten, except the schema for editors, which is updated.
"""

from __future__ import annotations

import json
from pathlib import Path

from proctor.actions.running.named_target import GivenTarget
from proctor.actions.start.candidates import KINDS, RECORDED, Candidate
from proctor.actions.start.frameworks import START
from proctor.actions.start.starters import (
    SCHEMA_FILE,
    SUITE_FILE,
    WORKSPACE_FILE,
    Starter,
    make_starter,
    start_target,
    use_pyproject_table,
)
from proctor.checks.registry import default_registry
from proctor.errors import InputError
from proctor.formats.native.schema import build_native_schema
from proctor.model.show import nearest

FILES = {name: (START / "recorded" / name).read_text(encoding="utf-8") for name in (SUITE_FILE, "evidence.jsonl", WORKSPACE_FILE)}


def init(folder: str | Path, kind: str = RECORDED, candidate: Candidate | None = None, *, target: GivenTarget | None = None) -> list[Path]:
    """Write the starting files for a kind of agent or for a given target; existing files are not overwritten.

    `candidate` is the agent that `find_candidates` found; without one, a template takes its place.
    """
    return write_starter(folder, use_pyproject_table(Path(folder), find_starter(kind, candidate, target=target)))


def find_starter(kind: str, candidate: Candidate | None = None, *, target: GivenTarget | None = None) -> Starter:
    """Return the files to write. Raises `InputError` for an unknown kind."""
    if target is not None:
        return start_target(target.settings)
    if kind not in KINDS:
        close = nearest(kind, KINDS)
        hint = f"; nearest: {', '.join(close)}" if close else ""
        raise InputError(f"there is nothing to start from for {kind!r}{hint}; known: {', '.join(KINDS)}")
    if kind == RECORDED:
        return Starter(files=FILES, next="proctor check suite.yaml evidence.jsonl", schema=False, keeps_suite=False)
    return make_starter(kind, candidate)


def write_starter(folder: str | Path, starter: Starter) -> list[Path]:
    """Write the files and return their paths. Raises `InputError` before anything is written if one exists already.

    An existing suite stays when the target is new: `proctor try --save` may have begun it. The example that was written without an agent is
    replaced when one is found, as long as it is unchanged.
    """
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise InputError(f"{str(place)!r} is a file; name a folder")
    existing = [name for name in starter.files if (place / name).exists() and not (starter.schema and _is_example(place / name))]
    files = {name: text for name, text in starter.files.items() if not (starter.keeps_suite and name == SUITE_FILE and name in existing)}
    existing = [name for name in existing if name in files]
    if existing:
        raise InputError(f"{', '.join(existing)} in {str(place)!r} would be overwritten; name another folder")
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            # `x` does not follow a dangling link; only the unchanged file of the example exists already.
            with (place / name).open("w" if (place / name).exists() else "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise InputError(f"cannot write to {str(place)!r}: {error.strerror}") from error
    return [*(place / name for name in files), *([write_schema(place)] if starter.schema else [])]


def _is_example(path: Path) -> bool:
    """Return whether a file is the unchanged file of the example."""
    try:
        return path.read_text(encoding="utf-8") == FILES.get(path.name)
    except (OSError, UnicodeDecodeError):
        return False


def write_schema(folder: Path) -> Path:
    """Write the schema of suites next to them, for completion and checks in editors; no network is needed."""
    path = folder / SCHEMA_FILE
    text = json.dumps(build_native_schema(default_registry()), indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}") from error
    return path
