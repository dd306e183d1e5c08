"""Finds uses of private names (with a leading underscore) of other packages in our source."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

DOCUMENTED = frozenset({"_exit", "_replace", "_asdict", "_fields", "_missing_"})
"""Begin with an underscore, and are promised by the documentation of Python."""

PLAIN = frozenset({"abc", "collections", "enum", "msgspec", "typing"})
"""Packages whose classes are bases of most of ours. Their private names are reached by none of them; looking would cost a minute."""

_LOOKED_AT = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.AnnAssign, ast.Assign),
    *(ast.Import, ast.ImportFrom, ast.Attribute, ast.Call),
)

Use = tuple[str, str]
"""The file under `src/proctor`, and the part as it is written there."""


def private_uses(source: Path) -> set[Use]:
    """Every use in the files below a folder."""
    found: set[Use] = set()
    for path in sorted(source.rglob("*.py")):
        file = str(path.relative_to(source))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, _LOOKED_AT)]
        found |= {(file, part) for part in (*_imported(nodes), *_accessed(nodes, set(_defined(nodes))))}
        module = ".".join(("proctor", *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")
        found |= {(file, part) for part in _inherited(tree, module)}
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in DOCUMENTED


def _defined(nodes: list[ast.AST]) -> Iterator[str]:
    """Private names that the file defines itself: with us, private means private to the file."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, (ast.Name, ast.Attribute)):
            yield node.target.id if isinstance(node.target, ast.Name) else node.target.attr
        elif isinstance(node, ast.Assign):
            yield from (name for target in node.targets for name in _targets(target))


def _targets(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple):
        for each in target.elts:
            yield from _targets(each)
    elif isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield target.attr


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if any(map(_is_private, alias.name.split("."))))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] != "proctor":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in names if any(map(_is_private, name.split("."))))


def _accessed(nodes: list[ast.AST], ours: set[str]) -> Iterator[str]:
    """Private attributes of objects other than `self` that our source does not define, also named in a text."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in ours:
            owner = node.value.id if isinstance(node.value, ast.Name) else "?"
            if owner not in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr", "hasattr"):
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and _is_private(name.value) and name.value not in ours:
                yield name.value


def _inherited(tree: ast.Module, module: str) -> Iterator[str]:
    """Private names of a class that one of ours builds on, used or overridden by ours."""
    foreign = set(_foreign_names(tree))
    for node in tree.body:
        bases = {name.id for base in getattr(node, "bases", ()) for name in ast.walk(base) if isinstance(name, ast.Name)}
        if isinstance(node, ast.ClassDef) and bases & foreign:
            mine = set(_own_names(node))
            if not mine:
                continue
            found = getattr(importlib.import_module(module), node.name)
            for base in found.__mro__[1:]:
                if base.__module__.split(".")[0] not in ("proctor", "builtins", "abc", "typing"):
                    yield from (f"{base.__name__}.{name}" for name in mine & _names_of(base))


def _foreign_names(tree: ast.Module) -> Iterator[str]:
    """Names that stand for something of another package, but for those that have nothing private to build on."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names if alias.name not in PLAIN)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] not in ("proctor", *PLAIN):
            yield from (alias.asname or alias.name for alias in node.names)


def _own_names(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self" and _is_private(inner.attr):
            yield inner.attr
        elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and _is_private(inner.name):
            yield inner.name


def _names_of(base: type) -> set[str]:
    """Private names that a class defines or its methods use."""
    methods = [value for value in vars(base).values() if isinstance(value, FunctionType)]
    methods += [value.fget for value in vars(base).values() if isinstance(value, property) and isinstance(value.fget, FunctionType)]
    return {name for name in (*vars(base), *(name for method in methods for name in method.__code__.co_names)) if _is_private(name)}
