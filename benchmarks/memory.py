"""Peak memory over a stream: a hundred times the traces must not need more."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import child_peak_bytes
from benchmarks.report import Figure
from benchmarks.traces import SUITE, write_jsonl

SMALL = 10_000
LARGE = int(os.environ.get("PROCTOR_BENCH_STREAM", "1000000"))


def figures() -> Iterator[Figure]:
    """Ratios of peak resident memory."""
    proctor = str(Path(sys.executable).with_name("proctor"))
    with tempfile.TemporaryDirectory() as folder:
        suite, small, large = Path(folder, "suite.yaml"), Path(folder, "small.jsonl"), Path(folder, "large.jsonl")
        suite.write_text(SUITE)
        write_jsonl(small, SMALL)
        write_jsonl(large, LARGE)
        for format in ("jsonl", "terminal"):
            peaks = [child_peak_bytes([proctor, "check", str(suite), str(path), "--format", format, "--quiet"]) for path in (small, large)]
            note = f"{peaks[0] / 2**20:.0f} and {peaks[1] / 2**20:.0f} MB"
            yield Figure(f"peak memory, {LARGE:,} / {SMALL:,} traces, --format {format}", peaks[1] / peaks[0], at_most=1.2, note=note)
