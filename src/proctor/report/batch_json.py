"""The summary of a batch as JSON."""

from __future__ import annotations

import msgspec

from proctor.model.batch import BatchSummary


def render_batch_json(summary: BatchSummary) -> bytes:
    """Return the summary as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"
