"""A data file of a suite: columns, and rows with their positions.

`sources/tables/open.py` opens the files and passes a `DataSource`. A suite without a file, or one that was sent to a service, has
none and may name no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from proctor.model.evidence import Json
from proctor.model.problem import Origin
from proctor.model.scratch import Scratch


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a data file."""

    values: dict[str, Json]
    """By column."""
    origin: Origin
    """The file, and the line on which the row begins; of a sheet or a Parquet file the number of the row."""


class TableOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a suite for reading a file."""

    sheet: str | None = None
    """The sheet of an Excel file; left out: the first."""
    split: str | None = None
    """The split of a data set; left out: the only one."""
    delimiter: str | None = None
    """What separates the fields of a CSV file; left out: a comma, of `.tsv` a tab."""
    limit: int | None = None
    """How many rows are taken; left out: all."""


class Table(Protocol):
    """A data file that is read row by row."""

    @property
    def file(self) -> str:
        """The path of the file, as messages show it."""
        ...

    @property
    def stem(self) -> str:
        """The name of the file without folder and ending."""
        ...

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns of every row; nothing where each row has its own keys."""
        ...

    def choose_columns(self, names: Sequence[str]) -> None:
        """Read only these columns, where the file allows that."""
        ...

    def rows(self) -> Iterator[Row]:
        """Yield every row from the first on; raises `InputError` where the file cannot be read on."""
        ...


class Spool(Protocol):
    """Pieces of bytes that are put aside, where there are too many to hold, and brought back one by one."""

    def append(self, piece: bytes) -> None:
        """Put one more piece aside."""
        ...

    def read(self, index: int) -> bytes:
        """Return a piece that was put aside, by its number from 0."""
        ...


class DataSource(Scratch, Protocol):
    """Opens the files that a suite names, and has a place for what is to be known of very many rows."""

    @property
    def held(self) -> int | None:
        """How many cases of one file are held in memory; None: as many as is usual."""
        ...

    def open(self, name: str, options: TableOptions) -> Table:
        """Open a file; raises `InputError` where it may not or cannot be read."""
        ...

    def make_spool(self) -> Spool:
        """Return an empty spool."""
        ...
