"""The suite that is kept with a run, so that the run can be read again when its file has changed.

A suite of ordinary size is one text. Of one with more cases than that, the cases are a file of lines beside it, which the text names as its
data: it is written and read line by line.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from typing import IO

import msgspec

from proctor.checks.registry import Registry
from proctor.formats.native.rows import HELD
from proctor.formats.native.text import write_case_lines, write_native, write_native_head
from proctor.formats.suites import read_suite
from proctor.model.case import Suite
from proctor.model.lazy_cases import is_lazy
from proctor.sources.tables.open import DataFiles
from proctor.store.files.run_files import CASES, RunFolder


class KeptSuite(msgspec.Struct, frozen=True):
    """A suite as it is kept: its text, the lines of its cases where they are apart, and the digest of both."""

    text: str
    digest: str
    lines: IO[bytes] | None = None

    def iterate_lines(self) -> Iterator[bytes]:
        """Yield the lines of the cases from the first on."""
        if self.lines is not None:
            self.lines.seek(0)
            yield from self.lines

    def close(self) -> None:
        """Give back the file of the lines."""
        if self.lines is not None:
            self.lines.close()


def write_kept_suite(suite: Suite, *, apart: bool | None = None) -> KeptSuite:
    """Write a suite as a run keeps it; `apart` says whether its cases are lines of their own, left out: whether they are many."""
    if not (is_lazy(suite.cases) or len(suite.cases) > HELD if apart is None else apart):
        text = write_native(suite)
        return KeptSuite(text, hashlib.sha256(text.encode()).hexdigest())
    text = write_native_head(suite, {"from": CASES})
    digest = hashlib.sha256(text.encode())
    lines = tempfile.TemporaryFile(prefix="proctor-cases-")  # noqa: SIM115 - handed on to whoever keeps the run
    for line in write_case_lines(suite):
        digest.update(line)
        lines.write(line)
    return KeptSuite(text, digest.hexdigest(), lines)


def read_kept_suite(run: RunFolder, registry: Registry | None = None) -> Suite:
    """Return the suite that is kept with a run; `registry` knows the checks that it may name."""
    return read_suite(run.suite_text(), name=run.header.suite_name, registry=registry, source=DataFiles(run.folder))


def is_as_kept(suite: Suite, run: RunFolder) -> bool:
    """Return whether a suite says what the one says that is kept with a run."""
    if not (run.folder / CASES).exists():
        return len(suite.cases) <= HELD and write_native(suite) == run.suite_text()
    kept = write_kept_suite(suite, apart=True)
    kept.close()
    return kept.digest == run.header.suite_hash
