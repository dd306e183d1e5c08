"""Which rooms the tests look at least: `make cover` prints it from the report of `coverage json`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

_MOST_FILES = 15
"""How many files are listed below the rooms: enough for one sitting."""


def coverage_table(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> list[str]:
    """Return a line per room, the least covered first, and then the least covered files. Lines and branches count alike."""
    seen: Counter[str] = Counter()
    there: Counter[str] = Counter()
    files: list[tuple[float, str]] = []
    for name, entry in report["files"].items():
        parts = Path(name).parts
        room = parts[parts.index("proctor") + 1].removesuffix(".py")
        summary = entry["summary"]
        covered = summary["covered_lines"] + summary["covered_branches"]
        total = summary["num_statements"] + summary["num_branches"]
        seen[room] += covered
        there[room] += total
        if total:
            files.append((covered / total, "/".join(parts[parts.index("proctor") + 1 :])))
    rooms = sorted((seen[room] / there[room], room) for room in there if there[room])
    lines = [f"{share:7.1%}  {room}" for share, room in rooms]
    lines += ["", "the least covered files:"]
    lines += [f"{share:7.1%}  {name}" for share, name in sorted(files)[:_MOST_FILES]]
    lines += ["", f"{sum(seen.values()) / sum(there.values()):7.1%}  all lines and branches"]
    return lines


if __name__ == "__main__":
    print("\n".join(coverage_table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))))
