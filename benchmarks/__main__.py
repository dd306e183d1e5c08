"""`make bench`: every figure with its bound; exits with 1 if one is missed.

`--page FILE` also writes them as a page; names of parts measure only those.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

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
    page_peers,
    page_tasks,
    page_times,
    pages,
    promptfoo,
    reading,
    throughput,
    trace_page,
    view_pages,
)
from benchmarks.page import write_page
from benchmarks.report import Figure

PARTS = {
    part.__name__.rpartition(".")[2]: part
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
        page_peers,
        page_tasks,
        trace_page,
        view_pages,
    )
}
"""Every part by its name."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all of {', '.join(PARTS)}")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the figures as a page of the docs")
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"unknown part: {', '.join(sorted(unknown))}")
    load = [os.getloadavg()[0]]
    measured: dict[str, list[Figure]] = {}
    missed = 0
    for part in [PARTS[name] for name in options.parts] or PARTS.values():
        about = (part.__doc__ or "").strip()
        print(about)
        figures = measured.setdefault(about.partition(":")[0].splitlines()[0].rstrip("."), [])
        for figure in part.figures():
            print("  " + figure.line(), flush=True)
            figures.append(figure)
            missed += not figure.holds
            # After each figure, so that an interrupted run keeps what it measured.
            if options.page is not None:
                options.page.write_text(write_page(measured, [*load, os.getloadavg()[0]], is_whole=not options.parts), encoding="utf-8")
    print("every bound holds" if not missed else f"{missed} bounds missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
