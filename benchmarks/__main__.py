"""`make bench`: every figure, held to its bound; ends with exit code 1 if one is missed."""

from __future__ import annotations

import sys

from benchmarks import (
    batch,
    cold_start,
    data_cases,
    fhir_router,
    fhir_search,
    growth,
    ingestion,
    judging,
    lists,
    live_runs,
    memory,
    page_times,
    pages,
    promptfoo,
    reading,
    throughput,
    trace_page,
    view_pages,
)


def main() -> int:
    """Measure and print."""
    missed = 0
    for part in (
        cold_start,
        throughput,
        reading,
        growth,
        live_runs,
        judging,
        ingestion,
        lists,
        memory,
        batch,
        data_cases,
        fhir_search,
        fhir_router,
        promptfoo,
        page_times,
        pages,
        trace_page,
        view_pages,
    ):
        print((part.__doc__ or "").strip())
        for figure in part.figures():
            print("  " + figure.line(), flush=True)
            missed += not figure.holds
    print("every bound holds" if not missed else f"{missed} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
