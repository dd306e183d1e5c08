"""Rows of CSV, TSV, JSON lines and lists of JSON, read line by line with the line on which each begins.

CSV follows RFC 4180 strictly: a header, the same number of fields on every row, quotes closed and doubled inside; blank lines are passed
over. Text is UTF-8, with or without a byte order mark.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from proctor.errors import EvidenceError, InputError
from proctor.evidence.values.json_bytes import decode
from proctor.formats.text.json_text import read_json
from proctor.formats.text.located import Located, Reading
from proctor.formats.text.row_shapes import Row, TableOptions
from proctor.model.evidence import Json
from proctor.model.problem import Origin, Problem
from proctor.model.show import show


def make_json(value: Any) -> Json:
    """Return a value that JSON can represent; raises `ValueError` with the reason if it cannot."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} is no number that a case can hold")
        return value
    if isinstance(value, datetime) and value.time() == time(0) and value.tzinfo is None:
        return value.date().isoformat()
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {str(key): make_json(member) for key, member in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - comes from a library without types
    if isinstance(value, (list, tuple)):
        return [make_json(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - comes from a library without types
    raise ValueError(f"{type(value).__name__} is no value that a case can hold")


MAX_ROWS = 1_000_000
"""Rows of one file: as many as a run may have attempts."""
MAX_FIELD = 1_000_000
"""Characters of one field."""
MAX_LINE = 16 * 1024 * 1024
"""Bytes of one line: a file without line breaks must not fill the memory."""
MAX_FILE = 4 * 1024**3
"""Bytes of a file that is read row by row."""
MAX_WHOLE = 8 * 1024 * 1024
"""Bytes of a JSON list, which is read completely; JSON lines may be as long as other files."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def refuse_at(file: str, line: int | None, message: str, *, hint: str | None = None, code: str = "bad_data", path: str = "$") -> InputError:
    """Return the error for a position in a data file."""
    problem = Problem(message=message, origin=Origin(file=file, line=line, path=path), hint=hint, code=code)
    return InputError(message, [problem])


def check_size(path: Path, file: str, most: int) -> None:
    """Raise `InputError` for a file that is larger than `most` bytes."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read {file!r}: {error.strerror}") from error
    if size > most:
        raise refuse_at(file, None, f"{size / 2**20:,.0f} MB are too many for a file of cases; the limit is {most // 2**20:,} MB")


def check_names(names: Sequence[str], refuse: Callable[[str], InputError]) -> None:
    """Raise the error of `refuse` for a column without a name, or with that of another one."""
    for position, name in enumerate(names, 1):
        if not name:
            raise refuse(f"column {position} of {len(names)} has no name")
        if name in names[: position - 1]:
            raise refuse(f"two columns are called {name!r}")


def refuse_more_rows(file: str, line: int | None) -> InputError:
    """Return the error for a file with too many rows."""
    hint = "take some of them with `limit`, or split the file"
    return refuse_at(file, line, f"more than {MAX_ROWS:,} rows; a file of cases has at most so many", hint=hint, code="too_many_rows")


class _Lines:
    """The lines of a file as text, counted."""

    def __init__(self, stream: BinaryIO, file: str) -> None:
        self._stream = stream
        self._file = file
        self.number = 0
        """The number of lines read."""

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        # One byte over the limit, to detect a line that is too long.
        line = self._stream.readline(MAX_LINE + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > MAX_LINE:
            raise refuse_at(self._file, self.number, f"a line of more than {MAX_LINE // 2**20} MB", code="too_large")
        if self.number == 1:
            if line[:2] in _UTF16:
                raise refuse_at(self._file, 1, "this is UTF-16 text", hint="save it as UTF-8", code="not_utf8")
            line = line.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in line:
            raise refuse_at(self._file, self.number, "a NUL byte: this is no text", code="not_text")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"not UTF-8 text: byte 0x{line[error.start]:02x} at position {error.start + 1} of the line"
            raise refuse_at(self._file, self.number, message, hint="save the file as UTF-8", code="not_utf8") from None


class WholeRows:
    """A table whose rows are read completely."""

    def __init__(self, path: Path, file: str, most_bytes: int) -> None:
        check_size(path, file, most_bytes)
        self.file, self.stem = file, path.stem
        self._path = path

    def choose_columns(self, names: Sequence[str]) -> None:
        """Do nothing."""


class _TextTable(WholeRows):
    def __init__(self, path: Path, file: str, options: TableOptions) -> None:
        super().__init__(path, file, MAX_FILE)
        self._limit = options.limit

    def _open(self) -> BinaryIO:
        try:
            stream = self._path.open("rb")
        except OSError as error:
            raise InputError(f"cannot read {self.file!r}: {error.strerror}") from error
        return stream

    def _takes(self, index: int, line: int) -> bool:
        """Return whether a row is to be read; raises `InputError` for a row beyond the limit."""
        if self._limit is not None and index >= self._limit:
            return False
        if index >= MAX_ROWS:
            raise refuse_more_rows(self.file, line)
        return True


class CsvTable(_TextTable):
    """A file of comma-separated values."""

    def __init__(self, path: Path, file: str, options: TableOptions) -> None:
        """Reads the header; raises `InputError` if it is invalid."""
        super().__init__(path, file, options)
        self._delimiter = options.delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")
        # The module's limit is process-wide and only a guard; ours is larger.
        csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD))
        with self._open() as stream:
            self.columns = self._read_header(_Lines(stream, file))

    def _read_header(self, lines: _Lines) -> tuple[str, ...]:
        for fields, line in self._read_records(lines):
            names = tuple(name.strip() for name in fields)
            # Excel writes semicolons in countries with a decimal comma.
            if len(names) == 1 and self._delimiter == "," and ";" in names[0]:
                raise refuse_at(self.file, line, "the header is one field with semicolons in it", hint="say `delimiter: ';'`")
            check_names(names, partial(refuse_at, self.file, line))
            return names
        raise refuse_at(self.file, None, "the file is empty; its first line is to name the columns")

    def rows(self) -> Iterator[Row]:
        """Yield every row below the header."""
        with self._open() as stream:
            records = self._read_records(_Lines(stream, self.file))
            # The header: every pass opens the file again.
            next(records)
            for index, (fields, line) in enumerate(records):
                if not self._takes(index, line):
                    return
                yield self._make_row(fields, line)

    def _make_row(self, fields: list[str], line: int) -> Row:
        if len(fields) != len(self.columns):
            expected = f"the header has {len(self.columns)}"
            hint = "a field with the separator, a quote or a line break in it is put in quotes"
            raise refuse_at(self.file, line, f"this row has {len(fields)} fields, and {expected}", hint=hint, code="ragged_row")
        return Row(dict(zip(self.columns, fields, strict=True)), Origin(file=self.file, line=line))

    def _read_records(self, lines: _Lines) -> Iterator[tuple[list[str], int]]:
        """Yield the fields of each record and its first line; blank lines are skipped."""
        # Without `strict` the module accepts text after a closing quote, and a quote that is never closed.
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        while True:
            # Before the record is read: a quoted field may span many lines, and messages name the first.
            line = lines.number + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise self._explain(error, line, lines.number) from None
            # The module's limit is process-wide and may be larger than ours.
            for field in fields:
                if len(field) > MAX_FIELD:
                    raise refuse_at(self.file, line, f"a field of {len(field):,} characters; the limit is {MAX_FIELD:,}", code="too_large")
            if fields:
                yield fields, line

    def _explain(self, error: csv.Error, first: int, last: int) -> InputError:
        for words, in_first, message, hint, code in _CSV_FAULTS:
            if words in str(error):
                return refuse_at(self.file, first if in_first else last, message, hint=hint, code=code)
        return refuse_at(self.file, last, f"no CSV: {error}", code="bad_csv")


_SWALLOWED = f"a field of more than {MAX_FIELD:,} characters; a quote that is not closed swallows what follows"
_CSV_FAULTS = (
    ("field limit", True, _SWALLOWED, None, "too_large"),
    ("unexpected end", True, "a quote that is opened here is never closed", None, "bad_csv"),
    ("new-line", False, "a carriage return inside a row", "save the file with line ends of \\n or \\r\\n", "bad_csv"),
    ("expected after", False, "text after a closing quote", 'a quote inside a quoted field is doubled: ""', "bad_csv"),
)
"""Words of the module's errors, whether the fault is in the first line of the record, our message, a hint, and the code."""


class LinesTable(_TextTable):
    """A file with one JSON object on each line; every row has its own keys."""

    columns = None

    def rows(self) -> Iterator[Row]:
        """Yield the object of every line that is not blank."""
        with self._open() as stream:
            lines = _Lines(stream, self.file)
            index = 0
            for text in lines:
                if text.strip():
                    if not self._takes(index, lines.number):
                        return
                    index += 1
                    yield self._make_row(text, lines.number)

    def _make_row(self, text: str, line: int) -> Row:
        return Row(read_object(text.encode(), self.file, line), Origin(file=self.file, line=line))


def read_object(data: bytes, file: str, line: int | None) -> dict[str, Json]:
    """Return a JSON object; raises `InputError` with its position if it is not one."""
    try:
        document = decode(data)
    except EvidenceError as error:
        raise refuse_at(file, line, error.message, code="bad_json") from None
    if not isinstance(document, dict):
        raise refuse_at(file, line, f"expected an object with the columns of a row, found {show(document, 60)}", code="bad_json")
    return {str(key): value for key, value in document.items()}


class ListTable(WholeRows):
    """A JSON file with a list of objects, read completely, with the line of each."""

    columns = None

    def __init__(self, path: Path, file: str, options: TableOptions) -> None:
        super().__init__(path, file, MAX_WHOLE)
        try:
            reading = Reading(file=file, text=path.read_bytes().decode("utf-8-sig"))
        except OSError as error:
            raise InputError(f"cannot read {file!r}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise refuse_at(file, None, f"not UTF-8 text (byte {error.start})", hint="save it as UTF-8", code="not_utf8") from None
        document = read_json(reading.text, reading)
        reading.finish()
        if document is None or not document.is_list:
            kind = "nothing" if document is None else document.kind
            raise refuse_at(file, 1, f"expected a list of objects, found {kind}", code="bad_json")
        self._rows = [self._make_row(node) for node in list(document.items())[: options.limit]]

    def _make_row(self, node: Located) -> Row:
        if not node.is_object:
            message = f"expected an object with the columns of a row, found {node.kind}"
            raise refuse_at(self.file, node.line, message, code="bad_json", path=node.path)
        return Row(node.plain(), Origin(file=self.file, line=node.line, column=node.column, path=node.path))

    def rows(self) -> Iterator[Row]:
        """Yield every object of the list."""
        return iter(self._rows)
