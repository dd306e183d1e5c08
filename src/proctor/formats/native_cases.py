"""The `cases` of a native suite: written out, made from rows of data, and multiplied by a matrix.

cases:
- {id: by-hand, input: hello}
- from: refunds.csv
as:
input: "Where is order {order}?"
expect: {tool_called: {name: lookup_order, arguments: {id: "{order}"}}}
"""

from __future__ import annotations

from collections.abc import Sequence

from proctor.formats.located import Located, Reading
from proctor.formats.matrix import Variant, make_variant, read_matrix
from proctor.formats.native_ports import CaseReader, Shared
from proctor.formats.placeholders import LocatedTemplate
from proctor.formats.rows import DataSource
from proctor.model.case import Case
from proctor.model.lazy_cases import join_cases
from proctor.model.name_table import TakenNames

MOST_CASES = 1_000_000
"""Cases of one suite: as many as a run may have attempts."""


class CasesReader:
    """Reads all cases of a suite."""

    def __init__(self, reader: CaseReader, reading: Reading, shared: Shared, source: DataSource | None) -> None:
        self._reader = reader
        self._reading = reading
        self._shared = shared
        self._source = source
        self._variants: tuple[Variant, ...] = ()
        self._taken = TakenNames() if source is None else TakenNames(scratch=source)
        self._parts: list[Sequence[Case]] = []
        self._by_hand: list[Case] = []

    def read(self, listed: Located | None, matrix: Located | None) -> Sequence[Case]:
        """Return every case; a tuple, unless they are too many to hold."""
        self._variants = read_matrix(matrix, self._reading)
        for node, given_id in self._list_nodes(listed):
            if node.get("from") is not None:
                self._add_rows(node)
            else:
                self._add_case(node, given_id)
        self._close_by_hand()
        count = sum(len(part) for part in self._parts)
        if count > MOST_CASES and listed is not None:
            self._reading.error(listed, f"{count:,} cases; a suite has at most {MOST_CASES:,}", code="too_many_cases")
        return join_cases(self._parts)

    def _list_nodes(self, listed: Located | None) -> list[tuple[Located, str | None]]:
        if listed is None:
            return []
        if listed.is_object:
            # A case may have the id `from`, and is an object then.
            origin = listed.get("from")
            if origin is not None and not origin.is_object:
                return [(listed, None)]
            return [(node, key) for key, node in listed.members()]
        if self._reading.require_list(listed, "cases") is None:
            return []
        return [(node, None) for node in listed.items()]

    def _add_case(self, node: Located, given_id: str | None) -> None:
        if not self._variants:
            case = self._reader.read_case(node, given_id, self._taken, self._shared)
            if case is not None:
                self._by_hand.append(case)
                self._taken.add(case.id)
            return
        template = LocatedTemplate(node, only=frozenset(self._variants[0].values))
        filled = tuple(axis for axis in self._variants[0].values if axis in template.placeholders)
        before = len(self._reading.problems)
        base: str | None = None
        for variant in self._variants:
            # Only the first variant has to find its id free: the others have the same one until `make_variant` tells them apart.
            known = self._taken if base is None else TakenNames()
            case = self._reader.read_case(template.fill(variant.values), base or given_id, known, self._shared)
            if case is not None:
                base = case.id
                self._by_hand.append(make_variant(case, variant, filled))
        if base is not None:
            self._taken.add(base)
        # What is wrong with every variant is told once.
        self._reading.problems[before:] = dict.fromkeys(self._reading.problems[before:])

    def _add_rows(self, node: Located) -> None:
        # Reads tables and the test cases of promptfoo: a fifth of what a small suite needs to be checked, and few have data.
        from proctor.formats.native_rows import BLOCK_KEYS, RowReader, read_block

        self._reading.check_keys(node, BLOCK_KEYS, "cases from data")
        if self._source is None:
            self._reading.error_at_key(
                node,
                "from",
                "this suite lies in no file of yours, so it may not name files",
                hint="only a suite that is read from a file on disk takes cases from data",
                code="data_not_allowed",
            )
            return
        block = read_block(node, self._reading)
        if block is None:
            return
        # The cases that were written out above the data come before its rows: the order of the suite is kept.
        self._close_by_hand()
        rows = RowReader(self._reader, self._reading, self._shared, self._variants, self._taken)
        self._parts.extend(rows.read_files(block, self._source))

    def _close_by_hand(self) -> None:
        if self._by_hand:
            self._parts.append(tuple(self._by_hand))
            self._by_hand = []
