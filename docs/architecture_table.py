"""The layers and subpackages, for `design/architecture.md` and its tests; as a program it lists long files and functions."""

from __future__ import annotations

from pathlib import Path

from docs.source_facts import read_facts

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src/proctor"

LAYERS = {
    "errors": 0, "model": 0, "work": 0,
    "expressions": 1, "patterns": 1, "paths": 1, "matchers": 1, "codecs": 1,
    "checks": 2, "evidence": 2, "scoring": 2, "validators": 2, "simulators": 2,
    "formats": 3, "report": 3, "decide": 3,
    "mutation": 4, "generation": 4, "expectations": 4, "llm": 4, "cassettes": 4, "sources": 4, "network": 4, "processes": 4,
    "runner": 5, "targets": 5, "doctor": 5, "store": 5, "judge": 5, "users": 5, "sandboxes": 5,
    "actions": 6, "batches": 6, "evals": 6, "service": 6,
    "cli": 7, "pytest_plugin": 7, "rest": 7, "mcp_server": 7, "pages": 7,
}  # fmt: skip
"""The layer of each package. A package imports from lower layers only."""

SAME_LAYER = {
    "errors": {"model"},
    "work": {"errors"},
    "matchers": {"expressions", "patterns", "paths"},
    "paths": {"patterns"},
    "expressions": {"paths"},
    "generation": {"mutation", "cassettes"},
    "mutation": {"cassettes"},
    "doctor": {"targets"},
    "batches": {"actions"},
    "service": {"actions"},
    "rest": {"mcp_server", "pages"},
    "cli": {"rest", "mcp_server"},
}
"""The few imports that are allowed within a layer."""

SUBPACKAGES = {
    "actions": [
        ["workspace"], ["doctor"], ["history", "mcplab", "start"], ["judging"], ["checking"],
        ["generating"], ["running"], ["help"], ["calibration"],
    ],
    "checks": [["shared"], ["answer", "run", "systems", "tools"], ["judged"]],
    "cli": [["show"], ["commands"]],
    "evals": [["agents"], ["grading"]],
    "evidence": [["values"], ["unknowns"], ["shared"], ["platforms", "otlp"], ["traces"], ["tables", "plain"], ["mapping", "messages"]],
    "formats": [["text"], ["native"], ["mcpjam", "mcplab", "mibo", "verial"]],
    "report": [["words"], ["blocks"], ["document"], ["builders"], ["html"], ["data"]],
    "service": [
        ["suites"], ["decisions"], ["access"], ["traces"], ["runs", "verification"], ["labels", "notify"], ["upkeep"],
    ],
    "service.verification": [["shared"], ["authoring"], ["sandboxes"], ["runs"]],
    "sources": [["tables"], ["datasets"]],
    "store": [["sql"], ["accounts", "traces"], ["runs"], ["files"]],
    "simulators": [["fhir", "voice"], ["kinds"]],
    "targets": [["shared"], ["answers", "mcp"], ["capture", "frameworks", "platforms"], ["local"]],
}  # fmt: skip
"""The subpackages of the large packages, lowest first; those in one list do not import each other."""
SHARED_ROOTS = frozenset(("checks", "cli", "service", "simulators", "sources"))
"""Packages whose root modules are used by their subpackages; elsewhere the root is above them."""
MOST_MODULES = 25
"""How many modules one folder may have."""
WIDE = frozenset(("cli/commands",))
"""Folders that may have more: they have one module per name that users know."""

_NAMES = ("values", "languages", "verdicts", "documents", "input and output", "drivers", "actions", "entry points")
LONG_FILE, LONG_FUNCTION = 600, 80
"""What `make lint` lists as long; nothing fails."""


def layers_table() -> str:
    """Return the packages from the top layer down, each with its docstring."""
    lines = ["| layer | package | contents |", "|---|---|---|"]
    for layer in range(max(LAYERS.values()), -1, -1):
        for package in sorted(name for name, at in LAYERS.items() if at == layer):
            lines.append(f"| {layer} {_NAMES[layer]} | `{package}` | {_sentence_of(SRC / package)} |")
    return "\n".join(lines)


def same_layer_list() -> str:
    """Return the imports that are allowed within a layer."""
    return "\n".join(f"* `{package}` from {', '.join(f'`{other}`' for other in sorted(others))}" for package, others in SAME_LAYER.items())


def subpackages_table() -> str:
    """Return the subpackages of each large package, lowest first."""
    lines = ["| subpackage | contents |", "|---|---|"]
    for package, levels in SUBPACKAGES.items():
        folder = SRC / package.replace(".", "/")
        lines += [f"| `{package}.{name}` | {_sentence_of(folder / name)} |" for level in levels for name in level]
    return "\n".join(lines)


def list_long() -> list[str]:
    """Return every long file and function."""
    files = sorted(SRC.rglob("*.py"))
    found = [f"{_place(path)}: {read_facts(path).lines} lines" for path in files if read_facts(path).lines > LONG_FILE]
    for path in files:
        found += [f"{_place(path)} {one.name}: {one.lines} lines" for one in read_facts(path).functions if one.lines > LONG_FUNCTION]
    return found


def _sentence_of(place: Path) -> str:
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return " ".join(read_facts(path).docstring.split("\n\n")[0].split()).replace("|", "\\|")


def _place(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


if __name__ == "__main__":
    print("\n".join(list_long()))
