"""Options of a batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from proctor.actions.judging.judges import JudgeLike
from proctor.batches.judged.judging import JudgeBounds
from proctor.batches.output.output_folder import Reading
from proctor.errors import InputError
from proctor.model.mapping import DeclaredEvidence
from proctor.sources.datasets.files import find_local_path


class BatchOptions(Reading, frozen=True, kw_only=True):
    """Options of a batch."""

    output: Path | str
    """A folder of this machine, or the address of one in an object store."""
    judging: JudgeBounds | None = None
    """Limits of the judged sample, if the suite has claims in plain language."""
    resume: bool = False
    declared: DeclaredEvidence | None = None
    """How evidence is read, by the suite, the command line or the workspace."""
    partition_bytes: int | None = None
    """About how large a partition is; left out: by the size of the data set."""


class ReadingOptions(TypedDict, total=False):
    """How a data set is read, sliced and judged, for `batch`."""

    column: str | None
    """The column of Parquet files that holds the record."""
    evidence_format: str | None
    where: str | None
    by: str | Sequence[str]
    carry: Sequence[str]
    """Columns and keys of metadata that `results` has as well, as text."""
    limit: int
    """Records that are read at most, from the beginning of the data set."""
    sample: float
    """The share of records that is read, from 0 to 1: always the same ones."""
    judge: JudgeLike
    """Who judges claims in plain language; left out: as the suite, the workspace or the environment say."""
    judge_sample: int
    """About how many results are judged at most."""
    max_tokens: int
    """Tokens of the judge at most."""


def name_output(output: str | Path) -> str | Path:
    """Return the folder that a path or an address means. Raises `InputError` for a path that was an address."""
    # A path has lost one of the two strokes.
    if isinstance(output, Path) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(output)):
        raise InputError(f"{str(output)!r} was an address before it became a path; hand it over as text")
    if isinstance(output, str):
        output = find_local_path(output) or output
    return output if isinstance(output, str) and "://" in output else Path(output)
