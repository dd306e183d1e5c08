"""The folder of a batch: its manifest, the suites it was decided by, and one Parquet file for each partition.

    manifest.json             the plan: data set, suite, and every partition with the state of its file
    suites/DIGEST/            the suite as the workers read it
    spans/part-ID.N.spill     the spans of a partition on the way to their shares; gone when the batch is finished
    results/part-ID.parquet   one row for every trace and case; its footer names the suite and holds the sketch
    errors/part-ID.parquet    one row for each part that could not be read; only if there are any
    judged/part-ID.parquet    the judged sample, with its verdicts
    index.json                the sum of all footers, so that they are read once
    judged.json               the result of the sample; written when all of it is judged
    judge/                    replies of the judge, so that it is called once

A partition is committed when its file in `results` has its name. `errors` is written before that, and files without a committed
result are deleted by the next batch.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from proctor.actions.workspace.run_history import write_stored_suite
from proctor.batches.output_store import State, open_output, write_bytes
from proctor.batches.sketch import Sketch
from proctor.batches.suite_identity import SuiteIdentity
from proctor.checks.registry import Registry
from proctor.errors import InputError
from proctor.formats.suites import read_suite
from proctor.model.case import Suite
from proctor.model.typed import decode_json
from proctor.sources.datasets.files import import_arrow
from proctor.sources.datasets.plan import Partition
from proctor.sources.tables.open import DataFiles
from proctor.store.files.run_files import CASES

FORMAT = "proctor.batch/2"
MANIFEST = "manifest.json"
_SUITE = b"proctor.suite"
_SKETCH = b"proctor.sketch"
_PARTITION = b"proctor.partition"
_SUITE_FILE = "suite.yaml"
JUDGED = "judged"
JUDGED_TALLY = "judged.json"
_INDEX = "index.json"
_AT_ONCE = 32
"""Footers that are read at the same time: in an object store each takes two requests."""
_ROUND = 2_048
"""Footers that are buffered before they are merged."""


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the data set is read, the same for all results of a folder."""

    places: tuple[str, ...]
    """Files, folders, patterns and addresses of the data set."""
    column: str | None = None
    """The column of Parquet files that holds the record."""
    evidence_format: str | None = None
    where: str | None = None
    """Which rows are read, as in `--where`."""
    by: tuple[tuple[str, ...], ...] = ()
    """The tables of the summary besides the day, each by one or more names."""
    carry: tuple[str, ...] = ()
    """Columns and keys that are copied to `results`."""
    limit: int | None = None
    """Records that are read at most, from the beginning of the data set."""
    sample: float | None = None
    """The share of records that is read, chosen by a digest of their places."""
    now: str | None = None
    """The clock of every expression."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a batch."""

    format: str = FORMAT
    version: str
    """The version of proctor: another one may decide differently."""
    reading: Reading
    suite: SuiteIdentity
    suites: dict[str, SuiteIdentity]
    """Every suite that may have committed results, by its digest."""
    started_at: str
    finished: bool = False
    partition_bytes: int
    partitions: tuple[Partition, ...] = ()
    """Partitions that are decided and committed."""
    sources: tuple[Partition, ...] = ()
    """Partitions of spans that are only gathered; their traces are decided in shares, which are among `partitions`."""
    shares: int = 0
    ruled_out: int = 0
    """Files that `--where` excludes by the keys of their folders."""
    warnings: tuple[str, ...] = ()
    """Files in the folders of the data set that are not read."""
    judged: bool = False
    """Whether the suite has claims for a judge, which is called when everything else is decided."""


class Footer(msgspec.Struct, frozen=True):
    """The metadata of a committed result."""

    suite: str
    sketch: Sketch


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of the footers of the first partitions of a plan."""

    suite: str
    results: dict[str, tuple[State, bool]] = {}
    """By the id of a partition, in the order of the plan: the state of its file, and whether it has errors."""
    sketch: Sketch = msgspec.field(default_factory=Sketch)


class OutputFolder:
    """The folder that a batch writes to, of this machine or of an object store."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.store = open_output(path)

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Lock the folder. Raises `InputError` if another batch is running."""
        return self.store.lock()

    def read_manifest(self) -> Manifest | None:
        """Return the plan of the folder, or None if it is empty. Raises `InputError` if it is not a batch."""
        place = f"{self.path}/{MANIFEST}"
        try:
            data = self.store.read(MANIFEST)
            if data is None:
                is_file = isinstance(self.path, Path) and self.path.is_file()
                # Hidden names do not count: the lock file already exists when the manifest is read.
                if is_file or any(not name.startswith(".") for name in self.store.list()):
                    raise InputError(
                        f"{str(self.path)!r} is no output of a batch: it holds something else; name a new folder with --output"
                    )
                return None
            # The format field first: the manifest of another version may not fit `Manifest`, and would be reported as broken.
            format = decode_json(data, dict[str, Any]).get("format")
            if format != FORMAT:
                raise InputError(
                    f"{place}: written by another version ({format}; this one writes {FORMAT}); name a new folder with --output"
                )
            return decode_json(data, Manifest)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(f"{place}: cannot be read: {error}; name a new folder with --output") from error

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the plan atomically."""
        write_bytes(self.store, MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))

    def write_suite(self, suite: Suite, digest: str) -> None:
        """Store the suite for the workers."""
        folder = f"suites/{digest}"
        if self.store.exists(f"{folder}/{_SUITE_FILE}"):
            return
        stored = write_stored_suite(suite)
        try:
            if stored.lines is not None:
                part = self.store.begin(f"{folder}/{CASES}")
                with part.open("wb") as file:
                    file.writelines(stored.iterate_lines())
                self.store.put(part, f"{folder}/{CASES}")
            # The text last: its presence marks a complete suite, so that an incomplete one is written again.
            write_bytes(self.store, f"{folder}/{_SUITE_FILE}", stored.text.encode())
        finally:
            stored.close()

    def read_suite(self, digest: str, registry: Registry) -> Suite:
        """Return a suite that was stored here."""
        folder = self.path / "suites" / digest if isinstance(self.path, Path) else self._fetch_suite(digest)
        text = (folder / _SUITE_FILE).read_text(encoding="utf-8")
        return read_suite(text, dialect="native", registry=registry, source=DataFiles(folder))

    @functools.cached_property
    def _downloaded(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="proctor-suite-")

    def _fetch_suite(self, digest: str) -> Path:
        """Return a local folder with a suite of the store; cases may be read from it one by one."""
        local = Path(self._downloaded.name) / digest
        local.mkdir(exist_ok=True)
        for name in self.store.list(f"suites/{digest}"):
            (local / name).write_bytes(self.store.read(f"suites/{digest}/{name}") or b"")
        return local

    def read_result(self, id: str, columns: Sequence[str] | None = None) -> Any:
        """Return the rows of a committed partition, with all columns or with these."""
        with self.store.open(name_result(id)) as file, import_arrow("pyarrow.parquet").ParquetFile(file) as opened:
            return opened.read(columns)

    def commit(self, part: Path, id: str, errors: Path | None) -> None:
        """Make a complete result the result of its partition; `errors` lists what could not be read, if anything."""
        if errors is None:
            # An earlier result of this partition may have had errors.
            self.store.delete(name_errors(id))
        else:
            self.store.put(errors, name_errors(id))
        # The result last, because it commits; a result with errors but without their file is invalid (`read_footer`).
        self.store.put(part, name_result(id))

    def list_spills(self) -> frozenset[str]:
        """Return the names of the spill files."""
        return frozenset(f"spans/{name}" for name in self.store.list("spans"))

    def sweep(self, manifest: Manifest) -> None:
        """Delete files that no partition of the plan has committed: results of deleted or changed files, parts of killed workers."""
        planned = {name_result(partition.id).rpartition("/")[2] for partition in manifest.partitions}
        # The names in `results` count for both folders: errors without a committed result are deleted as well.
        committed = planned.intersection(self.store.list("results"))
        for folder in ("results", "errors"):
            for name in self.store.list(folder):
                # Anywhere in the name: parts of killed workers are hidden, `.part-ID.parquet.TOKEN.tmp`. Foreign files stay.
                if "part-" in name and name not in committed:
                    self.store.delete(f"{folder}/{name}")
        for name in self.store.list("suites"):
            if name not in manifest.suites:
                self.store.delete(f"suites/{name}")
        self._sweep_spans(manifest)

    def _sweep_spans(self, manifest: Manifest) -> None:
        """Delete spill files of deleted or changed files, and all of them when the batch is finished."""
        # The name contains the number of shares: spans sorted into another number of shares cannot be used.
        valid_names = frozenset(name_spill(source.id, manifest.shares) for source in manifest.sources if not manifest.finished)
        for name in self.list_spills() - valid_names:
            self.store.delete(name)
        if not valid_names:
            self.store.delete("spans")

    def read_footers(self, partitions: Sequence[Partition]) -> Iterator[Footer | None]:
        """Yield what `read_footer` returns for each partition, in order, with several concurrent reads."""
        with_errors = frozenset(self.store.list("errors"))
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for start in range(0, len(partitions), _ROUND):
                some = (partition.id for partition in partitions[start : start + _ROUND])
                yield from threads.map(lambda id: self.read_footer(id, with_errors), some)

    def sum_footers(self, manifest: Manifest) -> Index:
        """Return the sum of all results of the manifest's suite; footers in the stored index are not read again."""
        digest, cases = manifest.suite.digest, len(manifest.suite.cases)
        index = self.read_index()
        known = {} if index is None else index.results
        # Only a prefix of the plan: samples and the order of reasons depend on the order of summation.
        if index is None or index.suite != digest or list(known) != [partition.id for partition in manifest.partitions[: len(known)]]:
            index = Index(suite=digest)
        states = self.store.list_states("results")
        rest = manifest.partitions[len(index.results) :]
        for partition, footer in zip(rest, self.read_footers(rest), strict=True):
            if footer is not None and footer.suite == digest:
                index.results[partition.id] = (states.get(f"part-{partition.id}.parquet", (0, 0)), footer.sketch.errors > 0)
                index.sketch.merge(footer.sketch, cases)
        return index

    def read_index(self) -> Index | None:
        """Return the stored index; None if there is none, or a result file has changed since."""
        data = self.store.read(_INDEX)
        try:
            index = decode_json(data or b"", Index)
        except msgspec.MsgspecError:
            return None
        states, with_errors = self.store.list_states("results"), self.store.list_states("errors")
        files = ((f"part-{id}.parquet", state, has_errors) for id, (state, has_errors) in index.results.items())
        is_stale = any(states.get(name) != state or (has_errors and name not in with_errors) for name, state, has_errors in files)
        return None if is_stale else index

    def write_index(self, index: Index | None) -> None:
        """Store the sum of all footers, or delete it."""
        if index is None:
            self.store.delete(_INDEX)
        else:
            write_bytes(self.store, _INDEX, msgspec.json.encode(index))

    def read_footer(self, id: str, with_errors: frozenset[str] | None = None) -> Footer | None:
        """Return the metadata of the committed result of a partition; None if there is none, or it is unreadable.

        `with_errors` are the names of the files in `errors`, if already listed.
        """
        try:
            with self.store.open(name_result(id)) as file:
                metadata = import_arrow("pyarrow.parquet").read_metadata(file).metadata or {}
            footer = Footer(metadata[_SUITE].decode(), decode_json(metadata[_SKETCH], Sketch))
            # Another result may have been copied over it, and its file of errors may be missing.
            has_errors = self.store.exists(name_errors(id)) if with_errors is None else f"part-{id}.parquet" in with_errors
            return footer if metadata[_PARTITION] == id.encode() and (has_errors or not footer.sketch.errors) else None
        except (OSError, ValueError, KeyError):
            # Missing, or truncated by a disk failure: evaluated again.
            return None

    def list_foreign(self, manifest: Manifest) -> list[str]:
        """Return the files among results and errors that belong to no partition: other readers of the folder would see them."""
        planned = {name_result(partition.id).rpartition("/")[2] for partition in manifest.partitions}
        return [
            f"{folder}/{name}"
            for folder in ("results", "errors")
            for name in self.store.list(folder)
            if name not in planned and not name.startswith(".")
        ]


def make_metadata(id: str, suite: str, sketch: Sketch) -> dict[bytes, bytes]:
    """Return the metadata of the result of a partition."""
    return {_PARTITION: id.encode(), _SUITE: suite.encode(), _SKETCH: msgspec.json.encode(sketch)}


def name_spill(id: str, shares: int) -> str:
    """Return the name of the spill file of a partition."""
    return f"spans/part-{id}.{shares}.spill"


def name_result(id: str) -> str:
    """Return the name of the results of a partition."""
    return f"results/part-{id}.parquet"


def name_errors(id: str) -> str:
    """Return the name of the errors of a partition."""
    return f"errors/part-{id}.parquet"


def name_judged(id: str) -> str:
    """Return the name of the judged sample of a partition."""
    return f"{JUDGED}/part-{id}.parquet"
