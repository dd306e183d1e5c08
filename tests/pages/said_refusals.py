"""Every sentence with which the service refuses something, as it stands in the source: `there is no {} {!r}`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import proctor

ROOMS = ("service", "pages", "rest")
"""What pages show the refusals of."""
MAKERS = ("Refusal", "Reason")
"""A refusal, and why the service is not well."""
MISSING = {"not_found": 0, "require_row": 3}
"""Who refuses what is not there, and which argument names it."""


def list_refusals() -> dict[str, str]:
    """Return each sentence, with `{}` for what is filled in (`{!r}`: in quotes), and the file that says it."""
    root = Path(proctor.__file__).parent
    found: dict[str, str] = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            for text in _list_said(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(text, str(path.relative_to(root)))
    return found


def _list_said(tree: ast.AST) -> Iterator[str]:
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            known = _list_assigned(scope)
            for node in ast.walk(scope):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
                    yield from _read_call(node, known)
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MISSING:
                    # What is not there, which another sentence names.
                    yield from _read_texts(node.args[MISSING[node.func.id]], known)


def _list_assigned(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """Return what is written into each name of a function; of a module only its constants."""
    within = scope.body if isinstance(scope, ast.Module) else list(ast.walk(scope))
    known: dict[str, list[ast.expr]] = {}
    for node in within:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    known.setdefault(target.id, []).append(node.value)
    return known


def _read_call(node: ast.Call, known: dict[str, list[ast.expr]]) -> Iterator[str]:
    said = [*node.args[1:2], *(word.value for word in node.keywords if word.arg in ("hint", "fields", "message"))]
    for expression in said:
        yield from _read_texts(expression, known)


def _write_part(part: ast.expr) -> str:
    """Return a part of a text; of what is filled in only whether it stands in quotes."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    return "{!r}" if isinstance(part, ast.FormattedValue) and part.conversion == ord("r") else "{}"


def _read_texts(node: ast.expr, known: dict[str, list[ast.expr]]) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield from [node.value] if isinstance(node.value, str) else []
    elif isinstance(node, ast.JoinedStr):
        yield "".join(map(_write_part, node.values))
    elif isinstance(node, ast.IfExp):
        yield from _read_texts(node.body, known)
        yield from _read_texts(node.orelse, known)
    elif isinstance(node, ast.Dict):
        # The names of fields are theirs.
        for value in node.values:
            yield from _read_texts(value, known)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for one in node.elts:
            yield from _read_texts(one, known)
    elif isinstance(node, ast.Name):
        for value in known.get(node.id, ()):
            if not isinstance(value, ast.Name):
                yield from _read_texts(value, known)
