"""The native format: a superset of the four dialects.

    proctor: 1
    name: Refund desk
    cases:
      - id: double-charge
        input: I was charged twice
        expect:
          - tool_called: {name: lookup_order, arguments: {id: 17}}
          - tools_in_order: [lookup_order, refund]
          - response_contains: refund processed
            weight: 2

An assertion is an object with one check name as a key; its value holds the fields of the check, or, where the check has a
shorthand, just that one. Other keys are `id`, `label`, `weight`, `axis`, `required`, `advisory`, `when_missing`, `depends_on`, `because`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proctor.checks.registry import Registry, default_registry
from proctor.formats.native.cases import CaseReader
from proctor.formats.native.declared_evidence import read_declared
from proctor.formats.native.matrix import Shared, Variant, make_variant, read_matrix
from proctor.formats.native.systems import read_systems
from proctor.formats.text.located import Located, Reading
from proctor.formats.text.placeholders import LocatedTemplate
from proctor.model.case import Case, Scoring, Suite
from proctor.model.lazy_cases import join_cases
from proctor.model.scratch import TakenNames
from proctor.model.show import show

if TYPE_CHECKING:
    from proctor.formats.text.row_shapes import DataSource

# --- the `cases` of a native suite: written out, built from rows of data, and multiplied by a matrix

MOST_CASES = 1_000_000
"""The maximum number of cases of one suite: the maximum number of attempts of a run."""


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
        """Return every case: a tuple, unless there are too many for memory."""
        self._variants = read_matrix(matrix, self._reading)
        for node, given_id in self._list_nodes(listed):
            if node.get("from") is not None:
                self._add_rows(node)
            else:
                self._add_case(node, given_id)
        self._flush_written_cases()
        count = sum(len(part) for part in self._parts)
        if count > MOST_CASES and listed is not None:
            self._reading.error(listed, f"{count:,} cases; a suite has at most {MOST_CASES:,}", code="too_many_cases")
        return join_cases(self._parts)

    def _list_nodes(self, listed: Located | None) -> list[tuple[Located, str | None]]:
        if listed is None:
            return []
        if listed.is_object:
            # A case may have the id `from`; then it is an object.
            origin = listed.get("from")
            if origin is not None and not origin.is_object:
                return [(listed, None)]
            return [(node, key) for key, node in listed.members()]
        return [(node, None) for node in self._reading.list_items(listed, "cases")]

    def _add_case(self, node: Located, given_id: str | None) -> None:
        if not self._variants:
            case = self._reader.read_case(node, given_id, self._taken, self._shared)
            if case is not None:
                self._by_hand.append(case)
                self._taken.add(case.id)
            return
        template = LocatedTemplate(node, only=frozenset(self._variants[0].values))
        filled = tuple(axis for axis in self._variants[0].values if axis in template.placeholders)
        problem_count = len(self._reading.problems)
        base: str | None = None
        for variant in self._variants:
            # Only the first variant needs a free id: the others share it until `make_variant` renames them.
            known = self._taken if base is None else TakenNames()
            case = self._reader.read_case(template.fill(variant.values), base or given_id, known, self._shared)
            if case is not None:
                base = case.id
                self._by_hand.append(make_variant(case, variant, filled))
        if base is not None:
            self._taken.add(base)
        # A problem of every variant is reported once.
        self._reading.problems[problem_count:] = dict.fromkeys(self._reading.problems[problem_count:])

    def _add_rows(self, node: Located) -> None:
        # Imports tables and the test cases of promptfoo: a fifth of the time to check a small suite, and few suites have data.
        from proctor.formats.native.rows import BLOCK_KEYS, RowReader, read_block

        self._reading.check_keys(node, BLOCK_KEYS, "cases from data")
        if self._source is None:
            message = "this suite lies in no file of yours, so it may not name files"
            hint = "only a suite that is read from a file on disk takes cases from data"
            self._reading.error_at_key(node, "from", message, hint=hint, code="data_not_allowed")
            return
        block = read_block(node, self._reading)
        if block is None:
            return
        # Cases written above the data come before its rows, to preserve the order of the suite.
        self._flush_written_cases()
        rows = RowReader(self._reader, self._reading, self._shared, self._variants, self._taken)
        self._parts.extend(rows.read_files(block, self._source))

    def _flush_written_cases(self) -> None:
        if self._by_hand:
            self._parts.append(tuple(self._by_hand))
            self._by_hand = []


VERSION = 1
"""The version of the native format that this release reads."""
SETTINGS_KEYS = ("targets", "default_target", "models", "judge")
SUITE_KEYS = (
    *("proctor", "name", "description", "context", "systems", "timezone", "scoring", "tags", "matrix", "evidence", "cases"),
    *(*SETTINGS_KEYS, "settings"),
)


def sniff(document: Located) -> bool:
    """Return whether the document has `proctor:` at the top."""
    return document.get("proctor") is not None


def read(document: Located, reading: Reading, *, name: str, registry: Registry | None = None, source: DataSource | None = None) -> Suite:
    """Read a native suite; `registry` has additional checks, `source` opens its data files."""
    reader = CaseReader(reading, registry or default_registry())
    reading.check_keys(document, SUITE_KEYS, "a suite")
    version = document.get("proctor")
    # `true` equals 1 in Python, but is not a version.
    if version is not None and (version.value is True or version.value != VERSION):
        reading.error(
            version, f"proctor: {show(version.plain())} is not a version of the format that this release reads", expected="proctor: 1"
        )
    shared = Shared(
        context=reader.read_object(document.get("context"), "context"),
        systems=read_systems(document.get("systems"), reading),
        timezone=reader.read_zone(document.get("timezone")),
        scoring=reader.read_scoring(document.get("scoring"), Scoring()),
        tags=reader.read_tags(document.get("tags")),
    )
    listed = reading.require_member(document, "cases", "a suite")
    cases = CasesReader(reader, reading, shared, source).read(listed, document.get("matrix"))
    settings = {key: member.plain() for key, member in document.members() if key in SETTINGS_KEYS}
    settings.update(reader.read_object(document.get("settings"), "settings"))
    return Suite(
        name=reading.require_text(document.get("name"), "name") or name,
        description=reading.require_text(document.get("description"), "description") or "",
        cases=cases,
        settings=settings,
        evidence=read_declared(document.get("evidence"), reading),
    )
