"""Reads recorded runs from files, folders and streams: one record each, in order, a small block of them in memory at a time.

An unreadable record becomes a record with an error; the following ones are still read. Lines of a JSONL file are
bounded in length, so that a file without line breaks cannot fill the memory. OTLP requests are the exception to "one at a time":
a trace may be spread over several of them, so their spans wait in a window.
"""

import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import msgspec

from proctor.errors import EvidenceError, InputError
from proctor.evidence.plain.fast_lines import decode_unique_line, make_line_decoder
from proctor.evidence.reading import find_spans, read_bytes, read_document
from proctor.evidence.unknowns.account import declare_complete
from proctor.evidence.values.json_bytes import decode, split_documents
from proctor.model.account import MCPLAB_TRACE, PARTS, Account, Part
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.lazy_pattern import lazy_pattern
from proctor.model.mapping import DeclaredEvidence, EvidenceMap
from proctor.model.show import suggest
from proctor.model.typed import decode_json
from proctor.sources.span_lines import OTLP_WORDS, SPAN_FORMATS, may_hold_rows
from proctor.sources.texts import check_path

if TYPE_CHECKING:
    from proctor.evidence.otlp.spans import Span
    from proctor.sources.trace_window import OnTrace, TraceWindow
    from proctor.sources.workspaces import TraceResults


_WORD = lazy_pattern(rb"[\w.:-]+")
_SEARCHED_BYTES = 10_000
"""Bytes of a line that is not JSON that are searched for names of runs."""


class _Run(msgspec.Struct):
    """The lines of one run, and the positions of its first and its last one in the file."""

    source: Source
    lines: list[bytes]
    first: int
    last: int


class GroupedLines:
    """Lines of a file grouped by run; runs may be interleaved, so they are held until the file ends."""

    def __init__(self, paths: EvidenceMap) -> None:
        from proctor.evidence.mapping.read import compile_mapping  # most evidence needs no mapping

        self._paths, self._mapping = paths, compile_mapping(paths)
        self._runs: dict[str, _Run] = {}
        self._broken: list[tuple[int, frozenset[str], str]] = []
        """Lines that are not JSON: the position, the words, which may name a run, and the error."""
        self._count = 0

    def add(self, line: bytes, source: Source) -> None:
        """Add a line. Raises `EvidenceError` for a line that is not JSON or has no value of `group`."""
        self._count += 1
        try:
            value = decode(line)
        except EvidenceError as error:
            names = frozenset(word.decode(errors="replace") for word in _WORD.findall(line[:_SEARCHED_BYTES]))
            self._broken.append((self._count, names, f"line {source.line} cannot be read: {error.message}"))
            raise
        name = self._mapping.find_group(value)
        if name is None:
            raise EvidenceError(self._mapping.explain_no_group(value))
        run = self._runs.setdefault(name, _Run(Source(source.file, source.line, name), [], self._count, self._count))
        run.lines.append(line)
        run.last = self._count

    def read(self) -> Iterator[tuple[Evidence | EvidenceError, Source]]:
        """Yield and remove the runs in the order of their first lines, or the errors."""
        runs, broken, self._runs, self._broken = self._runs, self._broken, {}, []
        named = {name: why for _, words, why in broken for name in words & runs.keys()}
        # A line that names no run may belong to any run that continues after it.
        unnamed = [(place, why) for place, words, why in broken if words.isdisjoint(runs)]
        for name, run in runs.items():
            position = bisect_right(unnamed, (run.first, ""))
            is_inside = position < len(unnamed) and unnamed[position][0] < run.last
            lost = unnamed[position][1] if is_inside else named.get(name)
            try:
                for evidence in read_document([decode(line) for line in run.lines], mapping=self._paths):
                    yield evidence if lost is None else _mark_lost(evidence, lost), run.source
            except EvidenceError as error:
                yield error, run.source


def _mark_lost(evidence: Evidence, why: str) -> Evidence:
    """Return the evidence of a run with a lost line, which may have contained any part."""
    account = evidence.account or Account()
    unknown: dict[Part, str] = {**account.unknown, **dict.fromkeys(PARTS, why)}
    return msgspec.structs.replace(evidence, account=msgspec.structs.replace(account, unknown=unknown, overridable=(), seen_tools=()))


MAX_LINE_BYTES = 64 * 1024 * 1024
"""The longest line of a JSONL file: a file without line breaks must not fill the memory."""
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
"""The largest file that is read as one document."""
BLOCK_BYTES = 64 * 1024
"""Bytes of one read."""
LINE_SUFFIXES = (".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv")
BINARY_SUFFIXES = (".pb", ".binpb", ".otlp", ".protobuf")
# A file of lines is often called .json: the collector of OpenTelemetry does so.
DOCUMENT_SUFFIXES = (".json", *BINARY_SUFFIXES)
_SPANS_APART = (
    "it may hold a part of a trace, whose other parts may lie anywhere; name the format with --evidence-format (otlp, phoenix, ...), "
    "and they are put together"
)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One recorded run, or why it could not be read."""

    evidence: Evidence | None
    source: Source
    error: EvidenceError | None = None


class Blocks(Protocol):
    """A stream of bytes that returns available bytes, so that records of a slow writer are decided immediately."""

    def read1(self, size: int, /) -> bytes:
        """Return at most this many available bytes; empty at the end."""
        ...


def read_records(
    paths: Iterable[str],
    *,
    format: str | None = None,
    declared: DeclaredEvidence | None = None,
    on_trace: "OnTrace | None" = None,
    repeated_keys: bool = True,
) -> Iterator[Record]:
    """Yield every record under `paths`: files, folders, or `-` for standard input; `on_trace` receives the spans of each OTLP trace.

    `declared` is the mapping and the complete parts that the author declares. Without `repeated_keys`, lines of plain evidence are not
    searched for repeated keys.
    """
    if format is not None:
        require_format(format)
    reader = RecordReader(format, declared=declared, on_trace=on_trace, repeated_keys=repeated_keys)
    return chain.from_iterable(map(reader.complete_all, reader.read_paths(paths)))


def require_format(name: str) -> None:
    """Raise `InputError` for an unknown format, once instead of for every record."""
    from proctor.evidence.recognise import FORMATS  # loads every reader; most runs recognise plain evidence without them

    if name not in FORMATS:
        hint = suggest(name, FORMATS)
        raise InputError(f"unknown evidence format {name!r}; expected one of {', '.join(FORMATS)}{hint}")


class RecordReader:
    """Reads records in one format, or recognised by their shape."""

    def __init__(
        self,
        format: str | None,
        *,
        declared: DeclaredEvidence | None = None,
        on_trace: "OnTrace | None" = None,
        repeated_keys: bool = True,
        holds_spans: bool = True,
    ) -> None:
        """Without `holds_spans`, OTLP requests are errors: a trace may be spread over several of them."""
        self._format = format
        self._declared = declared
        self._map = declared.map if declared is not None else None
        self._lines = GroupedLines(self._map) if self._map is not None and self._map.group is not None else None
        decode = make_line_decoder() if repeated_keys else decode_unique_line
        self.decode_plain: Callable[[bytes], Evidence | None] = decode if format is None and declared is None else _decode_nothing
        """Returns the evidence of a plain record, the usual form; None if `read_record` must decode it."""
        self._on_trace = on_trace
        self._holds_spans = holds_spans
        self._window: TraceWindow | None = None
        self._results: TraceResults | None = None
        self._path: Path | None = None

    def read_paths(self, paths: Iterable[str]) -> Iterator[Iterator[Record]]:
        """Yield the records of each path, and at the end those of traces that were still open."""
        for path in paths:
            if path != "-":
                yield self.read_path(Path(path))
                continue
            if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - it is, where the descriptor was closed
                raise InputError("cannot read standard input: it is closed")
            yield self.read_stream(sys.stdin.buffer, "<stdin>", whole=False)
        yield self.flush()

    def read_path(self, path: Path) -> Iterator[Record]:
        """Yield the records of a file or folder."""
        check_path(path)
        if path.is_dir():
            yield from self._read_folder(path)
            return
        if not path.exists():
            raise InputError(f"no evidence at {str(path)!r}: no such file or folder")
        try:
            file = path.open("rb", buffering=BLOCK_BYTES)
        except OSError as error:
            raise InputError(f"cannot open {str(path)!r}: {error.strerror}") from error
        suffix = path.suffix.lower()
        self.begin_file(path)
        with file:
            if suffix in TABLE_SUFFIXES:
                for values, source in iterate_rows(path):
                    yield from self.read_record(msgspec.json.encode(values), source)
                yield from self.end_lines()
            elif suffix in LINE_SUFFIXES:
                yield from self._read_lines(file, str(path))
            else:
                yield from self.read_stream(file, str(path), whole=suffix in BINARY_SUFFIXES)
        self.begin_file(None)

    def complete_all(self, records: Iterator[Record]) -> Iterator[Record]:
        """Return the records with the parts that are declared complete."""
        declared = self._declared
        if declared is None or not declared.complete:
            return records
        return (
            record
            if record.evidence is None
            else Record(declare_complete(record.evidence, declared.complete, declared.source), record.source)
            for record in records
        )

    def begin_file(self, path: Path | None) -> None:
        """Set the file of the next records; None for a source that is not a local file."""
        # `results.json` belongs to the traces of its own folder.
        self._path, self._results = path, None

    def _read_folder(self, folder: Path, *, inner: bool = False) -> Iterator[Record]:
        from proctor.sources.state_folder import is_state_folder, read_state_folder
        from proctor.sources.workspaces import is_trace_results  # not needed for a single file

        if is_state_folder(folder):
            yield from self._yield_records(lambda: [read_state_folder(folder)], str(folder))
            return
        has_results = False
        for entry in _list_entries(folder):
            has_results = True
            # MCPLab writes both files for one run: read as separate evidence, every attempt would count twice.
            if entry.name == "results.json" and is_trace_results(entry, MAX_DOCUMENT_BYTES):
                continue
            yield from self._read_folder(entry, inner=True) if entry.is_dir() else self.read_path(entry)
        if not has_results and not inner:
            raise InputError(
                f"nothing to read in {str(folder)!r}: expected files ending in {', '.join((*LINE_SUFFIXES, *DOCUMENT_SUFFIXES))}, "
                "or the folder form of evidence (evidence.json, fhir/, hl7/, portal.json, files/, voice/, x12/)"
            )

    def read_stream(self, file: BinaryIO, name: str, *, whole: bool) -> Iterator[Record]:
        """Yield the records of JSONL if the first line is a complete JSON value and more lines follow, else of one document."""
        first = file.readline(MAX_LINE_BYTES + 1)
        if not whole and _is_complete_json(first):
            # One complete value may be a document on one line; only a second one makes it a file of lines.
            second = file.readline(MAX_LINE_BYTES + 1)
            while second.isspace():
                second = file.readline(MAX_LINE_BYTES + 1)
            yield from self._read_lines(file, name, (first, second)) if second else self._read_document(first, name)
            return
        # One byte over the limit is enough to detect that it is too large.
        remaining = file.read(max(0, MAX_DOCUMENT_BYTES + 1 - len(first)))
        if len(first) + len(remaining) > MAX_DOCUMENT_BYTES:
            megabytes = MAX_DOCUMENT_BYTES // 2**20
            too_big = EvidenceError(f"larger than {megabytes} MB; split it, or write one JSON object per line", code="too_large")
            yield Record(None, Source(file=name), too_big)
            return
        yield from self._read_document(first + remaining, name)

    def _read_document(self, data: bytes, name: str) -> Iterator[Record]:
        try:
            spans = self.find_spans(data)
        except EvidenceError as error:
            if split_documents(data) is None:
                yield Record(None, Source(file=name), error)
                return
            spans = None
        if spans is not None:
            yield from self._hold_spans(spans, Source(file=name))
        else:
            yield from self._yield_records(lambda: read_bytes(data, format=self._format, mapping=self._map), name)

    def _read_lines(self, file: BinaryIO, name: str, first: Sequence[bytes] = ()) -> Iterator[Record]:
        """Yield the records of lines; `first` are lines that were already read."""
        decode = self.decode_plain
        # A buffered `readline` returns a line as soon as it is complete, so records of a slow writer are decided as they arrive.
        for number, line in enumerate(chain(first, iter(partial(file.readline, MAX_LINE_BYTES + 1), b"")), 1):
            if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                while (rest := file.readline(BLOCK_BYTES)) and not rest.endswith(b"\n"):
                    pass
                error = EvidenceError(f"a line longer than {MAX_LINE_BYTES // 2**20} MB", code="line_too_long")
                yield Record(None, Source(name, number), error)
            elif (evidence := decode(line)) is not None:
                yield Record(evidence, Source(name, number))
            elif not line.isspace():
                yield from self.read_record(line.removesuffix(b"\n"), Source(name, number))
        yield from self.end_lines()

    def read_record(self, line: bytes, source: Source) -> Iterator[Record]:
        """Yield the runs of one record (a line of a file, or a row); lines that a mapping groups follow with `end_lines`."""
        try:
            if self._lines is not None:
                self._lines.add(line, source)
                return
            spans = self.find_spans(line)
            if spans is not None:
                yield from self._hold_spans(spans, source)
                return
            pieces_of_evidence = read_bytes(line, format=self._format, mapping=self._map)
        except EvidenceError as error:
            yield Record(None, source, error)
            return
        for evidence in pieces_of_evidence:
            yield Record(evidence if evidence.account is None else self._complete_evidence(evidence), source)

    @property
    def groups_lines(self) -> bool:
        """Whether a mapping groups lines, which are returned by `end_lines`."""
        return self._lines is not None

    def end_lines(self) -> Iterator[Record]:
        """Yield the runs of grouped lines; call it at the end of each file."""
        for evidence, source in self._lines.read() if self._lines is not None else ():
            yield Record(evidence, source) if isinstance(evidence, Evidence) else Record(None, source, evidence)

    def _complete_evidence(self, evidence: Evidence) -> Evidence:
        """Return the evidence of an MCPLab trace, completed from the `results.json` next to its file."""
        if self._path is None or evidence.account is None or evidence.account.reader != MCPLAB_TRACE:
            return evidence
        if self._results is None:
            from proctor.sources.workspaces import TraceResults  # needed only for an MCPLab trace

            self._results = TraceResults(self._path, MAX_DOCUMENT_BYTES)
        return self._results.complete(evidence)

    def find_spans(self, data: bytes) -> "list[Span] | None":
        """Return the spans of an OTLP request or a row, possibly a part of a trace; None for others. Raises `EvidenceError`."""
        if self._map is not None or (self._format is not None and self._format not in SPAN_FORMATS):
            return None
        if self._format not in (None, "otlp") or (self._format is None and may_hold_rows(data)):
            return find_spans(decode(data), format=self._format)
        # Searching for four words is far cheaper than decoding; `find_spans` decides.
        if any(word in data for word in OTLP_WORDS):
            return find_spans(decode(data))
        if data[:1] == b"\n" and data.lstrip()[:1] not in (b"{", b"["):
            # The first byte of protobuf (field 1) is a line break in JSON.
            from proctor.evidence.otlp.protobuf import read_traces_or_logs  # needed only for binary traces

            try:
                return read_traces_or_logs(data) or None
            except EvidenceError:
                # Bytes that only begin like protobuf; reading them as a document reports the error.
                return None
        return None

    def _hold_spans(self, spans: "list[Span]", source: Source) -> Iterator[Record]:
        if not self._holds_spans:
            yield Record(None, source, EvidenceError(_SPANS_APART, code="spans_apart"))
            return
        if self._window is None:
            from proctor.sources.trace_window import TraceWindow  # needed only for traces in pieces

            self._window = TraceWindow(on_trace=self._on_trace)
        for evidence, place in self._window.add(spans, source):
            yield Record(evidence, place)

    def flush(self) -> Iterator[Record]:
        """Yield the traces that were waiting for more spans."""
        if self._window is not None:
            for evidence, place in self._window.finish():
                yield Record(evidence, place)

    def _yield_records(self, read: Callable[[], list[Evidence]], name: str) -> Iterator[Record]:
        source = Source(file=name)
        try:
            pieces_of_evidence = read()
        except EvidenceError as error:
            yield Record(None, source, error)
            return
        except OSError as error:
            yield Record(None, source, EvidenceError(f"cannot be read: {os.strerror(error.errno or 0)}"))
            return
        for evidence in pieces_of_evidence:
            yield Record(evidence, source)


def iterate_rows(path: Path) -> Iterator[tuple[dict[str, Json], Source]]:
    """Yield the rows of a CSV file as objects of texts. Raises `InputError` for a broken file, whose further rows would be missing."""
    from proctor.formats.text.row_shapes import TableOptions  # most evidence is JSON
    from proctor.sources.tables.text import CsvTable  # most evidence is JSON

    with path.open("rb") as file:
        header = file.readline(BLOCK_BYTES)
    # Excel writes semicolons in countries with a decimal comma.
    separator = ";" if path.suffix.lower() == ".csv" and header.count(b";") > header.count(b",") else None
    for row in CsvTable(path, str(path), TableOptions(delimiter=separator)).rows():
        yield row.values, Source(str(path), row.origin.line)


def _decode_nothing(line: bytes) -> Evidence | None:
    return None


def _list_entries(folder: Path) -> Iterator[Path]:
    """Yield the folders and evidence files in a folder, in order, without pipes and links to folders, which may form a cycle."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        evidence = entry.suffix.lower() in (*LINE_SUFFIXES, *DOCUMENT_SUFFIXES)
        if (entry.is_dir() and not entry.is_symlink()) or (evidence and entry.is_file()):
            yield entry


def iterate_whole_lines(file: Blocks) -> Iterator[bytes | None]:
    """Yield a file in blocks of complete lines, each ending in a line break; None for a line that is too long.

    Splitting blocks into lines is much faster than reading single lines.
    """
    # Pieces of an incomplete line: joined once, because adding to bytes copies all of them every time.
    pieces: list[bytes] = []
    length = 0
    too_long = False
    while block := file.read1(BLOCK_BYTES):
        if too_long:
            # Skip to its end without storing it.
            _, line_break, block = block.partition(b"\n")
            if not line_break:
                continue
            too_long = False
            yield None
        # Complete lines are yielded immediately, so that records of a slow writer are decided as they arrive.
        end = block.rfind(b"\n") + 1
        if end:
            pieces.append(block[:end])
            yield b"".join(pieces)
            pieces = [block[end:]]
            length = len(block) - end
        else:
            pieces.append(block)
            length += len(block)
        if length > MAX_LINE_BYTES:
            too_long = True
            pieces, length = [], 0
    if too_long:
        yield None
    elif length:
        # The last line may lack its line break, and callers split blocks at line breaks.
        yield b"".join(pieces) + b"\n"


def _is_complete_json(line: bytes) -> bool:
    stripped = line.strip()
    if not stripped.startswith((b"{", b"[")) or not stripped.endswith((b"}", b"]")):
        return False
    try:
        decode_json(stripped, msgspec.Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True
