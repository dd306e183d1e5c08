"""The plan of the house and its figures, written into `design/` from the code."""

from __future__ import annotations

import statistics
from pathlib import Path

from docs.source_facts import read_facts

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src/proctor"

FLOORS = {
    "errors": 0, "model": 0, "work": 0,
    "expressions": 1, "patterns": 1, "paths": 1, "matchers": 1, "codecs": 1,
    "checks": 2, "evidence": 2, "scoring": 2, "validators": 2, "simulators": 2,
    "formats": 3, "report": 3, "decide": 3,
    "expectations": 4, "llm": 4, "cassettes": 4, "sources": 4, "network": 4, "processes": 4,
    "runner": 5, "targets": 5, "store": 5, "judge": 5, "users": 5, "sandboxes": 5,
    "actions": 6, "batches": 6, "evals": 6, "service": 6,
    "cli": 7, "pytest_plugin": 7, "rest": 7, "mcp_server": 7, "pages": 7,
}  # fmt: skip
"""Which floor a room is on. A room imports from lower floors only."""

NEIGHBOURS = {
    "errors": {"model"},
    "work": {"errors"},
    "matchers": {"expressions", "patterns", "paths"},
    "paths": {"patterns"},
    "expressions": {"paths"},
    "batches": {"actions"},
    "service": {"actions"},
    "rest": {"mcp_server", "pages"},
    "cli": {"rest", "mcp_server"},
}
"""The few doors between rooms of one floor."""

WINGS = {
    "service": {
        "suites": 0,
        "decisions": 1,
        "access": 2,
        "traces": 3,
        "runs": 4,
        "verification": 4,
        "labels": 5,
        "notify": 5,
        "overview": 6,
        "upkeep": 6,
    },
    "evidence": {
        "values": 0,
        "unknowns": 1,
        "shared": 2,
        "platforms": 3,
        "otlp": 3,
        "traces": 4,
        "tables": 5,
        "plain": 5,
        "mapping": 6,
        "messages": 6,
    },
}
"""Subpackages of the large packages, lowest first."""
SHARED_ROOTS = frozenset(("service",))
"""Packages whose root modules are shared by their subpackages; elsewhere the root is above them."""

_NAMES = ("ground", "languages", "verdicts", "texts", "wires", "drivers", "actions", "doors")
MOST_FILE_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS, MOST_MEDIAN_LINES = 400, 50, 8, 120
"""What a file and a function may grow to, and the file in the middle; a house test holds them."""


def floors_table() -> str:
    """Return the rooms, floor by floor from the top, each with the sentence it says of itself."""
    lines = ["| floor | room | what it is |", "|---|---|---|"]
    for floor in range(max(FLOORS.values()), -1, -1):
        for room in sorted(name for name, at in FLOORS.items() if at == floor):
            lines.append(f"| {floor} {_NAMES[floor]} | `{room}` | {_sentence_of(SRC / room)} |")
    return "\n".join(lines)


def doors_list() -> str:
    """Return which rooms of one floor may import which."""
    return "\n".join(f"* `{room}` from {', '.join(f'`{other}`' for other in sorted(others))}" for room, others in NEIGHBOURS.items())


def wings_table() -> str:
    """Return the subpackages of each large package, lowest first."""
    lines = ["| subpackage | what it is |", "|---|---|"]
    for package, heights in WINGS.items():
        lines += [f"| `{package}.{name}` | {_sentence_of(SRC / package / name)} |" for name in sorted(heights, key=heights.__getitem__)]
    return "\n".join(lines)


def figures_table() -> str:
    """Return the figures of the source that our habits speak of, and every place that is beyond them."""
    files = {path: _count(path) for path in sorted(SRC.rglob("*.py"))}
    lengths = [function.lines for path in files for function in read_facts(path).functions]
    code, comments = (sum(getattr(read_facts(path), kind) for path in files) for kind in ("code", "comments"))
    rows = [
        # Rounded, so that not every change has to be told here.
        ("files, to the nearest ten", f"{round(len(files), -1):,}"),
        ("lines, to the nearest thousand", f"{round(sum(files.values()), -3):,}"),
        ("median lines of a file, to the nearest ten", f"{round(find_median_lines(), -1):.0f}"),
        ("median lines of a function", f"{statistics.median(lengths):.0f}"),
        ("comment lines per 100 lines of code", f"{100 * comments / code:.0f}"),
        *((name, ", ".join(places) or "none") for name, places in list_oversized().items()),
    ]
    return "\n".join(["| figure | now |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def list_oversized() -> dict[str, list[str]]:
    """Return every file and function that has outgrown its limit, by the name of the limit."""
    files = sorted(SRC.rglob("*.py"))
    functions = [(path, function) for path in files for function in read_facts(path).functions]
    return {
        f"files over {MOST_FILE_LINES} lines": [f"{_place(path)} ({_count(path)})" for path in files if _count(path) > MOST_FILE_LINES],
        f"functions over {MOST_FUNCTION_LINES} lines": [
            f"{_place(path)} {function.name} ({function.lines})" for path, function in functions if function.lines > MOST_FUNCTION_LINES
        ],
        f"functions with more than {MOST_PARAMETERS} parameters": [
            f"{_place(path)} {function.name} ({function.parameters})"
            for path, function in functions
            if function.parameters > MOST_PARAMETERS
        ],
    }


def find_median_lines() -> float:
    """Return the lines of the file in the middle."""
    return statistics.median(map(_count, SRC.rglob("*.py")))


def _count(path: Path) -> int:
    return read_facts(path).lines


def _sentence_of(place: Path) -> str:
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return " ".join(read_facts(path).docstring.split("\n\n")[0].split()).replace("|", "\\|")


def _place(path: Path) -> str:
    return f"`{path.relative_to(SRC).as_posix()}`"
