"""Reads suite files as text, with size limits and clear errors."""

from __future__ import annotations

import sys
from pathlib import Path

from proctor.errors import InputError
from proctor.model.show import show

MAX_SUITE_BYTES = 32 * 1024 * 1024
"""Maximum bytes to read; `proctor.formats.text.documents` limits what is then parsed."""
SUITE_SUFFIXES = (".yaml", ".yml", ".json")


def check_path(path: Path) -> None:
    """Raise `InputError` for a path that the system cannot look up: a name that is too long, a folder without permission."""
    try:
        path.is_dir()
    except OSError as error:
        raise InputError(f"cannot look for {show(str(path))}: {error.strerror}") from error


def read_bounded(path: Path, most: int) -> bytes | None:
    """Return the bytes of a file, or None if there are more than `most`; raises `InputError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from error
    return data if len(data) <= most else None


def read_suite_text(path: Path) -> str:
    """Return the text of a suite file; raises `InputError` if it cannot be one."""
    data = read_bounded(path, MAX_SUITE_BYTES)
    if data is None:
        raise _too_large(str(path))
    return _decode(data, str(path))


def read_piped_suite() -> str:
    """Return the suite on standard input as text; raises `InputError` if it cannot be one."""
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - it is, where the descriptor was closed
        raise InputError("cannot read standard input: it is closed")
    data = sys.stdin.buffer.read(MAX_SUITE_BYTES + 1)
    if len(data) > MAX_SUITE_BYTES:
        raise _too_large("<stdin>")
    return _decode(data, "<stdin>")


def _too_large(name: str) -> InputError:
    return InputError(f"{name}: more than {MAX_SUITE_BYTES // 2**20} MB is too large for a suite")


def _decode(data: bytes, name: str) -> str:
    if data[:2] == b"\x1f\x8b":
        raise InputError(f"{name}: this is a gzip file; unpack it first")
    if b"\x00" in data[:4096]:
        raise InputError(f"{name}: this is a binary file, not a suite")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{name}:{line}: not UTF-8 text (byte {error.start})") from error


def list_suite_files(folder: Path) -> list[Path]:
    """Return the suite files below a folder, sorted, without hidden folders and results."""
    files = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUITE_SUFFIXES)
    return [path for path in files if path.is_file() and not is_hidden(path, folder)]


def is_hidden(path: Path, folder: Path) -> bool:
    """Return whether a file below a folder is hidden, or is in a hidden folder."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
