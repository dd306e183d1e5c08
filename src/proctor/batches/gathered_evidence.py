"""From the gathered spans of a trace to its evidence."""

from __future__ import annotations

from proctor.batches.span_spill import GatheredTrace
from proctor.evidence.otlp.merging import mark_lost_spans
from proctor.evidence.traces.read_otlp import read_batches
from proctor.model.evidence import Evidence


def read_gathered(trace: GatheredTrace) -> list[Evidence]:
    """Return the evidence of a trace, at most one; what it may lack is unknown. Raises `EvidenceError`."""
    found = read_batches([trace.read_spans()])
    return found if trace.lost is None else [mark_lost_spans(evidence, trace.lost) for evidence in found]
