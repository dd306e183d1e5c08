"""Metrics in the text format of Prometheus.

Requests are counted by route template, which bounds the number of series. Queue lengths are read from the database on each scrape.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from proctor.service.hub import COUNTED, Hub
from proctor.store.runs.run_rows import MOST_COUNTED, count_queue

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts and durations of the requests of one process."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._sums: defaultdict[str, float] = defaultdict(float)
        self.in_flight = 0

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests[(method, route, status)] += 1
        counts = self._seconds.setdefault(route, [0] * (len(BOUNDS_S) + 1))
        counts[next((at for at, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))] += 1
        self._sums[route] += seconds

    def write_lines(self) -> Iterable[str]:
        """Yield the request series."""
        yield from _write_head("proctor_requests_total", "counter", "Answered requests.")
        for (method, route, status), count in sorted(self._requests.items()):
            yield f"proctor_requests_total{_write_labels(method=method, route=route, status=str(status))} {count}"
        yield from _write_head("proctor_request_seconds", "histogram", "Request duration.")
        for route, counts in sorted(self._seconds.items()):
            total = 0
            for bound, count in zip((*BOUNDS_S, "+Inf"), counts, strict=True):
                # A Prometheus bucket includes everything in the buckets below it.
                total += count
                yield f"proctor_request_seconds_bucket{_write_labels(route=route, le=str(bound))} {total}"
            yield f"proctor_request_seconds_sum{_write_labels(route=route)} {self._sums[route]:.6f}"
            yield f"proctor_request_seconds_count{_write_labels(route=route)} {total}"
        yield from _write_head("proctor_requests_in_flight", "gauge", "Requests in progress.")
        yield f"proctor_requests_in_flight {self.in_flight}"


async def write_page(hub: Hub, metrics: Metrics) -> str:
    """Return the metrics page."""
    lines = list(metrics.write_lines())
    for name, count in hub.counters.read().items():
        lines += _write_head(f"proctor_{name}_total", "counter", COUNTED[name])
        lines.append(f"proctor_{name}_total {count}")
    async with hub.database.reading() as connection:
        queue = await count_queue(connection)
    now = hub.clock()
    trace_wait, run_wait = f"{queue.measure_trace_wait(now):.3f}", f"{queue.measure_run_wait(now):.3f}"
    runs = {'{status="queued"}': queue.runs_queued, '{status="running"}': queue.runs_running}
    for name, text, values in (
        ("queue_depth", f"Traces waiting for evaluation, at most {MOST_COUNTED}.", {"": queue.traces}),
        ("queue_wait_seconds", "Age of the oldest trace that is due for evaluation.", {"": trace_wait}),
        ("runs", "Unfinished runs by status.", runs),
        ("run_wait_seconds", "Age of the oldest queued run.", {"": run_wait}),
    ):
        lines += _write_head(f"proctor_{name}", "gauge", text)
        lines += [f"proctor_{name}{labels} {value}" for labels, value in values.items()]
    return "\n".join(lines) + "\n"


def _write_head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _write_labels(**labels: str) -> str:
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, value in labels.items()}
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
