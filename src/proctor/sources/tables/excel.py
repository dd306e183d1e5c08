"""Rows of an Excel file: the first row of a sheet names the columns, every other is a row, identified by sheet and number.

Values are those that were stored with the formulas when the file was last saved; a formula that was never computed is read as an empty
cell. A cell that shows an error is rejected. Blank rows are skipped. One row is in memory at a time.
"""

from __future__ import annotations

import itertools
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proctor.errors import InputError, MissingExtra
from proctor.formats.text.row_shapes import Row, TableOptions
from proctor.model.evidence import Json
from proctor.model.problem import Origin
from proctor.model.show import suggest_one
from proctor.sources.scratch_files import FileTexts
from proctor.sources.tables.text import MAX_FIELD, MAX_ROWS, WholeRows, check_names, make_json, refuse_at, refuse_more_rows


class SheetTexts(FileTexts):
    """The texts of a workbook in their original order."""

    def __getitem__(self, index: int, /) -> str:
        """Return a text by its index from 0; raises `IndexError` if it does not exist."""
        if not 0 <= index < len(self):
            raise IndexError(f"a cell has the text {index} of {len(self)}")
        return super().__getitem__(index)


def load_workbook(path: Path) -> Any:
    """Return an `openpyxl` workbook that is read row by row. Raises errors of `openpyxl`, and `ImportError` without it."""
    from openpyxl.cell.text import Text  # an optional dependency
    from openpyxl.reader.excel import ExcelReader
    from openpyxl.xml.constants import SHARED_STRINGS, SHEET_MAIN_NS
    from openpyxl.xml.functions import iterparse

    class Reader(ExcelReader):  # pyright: ignore[reportUntypedBaseClass]
        """Stores the texts in a temporary file."""

        def read_strings(self) -> None:
            """Read the table of texts."""
            part: Any = self.package.find(SHARED_STRINGS)
            if part is None:
                return
            self.shared_strings: Any = SheetTexts()
            root: Any = None
            with self.archive.open(part.PartName[1:]) as source:
                for event, node in iterparse(source, events=("start", "end")):
                    root = node if root is None else root
                    if event == "end" and node.tag == f"{{{SHEET_MAIN_NS}}}si":
                        # As in `openpyxl`: the marker of an escaped underscore is not part of the text.
                        text: Any = Text.from_tree(node)
                        self.shared_strings.append(str(text.content).replace("x005F_", ""))
                        # Otherwise the tree would grow to the whole table, which this reader avoids.
                        root.clear()

    reader = Reader(path, read_only=True, data_only=True, keep_links=False)
    reader.read()
    return reader.wb


MAX_PACKED = 64 * 1024 * 1024
"""Bytes of the file."""
MAX_UNPACKED = 512 * 1024 * 1024
"""Decompressed bytes: a small file can contain a huge amount of empty data."""


class SheetTable(WholeRows):
    """One sheet."""

    def __init__(self, path: Path, file: str, options: TableOptions) -> None:
        super().__init__(path, file, MAX_PACKED)
        self._options = options
        self._sheet = ""
        self.columns: tuple[str, ...] = ()
        # Read up to the first row, to know the header. The iterator is reused: opening the file again would decompress all its texts again.
        rows = self._read(path, options)
        first = next(rows, None)
        self._open_rows: Iterator[Row] | None = iter(()) if first is None else itertools.chain([first], rows)

    def rows(self) -> Iterator[Row]:
        """Yield every row below the header."""
        rows, self._open_rows = self._open_rows, None
        return rows if rows is not None else self._read(self._path, self._options)

    def _read(self, path: Path, options: TableOptions) -> Iterator[Row]:
        workbook = _load(path, self.file)
        try:
            names: list[str] = list(workbook.sheetnames)
            self._sheet = options.sheet or names[0]
            if self._sheet not in names:
                near = suggest_one(self._sheet, names)
                raise refuse_at(self.file, None, f"there is no sheet {self._sheet!r}{near}; the file has {', '.join(map(repr, names))}")
            count, has_header = 0, False
            for number, cells in enumerate(self._list_rows(workbook[self._sheet]), 1):
                values = [self._read_cell(cell, number) for cell in cells]
                if not any(value not in ("", None) for value in values):
                    continue
                if not has_header:
                    self.columns, has_header = self._read_header(values, number), True
                    continue
                if options.limit is not None and count >= options.limit:
                    return
                count += 1
                if count > MAX_ROWS:
                    raise refuse_more_rows(self.file, number)
                yield self._make_row(values, number)
        finally:
            # A workbook that is read row by row keeps its file open until it is closed.
            workbook.close()
        if not has_header:
            raise refuse_at(self.file, None, f"the sheet {self._sheet!r} is empty; its first row is to name the columns")

    def _list_rows(self, sheet: Any) -> Iterator[Any]:
        """Yield the cells of each row. Raises `InputError` if the file is damaged further down."""
        try:
            yield from sheet.iter_rows()
        except (
            zipfile.BadZipFile,
            zlib.error,
            SyntaxError,
            LookupError,
            ValueError,
            TypeError,
        ) as error:  # a parser's error is a syntax error
            message = f"this Excel file cannot be read further: {error}"
            raise refuse_at(self.file, None, message, hint="save it again as .xlsx or .csv") from error

    def _read_cell(self, cell: Any, number: int) -> Json:
        if cell.value is None:
            return ""
        if cell.data_type == "e":
            raise self._refuse(number, f"the cell {cell.coordinate} shows the error {cell.value}")
        try:
            value = make_json(cell.value)
        except ValueError as error:
            raise self._refuse(number, f"the cell {cell.coordinate}: {error}") from None
        if isinstance(value, str) and len(value) > MAX_FIELD:
            raise self._refuse(number, f"the cell {cell.coordinate} has {len(value):,} characters; the limit is {MAX_FIELD:,}")
        return value

    def _read_header(self, values: list[Json], number: int) -> tuple[str, ...]:
        # Cells after the last name are empty cells with formatting.
        while values and values[-1] == "":
            values = values[:-1]
        names = tuple(str(value).strip() for value in values)
        check_names(names, lambda message: self._refuse(number, message))
        return names

    def _make_row(self, values: list[Json], number: int) -> Row:
        if any(value != "" for value in values[len(self.columns) :]):
            raise self._refuse(number, f"a value after the last column, {self.columns[-1]!r}")
        # A sheet may omit empty cells at the end of a row, or have some after the last column.
        padded = [*values, *[""] * (len(self.columns) - len(values))]
        return Row(dict(zip(self.columns, padded, strict=False)), Origin(file=self.file, line=number, path=self._name_place(number)))

    def _name_place(self, number: int) -> str:
        return f"sheet {self._sheet!r}, row {number}"

    def _refuse(self, number: int, message: str) -> InputError:
        return refuse_at(self.file, number, message, code="bad_cell", path=self._name_place(number))


def _load(path: Path, file: str) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            # The sizes in the archive are reliable: `zipfile` does not read more of an entry than stated there.
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MAX_UNPACKED:
            message = f"{unpacked / 2**20:,.0f} MB when unpacked; the limit is {MAX_UNPACKED // 2**20} MB"
            raise refuse_at(file, None, message, hint="save it as .csv", code="too_large")
        return load_workbook(path)
    except ImportError as error:
        raise MissingExtra("Reading Excel files", "data") from error
    except (zipfile.BadZipFile, zlib.error, SyntaxError, KeyError, ValueError, OSError) as error:
        raise refuse_at(
            file, None, f"no Excel file that can be read: {error}", hint="an old .xls is saved as .xlsx or .csv first"
        ) from error
