"""The plan of the house and its figures, written into `design/` from the code."""

from __future__ import annotations

import ast
import io
import statistics
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src/proctor"

FLOORS = {
    "errors": 0, "model": 0, "work": 0,
    "expressions": 1, "patterns": 1, "paths": 1, "matchers": 1, "codecs": 1,
    "checks": 2, "evidence": 2, "scoring": 2, "validators": 2,
    "formats": 3, "report": 3, "expectations": 3, "decide": 3,
    "llm": 4, "cassettes": 4, "sources": 4, "network": 4, "processes": 4,
    "runner": 5, "targets": 5, "store": 5, "judge": 5,
    "actions": 6, "evals": 6, "service": 6,
    "cli": 7, "pytest_plugin": 7, "rest": 7, "mcp_server": 7,
}  # fmt: skip
"""Which floor a room is on. A room imports from lower floors only."""

NEIGHBOURS = {
    "errors": {"model"},
    "work": {"errors"},
    "matchers": {"expressions", "patterns", "paths"},
    "paths": {"patterns"},
    "expressions": {"paths"},
    "service": {"actions"},
    "rest": {"mcp_server"},
    "cli": {"rest", "mcp_server"},
}
"""The few doors between rooms of one floor."""

WINGS = {"suites": 0, "decisions": 1, "access": 2, "traces": 3, "runs": 3, "verification": 3, "notify": 4, "upkeep": 5}
"""Wings of the service, lowest first. What lies beside them at its root is shared by all."""

_NAMES = ("ground", "languages", "verdicts", "texts", "wires", "drivers", "actions", "doors")
MOST_FILE_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 400, 50, 8
"""What a file and a function may grow to before somebody has to say why."""


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
    """Return the wings of the service, lowest first."""
    lines = ["| wing | what it is |", "|---|---|"]
    lines += [f"| `{wing}` | {_sentence_of(SRC / 'service' / wing)} |" for wing in sorted(WINGS, key=lambda name: WINGS[name])]
    return "\n".join(lines)


def figures_table() -> str:
    """Return the figures of the source that our habits speak of, and every place that is beyond them."""
    files = {path: _count(path) for path in sorted(SRC.rglob("*.py"))}
    functions = [(path, node) for path in files for node in _functions(path)]
    lengths = [_length(node) for _, node in functions]
    code, comments = map(sum, zip(*(_code_and_comments(path) for path in files), strict=True))
    rows = [
        # Rounded, so that not every change has to be told here.
        ("files, to the nearest ten", f"{round(len(files), -1):,}"),
        ("lines, to the nearest thousand", f"{round(sum(files.values()), -3):,}"),
        ("median lines of a file", f"{statistics.median(files.values()):.0f}"),
        ("median lines of a function", f"{statistics.median(lengths):.0f}"),
        ("comment lines per 100 lines of code", f"{100 * comments / code:.0f}"),
        (
            f"files over {MOST_FILE_LINES} lines",
            _listed(f"{_place(path)} ({count})" for path, count in files.items() if count > MOST_FILE_LINES),
        ),
        (
            f"functions over {MOST_FUNCTION_LINES} lines",
            _listed(f"{_place(path)} {node.name} ({_length(node)})" for path, node in functions if _length(node) > MOST_FUNCTION_LINES),
        ),
        (
            f"functions with more than {MOST_PARAMETERS} parameters",
            _listed(f"{_place(path)} {node.name} ({_parameters(node)})" for path, node in functions if _parameters(node) > MOST_PARAMETERS),
        ),
    ]
    return "\n".join(["| figure | now |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _sentence_of(place: Path) -> str:
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def _code_and_comments(path: Path) -> tuple[int, int]:
    """Count the lines with code and the lines that are a comment alone; what a docstring says is neither."""
    code: set[int] = set()
    comments: set[int] = set()
    text = path.read_text(encoding="utf-8")
    said = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    skipped = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in skipped:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - said), len(comments - code)


def _place(path: Path) -> str:
    return f"`{path.relative_to(SRC).as_posix()}`"


def _listed(found: Iterator[str]) -> str:
    return ", ".join(found) or "none"
