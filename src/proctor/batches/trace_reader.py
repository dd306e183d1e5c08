"""Reads single traces of a partition again, by their places."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from proctor.batches.judged_sample import PlaceInFile
from proctor.batches.worker import Evaluator
from proctor.model.evidence import Evidence, Source
from proctor.sources.dataset_cells import read_cells
from proctor.sources.dataset_files import import_arrow, open_file
from proctor.sources.dataset_plan import Partition

_Key = tuple[int | None, int | None]
"""The row, or the byte where there is one."""


def read_traces(evaluator: Evaluator, partition: Partition, wanted: Collection[PlaceInFile]) -> dict[PlaceInFile, Evidence]:
    """Return the traces at these places, read as they were read before; one that is not there any more is missing."""
    if partition.file.kind == "spans":
        return _read_gathered(evaluator, partition, wanted)
    if partition.parts:
        names = {part.file.name: part for part in partition.parts}
        by_file = {name: [place for place in wanted if place.file == name] for name in dict.fromkeys(place.file for place in wanted)}
        return {place: trace for name in by_file for place, trace in read_traces(evaluator, names[name], by_file[name]).items()}
    places: dict[_Key, list[PlaceInFile]] = {}
    for place in wanted:
        places.setdefault((place.row if place.offset is None else None, place.offset), []).append(place)
    file = partition.file
    evaluator.reader.begin_file(Path(file.path) if file.kind == "lines" and not file.root else None)
    found: dict[PlaceInFile, Evidence] = {}
    for part in _narrow(partition, places):
        row = part.first_row
        for cells in read_cells(part, evaluator.settings.column, evaluator.choice):
            for number, record in enumerate(cells.records):
                row += 1
                offset = None if cells.offsets is None else cells.offsets[number]
                here = places.get((row if offset is None else None, offset))
                if here and isinstance(record, bytes):
                    traces = list(_read_record(evaluator, record, Source(file.name, row)))
                    found |= {place: trace for place in here if place.run < len(traces) and (trace := traces[place.run]) is not None}
            row += max(0, cells.lost - 1)
    return found


def _read_gathered(evaluator: Evaluator, partition: Partition, wanted: Collection[PlaceInFile]) -> dict[PlaceInFile, Evidence]:
    """Return traces of one share of the gathered spans, which are there until the batch is finished."""
    places = {place.trace: place for place in wanted}
    found: dict[PlaceInFile, Evidence] = {}
    for trace in evaluator.open_spills().read_share(partition.start, partition.end):
        place = places.get(trace.trace)
        if place is not None:
            # All spans are of one trace, so that there is one.
            (found[place],) = trace.read_evidence()
    return found


def _read_record(evaluator: Evaluator, record: bytes, source: Source) -> Iterator[Evidence | None]:
    plain = evaluator.reader.decode_plain(record)
    if plain is not None:
        yield plain
    else:
        yield from (one.evidence for one in evaluator.reader.read_record(record, source))


def _narrow(partition: Partition, places: Collection[_Key]) -> Iterator[Partition]:
    """Return the parts of a partition in which the places are: row groups, or lines; all of it where it can only be read as a whole."""
    file = partition.file
    if file.kind == "lines" and file.codec is None:
        for offset in sorted(offset for _, offset in places if offset is not None):
            yield msgspec.structs.replace(partition, start=offset, end=offset + 1)
    elif file.kind == "parquet":
        with open_file(file.root, file.path) as source, import_arrow("pyarrow.parquet").ParquetFile(source) as opened:
            sizes = [opened.metadata.row_group(group).num_rows for group in range(partition.start, partition.end)]
        first = partition.first_row
        for group, rows in enumerate(sizes, partition.start):
            if any(row is not None and first < row <= first + rows for row, _ in places):
                yield msgspec.structs.replace(partition, start=group, end=group + 1, first_row=first)
            first += rows
    else:
        yield partition
