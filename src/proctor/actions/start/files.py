"""Reads the files of a folder that somebody else wrote: bounded, and without complaint about what is none of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.model.evidence import Json

MOST_FILES = 500
MOST_BYTES = 1_000_000
"""Files beyond this number, and larger ones, are not looked at: agents stand in small files near the top."""
_MOST_TEXT = 5_000_000
"""Characters of a file that are read."""
SKIPPED = frozenset(("node_modules", "site-packages", "__pycache__", "build", "dist", "venv", "env", "tests", "test", "docs"))


def list_files(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield files of these kinds, those near the top first, without the folders of tools and installed packages."""
    waiting, seen = [folder], 0
    while waiting:
        try:
            entries = sorted(os.scandir(waiting.pop(0)), key=lambda entry: entry.name)
        except OSError:  # a folder that is closed to us holds nothing that we could import either
            continue
        for entry in entries:
            # Links to folders are not followed: one that leads upwards would have no end.
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED and not entry.name.startswith(".") and not (Path(entry.path) / "pyvenv.cfg").exists():
                    waiting.append(Path(entry.path))
            elif entry.name.endswith(suffixes) and entry.is_file() and entry.stat().st_size <= MOST_BYTES:
                seen += 1
                if seen > MOST_FILES:
                    return
                yield Path(entry.path)


def read_text_of(path: Path) -> str:
    """Return the text of a file, or nothing where there is none to read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:_MOST_TEXT] if path.is_file() else ""
    except OSError:
        return ""


def read_json_of(path: Path) -> Json:
    """Return the JSON in a file, or None where it holds none."""
    try:
        return msgspec.json.decode(read_text_of(path) or "null")
    except (msgspec.DecodeError, RecursionError):
        return None
