"""Cases from rows of data: `{from: cases.csv, as: {...}}`.

`as` is a case in which `{column}` is replaced by the value of a column (`placeholders.py`). Claims without a placeholder are read once and
shared by every row. Without `as`, the columns determine the format: test cases of promptfoo (`promptfoo_rows.py`), or native cases, where
every column is a key of a case.

A row's case has the id from `as`, else from its column `id`, else the name of the file with the number of the row. Problems are reported
at the line of the row. Up to `HELD` cases of a file are in memory, or as many as the data source allows; of more, the rows are spooled and
a case is created on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proctor.errors import InputError, SpecError
from proctor.expressions.text_form import write_text_form
from proctor.formats.native.cases import CASE_KEYS, CaseReader
from proctor.formats.native.drafting import make_default_label
from proctor.formats.native.matrix import Shared, Variant, make_variant
from proctor.formats.native.promptfoo_rows import PromptfooRows, is_promptfoo
from proctor.formats.text.located import Located, Reading, locate_value
from proctor.formats.text.placeholders import LocatedTemplate, make_filler
from proctor.formats.text.row_shapes import TYPES, DataSource, Row, RowShape, Spool, Table, TableOptions, convert_cells, learn_shape
from proctor.model.case import Assertion, Case, make_variant_id
from proctor.model.evidence import Json
from proctor.model.json_values import is_number
from proctor.model.lazy_cases import CaseTraits, LazySequence
from proctor.model.problem import Origin, Problem
from proctor.model.scratch import TakenNames
from proctor.model.show import count_rest, nearest, show
from proctor.model.typed import make_json_decoder, make_msgpack_decoder

# --- problems of the rows of one data file, where a hundred thousand rows may have the same fault

MOST_PROBLEMS = 100
"""Maximum number of errors, and of warnings, reported per file."""


class RowProblems:
    """The problems of the rows of one file: reading stops after the maximum of errors, and further warnings are only counted."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.left_out = 0
        """Warnings over the maximum."""
        self._counts = {"error": 0, "warning": 0}
        self._warned: set[tuple[str, str | None]] = set()

    def add(self, problems: Sequence[Problem]) -> bool:
        """Add the problems of one row; returns whether to continue with the next row."""
        for problem in problems:
            if problem.level == "warning":
                # A warning from the template is the same for every row, and reported once. Limited: if a message contains a value of its
                # row, every row would add another one.
                warning = (problem.message, problem.origin.path)
                if warning in self._warned:
                    continue
                if len(self._warned) < MOST_PROBLEMS:
                    self._warned.add(warning)
            self._counts[problem.level] += 1
            if self._counts[problem.level] <= MOST_PROBLEMS:
                self.problems.append(problem)
            elif problem.level == "warning":
                self.left_out += 1
            else:
                message = f"more than {MOST_PROBLEMS} problems; the rest of the file was not read"
                self.problems.append(Problem(message=message, origin=problem.origin, code="too_many_problems"))
                return False
        return True


# --- stores the cases of a data file in memory while they are few, and spools them when they are many

# --- a case as bytes, for cases that are read repeatedly: decoding one is far quicker than reading its row again

_UNLIKE = (TypeError, ValueError, OverflowError, RecursionError)
"""Exceptions for a value that cannot be encoded, or is decoded differently; `msgspec.ValidationError` is a `ValueError`."""


def _copy_type(kind: type[msgspec.Struct], **other: Any) -> Any:
    """Return a type with the same fields, some of them with another type."""
    return msgspec.defstruct(
        f"Stored{kind.__name__}", [(field.name, other.get(field.name, field.type)) for field in msgspec.structs.fields(kind)], kw_only=True
    )


class CaseBytes:
    """Encodes cases of one file as bytes, and decodes them."""

    def __init__(self) -> None:
        # The spec stays bytes at first: its type depends on the name of the check.
        claim = _copy_type(Assertion, spec=msgspec.Raw)
        # A simulated user has claims, too, and few files have one.
        self._decoder = make_msgpack_decoder(_copy_type(Case, assertions=tuple[claim, ...], user=None))
        self._specs: dict[str, msgspec.msgpack.Decoder[Any]] = {}
        """The decoder of a check's parameters, by its name."""

    def encode(self, case: Case) -> bytes | None:
        """Return a case as bytes; None if they would not decode to the same case."""
        try:
            for claim in case.assertions:
                if claim.check not in self._specs:
                    self._specs[claim.check] = make_msgpack_decoder(type(claim.spec))
            encoded = msgspec.msgpack.encode(case)
            decoded = self.decode(encoded)
            # Equal values may still be written differently: 1 and 1.0, or true and 1.
            return encoded if decoded == case and msgspec.msgpack.encode(decoded) == encoded else None
        except _UNLIKE:
            return None

    def decode(self, encoded: bytes) -> Case:
        """Return the case from its bytes."""
        fields = msgspec.structs.asdict(self._decoder.decode(encoded))
        stored = [(claim, msgspec.structs.asdict(claim)) for claim in fields["assertions"]]
        fields["assertions"] = tuple(
            Assertion(**{**members, "spec": self._specs[claim.check].decode(claim.spec)}) for claim, members in stored
        )
        return Case(**fields)


_ROW = make_json_decoder(Row)
_IS_ROW, _IS_CASE = b"r", b"c"
"""The prefixes of spooled pieces."""


class SpooledCases:
    """The cases read so far: in memory while they are few; then spooled, as rows if rebuilding them is as quick."""

    def __init__(self, maker: RowMaker, source: DataSource, most: int) -> None:
        """`most` is the maximum number of cases in memory."""
        self._maker, self._source, self._most = maker, source, most
        self._rows: list[tuple[Row, Sequence[Case]]] = []
        self._spool: Spool | None = None
        self._bytes = CaseBytes()
        self._traits = CaseTraits()
        self.count = 0

    def add(self, row: Row, cases: Sequence[Case]) -> None:
        """Add one row and its cases."""
        self.count += 1
        for case in cases:
            self._traits.note(case)
        if self._spool is not None:
            self._spool_row(self._spool, row, cases)
            return
        self._rows.append((row, cases))
        if self.count * self._maker.width > self._most:
            self._spool = self._source.make_spool()
            # Spool everything stored so far first, because a case is found by its position.
            for spooled_row in self._rows:
                self._spool_row(self._spool, *spooled_row)
            self._rows.clear()

    def _spool_row(self, spool: Spool, row: Row, cases: Sequence[Case]) -> None:
        # Every row takes one position per variant, even without cases: positions are computed, not stored.
        width, written = self._maker.width, None
        for number in range(width):
            # A row without cases has problems, and its cases are never requested.
            slow = len(cases) == width and not self._maker.is_quick(number)
            encoded = self._bytes.encode(cases[number]) if slow else None
            if encoded is not None:
                spool.append(_IS_CASE + encoded)
                continue
            written = msgspec.json.encode(row) if written is None else written
            spool.append(_IS_ROW + written)

    def finish(self) -> Sequence[Case]:
        """Return the cases of all rows."""
        if self._spool is None:
            return tuple(case for _, cases in self._rows for case in cases)
        spool = self._spool

        def make(index: int) -> Case:
            piece = spool.read(index)
            if piece.startswith(_IS_CASE):
                return self._bytes.decode(piece[1:])
            number, variant = divmod(index, self._maker.width)
            case = self._maker.make_case(_ROW.decode(piece[1:]), number, variant, None)
            assert case is not None, "a row that was read once can be read again"
            return case

        return LazySequence(self.count * self._maker.width, make, scratch=self._source, traits=self._traits)


BLOCK_KEYS = ("from", "as", "types", "prompt", "sheet", "split", "delimiter", "limit")
HELD = 5_000
"""The maximum number of cases of one file in memory."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The data section of a suite."""

    node: Located
    files: tuple[Located, ...]
    template: Located | None
    prompt: Located | None
    types: dict[str, str]
    options: TableOptions


def read_block(node: Located, reading: Reading) -> Block | None:
    """Return the settings of a block; None after a problem."""
    problem_count = len(reading.problems)
    origin = node.get("from")
    assert origin is not None
    files = list(origin.items()) if origin.is_list else [origin]
    for file in files:
        reading.require_text(file, "from")
    if not files:
        reading.error(origin, "from: expected the name of a file")
    template = reading.require_object(node.get("as"), "as")
    types: dict[str, str] = {}
    listed = reading.require_object(node.get("types"), "types")
    for column, member in listed.members() if listed is not None else ():
        kind = member.value
        if kind not in TYPES:
            close = nearest(str(kind), TYPES)
            reading.error(member, f"types: {show(member.plain(), 60)} is no type", expected="one of " + ", ".join(TYPES), nearest=close)
        types[column] = str(kind)
    delimiter = reading.require_text(node.get("delimiter"), "delimiter")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        reading.error(node.get("delimiter") or node, f"delimiter: expected one character, found {show(delimiter)}")
    options = TableOptions(
        sheet=reading.require_text(node.get("sheet"), "sheet"),
        split=reading.require_text(node.get("split"), "split"),
        delimiter=delimiter,
        limit=reading.require_integer(node.get("limit"), "limit", at_least=1),
    )
    prompt = node.get("prompt")
    reading.require_text(prompt, "prompt")
    if prompt is not None and template is not None:
        reading.error_at_key(node, "prompt", "`prompt` is for files of promptfoo; a case of `as` has its message in `input`")
    if reading.has_errors_since(problem_count):
        return None
    return Block(node=node, files=tuple(files), template=template, prompt=prompt, types=types, options=options)


class RowReading(Reading):
    """The reading of one row: its problems are located in the data file, at the line of the row."""

    def __init__(self, origin: Origin) -> None:
        super().__init__(file=origin.file, text="")
        self._origin = origin

    def origin(self, node: Located) -> Origin:
        """Return the place of the row, with the path into the template, or into the row if its file has paths."""
        path = node.path if self._origin.path == "$" else f"{self._origin.path}: {node.path}"
        return Origin(file=self._origin.file, line=self._origin.line, column=self._origin.column, path=path)

    def warn(self, node: Located, message: str, **more: Json) -> None:
        """Warn about a value, but report an empty one that makes a claim always pass: warnings about many rows go unread."""
        if more.get("code") == "vacuous_claim" and node.value in ("", None, [], {}):
            more["hint"] = "fill the cell; rows without a value can stand in a file of their own, under other claims"
            self.error(node, message, **more)
        else:
            super().warn(node, message, **more)

    def find_excerpt(self, line: int) -> str | None:
        """Return an empty text: the problem is not at the line of the suite."""
        return None


class RowMaker:
    """Builds the cases of one row."""

    def __init__(self, reader: CaseReader, shared: Shared, variants: Sequence[Variant], table: Table, block: Block) -> None:
        self._reader, self._shared, self._block, self._table = reader, shared, block, table
        self._variants = variants
        self._known: dict[int, Assertion | None] = {}
        self._template: LocatedTemplate | None = None
        self._promptfoo: PromptfooRows | None = None
        self._fill_id: Callable[[Mapping[str, Json]], Json] | None = None
        self._shapes: dict[int, RowShape | None] = {}
        """The shape learned from the first row, by the number of the variant."""
        self.renamed: dict[int, str] = {}
        """New ids of rows whose own id was taken, by the number of the row."""

    @property
    def width(self) -> int:
        """The number of cases per row."""
        return max(1, len(self._variants))

    def prepare(self, columns: tuple[str, ...], reading: Reading) -> bool:
        """Check the template once, with the columns of the file; returns whether it is valid."""
        problem_count = len(reading.problems)
        axes = tuple(self._variants[0].values) if self._variants else ()
        for axis in set(axes) & set(columns):
            reading.error(self._block.node, f"{axis!r} is an axis of the matrix and a column of {self._table.file}", code="bad_axis")
        for column in self._block.types:
            if self._table.columns is not None and column not in columns:
                self._report_unknown(self._block.node.get("types") or self._block.node, column, columns, reading)
        if self._block.template is not None:
            self._prepare_template(self._block.template, columns, axes, reading)
        elif is_promptfoo(columns):
            self._promptfoo = PromptfooRows(columns, self._block.prompt, axes, reading, self._block.node)
        elif not set(columns) <= set(CASE_KEYS):
            message = f"`as` is missing: it defines the case of a row; the columns of {self._table.file} are {_list_columns(columns)}"
            hint = 'for example: as: {input: "{' + (columns[0] if columns else "column") + '}"}'
            reading.error(self._block.node, message, hint=hint, code="missing_key")
        return not reading.has_errors_since(problem_count)

    def _prepare_template(self, node: Located, columns: tuple[str, ...], axes: tuple[str, ...], reading: Reading) -> None:
        try:
            self._template = LocatedTemplate(node)
        except SpecError as error:
            reading.report_spec_error(node, error)
            return
        if self._table.columns is not None:
            for name, place in self._template.placeholders.items():
                if name not in columns and name not in axes:
                    self._report_unknown(place, name, (*columns, *axes), reading)
            # `id` is read even if no text uses it: it names the case if `as` gives no id.
            self._table.choose_columns([*self._template.placeholders, *self._block.types, "id"])
        written = node.get("id")
        if written is not None:
            self._fill_id = make_filler(written) or (lambda values: written.value)
        # Read and reported once; the same nodes are in every filled tree.
        filled = self._template.fill(dict.fromkeys(self._template.placeholders, ""))
        for item, turn in _list_assertion_nodes(filled):
            if any(item is original for original, _ in _list_assertion_nodes(node)):
                self._known[id(item)] = self._reader.read_assertion(item, turn)

    def _report_unknown(self, place: Located, name: str, columns: tuple[str, ...], reading: Reading) -> None:
        reading.error(
            place,
            f"{self._table.file} has no column {name!r}",
            nearest=nearest(name, columns),
            expected="one of " + _list_columns(columns),
            hint="a literal brace is doubled: {{ and }}",
            code="unknown_column",
        )

    def is_quick(self, number: int) -> bool:
        """Return whether cases of a variant are built from their rows without a full read."""
        return self._shapes.get(number) is not None

    def make_row(self, row: Row, index: int, problems: list[Problem]) -> list[Case]:
        """Return every case of a row; problems are added."""
        cases = [self.make_case(row, index, number, problems) for number in range(self.width)]
        return [case for case in cases if case is not None]

    def make_case(self, row: Row, index: int, number: int, problems: list[Problem] | None) -> Case | None:
        """Return the case of a row for one combination of the matrix, by its number; None after a problem.

        Without `problems` the row was read before, and is not checked again.
        """
        variant = self._variants[number] if self._variants else None
        reading = RowReading(row.origin)
        values: dict[str, Json] = convert_cells(row.values, self._block.types, reading, self._block.node)
        if variant is not None:
            values |= variant.values
        case = None
        shape = self._shapes.get(number)
        names = self._template.placeholders if self._template is not None else ()
        has_all = self._table.columns is not None or all(name in values for name in names)
        if shape is not None and not reading.problems and has_all:
            written_id = self._fill_id(values) if self._fill_id is not None else values.get("id")
            name = self.renamed.get(index) or self._name_case(written_id, index)
            case = shape.make(name, values, row.origin, checked=problems is None)
        # Nothing was learned yet, or the shape does not fit this row: a full read also finds its problems.
        if case is None:
            case = self._read_case(row, index, values, number, reading)
            if problems is not None:
                problems.extend(reading.problems)
        if case is None or variant is None:
            return case
        used = self._template.placeholders if self._template is not None else self._promptfoo.used if self._promptfoo is not None else ()
        return make_variant(case, variant, [axis for axis in variant.values if axis in used])

    def _read_case(self, row: Row, index: int, values: dict[str, Json], number: int, reading: Reading) -> Case | None:
        """Read a row in full, and learn from it how other rows differ."""
        variant = self._variants[number] if self._variants else None
        node = self._build_node(values, variant, reading)
        if node is None:
            return None
        written = node.get("id")
        name = self.renamed.get(index) or self._name_case(values.get("id") if written is None else written.value, index)
        # Without taken names: `_claim_id` checks whether an id is free, and a row may be read more than once.
        case = self._reader.with_reading(reading, self._known).read_case(node, name, TakenNames(), self._shared)
        if case is None:
            return None
        case = msgspec.structs.replace(case, origin=row.origin)
        if self._template is not None and number not in self._shapes and not reading.problems:
            shared = {"tags": self._shared.tags, "context": self._shared.context}
            self._shapes[number] = learn_shape(self._template.node, case, shared, self._reader.registry, make_default_label)
        return case

    def _build_node(self, values: dict[str, Json], variant: Variant | None, reading: Reading) -> Located | None:
        if self._promptfoo is not None:
            return self._promptfoo.build_case(values, variant.values if variant is not None else {}, reading)
        if self._template is None:
            own = values if variant is None else {key: value for key, value in values.items() if key not in variant.values}
            place = msgspec.structs.replace(self._block.node, path="$")
            return locate_value({key: value for key, value in own.items() if value not in ("", None)}, place)
        for name, place in self._template.placeholders.items():
            if name not in values:
                self._report_unknown(place, name, tuple(values), reading)
        return None if reading.problems else self._template.fill(values)

    def _name_case(self, value: Json, index: int) -> str:
        """Return the id from the template or the row, else the name of the file with the number of the row."""
        name = write_text_form(value).strip() if isinstance(value, str) or is_number(value) else ""
        return name or f"{self._table.stem}-{index + 1}"


class RowReader:
    """Reads every row of every file of a block once, and returns their cases."""

    def __init__(self, reader: CaseReader, reading: Reading, shared: Shared, variants: Sequence[Variant], taken: TakenNames) -> None:
        self._reader, self._reading, self._shared, self._variants = reader, reading, shared, variants
        self._taken = taken

    def read_files(self, block: Block, source: DataSource) -> Iterator[Sequence[Case]]:
        """Yield the cases of each file."""
        for file in block.files:
            try:
                table = source.open(file.value, block.options)
                yield self._read_table(table, block, source)
            except InputError as error:
                if error.problems:
                    self._reading.problems.extend(error.problems)
                else:
                    self._reading.error(file, str(error), code="bad_data")

    def _read_table(self, table: Table, block: Block, source: DataSource) -> Sequence[Case]:
        maker = RowMaker(self._reader, self._shared, self._variants, table, block)
        cases_read = SpooledCases(maker, source, HELD if source.held is None else source.held)
        row_problems = RowProblems()
        problem_count = len(self._reading.problems)
        for index, row in enumerate(_peek(table, maker, self._reading)):
            problems: list[Problem] = []
            cases = maker.make_row(row, index, problems)
            if cases and not self._claim_id(cases[0], index, row, maker, problems):
                # Built again under the free id; the problems of the row are already known.
                cases = maker.make_row(row, index, [])
            if not row_problems.add(problems):
                break
            cases_read.add(row, cases)
        if not cases_read.count and not row_problems.problems and len(self._reading.problems) == problem_count:
            self._reading.warn(block.node, f"{table.file} has no rows, so it makes no cases", code="no_rows")
        self._reading.problems.extend(row_problems.problems)
        if row_problems.left_out:
            self._reading.warn(block.node, f"{row_problems.left_out:,} more warnings about rows of {table.file}", code="too_many_problems")
        return cases_read.finish()

    def _claim_id(self, case: Case, index: int, row: Row, maker: RowMaker, problems: list[Problem]) -> bool:
        """Return whether the id of a row is free; a taken id gets the number of its row, with a warning."""
        base = case.id if not self._variants else case.id[: -len(make_variant_id("", self._variants[0].names))]
        is_taken = base in self._taken
        if is_taken:
            free = f"{base}-row-{index + 1}"
            problems.append(
                Problem(
                    message=f"the case id {base!r} is taken; this row's case is called {free!r}",
                    origin=row.origin,
                    level="warning",
                    code="duplicate_id",
                    hint="every case of a suite has its own id: give `as` an `id` made of columns that are unique per row",
                )
            )
            maker.renamed[index] = base = free
        self._taken.add(base)
        return not is_taken


def _peek(table: Table, maker: RowMaker, reading: Reading) -> Iterator[Row]:
    """Yield the rows, after checking the template against the columns of the file or of its first row; none if it is invalid."""
    if table.columns is not None:
        if maker.prepare(table.columns, reading):
            yield from table.rows()
        return
    rows = table.rows()
    first = next(rows, None)
    if first is not None and maker.prepare(tuple(first.values), reading):
        yield first
        yield from rows


def _list_assertion_nodes(node: Located) -> list[tuple[Located, int | None]]:
    nodes: list[tuple[Located, int | None]] = []
    turns = node.get("turns")
    places = [(node, None), *((item, index) for index, item in enumerate(turns.items() if turns is not None else ()))]
    for place, turn in places:
        expect = place.get("expect")
        if expect is not None:
            nodes.extend((item, turn) for item in (expect.items() if expect.is_list else [expect]))
    return nodes


def _list_columns(columns: Sequence[str]) -> str:
    shown = ", ".join(columns[:30])
    return shown + count_rest(len(columns), 30) if columns else "none"
