"""Holds the cases of a file of data while they are few, and puts them aside when they are many.

Where a case is quickly made of its row, the row is put aside, which is shorter; else the case itself, as bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from proctor.formats.kept_cases import CaseBytes
from proctor.formats.rows import DataSource, Row, Spool
from proctor.model.case import Case
from proctor.model.case_traits import CaseTraits
from proctor.model.lazy_cases import LazySequence
from proctor.model.problem import Problem
from proctor.model.typed import make_json_decoder

_ROW = make_json_decoder(Row)
_IS_ROW, _IS_CASE = b"r", b"c"
"""With what a piece of a spool begins."""


class Maker(Protocol):
    """Makes the cases of one row."""

    @property
    def width(self) -> int:
        """How many cases a row makes."""
        ...

    def is_quick(self, number: int) -> bool:
        """Return whether cases of a variant are made of their rows without reading them in full."""
        ...

    def make_case(self, row: Row, index: int, number: int, problems: list[Problem] | None) -> Case | None:
        """Return the case of a row for one variant; without `problems` the row was read before."""
        ...


class HeldCases:
    """What was read: cases while they are few; when they are many, each is put aside, as its row where that is as quick."""

    def __init__(self, maker: Maker, source: DataSource, most: int) -> None:
        """`most` is how many cases are few."""
        self._maker, self._source, self._most = maker, source, most
        self._rows: list[tuple[Row, Sequence[Case]]] = []
        self._spool: Spool | None = None
        self._bytes = CaseBytes()
        self._traits = CaseTraits()
        self.count = 0

    def add(self, row: Row, cases: Sequence[Case]) -> None:
        """Take one more row, and what was made of it."""
        self.count += 1
        for case in cases:
            self._traits.note(case)
        if self._spool is not None:
            self._put_aside(self._spool, row, cases)
            return
        self._rows.append((row, cases))
        if self.count * self._maker.width > self._most:
            self._spool = self._source.make_spool()
            # All that was held so far goes first: a case is found again by its position.
            for held in self._rows:
                self._put_aside(self._spool, *held)
            self._rows.clear()

    def _put_aside(self, spool: Spool, row: Row, cases: Sequence[Case]) -> None:
        # Every row takes as many places as it has variants, also one that lacks cases: positions are computed, not kept.
        width, written = self._maker.width, None
        for number in range(width):
            # A row that lacks cases has problems, and nobody will ask for them.
            slow = len(cases) == width and not self._maker.is_quick(number)
            found = self._bytes.encode(cases[number]) if slow else None
            if found is not None:
                spool.append(_IS_CASE + found)
                continue
            written = msgspec.json.encode(row) if written is None else written
            spool.append(_IS_ROW + written)

    def finish(self) -> Sequence[Case]:
        """Return the cases of all rows."""
        if self._spool is None:
            return tuple(case for _, cases in self._rows for case in cases)
        spool = self._spool
        return LazySequence(
            self.count * self._maker.width,
            lambda index: self._make(spool.read(index), index),
            scratch=self._source,
            traits=self._traits,
        )

    def _make(self, piece: bytes, index: int) -> Case:
        if piece.startswith(_IS_CASE):
            return self._bytes.decode(piece[1:])
        number, variant = divmod(index, self._maker.width)
        case = self._maker.make_case(_ROW.decode(piece[1:]), number, variant, None)
        assert case is not None, "a row that was read once can be read again"
        return case
