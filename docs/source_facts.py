"""What tables and architecture tests read of a source file, found in one reading of it: to parse the whole tree takes seconds each time."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """One module that is imported, wherever the import stands; `names` are those taken from it."""

    line: int
    module: str
    names: tuple[str, ...] = ()


class Call(NamedTuple):
    """A call of something by its bare name."""

    line: int
    name: str


class Function(NamedTuple):
    """A function or method, also a nested one."""

    name: str
    lines: int
    parameters: int


class Facts(NamedTuple):
    """What is known of one file."""

    lines: int
    docstring: str
    imports: tuple[Import, ...]
    calls: tuple[Call, ...]
    functions: tuple[Function, ...]
    code: int
    """Lines with code; what a docstring says is none."""
    comments: int
    """Lines that are a comment alone."""


@functools.cache
def read_facts(path: Path) -> Facts:
    """Return what is known of a file. The tree itself is not kept: all of them together are hundreds of megabytes."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    imports: list[Import] = []
    calls: list[Call] = []
    functions: list[Function] = []
    said: set[int] = set()
    texts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [Import(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                imports.append(Import(node.lineno, node.module, tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                calls.append(Call(node.lineno, node.func.id))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append(Function(node.name, _count_lines(node), _count_parameters(node)))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, (ast.Constant, ast.JoinedStr)):
            texts.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    code, comments = _find_code_and_comments(text, texts)
    return Facts(
        lines=len(text.splitlines()),
        docstring=ast.get_docstring(tree) or "",
        imports=tuple(imports),
        calls=tuple(calls),
        functions=tuple(functions),
        code=len(code - said),
        comments=len(comments - said),
    )


def _find_code_and_comments(text: str, texts: set[int]) -> tuple[set[int], set[int]]:
    """Return the lines with code, also what stands in docstrings, and those that are a comment alone.

    `texts` are lines on which a text goes on that began before. What looks like a comment there may be part of the text or stand between
    two parts of it: only the tokens tell, and to look at them takes ten times as long.
    """
    lines = {number: line.strip() for number, line in enumerate(text.splitlines(), 1)}
    comments = {number for number, line in lines.items() if line.startswith("#")}
    if comments & texts:
        return _find_by_tokens(text)
    return {number for number, line in lines.items() if line} - comments | texts, comments


def _find_by_tokens(text: str) -> tuple[set[int], set[int]]:
    code: set[int] = set()
    comments: set[int] = set()
    skipped = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in skipped:
            code.update(range(token.start[0], token.end[0] + 1))
    return code, comments - code


def _count_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _count_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])
