"""The table of frameworks: which parts of a run their traces carry, written from the recordings under `tests/evidence/frameworks`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from proctor.evidence.otlp.spans import Span
from proctor.evidence.traces.read_otlp import read_batches, read_request
from proctor.evidence.unknowns.account import find_part_states
from proctor.model.account import Part
from proctor.model.evidence import Evidence

RECORDINGS = Path(__file__).parent.parent / "tests" / "evidence" / "frameworks"
_COLUMNS: tuple[tuple[str, Part], ...] = (
    ("calls", "tool_calls"),
    ("arguments", "tool_arguments"),
    ("results", "tool_results"),
    ("answer", "answer"),
    ("input", "input"),
    ("tokens", "usage"),
)
_SIGNS = {"recorded": "✓", "none": "none", "unknown": "–"}


def table() -> str:
    """One row for each combination of framework and instrumentation: versions, and which parts of a run with two tool calls are known."""
    rows = [
        "| framework | instrumentation | versions | " + " | ".join(title for title, _ in _COLUMNS) + " |",
        "|" + "---|" * (3 + len(_COLUMNS)),
    ]
    for name, entry in sorted(_truths().items(), key=lambda item: (item[1]["framework"].lower(), item[1]["instrumentation"].lower())):
        evidence = _sequential(name, entry)
        if evidence is not None:
            states = find_part_states(evidence)
            versions = ", ".join(f"{package} {version}" for package, version in entry["versions"].items())
            signs = " | ".join(_SIGNS[states[part].status] for _, part in _COLUMNS)
            rows.append(f"| {_cell(entry['framework'])} | {_cell(entry['instrumentation'])} | {_cell(versions)} | {signs} |")
    return "\n".join(rows)


def _truths() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for file in ("truth.json", "truth-js.json"):
        found.update(msgspec.json.decode((RECORDINGS / file).read_bytes()))
    return found


def _sequential(name: str, entry: dict[str, Any]) -> Evidence | None:
    """The evidence of the run with two calls one after the other."""
    wanted = next((trace for trace, truth in entry["traces"].items() if truth["scenario"] == "sequential"), None)
    spans: list[Span] = []
    for request in msgspec.json.decode((RECORDINGS / f"{name}.json").read_bytes()):
        spans.extend(span for span in read_request(request) if span.trace_id == wanted)
    return read_batches([spans])[0] if spans else None


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
