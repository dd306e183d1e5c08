"""Read recorded evidence for use in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from proctor.errors import EvidenceError
from proctor.evidence.reading import read_document
from proctor.evidence.unknowns.account import declare_complete
from proctor.formats.native.declared_evidence import build_declared
from proctor.model.account import Part
from proctor.model.evidence import Evidence, Json
from proctor.model.mapping import DeclaredEvidence, EvidenceMap
from proctor.model.show import show
from proctor.sources.records import read_records

EvidencePaths = EvidenceMap | Mapping[str, Json]
"""Where the parts of the evidence are in a record, as `evidence: {map: ...}` in a suite."""


def read_evidence(
    source: Mapping[str, Json] | Sequence[Json] | str | Path | object,
    *,
    format: str | None = None,
    mapping: EvidencePaths | None = None,
    complete: Sequence[Part] = (),
) -> Evidence:
    """One piece of evidence from a mapping, a list of messages, a file, or what an agent framework returns.

    `mapping` says where its parts are in a record of your own format, `complete` which parts are recorded completely. Raises
    `EvidenceError` where it cannot be read, or holds more than one run (`read_all_evidence` takes those).
    """
    returned = _read_framework(source) if format is None and mapping is None else None
    if returned is not None:
        return declare_complete(returned, tuple(complete), _IN_CODE) if complete else returned
    found = read_all_evidence(cast("Mapping[str, Json]", source), format=format, mapping=mapping, complete=complete)
    if len(found) != 1:
        raise EvidenceError(f"expected one run, found {len(found)}; `proctor.actions.checking.evidence.read_all_evidence` takes several")
    return found[0]


def _read_framework(source: object) -> Evidence | None:
    """Return the evidence in a result of a framework; plain data has readers of its own."""
    from proctor.targets.answers.plain_values import Unreadable
    from proctor.targets.frameworks.recognise import read_returned  # only a value that is no plain data needs it

    listed = cast("list[object]", source) if isinstance(source, list) else [source]
    if not listed or all(isinstance(item, (Mapping, str, Path, bytes, int, float, list, tuple)) or item is None for item in listed):
        return None
    try:
        return read_returned(source)
    except Unreadable as error:
        raise EvidenceError(f"{type(source).__name__} cannot be read: {error}") from None


def read_all_evidence(
    source: Mapping[str, Json] | Sequence[Json] | str | Path,
    *,
    format: str | None = None,
    mapping: EvidencePaths | None = None,
    complete: Sequence[Part] = (),
) -> list[Evidence]:
    """Every run in a mapping, a list of messages, a file or a folder."""
    declared = _declare(mapping, complete)
    if isinstance(source, (str, Path)):
        found: list[Evidence] = []
        for record in read_records([str(source)], format=format, declared=declared):
            if record.evidence is None:
                assert record.error is not None
                line = f":{record.source.line}" if record.source.line is not None else ""
                raise EvidenceError(f"{record.source.file}{line}: {record.error.message}", code=record.error.code)
            found.append(record.evidence)
        return found
    if isinstance(source, bytes) or not isinstance(source, (Mapping, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not typed
        raise EvidenceError(f"expected an object, a list or the path of a file, found {type(source).__name__} {show(repr(source))}")
    return read_declared(dict(source) if isinstance(source, Mapping) else list(source), declared, format=format)


def read_declared(document: Json, declared: DeclaredEvidence | None, *, format: str | None = None) -> list[Evidence]:
    """Every run of a decoded document, read as a suite declares it."""
    found = read_document(document, format=format, mapping=declared.map if declared is not None else None)
    if declared is None or not declared.complete:
        return found
    return [declare_complete(evidence, declared.complete, declared.source) for evidence in found]


_IN_CODE = "the call of read_evidence"


def _declare(mapping: EvidencePaths | None, complete: Sequence[Part]) -> DeclaredEvidence | None:
    if mapping is None and not complete:
        return None
    return build_declared({"map": mapping, "complete": complete}, source=_IN_CODE)
