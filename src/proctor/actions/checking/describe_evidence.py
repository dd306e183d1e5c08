"""Describes a file of recorded evidence and what was understood of it: `proctor describe trace FILE`, `proctor describe evidence FILE`.

For a log it also proposes a mapping for the rest. Nothing is decided and no service is needed. OTLP traces are described by their spans;
any evidence by its reader and the known parts.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proctor.actions.start.starters import SUITE_FILE, Starter
from proctor.actions.workspace.suites import add_workspace
from proctor.errors import EvidenceError, InputError
from proctor.evidence.mapping.propose import propose_map, write_map
from proctor.evidence.mapping.read import compile_mapping
from proctor.evidence.reading import read_document
from proctor.evidence.traces.survey import MOST_NAMED, Counted, TraceSurvey, survey_trace
from proctor.evidence.unknowns.account import find_known
from proctor.evidence.values.json_bytes import decode
from proctor.formats.text.yaml_text import to_yaml
from proctor.model.account import Known
from proctor.model.case import Suite
from proctor.model.evidence import Evidence, Json, Source
from proctor.model.mapping import DeclaredEvidence, EvidenceMap
from proctor.sources.records import LINE_SUFFIXES, MAX_DOCUMENT_BYTES, TABLE_SUFFIXES, iterate_rows, read_records
from proctor.sources.texts import check_path

if TYPE_CHECKING:
    from proctor.evidence.otlp.spans import Span


MOST_RECORDS = 200
"""How many records of a file are described; the rest is counted."""


class RecordDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What was understood of one record."""

    source: Source
    known: Known | None = None
    """The known parts; None if it could not be read."""
    evidence: Evidence | None = None
    trace: TraceSurvey | None = None
    """The survey of its spans, if it is an OTLP trace."""
    error: str | None = None
    """Why it could not be read."""


class FileDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What was understood of a file."""

    file: str
    records: tuple[RecordDescription, ...]
    more: int = 0
    """How many records are not described."""
    unreadable: int = 0
    """How many of all records could not be read."""
    not_understood: tuple[Counted, ...] = ()
    """Attributes that no reader uses, over all traces that are described."""


def describe_trace(path: str, *, format: str | None = None, declared: DeclaredEvidence | None = None) -> FileDescription:
    """Return what is in a file, a folder or, for `-`, in standard input."""
    spans_by_source: dict[str, tuple[Source, list[Span]]] = {}

    def hold(source: Source, spans: list[Span]) -> None:
        spans_by_source["trace"] = (source, spans)

    described: list[RecordDescription] = []
    more = unreadable = 0
    for record in read_records([path], format=format, declared=declared, on_trace=hold):
        source, spans = spans_by_source.pop("trace", (None, None))
        unreadable += record.evidence is None
        if len(described) < MOST_RECORDS:
            evidence = record.evidence
            if evidence is None:
                error = "unreadable" if record.error is None else record.error.message
                described.append(RecordDescription(source=record.source, error=error))
                continue
            trace = survey_trace(spans) if spans and source is record.source else None
            described.append(RecordDescription(source=record.source, known=find_known(evidence), evidence=evidence, trace=trace))
        else:
            more += 1
    # Attributes that no reader uses in any trace, in the order of the traces.
    ignored: Counter[str] = Counter()
    for described_record in described:
        for entry in described_record.trace.not_understood if described_record.trace is not None else ():
            ignored[entry.name] += entry.count
    not_understood = tuple(Counted(name, count) for name, count in list(ignored.items())[:MOST_NAMED])
    return FileDescription(file=path, records=tuple(described), more=more, unreadable=unreadable, not_understood=not_understood)


SAMPLED = 200
"""Records or lines that a mapping is proposed from."""
_MAX_SAMPLE_BYTES = 16 * 1024 * 1024


_SUITE = """\
# What an agent must do, checked on what it was recorded to do. `proctor describe checks` lists what may be claimed.
proctor: 1
name: {name}
{evidence}cases:
  - id: every-run
    expect:
      - no_tool_errors
"""


class EvidenceDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from a file, and a proposed mapping if it reads more."""

    read: FileDescription
    map: EvidenceMap | None = None
    yaml: str = ""
    """The mapping as it is written in a suite, with a sample value for each path."""


def describe_evidence(path: str, *, format: str | None = None) -> EvidenceDescription:
    """Return what was read from a file, with the workspace's mapping if there is one, and what another mapping would add.

    Raises `InputError` for a file that cannot be opened.
    """
    declared = add_workspace(Suite(name="")).find_declared()
    description = describe_trace(path, format=format, declared=declared)
    records = sample_records(Path(path)) if format is None and path != "-" and Path(path).is_file() else []
    if (declared is not None and declared.map is not None) or not (needs_mapping(description) or _has_more(description)):
        return EvidenceDescription(read=description)
    proposed = propose_map(records, read_document)
    are_lines = any(record.source.line is not None for record in description.records)
    if proposed is not None and are_lines and compile_mapping(proposed).over_list:
        proposed = None  # its paths select from a list, and there is no id to join the lines of a run
    return EvidenceDescription(read=description, map=proposed, yaml="" if proposed is None else write_map(proposed, records))


def start_with_log(path: str, folder: Path) -> Starter:
    """Return the files of a first suite on a recorded log, with a mapping if it needs one. Raises `InputError` for a missing file."""
    if not Path(path).exists():
        raise InputError(f"no evidence at {path!r}: no such file or folder")
    read = describe_evidence(path)
    suite = _SUITE.format(name=to_yaml(Path(path).stem).strip(), evidence=read.yaml and f"{read.yaml}\n")
    log = Path(os.path.relpath(Path(path).resolve(), folder.resolve())).as_posix()
    remarks = () if read.yaml or not needs_mapping(read.read) else (f"no mapping is proposed for {path}: see docs/how-to/your-own-log.md",)
    return Starter(files={SUITE_FILE: suite}, next=f"proctor check {SUITE_FILE} {shlex.quote(log)}", keeps_suite=False, remarks=remarks)


def needs_mapping(read: FileDescription) -> bool:
    """Return whether a record cannot be read, or its answer or its calls are not recorded under a name that is read."""
    for record in read.records:
        if record.known is None:
            return True
        # Only plain records and the `data` of any service may have a part under another name; other formats name the field.
        states = [record.known.parts[part] for part in ("answer", "tool_calls")]
        is_free = record.known.reader in ("plain", "Mibo data body")
        if any(state.is_unknown and (is_free or "looks like tool calls" in (state.why or "")) for state in states):
            return True
    return False


def _has_more(read: FileDescription) -> bool:
    """Return whether plain records have fields that are ignored and parts that are not recorded."""
    plain_records = [record.known for record in read.records if record.known is not None and record.known.reader == "plain"]
    return any(known.ignored and any(known.parts[part].is_unknown for part in ("input", "usage")) for known in plain_records)


def sample_records(path: Path) -> list[Json]:
    """Return the first records of a file: lines of JSON, the entries of a list, or one document; none if it is not JSON."""
    check_path(path)
    if path.suffix.lower() in TABLE_SUFFIXES:
        return [values for values, _ in islice(iterate_rows(path), SAMPLED)]
    records: list[Json] = []
    try:
        with path.open("rb") as file:
            lines = file.readlines(_MAX_SAMPLE_BYTES)
        if path.suffix.lower() not in LINE_SUFFIXES and path.stat().st_size <= MAX_DOCUMENT_BYTES:
            try:
                document = decode(path.read_bytes())
                return document[:SAMPLED] if isinstance(document, list) else [document]
            except EvidenceError:
                pass  # a file of lines may have any name
        for line in [line for line in lines if not line.isspace()][:SAMPLED]:
            records.append(decode(line))
    except OSError as error:
        raise InputError(f"cannot open {str(path)!r}: {error.strerror}") from error
    except EvidenceError:
        return records
    return records
