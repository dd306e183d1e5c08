"""What was read of a log and what is unknown, with a mapping for what is not recognised: `proctor describe evidence FILE`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec

from proctor.actions.checking.describe_trace import FileDescription, describe_trace
from proctor.actions.start.starters import SUITE_FILE, Starter
from proctor.actions.workspace.suites import add_workspace
from proctor.errors import EvidenceError, InputError
from proctor.evidence.mapping.propose import propose_map, write_map
from proctor.evidence.reading import read_document
from proctor.evidence.values.json_bytes import decode
from proctor.formats.text.yaml_text import to_yaml
from proctor.model.case import Suite
from proctor.model.evidence import Json
from proctor.model.mapping import EvidenceMap
from proctor.sources.records import LINE_SUFFIXES, MAX_DOCUMENT_BYTES
from proctor.sources.texts import check_path

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
    """What was read of a file, and a proposed mapping if that reads more."""

    read: FileDescription
    map: EvidenceMap | None = None
    yaml: str = ""
    """The mapping as it is written in a suite, with a sample value for each path."""


def describe_evidence(path: str, *, format: str | None = None) -> EvidenceDescription:
    """Return what was read of a file, by the mapping of the workspace if it has one, and what another mapping would add.

    Raises `InputError` for a file that cannot be opened.
    """
    declared = add_workspace(Suite(name="")).find_declared()
    read = describe_trace(path, format=format, declared=declared)
    records = sample_records(Path(path)) if format is None and path != "-" and Path(path).is_file() else []
    if (declared is not None and declared.map is not None) or not (needs_mapping(read) or _has_more(read)):
        return EvidenceDescription(read=read)
    found = propose_map(records, read_document)
    return EvidenceDescription(read=read, map=found, yaml="" if found is None else write_map(found, records))


def start_with_log(path: str, folder: Path) -> Starter:
    """Return the files of a first suite on a recorded log, with a mapping if it needs one. Raises `InputError` for a missing file."""
    if not Path(path).exists():
        raise InputError(f"no evidence at {path!r}: no such file or folder")
    found = describe_evidence(path)
    suite = _SUITE.format(name=to_yaml(Path(path).stem).strip(), evidence=found.yaml and f"{found.yaml}\n")
    there = Path(os.path.relpath(Path(path).resolve(), folder.resolve())).as_posix()
    remarks = (
        () if found.yaml or not needs_mapping(found.read) else (f"no mapping is proposed for {path}: see docs/how-to/your-own-log.md",)
    )
    return Starter(files={SUITE_FILE: suite}, next=f"proctor check {SUITE_FILE} {shlex.quote(there)}", keeps_suite=False, remarks=remarks)


def needs_mapping(read: FileDescription) -> bool:
    """Return whether a record cannot be read, or its answer or its calls are not recorded under a name that is read."""
    for record in read.records:
        if record.known is None:
            return True
        # What a known format does not record is not there; only records in no known format have it elsewhere.
        states = [record.known.parts[part] for part in ("answer", "tool_calls")]
        if record.known.reader == "plain" and any(state.is_unknown for state in states):
            return True
    return False


def _has_more(read: FileDescription) -> bool:
    """Return whether plain records have fields that are ignored and parts that are not recorded."""
    plain = [record.known for record in read.records if record.known is not None and record.known.reader == "plain"]
    return any(known.ignored and any(known.parts[part].is_unknown for part in ("input", "usage")) for known in plain)


def sample_records(path: Path) -> list[Json]:
    """Return the first records of a file: lines of JSON, the entries of a list, or one document; none if it is not JSON."""
    check_path(path)
    found: list[Json] = []
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
            found.append(decode(line))
    except OSError as error:
        raise InputError(f"cannot open {str(path)!r}: {error.strerror}") from error
    except EvidenceError:
        return found
    return found
