"""Reads `results.json` next to an MCPLab trace: it has the complete text of answers that the trace has cut."""

from __future__ import annotations

from pathlib import Path

from proctor.errors import EvidenceError
from proctor.evidence.platforms.mcplab import add_results, is_results
from proctor.evidence.values.json_bytes import decode
from proctor.model.evidence import Evidence, Json

RESULTS_FILE = "results.json"
TRACE_FILE = "trace.jsonl"


class TraceResults:
    """The results next to one trace, read when they are first needed."""

    def __init__(self, trace: Path, most_bytes: int) -> None:
        self._path = trace.with_name(RESULTS_FILE)
        self._most_bytes = most_bytes
        self._document: Json = None
        self._read = False

    def complete(self, evidence: Evidence) -> Evidence:
        """Return the evidence with its complete answer from the results; calls are unknown if the results name another one."""
        if not self._read:
            # Before the file is read: one that is absent or something else is not tried again for every line of the trace.
            self._read = True
            self._document = _read_results(self._path, self._most_bytes)
        if self._document is None:
            return evidence
        return add_results(evidence, self._document)


def is_trace_results(path: Path, most_bytes: int) -> bool:
    """Return whether a file is the `results.json` of an MCPLab run: not evidence itself, but read with the trace next to it."""
    return path.name == RESULTS_FILE and path.with_name(TRACE_FILE).is_file() and _read_results(path, most_bytes) is not None


def _read_results(path: Path, most_bytes: int) -> Json:
    """Return the results, or None where they are absent or something else: then what the trace has cut stays unknown."""
    try:
        if path.stat().st_size > most_bytes:
            return None
        document = decode(path.read_bytes())
    except (OSError, EvidenceError):
        return None
    return document if is_results(document) else None
