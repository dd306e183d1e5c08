"""Modules that mypyc cannot compile, or compiles incorrectly, are not in the native wheel (`design/native.md`)."""

from __future__ import annotations

import ast
from pathlib import Path

import native_build
import pytest

PACKAGE = Path(__file__).parents[2] / "src/proctor"
MODULES = native_build.list_modules(PACKAGE)
each_module = pytest.mark.parametrize("file", MODULES, ids=[str(file.relative_to(PACKAGE)) for file in MODULES])


def test_every_name_of_an_interpreted_module_is_a_file_among_compiled_ones() -> None:
    assert [name for name in native_build.INTERPRETED if not (PACKAGE / name).is_file()] == []
    assert len(MODULES) > 20


@each_module
def test_a_compiled_module_defines_no_struct(file: Path) -> None:
    classes = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    with_options = [node.name for node in classes if node.keywords or any("Struct" in ast.unparse(base) for base in node.bases)]
    assert with_options == [], "mypyc ignores class options and changes annotations: add the module to `native_build.INTERPRETED`"


@each_module
def test_a_compiled_module_has_no_expression_that_mypyc_rejects(file: Path) -> None:
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and any(isinstance(operator, (ast.In, ast.NotIn)) for operator in node.ops):
            literals = [right for right in node.comparators if isinstance(right, (ast.Tuple, ast.Set, ast.List))]
            found += [ast.unparse(node) for right in literals if any(isinstance(entry, ast.Starred) for entry in right.elts)]
        # A frozenset and the keys of a dictionary give a set, though the types say a frozenset.
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.left, ast.Name)
            and node.left.id.isupper()
            and ".keys()" in ast.unparse(node.right)
        ):
            found.append(ast.unparse(node))
    assert found == []


@each_module
def test_the_defaults_of_a_compiled_class_are_literals(file: Path) -> None:
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and not node.decorator_list and not any("NamedTuple" in ast.unparse(base) for base in node.bases):
            values = [line.value for line in node.body if isinstance(line, (ast.Assign, ast.AnnAssign)) and line.value is not None]
            found += [f"{node.name}: {ast.unparse(value)}" for value in values if isinstance(value, ast.Name)]
    assert found == [], "set it in `__init__`"
