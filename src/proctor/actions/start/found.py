"""Types for what is found in code: agents, functions and routes; and how the files of a folder are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.model.evidence import Json
from proctor.model.json_values import MISSING, decode_embedded

MOST_FILES = 500
MOST_BYTES = 1_000_000
"""Files beyond this number, and larger ones, are skipped: agents are in small files near the top."""
_MOST_TEXT = 5_000_000
"""Characters of a file that are read."""
SKIPPED = frozenset(("node_modules", "site-packages", "__pycache__", "build", "dist", "venv", "env", "tests", "test", "docs"))


def list_files(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield files of these kinds, those near the top first, without the folders of tools and installed packages."""
    waiting, count = [folder], 0
    while waiting:
        try:
            entries = sorted(os.scandir(waiting.pop(0)), key=lambda entry: entry.name)
        except OSError:  # an unreadable folder has nothing that we could import
            continue
        for entry in entries:
            # Links to folders are not followed: one that leads upwards would loop.
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED and not entry.name.startswith(".") and not (Path(entry.path) / "pyvenv.cfg").exists():
                    waiting.append(Path(entry.path))
            elif entry.name.endswith(suffixes) and entry.is_file() and entry.stat().st_size <= MOST_BYTES:
                count += 1
                if count > MOST_FILES:
                    return
                yield Path(entry.path)


def read_text_of(path: Path) -> str:
    """Return the text of a file, or an empty text if it is unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:_MOST_TEXT] if path.is_file() else ""
    except OSError:
        return ""


def read_json_of(path: Path) -> Json:
    """Return the JSON in a file, or None if it has none."""
    decoded = decode_embedded(read_text_of(path))
    return None if decoded is MISSING else decoded


class FoundAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can be imported."""

    framework: str
    file: str
    """The path relative to the searched folder."""
    line: int
    name: str
    maker: str
    is_factory: bool = False
    """Whether `name` is a function that creates it."""
    field: str | None = None
    """The name of the input, if agents of the framework have one."""


class FoundFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function that looks as if it took a message."""

    file: str
    line: int
    name: str
    holder: str | None = None
    """The class, if it is a method."""

    @property
    def called(self) -> str:
        """The name of the function in messages."""
        return f"{self.name}()" if self.holder is None else f"{self.holder}().{self.name}()"


class FoundRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A path of a web application that takes a message."""

    file: str
    line: int
    path: str
    field: str = "input"
    port: int = 8000


class PythonCode(msgspec.Struct, frozen=True, kw_only=True):
    """The agents in the Python files of a folder."""

    agents: tuple[FoundAgent, ...] = ()
    hidden: tuple[FoundAgent, ...] = ()
    """Agents that cannot be imported."""
    functions: tuple[FoundFunction, ...] = ()
    routes: tuple[FoundRoute, ...] = ()
    tools: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    """The frameworks that any file imports."""
    files: int = 0
    unread: tuple[str, ...] = ()
    """Files that Python cannot read, with the place and the reason."""
