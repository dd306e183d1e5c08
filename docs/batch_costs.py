"""The table of what large batches cost: figures that were measured for one core, and what follows from them on paper.

`python -m benchmarks.batch` ends with the line `MEASURED = ...`; put it here and run `make docs`.
"""

from __future__ import annotations

from typing import NamedTuple


class Measured(NamedTuple):
    """The figures of one run of the benchmark."""

    traces: int
    """Of six tool calls, with three checks."""
    per_second: float
    """Traces that one process decided in a second, starting and planning included."""
    two_to_one: float | None
    """How many times as many two processes decided; nothing where the machine had no second core to spare."""
    read_bytes: float
    """Bytes of Parquet that were read for a trace."""
    written_bytes: float
    """Bytes of results that were written for a trace."""
    peak_mb: float
    """Of the largest process."""


MEASURED = Measured(traces=1000000, per_second=47734, two_to_one=1.94, read_bytes=127, written_bytes=4, peak_mb=153)
KINDS = (
    ("1 kB, six calls, nearly all pass", 972, 32),
    ("1 kB, six calls, all fail", 929, 61),
    ("10 kB, nested results of tools", 9_729, 74),
    ("100 kB, long texts as results", 109_623, 474),
    ("a table of spans, eight rows for a trace", 2_300, 1_340),
)
"""Traces, their bytes as JSON, and microseconds of one core for each with two or three checks; measured as CPU time on a busy machine."""
CORES = (1, 10, 100, 1_000)
BILLION = 1_000_000_000


def costs_table() -> str:
    """Return the rows for a billion traces by cores."""
    rows = [
        "| cores | traces a second | a billion traces | read at once from storage |",
        "|---|---|---|---|",
    ]
    for cores in CORES:
        rate = MEASURED.per_second * cores
        how = "measured, for one process" if cores == 1 else "on paper"
        rows.append(f"| {cores:,} ({how}) | {_round(rate):,} | {_write_time(BILLION / rate)} | {_write_rate(rate * MEASURED.read_bytes)} |")
    return "\n".join(rows)


def kinds_table() -> str:
    """Return the rows for traces of several kinds, by bytes."""
    rows = ["| traces | core time for each | JSON a second of one core | 100 TB of such JSON |", "|---|---|---|---|"]
    for kind, size, microseconds in KINDS:
        hours = 100e12 / size * microseconds / 1e6 / 3600
        rows.append(f"| {kind} | {microseconds:,} µs | {_write_rate(size / microseconds * 1e6)} | {_round(hours):,} core-hours |")
    return "\n".join(rows)


def measured_line() -> str:
    """Return what was measured, in a sentence."""
    measured = MEASURED
    hours = BILLION / measured.per_second / 3600
    second = (
        "what a second process adds was not measured, as others were at work"
        if measured.two_to_one is None
        else (f"{measured.two_to_one:.2f} times as many by two")
    )
    return (
        f"Measured over {measured.traces:,} traces of six tool calls with three checks, in Parquet, on a machine with two cores: "
        f"{_round(measured.per_second):,} traces a second by one process; {second}. {measured.read_bytes:.0f} bytes were read and "
        f"{measured.written_bytes:.0f} written for a trace, and a process had {measured.peak_mb:.0f} MB at its peak. "
        f"A billion of them are {hours:.0f} hours of one core."
    )


def _round(value: float) -> int:
    """Return a figure with two digits that count: more would promise too much."""
    digits = max(0, len(str(int(value))) - 2)
    return int(round(value, -digits))


def _write_time(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours >= 1 else f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def _write_rate(bytes_a_second: float) -> str:
    megabytes = bytes_a_second / 1e6
    return f"{megabytes / 1000:.1f} GB/s" if megabytes >= 1000 else f"{_round(max(1.0, megabytes)):,} MB/s"
