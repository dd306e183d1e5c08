"""The folder of a batch: its manifest, the suites it was decided by, one Parquet file for each partition, and the lock of who is at work.

    manifest.json             the plan: data set, suite, and every partition with the state of its file
    suites/DIGEST/            the suite as the workers read it
    results/part-ID.parquet   one row for every trace and case; its footer names the suite and holds the sketch
    errors/part-ID.parquet    one row for everything that could not be read; only where there was any
    judged/part-ID.parquet    the rows of the sample that a judge was asked about, with what it said
    judged.json               what came of the sample; written when all of it is judged
    judge/                    what the judge answered, so that it is asked once

A partition is committed when its file in `results` has its name. `errors` is written before that, and what belongs to no committed result
is swept away by the next batch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec

from proctor.actions.kept_suites import write_kept_suite
from proctor.batches.sketch import Sketch
from proctor.batches.suite_identity import SuiteIdentity
from proctor.checks.registry import Registry
from proctor.errors import InputError
from proctor.formats.suites import read_suite
from proctor.model.case import Suite
from proctor.model.typed import decode_json
from proctor.sources.dataset_files import import_arrow
from proctor.sources.dataset_plan import Partition
from proctor.sources.tables import DataFiles
from proctor.store.run_files import CASES

FORMAT = "proctor.batch/1"
MANIFEST = "manifest.json"
_SUITE = b"proctor.suite"
_SKETCH = b"proctor.sketch"


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the data set is read, which is the same for all results of a folder."""

    places: tuple[str, ...]
    column: str | None = None
    evidence_format: str | None = None
    where: str | None = None
    """Which rows are read."""
    by: tuple[tuple[str, ...], ...] = ()
    """By what the summary is sliced, beside the day."""
    now: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a batch."""

    format: str = FORMAT
    version: str
    """Of proctor: another one may decide otherwise."""
    reading: Reading
    suite: SuiteIdentity
    suites: dict[str, SuiteIdentity]
    """Every suite that a committed result may be of, by its digest."""
    started_at: str
    finished: bool = False
    partition_bytes: int
    partitions: tuple[Partition, ...] = ()


class Footer(msgspec.Struct, frozen=True):
    """What a committed result says of itself."""

    suite: str
    sketch: Sketch


class OutputFolder:
    """The folder that a batch writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results, self.errors, self._suites = path / "results", path / "errors", path / "suites"
        self._judged, self._judged_tally = path / "judged", path / "judged.json"

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Make the folder where it is not there, and keep other batches from it. Raises `InputError` where one is at work."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("a+")
        except OSError as error:
            raise InputError(f"cannot write to {str(self.path)!r}: {error.strerror}") from error
        with file:
            try:
                _lock_file(file)
            except OSError:
                raise InputError(
                    f"another batch is at work in {str(self.path)!r}; wait for it, or name another folder with --output"
                ) from None
            yield

    def read_manifest(self) -> Manifest | None:
        """Return the plan of the folder, or None where nothing is there. Raises `InputError` for anything else than a batch."""
        file = self.path / MANIFEST
        if not file.exists():
            if self.path.is_file() or (self.path.is_dir() and any(not entry.name.startswith(".") for entry in self.path.iterdir())):
                raise InputError(f"{str(self.path)!r} is no output of a batch: it holds something else; name a new folder with --output")
            return None
        try:
            data = file.read_bytes()
            told = decode_json(data, dict[str, Any]).get("format")
            if told != FORMAT:
                raise InputError(f"{file}: written by another version ({told}; this one writes {FORMAT}); name a new folder with --output")
            return decode_json(data, Manifest)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(f"{file}: cannot be read: {error}; name a new folder with --output") from error

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the plan, whole or not at all."""
        _write_whole(self.path / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))

    def write_suite(self, suite: Suite, digest: str) -> None:
        """Keep the suite for the workers."""
        folder = self._suites / digest
        if (folder / "suite.yaml").exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        kept = write_kept_suite(suite)
        try:
            if kept.lines is not None:
                with (folder / CASES).open("wb") as file:
                    file.writelines(kept.iterate_lines())
            _write_whole(folder / "suite.yaml", kept.text.encode())
        finally:
            kept.close()

    def read_suite(self, digest: str, registry: Registry) -> Suite:
        """Return a suite that was kept here."""
        folder = self._suites / digest
        text = (folder / "suite.yaml").read_text(encoding="utf-8")
        return read_suite(text, dialect="native", registry=registry, source=DataFiles(folder))

    def find_result(self, id: str) -> Path:
        """Return where the result of a partition is, or would be."""
        return self.results / f"part-{id}.parquet"

    def name_part(self, id: str) -> Path:
        """Return where to write a result that is not whole yet."""
        self.results.mkdir(exist_ok=True)
        return self.results / f".part-{id}.{os.getpid()}.tmp"

    def name_error_part(self, id: str) -> Path:
        """Return where to write what could not be read while the result is not whole yet."""
        self.errors.mkdir(exist_ok=True)
        return self.errors / f".part-{id}.{os.getpid()}.tmp"

    def commit(self, part: Path, id: str, errors: Path | None) -> None:
        """Make a whole result the result of its partition; `errors` tells what could not be read, if anything."""
        beside = self.errors / f"part-{id}.parquet"
        if errors is None:
            beside.unlink(missing_ok=True)
        else:
            _force_to_disk(errors)
            errors.replace(beside)
        _force_to_disk(part)
        part.replace(self.find_result(id))

    def name_judged_part(self, id: str) -> Path:
        """Return where to write the sample of a partition that is not whole yet."""
        self._judged.mkdir(exist_ok=True)
        return self._judged / f".part-{id}.{os.getpid()}.tmp"

    def commit_judged(self, part: Path, id: str) -> None:
        """Make a whole sample that of its partition."""
        part.replace(self._judged / f"part-{id}.parquet")

    def forget_judged(self) -> None:
        """Delete the sample of an earlier batch; what the judge said stays remembered."""
        self._judged_tally.unlink(missing_ok=True)
        if self._judged.is_dir():
            shutil.rmtree(self._judged)

    def write_judged_tally(self, data: bytes) -> None:
        """Write what came of the sample."""
        _write_whole(self._judged_tally, data)

    def read_judged_tally(self) -> bytes | None:
        """Return what came of the sample; None where none was judged."""
        return self._judged_tally.read_bytes() if self._judged_tally.is_file() else None

    def sweep(self, manifest: Manifest) -> None:
        """Delete what no partition of the plan has committed: results of files that are gone or changed, parts of killed workers."""
        planned = {f"part-{partition.id}.parquet" for partition in manifest.partitions}
        for folder in (self.results, self.errors):
            for file in folder.glob("*part-*") if folder.is_dir() else ():
                if file.name not in planned or not (self.results / file.name).exists():
                    file.unlink(missing_ok=True)
        for kept in self._suites.iterdir() if self._suites.is_dir() else ():
            if kept.name not in manifest.suites:
                shutil.rmtree(kept)

    def read_footer(self, id: str) -> Footer | None:
        """Return what the committed result of a partition says of itself; None where there is none, or none that can be read."""
        try:
            told = import_arrow("pyarrow.parquet").read_metadata(self.find_result(id)).metadata or {}
            return Footer(told[_SUITE].decode(), decode_json(told[_SKETCH], Sketch))
        except (OSError, ValueError, KeyError):
            # Not there, or cut off by a disk that lied: it is evaluated again.
            return None


def make_metadata(suite: str, sketch: Sketch) -> dict[bytes, bytes]:
    """Return what a result says of itself in its footer."""
    return {_SUITE: suite.encode(), _SKETCH: msgspec.json.encode(sketch)}


def _write_whole(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    part.write_bytes(data)
    _force_to_disk(part)
    part.replace(path)


def _force_to_disk(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _lock_file(file: Any) -> None:
    """Lock a file for as long as it is open, however the process ends; raises `OSError` where another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue] - known there alone
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
