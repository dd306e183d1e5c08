"""Coverage by package, lowest first: `make cover` prints it from the report of `coverage json`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

_MOST_FILES = 15
"""Number of the least covered files that are listed."""


def coverage_table(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> list[str]:
    """Return a line per package, then the least covered files. Lines and branches count the same."""
    covered_by: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    files: list[tuple[float, str]] = []
    for name, entry in report["files"].items():
        parts = Path(name).parts
        package = parts[parts.index("proctor") + 1].removesuffix(".py")
        summary = entry["summary"]
        covered = summary["covered_lines"] + summary["covered_branches"]
        total = summary["num_statements"] + summary["num_branches"]
        covered_by[package] += covered
        totals[package] += total
        if total:
            files.append((covered / total, "/".join(parts[parts.index("proctor") + 1 :])))
    packages = sorted((covered_by[package] / totals[package], package) for package in totals if totals[package])
    lines = [f"{share:7.1%}  {package}" for share, package in packages]
    lines += ["", "the least covered files:"]
    lines += [f"{share:7.1%}  {name}" for share, name in sorted(files)[:_MOST_FILES]]
    lines += ["", f"{sum(covered_by.values()) / sum(totals.values()):7.1%}  all lines and branches"]
    return lines


if __name__ == "__main__":
    print("\n".join(coverage_table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
