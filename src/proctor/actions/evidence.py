"""Read recorded evidence for use in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from proctor.model.evidence import Evidence, Json
from proctor.model.show import show
from proctor.sources.records import read_records


def read_evidence(source: Mapping[str, Json] | Sequence[Json] | str | Path, *, format: str | None = None) -> Evidence:
    """One piece of evidence from a mapping, a list of messages, or a file.

    Raises `EvidenceError` where it cannot be read, or holds more than one run (`read_all_evidence` takes those).
    """
    found = read_all_evidence(source, format=format)
    if len(found) != 1:
        raise EvidenceError(f"expected one run, found {len(found)}; `proctor.actions.evidence.read_all_evidence` takes several")
    return found[0]


def read_all_evidence(source: Mapping[str, Json] | Sequence[Json] | str | Path, *, format: str | None = None) -> list[Evidence]:
    """Every run in a mapping, a list of messages, a file or a folder."""
    if isinstance(source, (str, Path)):
        found: list[Evidence] = []
        for record in read_records([str(source)], format=format):
            if record.evidence is None:
                assert record.error is not None
                line = f":{record.source.line}" if record.source.line is not None else ""
                raise EvidenceError(f"{record.source.file}{line}: {record.error.message}", code=record.error.code)
            found.append(record.evidence)
        return found
    if isinstance(source, bytes) or not isinstance(source, (Mapping, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not typed
        raise EvidenceError(f"expected an object, a list or the path of a file, found {type(source).__name__} {show(repr(source))}")
    return read_document(dict(source) if isinstance(source, Mapping) else list(source), format=format)
