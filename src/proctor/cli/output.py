"""Where results go: standard output, or a file that appears only when it is complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from proctor.errors import InputError


class Output:
    """A place to write bytes to; a file is written beside its name and moved there at the end."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self._partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.part") if self._path else None
        self._file: BinaryIO | None = None
        self.write: Callable[[bytes], object] = _closed
        """Writes bytes; usable inside the `with` block."""

    def __enter__(self) -> Output:
        if self._partial is None:
            sys.stdout.flush()
            self._file = sys.stdout.buffer
        else:
            try:
                self._file = self._partial.open("wb", buffering=64 * 1024)
            except OSError as error:
                raise InputError(f"cannot write {str(self._path)!r}: {error.strerror}") from error
        assert self._file is not None
        self.write = self._file.write
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is None:
            return
        if self._partial is None or self._path is None:
            self._file.flush()
            return
        self._file.close()
        if kind is None or kind is KeyboardInterrupt:
            # An interrupted run keeps what was finished.
            os.replace(self._partial, self._path)
        else:
            self._partial.unlink(missing_ok=True)

    @property
    def is_file(self) -> bool:
        """Whether it is a file, which nobody reads before it is complete."""
        return self._path is not None

    @property
    def is_terminal(self) -> bool:
        """Whether a person is looking at it."""
        return self._path is None and sys.stdout.isatty()

    def text(self, text: str) -> None:
        """Write text; what no encoding can carry (half of a surrogate pair) is escaped."""
        self.write(text.encode("utf-8", errors="backslashreplace"))


def _closed(data: bytes) -> object:
    raise RuntimeError("an output is written to inside its `with` block")
