"""Opens the data files that a suite names, each as a `Table` of rows.

A file must be in the folder of the suite or below it, also after following links; any other file is read only for a trusted suite. The name
decides how it is read: `.csv`, `.tsv`, `.jsonl`, `.ndjson`, `.json`, `.parquet`, `.xlsx`, or a folder that a data set of Hugging Face was
saved to. Every reader bounds what it reads, and reports the limit when it stops.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import InputError
from proctor.model.scratch import Code, Numbers, Texts
from proctor.model.show import show
from proctor.sources.texts import check_path

if TYPE_CHECKING:
    from proctor.formats.text.row_shapes import Spool, Table, TableOptions

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")
_OLD = {
    ".xls": "save it as .xlsx or .csv",
    ".ods": "save it as .xlsx or .csv",
    ".txt": "rename it to .csv or .tsv",
    ".arrow": "name the folder it was saved to",
    ".gz": "unpack it first",
    ".yaml": "a suite is named on the command line; cases that are written by hand stand under `cases`",
    ".yml": "a suite is named on the command line; cases that are written by hand stand under `cases`",
}


class DataFiles:
    """Opens files for one suite."""

    def __init__(self, folder: Path, *, trusted: bool = False, shown: Path | None = None, held: int | None = None) -> None:
        """`folder` is the suite's folder, `shown` is its name in messages, `held` is the maximum number of a file's cases in memory."""
        self._folder = folder
        self.held = held
        self._trusted = trusted
        self._shown = shown if shown is not None else folder
        self.opened: list[str] = []
        """The opened files, as messages show them."""

    def open(self, name: str, options: TableOptions) -> Table:
        """Open a file by its name in the suite; raises `InputError` if it may not or cannot be read."""
        path = self._locate(name)
        label = os.path.normpath(self._shown / name)
        self.opened.append(label)
        if path.is_dir():
            from proctor.sources.tables.hugging_face import open_folder  # needs an optional dependency

            return open_folder(path, label, options, self._check_inside)
        if not path.is_file():
            raise InputError(f"{label}: no such file or folder")
        match path.suffix.lower():
            case ".csv" | ".tsv":
                from proctor.sources.tables.text import CsvTable  # most suites name no files

                return CsvTable(path, label, options)
            case ".jsonl" | ".ndjson":
                from proctor.sources.tables.text import LinesTable  # most suites name no files

                return LinesTable(path, label, options)
            case ".json":
                from proctor.sources.tables.text import ListTable  # most suites name no files

                return ListTable(path, label, options)
            case ".parquet":
                from proctor.sources.tables.arrow import open_parquet  # needs an optional dependency

                return open_parquet([(path, label)], options)
            case ".xlsx":
                from proctor.sources.tables.excel import SheetTable  # needs an optional dependency

                return SheetTable(path, label, options)
            case suffix:
                hint = f"; {_OLD[suffix]}" if suffix in _OLD else ""
                raise InputError(f"{label}: no file of data that proctor reads ({', '.join(SUFFIXES)}, or a saved data set){hint}")

    def make_spool(self) -> Spool:
        """Return an empty spool in a temporary file."""
        from proctor.sources.scratch_files import FilePieces  # needed only for large files

        return FilePieces()

    def make_numbers(self, code: Code, count: int = 0) -> Numbers:
        """Return this many zeros in a temporary file, to which more numbers can be appended."""
        from proctor.sources.scratch_files import FileNumbers  # needed only for large files

        return FileNumbers(code, count)

    def make_texts(self) -> Texts:
        """Return an empty list of texts in a temporary file."""
        from proctor.sources.scratch_files import FileTexts  # needed only for large files

        return FileTexts()

    def _locate(self, name: str) -> Path:
        if not name.strip() or "\0" in name:
            raise InputError(f"{show(name)} is no name of a file")
        if "://" in name:
            raise InputError(f"{show(name)} is an address; nothing is fetched: download the file and name it")
        path = self._folder / name
        check_path(path)
        self._check_inside(path)
        return path

    def _check_inside(self, path: Path) -> None:
        """Reject a file outside the suite's folder, also if a link leads there."""
        if not self._trusted and not path.resolve().is_relative_to(self._folder.resolve()):
            raise InputError(
                f"{show(str(path))} is not in the folder of the suite, or is reached over a link that leads out of it; nothing was "
                "read. If you trust the author of the suite: --trust (PROCTOR_TRUST=1)"
            )
