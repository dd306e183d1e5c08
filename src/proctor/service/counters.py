"""Counts what this process has done since it started. Numbers only: no names, no content."""

from __future__ import annotations

from collections import Counter

COUNTED = {
    "traces_received": "Traces that were kept, replaced ones included.",
    "spans_received": "Spans that came in over OTLP.",
    "log_records_received": "Log records about spans that came in over OTLP.",
    "traces_evaluated": "Traces that were evaluated.",
    "evaluations": "Cases that were decided on a trace.",
    "runs_finished": "Runs that came to their end here.",
    "alerts_sent": "Alerts that a webhook took.",
    "results_exported": "Results that an OpenTelemetry receiver took.",
    "results_not_exported": "Results that it refused, or did not take in time.",
    "worker_failures": "Workers that failed and were started again.",
}
"""Every counter there is, and what it counts."""


class Counters:
    """Counters by name; see `COUNTED`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count something that happened."""
        if name not in COUNTED:
            raise KeyError(name)
        self._counts[name] += count

    def read(self) -> dict[str, int]:
        """Return all counters by name."""
        return {name: self._counts[name] for name in COUNTED}
