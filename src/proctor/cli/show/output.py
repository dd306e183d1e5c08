"""Writes results to standard output, or to a file that appears only when it is complete.

An unwritable destination (a full disk, a missing folder) raises `InputError` with its name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TextIO

from proctor.errors import InputError, MissingExtra

_reserved: list[TextIO] = []
"""Reserved outputs, innermost last."""


def get_standard_output() -> TextIO:
    """Return the output for results, whatever `sys.stdout` currently is."""
    return _reserved[-1] if _reserved else sys.stdout


@contextlib.contextmanager
def reserve_standard_output() -> Generator[None]:
    """Reserve standard output for results: what a function under test prints goes to standard error.

    This includes its child processes and libraries that write to the descriptor directly.
    """
    place = get_standard_output()
    with _keep_descriptor(place) as descriptor:
        _reserved.append(descriptor)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        finally:
            _reserved.pop()


@contextlib.contextmanager
def _keep_descriptor(place: TextIO) -> Generator[TextIO]:
    """Move results to another descriptor and point the first to standard error, if possible."""
    try:
        # Flush before the descriptor is redirected.
        place.flush()
        usual = place.fileno() == 1 and sys.stderr.fileno() == 2
        descriptor = os.dup(1) if usual else -1
    except (OSError, ValueError, AttributeError):
        # Closed, or not a file.
        usual, descriptor = False, -1
    if not usual:
        yield place
        return
    os.set_inheritable(descriptor, False)
    file = os.fdopen(descriptor, "w", encoding=place.encoding, errors=place.errors)
    os.dup2(2, 1)
    try:
        yield file
    finally:
        try:
            file.flush()
        finally:
            os.dup2(descriptor, 1)
            with contextlib.suppress(OSError):
                file.close()


class Output:
    """A destination for bytes; a file is written under a temporary name and moved at the end.

    A link is followed, and a device or a pipe is written to directly: moving a file there would replace it.
    """

    def __init__(self, path: str | None) -> None:
        self._name = path
        self._path = Path(os.path.realpath(path)) if path else None
        replaces = self._path is not None and (self._path.is_file() or not self._path.exists())
        # In the same folder, so that the move is atomic; named by process, so that two runs do not share it.
        self._partial = self._path.with_name(f".{self._path.name}.{os.getpid()}.part") if self._path and replaces else None
        self._file: BinaryIO | None = None

    def __enter__(self) -> Output:
        if self._path is None:
            place = get_standard_output()
            if place is None:  # pyright: ignore[reportUnnecessaryComparison] - it is, where the descriptor was closed
                raise InputError("cannot write to standard output: it is closed")
            # Text first: the bytes bypass its buffer.
            place.flush()
            self._file = place.buffer
            return self
        try:
            self._file = (self._partial or self._path).open("wb", buffering=64 * 1024)
        except OSError as error:
            raise self._make_error(error) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is None:
            return
        try:
            if self._path is None:
                self._file.flush()
                return
            self._file.close()
            if self._partial is not None and kind is None:
                # Atomic and only on success: readers see the old or the new file.
                os.replace(self._partial, self._path)
        # `main` handles a closed pipe.
        except BrokenPipeError:
            raise
        except OSError as failure:
            raise self._make_error(failure) from failure
        finally:
            if self._partial is not None:
                # It was moved away.
                self._partial.unlink(missing_ok=True)

    def probe(self) -> None:
        """Raise `InputError` if the file could not be written; an existing file is not changed."""
        if self._path is None:
            return
        if self._path.is_dir():
            raise self._make_error(IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
        if self._partial is not None:
            try:
                self._partial.touch()
                self._partial.unlink()
            except OSError as error:
                raise self._make_error(error) from error

    def write(self, data: bytes) -> None:
        """Write bytes, inside the `with` block."""
        assert self._file is not None, "an output is written to inside its `with` block"
        try:
            self._file.write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._make_error(error) from error

    def write_with(self, write: Callable[[BinaryIO], None]) -> None:
        """Let a function write the file, inside the `with` block."""
        assert self._file is not None, "an output is written to inside its `with` block"
        try:
            write(self._file)
        except OSError as error:
            raise self._make_error(error) from error

    def _make_error(self, error: OSError) -> InputError:
        place = "to standard output" if self._name is None else repr(self._name)
        return InputError(f"cannot write {place}: {error.strerror}")

    @property
    def is_file(self) -> bool:
        """Whether this is a file, which is read only when complete."""
        return self._path is not None

    @property
    def is_terminal(self) -> bool:
        """Whether this is a terminal."""
        return self._path is None and get_standard_output().isatty()

    def write_text(self, text: str) -> None:
        """Write text, with lone surrogates escaped."""
        self.write(text.encode("utf-8", errors="backslashreplace"))


def explain_missing(error: ModuleNotFoundError, what: str, extra: str) -> MissingExtra:
    """Return what to install. Re-raises if no extra contains the module."""
    top = (error.name or "proctor").partition(".")[0]
    if top == "proctor" or top in sys.stdlib_module_names:
        raise error
    return MissingExtra(what, extra)


def is_on_github(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this is a GitHub job."""
    return environment.get("GITHUB_ACTIONS") == "true"


def find_summary_file(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the summary file, if any."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    return path if path and is_on_github(environment) and not _is_output(path) else None


def append_summary(text: Callable[[], str], file: str | None = None) -> None:
    """Append the result of `text` to the job summary, if there is one, and to `file`."""
    for path in filter(None, (find_summary_file(), file)):
        # Lone surrogates become question marks.
        content = f"{text().rstrip()}\n\n".encode("utf-8", "replace")
        try:
            with open(path, "ab") as summary:
                summary.write(content)
        except OSError as error:
            print(f"warning: the job summary {path!r} cannot be written: {error.strerror or error}", file=sys.stderr)


def _is_output(path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(get_standard_output().fileno()), os.stat(path))
    except (OSError, ValueError, AttributeError):
        # No such file yet, or standard output is closed.
        return False
