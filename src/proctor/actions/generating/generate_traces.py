"""Proposes cases from recorded runs: files, or a stored run. Records are read one by one, and only what they have in common is stored."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from proctor.actions.checking.draft_case import read_existing_suite
from proctor.actions.generating.pending_file import find_pending_path, read_pending, read_rejections, write_pending
from proctor.checks.registry import default_registry
from proctor.errors import EvidenceError, InputError
from proctor.formats.native.text import build_native_document
from proctor.generation.proposals import Proposal, WriteCase, compare_with_suite
from proctor.generation.trace_cases import LEAST_RUNS, Generated, TraceGrouping
from proctor.generation.trace_paths import EffectNames
from proctor.model.case import Suite
from proctor.model.evidence import Json, Source
from proctor.report.words.wording import count_noun
from proctor.sources.records import Record, RecordReader, read_records
from proctor.store.files.run_files import RunFiles

_ROWS_AT_ONCE = 256
"""Rows of a Parquet file that are read together."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Proposals that were written, next to the suite they are for."""

    path: Path
    proposals: tuple[Proposal, ...]
    replaced: tuple[str, ...] = ()
    """Cases that were pending in the file and are not proposed again."""


def group_files(
    paths: Iterable[str], *, format: str | None = None, effects: EffectNames | None = None, least: int = LEAST_RUNS
) -> Generated:
    """Return the cases of recordings in files."""
    grouping = TraceGrouping(effects or EffectNames())
    places = list(paths)
    tables = {place: _list_parquet_files(Path(place)) for place in places}
    others = [place for place in places if not tables[place]]
    reader = RecordReader(format)
    rows = (record for place in places for path in tables[place] for record in _read_parquet(path, reader))
    unreadable = ""
    for record in itertools.chain(rows, reader.flush(), read_records(others, format=format)):
        source = record.source
        place = Path(source.file).name if source.file is not None else source.id or "the evidence"
        name = f"{place}:{source.line}" if source.line is not None else source.id or place
        if record.evidence is None:
            unreadable = unreadable or f"the record cannot be read (first {name}: {str(record.error).partition(chr(10))[0]})"
            grouping.skip(unreadable)
        else:
            grouping.add(record.evidence, name)
    return grouping.finish(least=least)


def _list_parquet_files(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(path for path in place.rglob("*.parquet") if not path.name.startswith("."))
    return [place] if place.suffix.lower() == ".parquet" and place.is_file() else []


def _read_parquet(path: Path, reader: RecordReader) -> Iterator[Record]:
    """Yield the records of a Parquet file; rows of spans are joined with those of other files."""
    # Needs pyarrow, which is an extra.
    from proctor.sources.datasets.columns import choose_columns, make_cells
    from proctor.sources.datasets.files import import_arrow

    source = Source(file=str(path))
    try:
        file = import_arrow("pyarrow.parquet").ParquetFile(path)
        columns = choose_columns(file.schema_arrow, None)
        line = 0
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns.list_read()):
            for cell in make_cells(batch, columns):
                line += 1
                row = Source(str(path), line)
                yield from reader.read_record(cell, row) if isinstance(cell, bytes) else [Record(None, row, cell)]
    except EvidenceError as error:
        yield Record(None, source, error)
    except (OSError, import_arrow("pyarrow").ArrowException) as error:
        yield Record(None, source, EvidenceError(f"cannot be read: {error}"))


def group_run(home: Path, run: str, *, effects: EffectNames | None = None, least: int = LEAST_RUNS) -> Generated:
    """Return the cases of a stored run."""
    grouping = TraceGrouping(effects or EffectNames())
    for entry in RunFiles(home).open(run).entries():
        if entry.evidence is None:
            grouping.skip("the attempt has no evidence")
        else:
            grouping.add(entry.evidence, f"{entry.case} #{entry.attempt + 1}")
    return grouping.finish(least=least)


def propose_cases(suite_path: Path, documents: Sequence[dict[str, Json]], notes: Sequence[str], *, output: Path | None = None) -> Written:
    """Write the cases that a suite lacks, or has otherwise, as proposals next to it. Rejected ones are left out."""
    if suite_path.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(f"{str(suite_path)!r}: expected a YAML file, because accepted cases are added to it line by line")
    existing = read_existing_suite(suite_path)
    suite = existing[1] if existing is not None else None
    rejected = {each.key for each in read_rejections(suite_path)}
    proposals = compare_with_suite(documents, suite, make_writer(suite), rejected)
    path = output or find_pending_path(suite_path)
    replaced: list[str] = []
    if documents and (proposals or path.exists()):
        known = {str(document["id"]) for document in documents}
        replaced = [str(case["id"]) for case in (read_pending(path)[0] if path.exists() else ()) if case["id"] not in known]
        write_pending(path, suite.name if suite is not None else suite_path.stem, [each.document for each in proposals], notes)
    return Written(path=path, proposals=tuple(proposals), replaced=tuple(replaced))


def make_writer(suite: Suite | None) -> WriteCase:
    """Return a function that writes a case of this suite in the native shape."""
    cases = build_native_document(suite, default_registry())["cases"] if suite is not None else []
    written = {case["id"]: case for case in cases}
    return lambda case: written[case.id]


def describe_rest(generated: Generated) -> list[str]:
    """Return lines about what did not become a case."""
    rare = [f"not proposed, {count_noun(runs, 'trace')}: {path}" for path, runs in generated.rare[:10]]
    return [*rare, *(f"not used, {count_noun(count, 'record')}: {why}" for why, count in generated.left_out.items())]
