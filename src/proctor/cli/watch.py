"""`proctor run --watch`: runs the suite again whenever a file changes that the run depends on.

Every run is a new process, so that the agent's module is reloaded. Files are polled twice a second: the suites, the settings, the files
that these name, even if they are invalid, and the Python files of the working folder.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from proctor.actions.start.found import list_files
from proctor.actions.workspace.run_history import WORKSPACE_FILES, get_workspace_folder
from proctor.sources.dotenv import DOTENV_FILE
from proctor.sources.pyproject import PYPROJECT

EVERY_S = 0.5
_MOST_FILES = 5000
_LARGEST = 1_000_000
_FILE = re.compile(r"[\w./\\-]+\.(?:py|yaml|yml|json|jsonl|csv|parquet|xlsx|toml|md|txt)\b")
_SUITES = (".yaml", ".yml", ".json")

Seen = Mapping[Path, tuple[int, int] | None]


def watch(arguments: list[str], suites: list[str], home: Path) -> int:
    """Run again and again until Ctrl-C; returns the exit code of the last run."""
    command = [sys.executable, "-m", "proctor", "run", *(word for word in arguments if word != "--watch")]
    code = 0
    try:
        while True:
            # Before the run: a change while it runs must start the next one.
            files = list(islice(list_watched_files(suites, home), _MOST_FILES))
            before = look_at(files)
            code = _run(command)
            print(f"watching {len(before)} files; Ctrl-C ends", file=sys.stderr, flush=True)
            changed = wait_for_change(before, functools.partial(look_at, files))
            names = ", ".join(map(os.path.relpath, changed[:3])) + (" and more" if len(changed) > 3 else "")
            print(f"changed: {names}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        return code


def wait_for_change(before: Seen, look: Callable[[], Seen], pause: Callable[[], None] = lambda: time.sleep(EVERY_S)) -> list[Path]:
    """Wait until files have changed, and return them."""
    while True:
        now = look()
        changed = [path for path in {**before, **now} if before.get(path) != now.get(path)]
        if changed:
            return changed
        pause()


def look_at(files: Iterable[Path]) -> dict[Path, tuple[int, int] | None]:
    """Return modification time and size of each file, or None for a missing one."""
    return {path: _look(path) for path in files}


def list_watched_files(suites: Iterable[str], home: Path) -> Iterator[Path]:
    """Yield the files that a run of these suites depends on, each once."""
    workspace = get_workspace_folder(home)
    settings = [workspace / name for name in (*WORKSPACE_FILES, PYPROJECT, DOTENV_FILE)]
    suite_files = [file for suite in suites for file in _list_suite_files(Path(suite))]
    folders = [Path.cwd(), workspace]
    named_files = _list_named([*settings[:-1], *suite_files], folders)
    code = (file for folder in folders for file in list_files(folder, (".py",)))
    seen: set[Path] = set()
    for path in (*settings, *suite_files, *named_files, *code):
        absolute = Path(os.path.abspath(path))
        if absolute not in seen:
            seen.add(absolute)
            yield absolute


def _run(command: list[str]) -> int:
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The same Ctrl-C has reached the run, which stores finished attempts.
            process.wait()
            raise


def _list_suite_files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    return list(islice((path for path in sorted(place.rglob("*")) if path.suffix in _SUITES and ".proctor" not in path.parts), _MOST_FILES))


def _list_named(files: Iterable[Path], folders: list[Path]) -> Iterator[Path]:
    """Yield files that others name, such as data and checks."""
    for file in files:
        places = dict.fromkeys([file.parent, *folders])
        for name in dict.fromkeys(_FILE.findall(_read(file))):
            yield from (folder / name for folder in places if (folder / name).is_file())


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size <= _LARGEST:
            return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _look(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
